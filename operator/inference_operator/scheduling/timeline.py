"""Schedule ahead: which of the known work can be on time together, what starts now, and what has to make room for it.

All workers with the same requirements that fit have a timeline each. Units are put on timelines in the order of their rank,
earliest deadline first, where they are on time at the least cost. A unit that would be late takes the place of the longest planned
unit that is longer than itself: Moore's rule for one machine (Moore 1968, "An n job, one machine sequencing algorithm for
minimizing the number of late jobs"), used timeline by timeline. Either way one job is late, and the longer one frees more.

Work that runs already stands at the head of its timeline. It is preempted only for work that is on time no other way, and only
when it is on time itself afterwards, or is late in any case; what it has done is kept. So each preemption adds a job that is on
time and takes none away, and since jobs are finite, preemptions come to an end. Where estimates are wrong, a budget for each job
bounds them.

A plan is advice about time: room is counted again when a place is taken, so timelines may promise more than nodes hold. Times are
seconds from now, in floats, for ten thousand units are planned in every pass.

This module is longer than others: it is one algorithm with the index that it lives by.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from inference_operator.scheduling.types import WarmWorker
from inference_operator.state.request import Request

# How many of the longest planned works, or of the running work, are looked at, for one in whose place the new one is on time.
_TRIES = 4


@dataclass(slots=True, eq=False)
class RunningUnit:
    """Work that has a place: what it still needs there, and its slack (due less what it needs).

    `leaving` is how long it keeps the place once told to go, `resuming` what going on later costs it.
    """

    key: Request
    remaining: float
    slack: float = inf
    band: int = 0
    movable: bool = False
    leaving: float = 0.0
    resuming: float = 0.0
    preempted_for: "SchedulingUnit | None" = None

    @property
    def returning(self) -> float:
        """For how long it has the place again behind the work that it left for; what is late anyway joins the end of the queue."""
        return self.resuming + self.remaining if self.slack >= 0 else 0.0


@dataclass(slots=True, eq=False)
class Timeline:
    """One worker's time. `free` is when all that is on it will be done; `version` counts how often that has moved."""

    running_work: RunningUnit | None = None
    free: float = 0.0
    units: list["SchedulingUnit"] = field(default_factory=list)
    number: int = 0
    version: int = 0
    # The warm worker whose time this is, for a timeline that is one.
    warm_worker: WarmWorker | None = None
    # When the place will be there, for one that is kept for work which needs the room of several running work.
    opens: float = 0.0


class Timelines:
    """All timelines with the same requirements, indexed lazily: an entry that has become wrong is dropped when it comes up.

    `openings` more timelines are free now; each is made when somebody is to be put on it.
    """

    def __init__(self, timelines: Iterable[Timeline], openings: int = 0) -> None:
        self.timelines: list[Timeline] = []
        self._by_free: list[tuple[float, int, int]] = []
        for timeline in timelines:
            self.add(timeline)
        # Whether these are warm workers.
        self.warm = any(timeline.warm_worker is not None for timeline in self.timelines)
        self._openings = openings
        # The timeline that was opened last, as long as nobody is on it: it is in no order yet.
        self._opened: Timeline | None = None
        # What was planned since the last look stands aside: mostly nobody has to be displaced, and the order is not asked for.
        self._by_length: list[tuple[float, int, SchedulingUnit]] = []
        self._planned: list[tuple[float, int, SchedulingUnit]] = []
        # Low priority first, then the most slack.
        movable = [
            (timeline.running_work, timeline.number)
            for timeline in self.timelines
            if timeline.running_work is not None and timeline.running_work.movable
        ]
        self._by_slack = [(-running_work.band, -running_work.slack, number) for running_work, number in movable]
        heapq.heapify(self._by_slack)

    def add(self, timeline: Timeline) -> None:
        """One more."""
        timeline.number = len(self.timelines)
        self.timelines.append(timeline)
        heapq.heappush(self._by_free, (timeline.free, timeline.number, timeline.version))

    def earliest(self) -> Timeline | None:
        """The timeline that is free first; None when there is none."""
        heap = self._by_free
        while heap:
            free, number, version = heap[0]
            timeline = self.timelines[number]
            if timeline.version != version:
                heapq.heappop(heap)
            elif free > 0 and self._openings:
                break
            else:
                return timeline
        if self._opened is None and self._openings:
            self._opened = Timeline(number=len(self.timelines))
        return self._opened

    def moved(self, timeline: Timeline) -> None:
        """Index a timeline anew whose end has moved."""
        heap = self._by_free
        if timeline is self._opened:
            self.timelines.append(timeline)
            self._opened = None
            self._openings -= 1
            heapq.heappush(heap, (timeline.free, timeline.number, timeline.version))
            return
        timeline.version += 1
        entry = (timeline.free, timeline.number, timeline.version)
        # Mostly it is the one that was free first: its old entry goes at once.
        if heap and heap[0][1] == timeline.number:
            heapq.heapreplace(heap, entry)
        else:
            heapq.heappush(heap, entry)

    def planned(self, unit: "SchedulingUnit", seconds: float) -> None:
        """Index a work that may be displaced."""
        self._planned.append((-seconds, unit.number, unit))

    def longest(self, band: int, seconds: float, due: float) -> "SchedulingUnit | None":
        """The longest planned work of a band that is longer than `seconds`, and whose place in time is early enough."""
        for planned in self._planned:
            heapq.heappush(self._by_length, planned)
        self._planned.clear()
        heap = self._by_length
        seen: list[tuple[float, int, SchedulingUnit]] = []
        found = None
        while heap and len(seen) < _TRIES and -heap[0][0] > seconds:
            entry = heapq.heappop(heap)
            length, unit = -entry[0], entry[2]
            if unit.candidate is None or unit.timeline is None or unit.candidate.timelines is not self:
                continue
            seen.append(entry)
            if unit.band == band and unit.timeline.free - length + seconds <= due:
                found = unit
                break
        for entry in seen:
            heapq.heappush(heap, entry)
        return found

    def easiest(self, band: int) -> list[tuple[Timeline, RunningUnit]]:
        """Timelines whose running work may leave for a work of this band: a few, low priority and much slack first."""
        heap = self._by_slack
        seen: list[tuple[int, float, int]] = []
        found: list[tuple[Timeline, RunningUnit]] = []
        while heap and len(seen) < _TRIES and -heap[0][0] >= band:
            entry = heapq.heappop(heap)
            timeline = self.timelines[entry[2]]
            if timeline.running_work is not None and timeline.running_work.preempted_for is None and not timeline.units:
                seen.append(entry)
                found.append((timeline, timeline.running_work))
        for entry in seen:
            heapq.heappush(heap, entry)
        return found


@dataclass(slots=True, eq=False)
class Candidate:
    """One way to do a work: how long it takes, and what it costs, in seconds of the cost function.

    `sure` is False where nothing measured stands behind `seconds`: mere assumptions make nobody late.
    """

    timelines: Timelines
    seconds: float
    cost: float
    sure: bool = True
    number: int = 0


@dataclass(slots=True, eq=False)
class SchedulingUnit:
    """One worker wanted, due in `due` seconds. What `holds` its place has no end (a service).

    The plan is `timeline`, `candidate` and `start`; without a timeline the work is late as things stand.
    """

    key: Request
    due: float
    band: int
    candidates: Sequence[Candidate]
    holds: bool = False
    # What a second of waiting costs, in seconds of the cost function.
    delay_weight: float = 1.0
    timeline: Timeline | None = None
    candidate: Candidate | None = None
    start: float = inf
    # The rank, which `schedule_ahead` sets.
    number: int = 0


def schedule_ahead(units: Sequence[SchedulingUnit], timelines: Iterable[Timelines]) -> None:
    """Plan works, given in the order of their rank."""
    for number, unit in enumerate(units):
        unit.number = number
        # Who finds nothing has still displaced nobody, and may yet profit from what others leave.
        _ = _settle(unit) or _displace(unit) or _preempt(unit)
    left = [unit for unit in units if unit.timeline is None and unit.candidates]
    for unit in sorted(left, key=lambda w: (w.band, min(c.seconds for c in w.candidates), w.number)):
        _ = _settle(unit) or _preempt(unit)
    for each in timelines:
        for timeline in each.timelines:
            if timeline.units:
                _date(timeline)


def _settle(unit: SchedulingUnit) -> bool:
    """Put a work behind what is planned, where it is on time at the least cost."""
    best: tuple[float, float] | None = None
    place: tuple[Candidate, Timeline] | None = None
    for candidate in unit.candidates:
        timeline = candidate.timelines.earliest()
        if timeline is None or timeline.free == inf:
            continue
        if candidate.sure and timeline.free + candidate.seconds > unit.due:
            continue
        rank = (candidate.cost + unit.delay_weight * timeline.free, timeline.free)
        if best is None or rank < best:
            best, place = rank, (candidate, timeline)
    if place is None:
        return False
    _put(unit, *place)
    return True


def _put(unit: SchedulingUnit, candidate: Candidate, timeline: Timeline) -> None:
    unit.timeline, unit.candidate = timeline, candidate
    timeline.units.append(unit)
    timeline.free = inf if unit.holds else timeline.free + candidate.seconds
    candidate.timelines.moved(timeline)
    if not unit.holds:
        candidate.timelines.planned(unit, candidate.seconds)


def _displace(unit: SchedulingUnit) -> bool:
    """Take the place of the longest work that may be displaced; it is put elsewhere if it is on time there."""
    if unit.due == inf:
        return False
    best: tuple[float, Candidate, SchedulingUnit] | None = None
    for candidate in unit.candidates:
        other = candidate.timelines.longest(unit.band, candidate.seconds, unit.due)
        if other is not None and other.candidate is not None:
            gain = other.candidate.seconds - candidate.seconds
            if best is None or gain > best[0]:
                best = (gain, candidate, other)
    if best is None:
        return False
    _, candidate, other = best
    timeline, given_up = other.timeline, other.candidate
    assert timeline is not None and given_up is not None
    timeline.units.remove(other)
    timeline.free -= given_up.seconds
    other.timeline = other.candidate = None
    _put(unit, candidate, timeline)
    _settle(other)
    return True


def _preempt(unit: SchedulingUnit) -> bool:
    """Ask the running work with the most slack to leave, where that puts this work on time and keeps the running work so."""
    if unit.due == inf:
        return False
    for candidate in sorted(unit.candidates, key=lambda c: c.cost):
        for timeline, running_work in candidate.timelines.easiest(unit.band):
            done = running_work.leaving + candidate.seconds
            lost = running_work.slack < 0
            delayed = running_work.slack < (inf if unit.holds else done + running_work.resuming)
            if done > unit.due or (delayed and not lost):
                continue
            running_work.preempted_for = unit
            unit.timeline, unit.candidate = timeline, candidate
            timeline.units.append(unit)
            timeline.free = inf if unit.holds else done + running_work.returning
            candidate.timelines.moved(timeline)
            return True
    return False


def _date(timeline: Timeline) -> None:
    """Set the starts of all that is on a timeline."""
    time = timeline.warm_worker.wait if timeline.warm_worker is not None else timeline.opens
    if (running_work := timeline.running_work) is not None:
        time = running_work.remaining if running_work.preempted_for is None else running_work.leaving
    for unit in timeline.units:
        assert unit.candidate is not None
        unit.start = time
        time += inf if unit.holds else unit.candidate.seconds
        if running_work is not None and running_work.preempted_for is unit:
            time += running_work.returning


def done_behind_all(unit: SchedulingUnit) -> float:
    """When a work that has no timeline would be done, put behind all that is planned; never where no timeline comes free."""
    timelines = ((candidate, candidate.timelines.earliest()) for candidate in unit.candidates)
    return min((timeline.free + candidate.seconds for candidate, timeline in timelines if timeline is not None), default=inf)
