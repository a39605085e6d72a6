"""Looking ahead: which of the known work can be on time together, what starts now, and what has to make room for it.

Each shape of worker has lanes, one for each worker of that shape that fits. Work is put on lanes in the order of its rank, earliest
deadline first, where it is on time at the least cost. Work that would be late takes the place of the longest planned work that
is longer than itself: that is Moore's rule for one machine (Moore 1968, "An n job, one machine sequencing algorithm for minimizing
the number of late jobs"), used lane by lane. Each of the two would cost one late job, and the longer one frees more.

Work that has a place already (a tenure) stands at the head of its lane. It is asked to leave only for work that is on time no
other way, and only when it will be on time itself afterwards, or is late in any case; what it has done is kept. So each eviction
adds a job that is on time and takes none away, and since jobs are finite, evictions come to an end. Where estimates are wrong, a
budget for each job bounds them.

A plan is advice about time: room is counted again when a place is taken, so lanes may promise more than nodes hold. Times are
seconds from now, in floats, for ten thousand works are planned in every pass.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from inference_operator.scheduling.types import Host
from inference_operator.state.objects import Key

# How many of the longest planned works, or of the tenures, are looked at, for one in whose place the new one is on time.
_TRIES = 4


@dataclass(slots=True, eq=False)
class Held:
    """Work that has a place: what it still needs there, and its slack (due less what it needs).

    `leaving` is how long it keeps the place once told to go, `resuming` what going on later costs it.
    """

    key: Key
    remaining: float
    slack: float = inf
    band: int = 0
    movable: bool = False
    leaving: float = 0.0
    resuming: float = 0.0
    evicted_for: "Work | None" = None

    @property
    def returning(self) -> float:
        """For how long it has the place again behind the work that it left for; what is late anyway joins the end of the queue."""
        return self.resuming + self.remaining if self.slack >= 0 else 0.0


@dataclass(slots=True, eq=False)
class Lane:
    """One worker's time. `free` is when all that is on it will be done; `version` counts how often that has moved."""

    tenure: Held | None = None
    free: float = 0.0
    works: list["Work"] = field(default_factory=list)
    number: int = 0
    version: int = 0
    # The warm worker whose time this is, for a lane that is one.
    host: Host | None = None
    # When the place will be there, for one that is kept for work which needs the room of several tenures.
    opens: float = 0.0


class Lanes:
    """All lanes of one shape, indexed lazily: an entry that has become wrong is dropped when it comes up.

    `openings` more lanes are free now; each is made when somebody is to be put on it.
    """

    def __init__(self, lanes: Iterable[Lane], openings: int = 0) -> None:
        self.lanes: list[Lane] = []
        self._by_free: list[tuple[float, int, int]] = []
        for lane in lanes:
            self.add(lane)
        # Whether these are warm workers.
        self.hosted = any(lane.host is not None for lane in self.lanes)
        self._openings = openings
        # The lane that was opened last, as long as nobody is on it: it is in no order yet.
        self._opened: Lane | None = None
        # What was planned since the last look stands aside: mostly nobody has to be displaced, and the order is not asked for.
        self._by_length: list[tuple[float, int, Work]] = []
        self._planned: list[tuple[float, int, Work]] = []
        # Low priority first, then the most slack.
        tenured = [(lane.tenure, lane.number) for lane in self.lanes if lane.tenure is not None and lane.tenure.movable]
        self._by_slack = [(-tenure.band, -tenure.slack, number) for tenure, number in tenured]
        heapq.heapify(self._by_slack)

    def add(self, lane: Lane) -> None:
        """One more."""
        lane.number = len(self.lanes)
        self.lanes.append(lane)
        heapq.heappush(self._by_free, (lane.free, lane.number, lane.version))

    def earliest(self) -> Lane | None:
        """The lane that is free first; None when there is none."""
        heap = self._by_free
        while heap:
            free, number, version = heap[0]
            lane = self.lanes[number]
            if lane.version != version:
                heapq.heappop(heap)
            elif free > 0 and self._openings:
                break
            else:
                return lane
        if self._opened is None and self._openings:
            self._opened = Lane(number=len(self.lanes))
        return self._opened

    def moved(self, lane: Lane) -> None:
        """Index a lane anew whose end has moved."""
        heap = self._by_free
        if lane is self._opened:
            self.lanes.append(lane)
            self._opened = None
            self._openings -= 1
            heapq.heappush(heap, (lane.free, lane.number, lane.version))
            return
        lane.version += 1
        entry = (lane.free, lane.number, lane.version)
        # Mostly it is the one that was free first: its old entry goes at once.
        if heap and heap[0][1] == lane.number:
            heapq.heapreplace(heap, entry)
        else:
            heapq.heappush(heap, entry)

    def planned(self, work: "Work", seconds: float) -> None:
        """Index a work that may be displaced."""
        self._planned.append((-seconds, work.number, work))

    def longest(self, band: int, seconds: float, due: float) -> "Work | None":
        """The longest planned work of a band that is longer than `seconds`, and whose place in time is early enough."""
        for planned in self._planned:
            heapq.heappush(self._by_length, planned)
        self._planned.clear()
        heap = self._by_length
        seen: list[tuple[float, int, Work]] = []
        found = None
        while heap and len(seen) < _TRIES and -heap[0][0] > seconds:
            entry = heapq.heappop(heap)
            length, work = -entry[0], entry[2]
            if work.choice is None or work.lane is None or work.choice.lanes is not self:
                continue
            seen.append(entry)
            if work.band == band and work.lane.free - length + seconds <= due:
                found = work
                break
        for entry in seen:
            heapq.heappush(heap, entry)
        return found

    def easiest(self, band: int) -> list[tuple[Lane, Held]]:
        """Lanes whose tenures may leave for a work of this band: a few, low priority and much slack first."""
        heap = self._by_slack
        seen: list[tuple[int, float, int]] = []
        found: list[tuple[Lane, Held]] = []
        while heap and len(seen) < _TRIES and -heap[0][0] >= band:
            entry = heapq.heappop(heap)
            lane = self.lanes[entry[2]]
            if lane.tenure is not None and lane.tenure.evicted_for is None and not lane.works:
                seen.append(entry)
                found.append((lane, lane.tenure))
        for entry in seen:
            heapq.heappush(heap, entry)
        return found


@dataclass(slots=True, eq=False)
class Choice:
    """One way to do a work: how long it takes, and what it costs, in seconds of the cost function.

    `sure` is False where nothing measured stands behind `seconds`: mere assumptions make nobody late.
    """

    lanes: Lanes
    seconds: float
    cost: float
    sure: bool = True
    number: int = 0


@dataclass(slots=True, eq=False)
class Work:
    """One worker wanted, due in `due` seconds. What `holds` its place has no end (a service).

    The plan is `lane`, `choice` and `start`; without a lane the work is late as things stand.
    """

    key: Key
    due: float
    band: int
    choices: Sequence[Choice]
    holds: bool = False
    # What a second of waiting costs, in seconds of the cost function.
    haste: float = 1.0
    lane: Lane | None = None
    choice: Choice | None = None
    start: float = inf
    # The rank, which `look_ahead` sets.
    number: int = 0


def look_ahead(works: Sequence[Work], lanes: Iterable[Lanes]) -> None:
    """Plan works, given in the order of their rank."""
    for number, work in enumerate(works):
        work.number = number
        # Who finds nothing has still displaced nobody, and may yet profit from what others leave.
        _ = _settle(work) or _displace(work) or _evict(work)
    left = [work for work in works if work.lane is None and work.choices]
    for work in sorted(left, key=lambda w: (w.band, min(c.seconds for c in w.choices), w.number)):
        _ = _settle(work) or _evict(work)
    for each in lanes:
        for lane in each.lanes:
            if lane.works:
                _date(lane)


def _settle(work: Work) -> bool:
    """Put a work behind what is planned, where it is on time at the least cost."""
    best: tuple[float, float] | None = None
    place: tuple[Choice, Lane] | None = None
    for choice in work.choices:
        lane = choice.lanes.earliest()
        if lane is None or lane.free == inf:
            continue
        if choice.sure and lane.free + choice.seconds > work.due:
            continue
        rank = (choice.cost + work.haste * lane.free, lane.free)
        if best is None or rank < best:
            best, place = rank, (choice, lane)
    if place is None:
        return False
    _put(work, *place)
    return True


def _put(work: Work, choice: Choice, lane: Lane) -> None:
    work.lane, work.choice = lane, choice
    lane.works.append(work)
    lane.free = inf if work.holds else lane.free + choice.seconds
    choice.lanes.moved(lane)
    if not work.holds:
        choice.lanes.planned(work, choice.seconds)


def _displace(work: Work) -> bool:
    """Take the place of the longest work that may be displaced; it is put elsewhere if it is on time there."""
    if work.due == inf:
        return False
    best: tuple[float, Choice, Work] | None = None
    for choice in work.choices:
        other = choice.lanes.longest(work.band, choice.seconds, work.due)
        if other is not None and other.choice is not None:
            gain = other.choice.seconds - choice.seconds
            if best is None or gain > best[0]:
                best = (gain, choice, other)
    if best is None:
        return False
    _, choice, other = best
    lane, given_up = other.lane, other.choice
    assert lane is not None and given_up is not None
    lane.works.remove(other)
    lane.free -= given_up.seconds
    other.lane = other.choice = None
    _put(work, choice, lane)
    _settle(other)
    return True


def _evict(work: Work) -> bool:
    """Ask the tenure with the most slack to leave, where that puts this work on time and keeps the tenure so."""
    if work.due == inf:
        return False
    for choice in sorted(work.choices, key=lambda c: c.cost):
        for lane, tenure in choice.lanes.easiest(work.band):
            done = tenure.leaving + choice.seconds
            lost = tenure.slack < 0
            delayed = tenure.slack < (inf if work.holds else done + tenure.resuming)
            if done > work.due or (delayed and not lost):
                continue
            tenure.evicted_for = work
            work.lane, work.choice = lane, choice
            lane.works.append(work)
            lane.free = inf if work.holds else done + tenure.returning
            choice.lanes.moved(lane)
            return True
    return False


def _date(lane: Lane) -> None:
    """Set the starts of all that is on a lane."""
    time = lane.host.wait if lane.host is not None else lane.opens
    if (tenure := lane.tenure) is not None:
        time = tenure.remaining if tenure.evicted_for is None else tenure.leaving
    for work in lane.works:
        assert work.choice is not None
        work.start = time
        time += inf if work.holds else work.choice.seconds
        if tenure is not None and tenure.evicted_for is work:
            time += tenure.returning


def done_behind_all(work: Work) -> float:
    """When a work that has no lane would be done, put behind all that is planned; never where no lane comes free."""
    lanes = ((choice, choice.lanes.earliest()) for choice in work.choices)
    return min((lane.free + choice.seconds for choice, lane in lanes if lane is not None), default=inf)
