"""Preemption: which running work makes room for work that is on time no other way.

Running work is preempted only when it is on time itself afterwards, or is late in any case; what it has done is kept. So each
preemption adds a job that is on time and takes none away, and since jobs are finite, preemptions come to an end. Where estimates
are wrong, a budget for each job bounds them.

Between namespaces two more rules hold. Work of the same band is preempted only for a namespace whose share of the cluster is no
larger even then: deadlines don't undo fair shares. And a namespace may have a budget of its own.
"""

from math import inf

from inference_operator.scheduling.caps import is_planned_out
from inference_operator.scheduling.timeline import RunningUnit, SchedulingUnit


def preempt(unit: SchedulingUnit) -> bool:
    """Ask the running work with the most slack to leave, where that puts this work on time and keeps the running work so."""
    if unit.due == inf:
        return False
    for candidate in sorted(unit.candidates, key=lambda c: c.cost):
        if candidate.caps and is_planned_out(candidate.caps):
            continue
        for timeline, running_work in candidate.timelines.easiest(unit.band):
            done = running_work.leaving + candidate.seconds
            lost = running_work.slack < 0
            delayed = running_work.slack < (inf if unit.holds else done + running_work.resuming)
            if done > unit.due or (delayed and not lost):
                continue
            if running_work.namespace != unit.namespace and not _may_preempt(unit, running_work):
                continue
            running_work.preempted_for = unit
            for cap in candidate.caps:
                cap.planned += 1
            unit.timeline, unit.candidate = timeline, candidate
            timeline.units.append(unit)
            timeline.free = inf if unit.holds else done + running_work.returning
            candidate.timelines.moved(timeline)
            return True
    return False


def _may_preempt(unit: SchedulingUnit, running_work: RunningUnit) -> bool:
    """Whether work may preempt that of another namespace; a preemption that is allowed is taken off the budget."""
    if running_work.band == unit.band and unit.share > running_work.share:
        return False
    if unit.budget is None:
        return True
    if unit.budget.left <= 0:
        unit.over_budget = True
        return False
    unit.budget.left -= 1
    return True
