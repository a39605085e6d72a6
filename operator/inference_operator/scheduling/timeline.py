"""Timelines: when each worker that fits is free, and what is planned on it.

All workers with the same requirements that fit have a timeline each. Work that runs already stands at the head of its timeline.
A plan is advice about time: room is counted again when a place is taken, so timelines may promise more than nodes hold. Times are
seconds from now, in floats, for ten thousand units are planned in every pass.
"""

import heapq
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import inf

from inference_operator.scheduling.caps import Cap, PreemptionBudget
from inference_operator.scheduling.slack_types import SlackWorker
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
    namespace: str = ""
    # What its namespace has of the cluster (see `Shares`).
    share: float = 0.0

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
    # The service's worker in whose slack one batch may run; nothing is planned behind that.
    slack_worker: SlackWorker | None = None
    # The accelerator class of the new node that this is time of.
    new_node: str | None = None
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
        # When the first new node will be there, where these are new nodes.
        self.opens = min((t.opens for t in self.timelines if t.new_node is not None), default=0.0)
        # Whether these are workers that are there already, for whoever may have them.
        self.shared = any(t.warm_worker is not None or t.slack_worker is not None for t in self.timelines)
        self._openings = openings
        # The timeline that was opened last, as long as nobody is on it: it is in no order yet.
        self._opened: Timeline | None = None
        # What was planned since the last look stands aside: mostly nobody has to be displaced, and the order is not asked for.
        self._by_length: dict[str, list[tuple[float, int, SchedulingUnit]]] = {}
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

    def forget(self) -> None:
        """Let go of all timelines and units. They refer to each other, so that nothing else would free them but the collector."""
        for timeline in self.timelines:
            timeline.units.clear()
            timeline.running_work = None
        self.timelines.clear()
        self._planned.clear()
        self._by_length.clear()

    def planned(self, unit: "SchedulingUnit", seconds: float) -> None:
        """Index a work that may be displaced."""
        self._planned.append((-seconds, unit.number, unit))

    def longest(self, namespace: str, band: int, seconds: float, due: float) -> "SchedulingUnit | None":
        """The longest planned work of a namespace in a band, longer than `seconds`, whose place in time is early enough."""
        for planned in self._planned:
            heapq.heappush(self._by_length.setdefault(planned[2].namespace, []), planned)
        self._planned.clear()
        heap = self._by_length.get(namespace, [])
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
    # The caps of the namespace that a worker made this way counts against.
    caps: tuple[Cap, ...] = ()


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
    namespace: str = ""
    # What its namespace would have of the cluster with it (see `Shares`).
    share: float = 0.0
    # How often its namespace may still preempt work of others; None for no bound.
    budget: PreemptionBudget | None = None
    # Whether that alone kept it from preempting.
    over_budget: bool = False
