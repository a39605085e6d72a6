"""The plan of a job that may not run: for good, or until what it misses turns up.

A model that is missing for a moment must not cost what is under way, so workers that run go on. What needs no model is done all the
same: the job is stopped when its user or its deadline says so, and workers that are lost are let go.
"""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.job import DeadlinePolicy, InferenceJobSpec, wanted_replicas
from inference_operator.api.job_status import DeadlineStatus, InferenceJobStatus, Phase
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.outcome import Outcome, delete_lost, ended, failed, soonest, stop_all, stopped, suspended, waiting
from inference_operator.jobs.status import deadline_look, deadline_status
from inference_operator.state.observed import Observed
from inference_operator.state.runner import is_running
from inference_operator.workers.resolve import Refusal


def plan_refused(observed: Observed, refusal: Refusal, now: datetime) -> Outcome:
    """Decide about one job that is not admitted and has not ended."""
    spec, before = observed.job.spec, observed.job.status
    status = replace(before, queue=None, deadline=_deadline(observed, now))
    if refusal.final or spec is None:
        # A batch that was never suspended counts no workers.
        end = now.replace(microsecond=0)
        status = stopped(status, end) if status.replicas is not None else replace(status, completion_time=end)
        actions = stop_all(observed, refusal.message)
        return Outcome(actions, failed(refusal.reason, refusal.message, accepted=False), status, Phase.FAILED)
    if spec.suspend:
        attempts = max((a.number for a in observed.attempts), default=before.attempts)
        return suspended(observed, replace(before, attempts=attempts), now)
    until = spec.serve.until if spec.serve is not None else None
    if until is not None and until <= now:
        return ended(observed, until, status)
    firm = _firm_end(spec, before)
    if firm is not None and firm <= now:
        text = f"stopped at the deadline {rfc3339(firm)}, as deadlinePolicy Firm says; until then: {refusal.message}"
        status = replace(status, completion_time=now.replace(microsecond=0), ready_replicas=0)
        return Outcome(stop_all(observed, "the deadline has passed"), failed(Reason.DEADLINE_EXCEEDED, text), status, Phase.FAILED)
    recheck = soonest(now, until, firm, deadline_look(spec.deadline, now))
    answering = sum(map(is_running, observed.live)) if spec.input is None else 0
    if not answering:
        conditions = waiting(ConditionType.ACCEPTED, refusal.reason, refusal.message)
        return Outcome(delete_lost(observed), conditions, _counted(observed, status), Phase.WAITING, recheck)
    conditions = _still_serving(answering, wanted_replicas(spec), refusal)
    return Outcome(delete_lost(observed), conditions, _counted(observed, status), Phase.SERVING, recheck)


def _still_serving(answering: int, wanted: int, refusal: Refusal) -> tuple[UndatedCondition, ...]:
    """A service whose workers answer, though no new one can be made."""
    text = f"{answering}/{wanted} workers answer, and no new one is made: {refusal.message}"
    truth = Truth.TRUE if answering >= wanted else Truth.FALSE
    return (
        UndatedCondition(ConditionType.ACCEPTED, Truth.FALSE, refusal.reason, refusal.message),
        UndatedCondition(ConditionType.READY, truth, refusal.reason, text),
        UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, refusal.reason, text),
    )


def _firm_end(spec: InferenceJobSpec, before: InferenceJobStatus) -> datetime | None:
    """When a Firm deadline ends the job; None for a service that has met it or missed it already."""
    was_ready = spec.input is None and before.ready_time is not None
    return spec.deadline if spec.deadline_policy is DeadlinePolicy.FIRM and not was_ready else None


def _counted(observed: Observed, status: InferenceJobStatus) -> InferenceJobStatus:
    """How many of a service's workers still live, and answer."""
    if observed.job.spec is None or observed.job.spec.input is not None or status.replicas is None:
        return status
    live = observed.live
    return replace(status, replicas=len(live), ready_replicas=sum(map(is_running, live)))


def _deadline(observed: Observed, now: datetime) -> DeadlineStatus | None:
    """Nobody knows when it will be done, but a deadline passes all the same, and one that a service has met stays met."""
    spec, before = observed.job.spec, observed.job.status
    if spec is None or spec.deadline is None:
        return None
    ready = before.ready_time if spec.input is None else None
    under_way = bool(observed.live) and spec.input is not None
    return deadline_status(spec.deadline, estimated=None, completed=ready, before=None, now=now, under_way=under_way)
