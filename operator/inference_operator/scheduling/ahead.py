"""Schedule ahead: which of the known work can be on time together, and what starts now.

Units are put on timelines in the order of their turns, where they are on time at the least cost. A unit that would be late takes
the place of the longest planned unit of its own namespace that is longer than itself: Moore's rule for one machine (Moore 1968,
"An n job, one machine sequencing algorithm for minimizing the number of late jobs"), used timeline by timeline. Either way one job
is late, and the longer one frees more. What is on time no other way may preempt running work (`preemption.py`).
"""

from collections.abc import Callable, Iterable, Sequence
from math import inf

from inference_operator.scheduling.caps import is_planned_out
from inference_operator.scheduling.preemption import preempt
from inference_operator.scheduling.timeline import Candidate, SchedulingUnit, Timeline, Timelines


def schedule_ahead(
    units: Sequence[SchedulingUnit],
    timelines: Iterable[Timelines],
    lent: Callable[[SchedulingUnit], Sequence[Candidate]] | None = None,
) -> None:
    """Plan works, given in the order of their rank. `lent` says what more places there are for one when its turn has come."""
    for number, unit in enumerate(units):
        unit.number = number
        if lent is not None and (more := lent(unit)):
            unit.candidates = [*unit.candidates, *more]
        # Who finds nothing has still displaced nobody, and may yet profit from what others leave.
        _ = _settle(unit) or _displace(unit) or preempt(unit)
    left = [unit for unit in units if unit.timeline is None and unit.candidates]
    for unit in sorted(left, key=lambda w: (w.band, min(c.seconds for c in w.candidates), w.number)):
        _ = _settle(unit) or preempt(unit)
    for each in timelines:
        for timeline in each.timelines:
            if timeline.units:
                _date(timeline)


def _settle(unit: SchedulingUnit) -> bool:
    """Put a work behind what is planned, where it is on time at the least cost."""
    best: tuple[float, float] | None = None
    place: tuple[Candidate, Timeline] | None = None
    for candidate in unit.candidates:
        if candidate.caps and is_planned_out(candidate.caps):
            continue
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
    if timeline.free == 0:
        # What starts later counts once it starts: it may be large, and must not keep from starting what has room now.
        for cap in candidate.caps:
            cap.planned += 1
    timeline.units.append(unit)
    is_taken = unit.holds or timeline.slack_worker is not None
    timeline.free = inf if is_taken else timeline.free + candidate.seconds
    candidate.timelines.moved(timeline)
    if not is_taken:
        candidate.timelines.planned(unit, candidate.seconds)


def _displace(unit: SchedulingUnit) -> bool:
    """Take the place of the longest work that may be displaced; it is put elsewhere if it is on time there."""
    if unit.due == inf:
        return False
    best: tuple[float, Candidate, SchedulingUnit] | None = None
    for candidate in unit.candidates:
        other = candidate.timelines.longest(unit.namespace, unit.band, candidate.seconds, unit.due)
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
    if timeline.free == 0:
        for cap in given_up.caps:
            cap.planned -= 1
    other.timeline = other.candidate = None
    _put(unit, candidate, timeline)
    _settle(other)
    return True


def _date(timeline: Timeline) -> None:
    """Set the starts of all that is on a timeline."""
    time = timeline.warm_worker.wait if timeline.warm_worker is not None else timeline.opens
    if (running_work := timeline.running_work) is not None:
        time = running_work.remaining if running_work.preempted_for is None else running_work.leaving
    for unit in timeline.units:
        assert unit.candidate is not None
        unit.start = time
        time += inf if unit.holds or timeline.slack_worker is not None else unit.candidate.seconds
        if running_work is not None and running_work.preempted_for is unit:
            time += running_work.returning


def done_behind_all(unit: SchedulingUnit) -> float:
    """When a work that has no timeline would be done, put behind all that is planned; never where no timeline comes free."""
    timelines = ((candidate, candidate.timelines.earliest()) for candidate in unit.candidates)
    return min((timeline.free + candidate.seconds for candidate, timeline in timelines if timeline is not None), default=inf)
