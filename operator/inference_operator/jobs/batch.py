"""The plan of a batch job: one attempt at a time, to the end."""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.instants import shift
from inference_operator.api.job import DeadlinePolicy
from inference_operator.api.job_status import (
    AttemptOutcome,
    AttemptStatus,
    InferenceJobStatus,
    Phase,
    Placement,
    PreemptionStatus,
)
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.background import LOOK_SECONDS, given_back
from inference_operator.jobs.batch_status import batch_status, was_running, with_stopped_attempt
from inference_operator.jobs.outcome import ACCEPTED, UNFINISHED, Outcome, failed, soonest, stalled, stop_all, waiting
from inference_operator.jobs.state import BatchState
from inference_operator.jobs.status import deadline_look, deadline_status, queue_status, waiting_deadline
from inference_operator.jobs.why_waiting import why_waiting
from inference_operator.queueing.admission import Evicted
from inference_operator.scheduling.estimate import find_profile, measured
from inference_operator.scheduling.types import Decision, PendingReason, Preemption
from inference_operator.settings import Settings
from inference_operator.state.observed import Observed
from inference_operator.state.runner import Attempt
from inference_operator.warmpools.eligibility import task_order
from inference_operator.workers.actions import Action, DeletePod, StartTask, StopTask, WriteModelStatus
from inference_operator.workers.attempts import Attempts, is_lost, moves_at
from inference_operator.workers.creation import create_worker, placement_at
from inference_operator.workers.ending import Ending
from inference_operator.workers.pod_problems import out_of_reach, problem_of
from inference_operator.workers.profiles import learned
from inference_operator.workers.resolve import ResolvedJob


def plan_batch(observed: Observed, batch: BatchState, decision: Decision | None, settings: Settings, now: datetime) -> Outcome:
    """Decide about one batch job that is admitted, not suspended and not finished."""
    tried, spec = batch.attempts, batch.resolved.spec
    if tried.succeeded:
        return _succeeded(observed, batch, settings, now)
    if tried.ending is not None and is_lost(tried, spec):
        return _lost(observed, batch, tried.ending, settings, now)
    if spec.deadline_policy is DeadlinePolicy.FIRM and spec.deadline is not None and now >= spec.deadline:
        return _too_late(observed, batch, spec.deadline, settings, now)
    if tried.newest is not None and tried.ending is None:
        if isinstance(batch.admission, Evicted):
            # The budget of preemptions is this scheduler's; nobody's hour is charged with what Kueue does.
            return _made_room(observed, batch, tried.newest, f"evicted by Kueue: {batch.admission.message}", settings, now)
        if tried.newest.pod.uid in observed.silent and decision is not None and decision.assignments:
            # Should its worker live, that stops at its next commit: the output is fenced.
            return _next_attempt(observed, batch, decision, settings, now)
        if decision is not None and decision.preemption is not None:
            return _preempted(observed, batch, tried.newest, decision.preemption, settings, now)
        if (back := given_back(observed, batch, tried.newest, now)) is not None:
            return _preempted(observed, batch, tried.newest, back, settings, now)
        return _under_way(observed, batch, tried.newest, settings, now)
    return _next_attempt(observed, batch, decision, settings, now)


def _succeeded(observed: Observed, batch: BatchState, settings: Settings, now: datetime) -> Outcome:
    tried = batch.attempts
    status = batch_status(observed, batch, settings, now, completed=tried.ended or now)
    total = status.progress.total if status.progress is not None else 0
    text = f"all {total} items are answered"
    conditions = (
        ACCEPTED,
        _placed(status),
        UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SUCCEEDED, text),
        UndatedCondition(ConditionType.SUCCEEDED, Truth.TRUE, Reason.SUCCEEDED, text),
    )
    actions = (*_stop(observed, tried, "the work is done"), *_learned(observed, batch, settings, now))
    return Outcome(actions, conditions, status, Phase.SUCCEEDED)


def _stop(observed: Observed, tried: Attempts, why: str) -> tuple[DeletePod | StopTask, ...]:
    """Stop all that lives, but no pod whose last words no status tells yet: with the pod they would be gone."""
    newest, untold = tried.newest, tried.untold_by(observed.job.status.last_attempt)
    kept = newest.pod.uid if untold and newest is not None and newest.pod.over else None
    return tuple(one for one in stop_all(observed, why) if not (isinstance(one, DeletePod) and one.uid == kept))


def _learned(observed: Observed, batch: BatchState, settings: Settings, now: datetime) -> tuple[Action, ...]:
    """What an attempt that has ended well tells of its model."""
    attempt, model = batch.attempts.newest, observed.model
    if attempt is None or attempt.report is None or model is None:
        return ()
    # Each end speaks once, whoever looks at it again; of many in one second one will do.
    classes = settings.accelerators
    status = learned(model, attempt.report.model, accelerator=attempt.accelerator, classes=classes, now=now, since=attempt.ended)
    return (WriteModelStatus(model.key, model.uid, status, model.resource_version),) if status is not None else ()


def _lost(observed: Observed, batch: BatchState, ending: Ending, settings: Settings, now: datetime) -> Outcome:
    tried = batch.attempts
    ended = (tried.ended or now).replace(microsecond=0)
    status = replace(batch_status(observed, batch, settings, now), completion_time=ended)
    text = ending.message
    if not ending.permanent and tried.failed > 1:
        text = f"{tried.failed} of {batch.resolved.spec.max_attempts} attempts failed, the last one so: {text}"
    return Outcome(_stop(observed, tried, "the job has failed"), failed(ending.reason, text), status, Phase.FAILED)


def _too_late(observed: Observed, batch: BatchState, deadline: datetime, settings: Settings, now: datetime) -> Outcome:
    status = replace(batch_status(observed, batch, settings, now, stops=True), completion_time=now.replace(microsecond=0))
    text = f"stopped at the deadline {rfc3339(deadline)}, as deadlinePolicy Firm says"
    newest = batch.attempts.newest
    if newest is not None and batch.attempts.ending is None:
        # Nobody looks at an ended job again: what the attempt came to is told now.
        status = with_stopped_attempt(observed, newest, status, Reason.DEADLINE_EXCEEDED, text, settings, now)
    if status.progress is not None:
        text += f"; {status.progress.completed} of {status.progress.total} items are answered and kept"
    actions = _stop(observed, batch.attempts, "the deadline has passed")
    return Outcome(actions, failed(Reason.DEADLINE_EXCEEDED, text), status, Phase.FAILED)


def _under_way(observed: Observed, batch: BatchState, attempt: Attempt, settings: Settings, now: datetime) -> Outcome:
    """The newest attempt lives: it starts, runs, or can't start."""
    spec = batch.resolved.spec
    status = batch_status(observed, batch, settings, now)
    begin = (*_begin(batch.resolved, attempt, settings), *_probed(observed, attempt, settings, now))
    firm_end = spec.deadline if spec.deadline_policy is DeadlinePolicy.FIRM else None
    look = shift(now, LOOK_SECONDS) if observed.lent_by is not None else None
    move = moves_at(batch.attempts, settings) if attempt.pod.uid in observed.silent else None
    watch = soonest(now, firm_end, deadline_look(spec.deadline, now), look, move)
    problem = problem_of(attempt.pod) if not attempt.running else None
    if attempt.running or (problem is None and was_running(observed.job.status, attempt)):
        text = f"attempt {attempt.number} runs on {attempt.pod.node}{out_of_reach(observed)}"
        return Outcome(begin, _moving(status, Reason.RUNNING, text), status, Phase.RUNNING, watch)
    give_up = shift(attempt.created or now, settings.start_timeout_seconds) if attempt.started is None else None
    recheck = soonest(now, watch, give_up)
    if problem is not None:
        return Outcome((), (*waiting(ConditionType.PLACED, *problem), UNFINISHED), status, Phase.WAITING, recheck)
    node = status.placement.node if status.placement else attempt.pod.node
    text = f"attempt {attempt.number} starts on {node}{out_of_reach(observed)}"
    return Outcome(begin, _moving(status, Reason.STARTING, text), status, Phase.STARTING, recheck)


def _moving(status: InferenceJobStatus, reason: Reason, text: str) -> tuple[UndatedCondition, ...]:
    return (
        ACCEPTED,
        _placed(status),
        UndatedCondition(ConditionType.READY, Truth.FALSE, reason, text),
        UNFINISHED,
        UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, reason, text),
    )


def _begin(resolved: ResolvedJob, attempt: Attempt, settings: Settings) -> tuple[Action, ...]:
    """The order to a warm worker that has not said yet how the attempt stands: it may never have heard of it."""
    task = attempt.hosted
    if task is None or task.state is not None or task.pod.address is None:
        return ()
    placed = attempt.placement.decision_time if attempt.placement is not None else None
    order = task_order(resolved, attempt.number, attempt.accelerator, placed, settings=settings)
    return (StartTask(task.pod.key, task.pod.address, order),)


def _probed(observed: Observed, attempt: Attempt, settings: Settings, now: datetime) -> tuple[Action, ...]:
    """The first figures of a model on this class: what the worker's warm-up has measured, long before the work is done."""
    facts, model = observed.facts_of(attempt), observed.model
    if model is None or facts is None:
        return ()
    if find_profile(model, measured(facts), accelerator=attempt.accelerator, batch_size=facts.batch_size):
        return ()
    status = learned(model, facts, accelerator=attempt.accelerator, classes=settings.accelerators, now=now)
    return (WriteModelStatus(model.key, model.uid, status, model.resource_version),) if status is not None else ()


def _preempted(
    observed: Observed, batch: BatchState, attempt: Attempt, preemption: Preemption, settings: Settings, now: datetime
) -> Outcome:
    """The attempt has to make room for work that the scheduler, or a service, names."""
    by = PreemptionStatus(time=now.replace(microsecond=0), namespace=preemption.beneficiary.namespace)
    outcome = _made_room(observed, batch, attempt, preemption.message, settings, now)
    return replace(outcome, status=replace(outcome.status, last_preemption=by))


def _made_room(observed: Observed, batch: BatchState, attempt: Attempt, message: str, settings: Settings, now: datetime) -> Outcome:
    """The attempt has to make room. It is told by its status first: an attempt that counts as ended is stopped by the next look.

    Counted before it is done, it is counted once, whoever is killed in between.
    """
    status = batch_status(observed, batch, settings, now)
    deadline = deadline_status(batch.resolved.spec.deadline, estimated=None, completed=None, before=None, now=now)
    status = replace(status, preemptions=status.preemptions + 1, deadline=deadline)
    status = with_stopped_attempt(observed, attempt, status, Reason.PREEMPTED, message, settings, now)
    conditions = (*waiting(ConditionType.PLACED, Reason.PREEMPTED, message), UNFINISHED)
    return Outcome((), conditions, status, Phase.WAITING)


def _next_attempt(observed: Observed, batch: BatchState, decision: Decision | None, settings: Settings, now: datetime) -> Outcome:
    """No attempt lives: place the next one, or say what it waits for."""
    tried, resolved = batch.attempts, batch.resolved
    stale = _stop(observed, tried, tried.ending.message if tried.ending is not None else "not wanted any more")
    status = batch_status(observed, batch, settings, now)
    if decision is not None and decision.assignments and batch.request is not None:
        (given, why), number = decision.explained[0], tried.number + 1
        ending = stop_all(observed, "a later attempt takes over")
        if given.warm_worker is not None:
            placement = placement_at(given, why, given.warm_worker.name, now)
            return _placing(observed, resolved, placement, number, status, now, ending)
        creation = create_worker(resolved, given, why, number=number, settings=settings, now=now)
        made = creation.assumed.worker
        assert made is not None and made.placement is not None
        return _placing(observed, resolved, made.placement, number, status, now, (*ending, creation))
    found = why_waiting(observed, batch, decision, settings, now)
    pending = decision.pending if decision is not None else None
    pending = pending if pending is not None and pending.reason is found.reason else None
    status = _queued(status, observed, resolved, pending, now)
    if found.final:
        ended = replace(status, completion_time=now.replace(microsecond=0))
        return Outcome(stale, failed(found.reason, found.message), ended, Phase.FAILED)
    hindered = stalled if found.stalled else waiting
    conditions = (*hindered(ConditionType.PLACED, found.reason, found.message), UNFINISHED)
    recheck = soonest(now, found.recheck, deadline_look(resolved.spec.deadline, now))
    return Outcome(stale, conditions, status, Phase.WAITING, recheck)


def _queued(
    status: InferenceJobStatus, observed: Observed, resolved: ResolvedJob, pending: PendingReason | None, now: datetime
) -> InferenceJobStatus:
    """The status of a job that waits for room: its place in the queue, and what that means for its deadline."""
    before = observed.job.status
    status = replace(status, queue=queue_status(pending, before.queue, now))
    if pending is None or pending.position is None:
        return status
    return replace(status, deadline=waiting_deadline(resolved.spec.deadline, pending, before.deadline, now))


def _placing(
    observed: Observed,
    resolved: ResolvedJob,
    placement: Placement,
    number: int,
    status: InferenceJobStatus,
    now: datetime,
    actions: tuple[Action, ...],
) -> Outcome:
    text = f"attempt {number} starts on {placement.node}{out_of_reach(observed)}"
    started = status.start_time or now.replace(microsecond=0)
    estimated = shift(now, placement.cost.latency_seconds) if not placement.cost.estimated else None
    status = replace(
        status,
        queue=None,
        attempts=number,
        last_attempt=AttemptStatus(number=number, pod=placement.pod, outcome=AttemptOutcome.RUNNING, node=placement.node),
        placement=placement,
        start_time=started,
        deadline=deadline_status(resolved.spec.deadline, estimated=estimated, completed=None, before=None, now=now),
    )
    return Outcome(actions, _moving(status, Reason.STARTING, text), status, Phase.STARTING)


def _placed(status: InferenceJobStatus) -> UndatedCondition:
    where = status.placement
    text = f"{where.accelerator} on node {where.node}" if where is not None else "placed"
    if where is not None and where.slack is not None:
        text += f", in the slack of service {where.slack.service}"
    return UndatedCondition(ConditionType.PLACED, Truth.TRUE, Reason.PLACED, text)
