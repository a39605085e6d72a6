"""Preemption: which running work makes room for work that is on time no other way.

Running work is preempted only when it is on time itself afterwards, or is late in any case; what it has done is kept. So each
preemption adds a job that is on time and takes none away, and since jobs are finite, preemptions come to an end. Where estimates
are wrong, a budget for each job bounds them.
"""

from math import inf

from inference_operator.scheduling.timeline import SchedulingUnit


def preempt(unit: SchedulingUnit) -> bool:
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
