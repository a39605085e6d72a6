"""The plan of a batch job: one attempt at a time, to the end."""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import AnyReason, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.instants import shift
from inference_operator.api.job import (
    AttemptOutcome,
    AttemptStatus,
    DeadlinePolicy,
    EnergyStatus,
    InferenceJobStatus,
    LatencyStatus,
    OutputStatus,
    Placement,
    ProgressStatus,
)
from inference_operator.api.schema import rfc3339
from inference_operator.jobs import demand
from inference_operator.jobs.demand import JobState, create_retry_time, is_lost
from inference_operator.jobs.outcome import ACCEPTED, UNFINISHED, Outcome, failed, stop_all, waiting
from inference_operator.jobs.status import (
    deadline_status,
    facts_of,
    latency_status,
    model_status,
    placement_status,
    queue_status,
    round_milliseconds,
    waiting_deadline,
    waiting_words,
)
from inference_operator.metering.energy import energy_status, untold
from inference_operator.scheduling.estimate import find_profile, measured
from inference_operator.scheduling.types import Decision, PendingReason, Preemption
from inference_operator.settings import Settings
from inference_operator.state.objects import Observed, Pod
from inference_operator.warmpools.eligibility import order
from inference_operator.workers.actions import Action, DeletePod, StartTask, StopTask, WriteModelStatus
from inference_operator.workers.attempts import Attempts, expected_end, is_running, retry_time
from inference_operator.workers.creation import create_worker, placement_at
from inference_operator.workers.pod_problems import out_of_reach, problem_of
from inference_operator.workers.profiles import learned
from inference_operator.workers.source import model_source

# Progress of a short run is told by its end; that of a long one in tenths.
_LONG_RUN_SECONDS = 30


def plan_batch(observed: Observed, job_state: JobState, decision: Decision | None, settings: Settings, now: datetime) -> Outcome:
    """Decide about one batch job that is admitted, not suspended and not finished."""
    state = job_state.attempts
    spec = observed.job.spec
    assert state is not None and spec is not None
    if state.succeeded:
        return _succeeded(observed, state, settings, now)
    if is_lost(state, spec):
        return _lost(observed, state, settings, now)
    if spec.deadline_policy is DeadlinePolicy.FIRM and spec.deadline is not None and now >= spec.deadline:
        return _too_late(observed, state, spec.deadline, settings, now)
    if state.number and state.ending is None:
        if decision is not None and decision.preemption is not None:
            return _preempted(observed, state, decision.preemption, settings, now)
        return _under_way(observed, job_state, state, settings, now)
    return _next_attempt(observed, job_state, state, decision, settings, now)


def _succeeded(observed: Observed, state: Attempts, settings: Settings, now: datetime) -> Outcome:
    report = state.pod.report if state.pod is not None else None
    status = _status(observed, state, settings, now, completed=state.ended or now)
    total = status.progress.total if status.progress is not None else 0
    text = f"all {total} items are answered"
    conditions = (
        ACCEPTED,
        _placed(status),
        UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SUCCEEDED, text),
        UndatedCondition(ConditionType.SUCCEEDED, Truth.TRUE, Reason.SUCCEEDED, text),
    )
    actions: list[Action] = list(stop_all(observed, "the work is done"))
    if state.pod is not None and report is not None:
        profile = learned(
            observed.model,
            report.model,
            accelerator=state.pod.worker.accelerator if state.pod.worker else "",
            now=now,
            # Each end speaks once, whoever looks at it again; of many in one second one will do.
            since=state.pod.ended,
        )
        if profile is not None and observed.model is not None:
            actions.append(WriteModelStatus(observed.model.key, observed.model.uid, profile, observed.model.resource_version))
    return Outcome(tuple(actions), conditions, status, "Succeeded")


def _lost(observed: Observed, state: Attempts, settings: Settings, now: datetime) -> Outcome:
    assert state.ending is not None and observed.job.spec is not None
    status = replace(_status(observed, state, settings, now), completion_time=(state.ended or now).replace(microsecond=0))
    reason, text = state.ending.reason, state.ending.message
    if not state.ending.permanent and state.failed > 1:
        text = f"{state.failed} of {observed.job.spec.max_attempts} attempts failed, the last one so: {text}"
    return Outcome(stop_all(observed, "the job has failed"), failed(reason, text), status, "Failed")


def _too_late(observed: Observed, state: Attempts, deadline: datetime, settings: Settings, now: datetime) -> Outcome:
    status = replace(_status(observed, state, settings, now), completion_time=now.replace(microsecond=0))
    text = f"stopped at the deadline {rfc3339(deadline)}, as deadlinePolicy Firm says"
    if status.progress is not None:
        text += f"; {status.progress.completed} of {status.progress.total} items are answered and kept"
    actions = stop_all(observed, "the deadline has passed")
    return Outcome(actions, failed(Reason.DEADLINE_EXCEEDED, text), status, "Failed")


def _under_way(observed: Observed, job_state: JobState, state: Attempts, settings: Settings, now: datetime) -> Outcome:
    """The newest attempt lives: it starts, runs, or can't start."""
    pod, spec = state.pod, observed.job.spec
    assert pod is not None and spec is not None
    status = _status(observed, state, settings, now)
    begin = (*_begin(observed, job_state, pod), *_probed(observed, pod, now))
    firm_end = spec.deadline if spec.deadline_policy is DeadlinePolicy.FIRM else None
    watch = min(filter(None, (firm_end, _passing(spec.deadline, now))), default=None)
    if is_running(pod):
        text = f"attempt {state.number} runs on {pod.node}{out_of_reach(observed)}"
        ready = UndatedCondition(ConditionType.READY, Truth.FALSE, Reason.RUNNING, text)
        moving = UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, Reason.RUNNING, text)
        return Outcome(begin, (ACCEPTED, _placed(status), ready, UNFINISHED, moving), status, "Running", watch)
    give_up = shift(pod.created or now, settings.start_timeout_seconds) if pod.started is None else None
    problem = problem_of(pod)
    if problem is not None:
        reason, text = problem
        conditions = (*waiting(ConditionType.PLACED, reason, text), UNFINISHED)
        return Outcome((), conditions, status, "Waiting", min(filter(None, (watch, give_up)), default=None))
    text = f"attempt {state.number} starts on {status.placement.node if status.placement else pod.node}{out_of_reach(observed)}"
    ready = UndatedCondition(ConditionType.READY, Truth.FALSE, Reason.STARTING, text)
    moving = UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, Reason.STARTING, text)
    return Outcome(
        begin,
        (ACCEPTED, _placed(status), ready, UNFINISHED, moving),
        status,
        "Starting",
        min(filter(None, (watch, give_up)), default=None),
    )


def _begin(observed: Observed, job_state: JobState, pod: Pod) -> tuple[Action, ...]:
    """The order to a warm worker that has not said yet how the attempt stands: it may never have heard of it."""
    if pod.hosted_task is None or pod.hosted_task.state is not None or pod.address is None or pod.worker is None:
        return ()
    return (StartTask(pod.key, pod.address, order(observed, pod.number, job_state.revision, pod.worker.accelerator)),)


def _probed(observed: Observed, pod: Pod, now: datetime) -> tuple[Action, ...]:
    """The first figures of a model on this class: what the worker's warm-up has measured, long before the work is done."""
    model, facts = observed.model, facts_of(pod, observed.readings)
    accelerator = pod.worker.accelerator if pod.worker is not None else ""
    if model is None or facts is None:
        return ()
    if find_profile(model, measured(facts), accelerator=accelerator, batch_size=facts.batch_size):
        return ()
    status = learned(model, facts, accelerator=accelerator, now=now)
    return (WriteModelStatus(model.key, model.uid, status, model.resource_version),) if status is not None else ()


def _preempted(observed: Observed, state: Attempts, preemption: Preemption, settings: Settings, now: datetime) -> Outcome:
    """The attempt has to make room. It is told by its status first: an attempt that counts as ended is stopped by the next look.

    Counted before it is done, it is counted once, whoever is killed in between.
    """
    pod = state.pod
    assert pod is not None
    status = _status(observed, state, settings, now)
    ended = AttemptStatus(
        number=state.number,
        pod=pod.key.name,
        outcome=AttemptOutcome.DISRUPTED,
        reason=Reason.PREEMPTED.value,
        message=preemption.message[:4096],
        end_time=now.replace(microsecond=0),
    )
    deadline = deadline_status(
        observed.job.spec.deadline if observed.job.spec is not None else None, estimated=None, completed=None, before=None, now=now
    )
    meters = observed.meters.get(pod.uid, {})
    spent = energy_status(pod, meters, status.energy, status.progress, settings, now)
    status = replace(status, last_attempt=ended, preemptions=status.preemptions + 1, deadline=deadline, energy=spent)
    return Outcome((), (*waiting(ConditionType.PLACED, Reason.PREEMPTED, preemption.message), UNFINISHED), status, "Waiting")


def _next_attempt(
    observed: Observed, job_state: JobState, state: Attempts, decision: Decision | None, settings: Settings, now: datetime
) -> Outcome:
    """No attempt lives: place the next one, or say what it waits for."""
    stale = stop_all(observed, state.ending.message if state.ending is not None else "not wanted any more")
    status = _status(observed, state, settings, now)
    spec = observed.job.spec
    assert spec is not None
    wake = _passing(spec.deadline, now)
    if decision is not None and decision.assignments and demand.placement_request(observed, job_state, settings, now) is not None:
        given, why, number = decision.assignments[0], decision.explanations[0], state.number + 1
        ending = _before_the_next(observed)
        if given.warm_worker is not None:
            return _placing(observed, placement_at(given, why, given.warm_worker.name, now), number, status, now, ending)
        creation = create_worker(observed, given, why, number=number, revision=job_state.revision, settings=settings, now=now)
        made = creation.assumed.worker
        assert made is not None and made.placement is not None
        return _placing(observed, made.placement, number, status, now, (*ending, creation))
    reason, text, recheck, final = _why_waiting(observed, state, decision, settings, now)
    pending = (
        decision.pending if decision is not None and decision.pending is not None and decision.pending.reason is reason else None
    )
    status = _queued(status, observed, pending, now)
    if final:
        ended = replace(status, completion_time=now.replace(microsecond=0))
        return Outcome(stale, failed(reason, text), ended, "Failed")
    conditions = (*waiting(ConditionType.PLACED, reason, text), UNFINISHED)
    return Outcome(stale, conditions, status, "Waiting", min(filter(None, (recheck, wake)), default=None))


def _queued(status: InferenceJobStatus, observed: Observed, pending: PendingReason | None, now: datetime) -> InferenceJobStatus:
    """The status of a job that waits for room: its place in the queue, and what that means for its deadline."""
    before, spec = observed.job.status, observed.job.spec
    assert spec is not None
    status = replace(status, queue=queue_status(pending, before.queue, now))
    if pending is None or pending.position is None:
        return status
    return replace(status, deadline=waiting_deadline(spec.deadline, pending, before.deadline, now))


def _before_the_next(observed: Observed) -> tuple[DeletePod | StopTask, ...]:
    """Lost workers are told to stop should they come back; of the ended ones the newest keeps its last words."""
    mine = (pod for pod in observed.pods if pod.terminal and not pod.deleting and pod.hosted_task is None)
    ended = sorted(mine, key=lambda pod: pod.number)
    older = tuple(DeletePod(pod.key, pod.uid, "ended, and not the newest") for pod in ended[:-1])
    return (*stop_all(observed, "a later attempt takes over"), *older)


def _placing(
    observed: Observed, placement: Placement, number: int, status: InferenceJobStatus, now: datetime, actions: tuple[Action, ...]
) -> Outcome:
    assert observed.job.spec is not None
    text = f"attempt {number} starts on {placement.node}{out_of_reach(observed)}"
    started = status.start_time or now.replace(microsecond=0)
    estimated = shift(now, placement.cost.latency_seconds) if not placement.cost.estimated else None
    status = replace(
        status,
        queue=None,
        attempts=number,
        last_attempt=AttemptStatus(number=number, pod=placement.pod, outcome=AttemptOutcome.RUNNING),
        placement=placement,
        start_time=started,
        deadline=deadline_status(observed.job.spec.deadline, estimated=estimated, completed=None, before=None, now=now),
    )
    conditions = (
        ACCEPTED,
        _placed(status),
        UndatedCondition(ConditionType.READY, Truth.FALSE, Reason.STARTING, text),
        UNFINISHED,
        UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, Reason.STARTING, text),
    )
    return Outcome(actions, conditions, status, "Starting")


def _why_waiting(
    observed: Observed, state: Attempts, decision: Decision | None, settings: Settings, now: datetime
) -> tuple[AnyReason, str, datetime | None, bool]:
    """Reason, message, when to look again, and whether it is for good."""
    retry = retry_time(state, settings)
    if state.ending is not None and retry is not None and retry > now:
        failed_one = state.ending.outcome is AttemptOutcome.FAILED
        what = (
            f"failed ({state.ending.reason}: {state.ending.message})" if failed_one else f"was cut short ({state.ending.message})"
        )
        return Reason.BACKING_OFF, f"attempt {state.number} {what}; the next starts at {rfc3339(retry)}", retry, False
    ending = next((pod for pod in observed.pods if not pod.terminal and pod.uid not in observed.lost), None)
    if ending is not None and state.ending is not None and state.ending.reason is Reason.PREEMPTED:
        return Reason.PREEMPTED, state.ending.message, None, False
    if ending is not None:
        return Reason.PENDING, f"worker {ending.key.name} of the attempt before is still ending", None, False
    if observed.create_failure is not None:
        return observed.create_failure.reason, observed.create_failure.message, create_retry_time(observed, settings), False
    if decision is not None and decision.pending is not None:
        pending = decision.pending
        return pending.reason, waiting_words(pending), None, pending.final
    return Reason.PENDING, "the scheduler has not decided yet", None, False


def _placed(status: InferenceJobStatus) -> UndatedCondition:
    where = status.placement
    text = f"{where.accelerator} on node {where.node}" if where is not None else "placed"
    return UndatedCondition(ConditionType.PLACED, Truth.TRUE, Reason.PLACED, text)


def _passing(deadline: datetime | None, now: datetime) -> datetime | None:
    """Look again when the deadline passes: the outlook changes then though nothing happens."""
    return shift(deadline, 1) if deadline is not None and deadline >= now else None


def _status(
    observed: Observed, state: Attempts, settings: Settings, now: datetime, *, completed: datetime | None = None
) -> InferenceJobStatus:
    """The status parts that follow from the attempts, whatever is decided next."""
    before, spec = observed.job.status, observed.job.spec
    assert spec is not None
    facts = facts_of(state.pod, observed.readings)
    if state.pod is not None and state.pod.hosted_task is not None and state.pod.report is None and not is_running(state.pod):
        # What a warm worker says of itself is said together with what it makes of the task: that saves a write.
        facts = None
    progress = _progress(observed, state, now)
    return replace(
        before,
        queue=None,
        attempts=state.number,
        failed_attempts=state.failed,
        last_attempt=_attempt(observed, state),
        placement=placement_status(state.pod, facts, before.placement),
        model=model_status(model_source(observed), facts, before.model, asked=spec.backend),
        progress=progress,
        energy=_energy(observed, state, progress, settings),
        latency=_latency(observed, state, moved=progress != before.progress),
        output=_output(observed, state),
        start_time=before.start_time or (state.pod.created if state.pod is not None else None),
        completion_time=completed.replace(microsecond=0) if completed is not None else None,
        deadline=deadline_status(
            spec.deadline,
            estimated=expected_end(observed, state),
            completed=completed,
            before=before.deadline,
            now=now,
        ),
    )


def _attempt(observed: Observed, state: Attempts) -> AttemptStatus | None:
    if not state.number:
        return None
    before = observed.job.status.last_attempt
    kept = before if before is not None and before.number == state.number else None
    pod = state.pod.key.name if state.pod is not None else kept.pod if kept is not None else "unknown"
    if state.ending is None:
        return AttemptStatus(number=state.number, pod=pod, outcome=AttemptOutcome.RUNNING)
    if kept is not None and kept.outcome is not AttemptOutcome.RUNNING:
        return kept
    return AttemptStatus(
        number=state.number,
        pod=pod,
        outcome=state.ending.outcome,
        reason=state.ending.reason.value,
        message=state.ending.message[:4096],
        end_time=state.ended.replace(microsecond=0) if state.ended is not None else None,
    )


def _progress(observed: Observed, state: Attempts, now: datetime) -> ProgressStatus | None:
    before = observed.job.status.progress
    pod = state.pod
    if state.outdated:
        return None
    if pod is not None and pod.report is not None and pod.report.progress is not None:
        told = pod.report.progress
        return ProgressStatus(total=told.total, completed=told.completed, failed=told.failed)
    reading = observed.readings.get(pod.uid) if pod is not None else None
    told_now = reading.telemetry.progress if reading is not None else None
    if told_now is None or pod is None:
        return before
    young = pod.started is None or (now - pod.started).total_seconds() < _LONG_RUN_SECONDS
    same_tenth = before is not None and _tenth(told_now.completed, told_now.total) == _tenth(before.completed, before.total)
    if young or same_tenth:
        return before
    return ProgressStatus(total=told_now.total, completed=told_now.completed, failed=told_now.failed)


def _energy(observed: Observed, state: Attempts, progress: ProgressStatus | None, settings: Settings) -> EnergyStatus | None:
    """Counted once for each attempt: by the look that finds it ended and not told."""
    told = observed.job.status.last_attempt
    news = told is None or told.number != state.number or told.outcome is AttemptOutcome.RUNNING
    before = observed.job.status.energy
    if state.ending is None or state.ended is None or not news:
        return before
    if state.pod is None:
        return untold(before)
    return energy_status(state.pod, observed.meters.get(state.pod.uid, {}), before, progress, settings, state.ended)


def _tenth(completed: int, total: int) -> int:
    return completed * 10 // total if total else 0


def _latency(observed: Observed, state: Attempts, *, moved: bool) -> LatencyStatus | None:
    """From the report at the end; before it only together with progress, so that it costs no write of its own."""
    before = observed.job.status.latency
    report = state.pod.report if state.pod is not None else None
    if report is not None and report.latency is not None and state.ended is not None:
        told = report.latency
        return LatencyStatus(
            p50=round_milliseconds(told.p50),
            p95=round_milliseconds(told.p95),
            p99=round_milliseconds(told.p99),
            count=told.count,
            observed_time=state.ended.replace(microsecond=0),
        )
    return latency_status(observed, (state.pod,), before) if moved and state.pod is not None else before


def _output(observed: Observed, state: Attempts) -> OutputStatus | None:
    spec = observed.job.spec
    report = state.pod.report if state.pod is not None else None
    if spec is not None and spec.output is not None:
        return OutputStatus(uri=spec.output.uri)
    if report is not None and report.output is not None:
        return OutputStatus(data=report.output)
    return observed.job.status.output
