"""The plan of a serving job: keep workers, replace old revisions without a gap, end when told.

It is longer than others, so that a service's actions, conditions and status are read beside each other.
"""

from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime

from inference_operator.api import names
from inference_operator.api.conditions import AnyReason, ConditionType, Reason, Truth, UndatedCondition
from inference_operator.api.instants import shift
from inference_operator.api.job import DeadlinePolicy
from inference_operator.api.job_status import (
    AttemptStatus,
    DeadlineStatus,
    InferenceJobStatus,
    ModelStatus,
    Phase,
)
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.background import background_tasks, stop_orphaned
from inference_operator.jobs.latency import latency_end, latency_of
from inference_operator.jobs.outcome import ACCEPTED, Outcome, delete_lost, ended, failed, soonest, stop_all, stopped
from inference_operator.jobs.replicas import Replicas
from inference_operator.jobs.roll_out import lacks_room
from inference_operator.jobs.sleep import ASLEEP, sleeps_at
from inference_operator.jobs.state import ServiceState
from inference_operator.jobs.status import (
    deadline_look,
    deadline_status,
    decided,
    model_status,
    placement_status,
    queue_status,
    waiting_deadline,
    waiting_words,
)
from inference_operator.nodecache.prefetch import RollOut, roll_out
from inference_operator.scheduling.types import Decision, PendingReason
from inference_operator.settings import Settings
from inference_operator.state.objects import CreateFailure
from inference_operator.state.observed import Observed
from inference_operator.state.runner import is_running, own_attempt
from inference_operator.warmpools.credentials import Tokens
from inference_operator.workers.actions import Action, CreatePod, CreateService, DeletePod, WriteModelStatus
from inference_operator.workers.attempts import ended_at
from inference_operator.workers.budget import plan_budget
from inference_operator.workers.creation import create_retry_time, create_worker, is_held_up, told
from inference_operator.workers.identity import awaited_secrets
from inference_operator.workers.options import planned_node
from inference_operator.workers.pod_problems import out_of_reach, problem_of
from inference_operator.workers.profiles import learned
from inference_operator.workers.service import endpoint, service_manifest
from inference_protocol.messages import ModelFacts
from inference_protocol.reasons import WorkerReason

# So much of a worker's words goes into a condition.
_TOLD = 1000


def plan_serve(
    observed: Observed, service: ServiceState, decision: Decision | None, settings: Settings, tokens: Tokens, now: datetime
) -> Outcome:
    """Decide about one serving job that is admitted, not suspended and not finished."""
    state, resolved = service.replicas, service.resolved
    spec = resolved.spec
    until = spec.serve.until if spec.serve is not None else None
    if until is not None and until <= now:
        return ended(observed, until, _status(observed, service, now))
    if (
        spec.deadline_policy is DeadlinePolicy.FIRM
        and spec.deadline is not None
        and state.wanted
        and _first_ready(observed, state, now) is None
        and now >= spec.deadline
    ):
        text = f"was not ready by the deadline {rfc3339(spec.deadline)}, and deadlinePolicy is Firm"
        return Outcome(
            stop_all(observed, text),
            failed(Reason.DEADLINE_EXCEEDED, text),
            stopped(_status(observed, service, now), now),
            Phase.FAILED,
        )
    caches = _caches(observed, service, decision, settings, now)
    actions = _actions(
        observed, service, decision, settings, tokens, now, waits=caches.waits if caches is not None else frozenset()
    )
    held = caches is not None and decision is not None and any(given.node in caches.waits for given in decision.assignments)
    placing = held or any(isinstance(action, CreatePod) for action in actions)
    pending = decision.pending if decision is not None and state.missing and not placing else None
    # A service whose workers all answer doesn't queue, though a successor of one has no place yet.
    status = _status(observed, service, now, None if state.stays else pending)
    # One whose last old worker had to make room is not over either.
    rolls_out = bool(state.outdated) or status.current_revision not in (None, resolved.revisions.combined)
    conditions, phase = _conditions(observed, state, pending, status, placing=placing, rolls_out=rolls_out)
    if caches is not None:
        conditions = (*conditions, caches.condition)
    recheck = soonest(
        now,
        until,
        state.retry,
        state.moves,
        state.spreads,
        state.gives_up,
        state.settles if status.failed_attempts else None,
        deadline_look(spec.deadline, now),
        latency_end(status.latency),
        sleeps_at(observed, spec, settings),
        caches.recheck if caches is not None else None,
        *(create_retry_time(failure, settings) for failure in _refusals(observed) if failure),
    )
    return Outcome(actions, conditions, status, phase, recheck, prefetch=caches.prefetch if caches is not None else None)


def _refusals(observed: Observed) -> tuple[CreateFailure | None, ...]:
    """What the API server has refused to make; each is tried again at a time of its own."""
    return (observed.create_failure, observed.autoscaler_failure, observed.budget_failure)


def _caches(
    observed: Observed, service: ServiceState, decision: Decision | None, settings: Settings, now: datetime
) -> RollOut | None:
    """What the caches of nodes do for a roll-out: where old workers are, and where new ones have a place."""
    state, resolved = service.replicas, service.resolved
    if not state.outdated:
        return None
    given = decision.assignments if decision is not None else ()
    nodes = {*(pod.node for pod in state.outdated if pod.node is not None), *(one.node for one in given)}
    return roll_out(resolved.job.key.namespace, resolved.source, nodes, observed.node_models, settings, now)


def _actions(
    observed: Observed,
    service: ServiceState,
    decision: Decision | None,
    settings: Settings,
    tokens: Tokens,
    now: datetime,
    *,
    waits: frozenset[str] = frozenset(),
) -> tuple[Action, ...]:
    """What to do. No worker starts on a node of `waits`, whose cache fetches its model."""
    state, resolved = service.replicas, service.resolved
    actions: list[Action] = []
    if not is_held_up(observed.create_failure, settings, now):
        actions += _services(observed, service)
    unplaced = 0
    if decision is not None and decision.pending is not None:
        unplaced = max(0, state.missing - len(decision.assignments) - len(state.outdated))
    held_up = is_held_up(observed.budget_failure, settings, now)
    actions += plan_budget(observed, state.wanted, unplaced, held_up=held_up)
    if decision is not None and service.request is not None:
        for offset, (given, why) in enumerate(decision.explained[: service.request.workers]):
            if given.node in waits:
                continue
            number = state.next_number + offset
            made = create_worker(resolved, given, why, number=number, settings=settings, now=now, digest_of=tokens.digest)
            actions.append(made)
    actions.extend(DeletePod(pod.key, pod.uid, ending.message) for pod, ending in state.given_up)
    actions.extend(DeletePod(pod.key, pod.uid, "not wanted any more") for pod in state.superfluous)
    if state.may_make_room and (who := lacks_room(observed, service, decision, settings, now)) is not None:
        # A roll-out needs room beside the old workers; where there is none, one of them makes room.
        oldest = state.outdated[0]
        actions.append(DeletePod(oldest.key, oldest.uid, f"makes room for its successor: {who} has room for both"))
    actions.extend(delete_lost(observed))
    # While nothing answers, the newest ended pod keeps the last words; the others only fill the list.
    older = state.ended[:-1] if state.fault is not None or not state.ready else state.ended
    actions.extend(DeletePod(pod.key, pod.uid, "ended, and another worker answers in its place") for pod in older)
    newest = state.ended[-1] if len(older) < len(state.ended) else None
    if newest is not None and newest.lingering and (state.retry is None or state.retry <= now):
        # Until then it tells what the pause is for.
        cause = f"its worker has ended, and {', '.join(newest.lingering)} holds the place"
        actions.append(DeletePod(newest.key, newest.uid, cause))
    # At the end, since a worker that does not answer ends the plan.
    return (*actions, *_learned(observed, service, settings, now), *stop_orphaned(observed))


def _services(observed: Observed, service: ServiceState) -> Iterator[CreateService]:
    """The Services that are not there yet."""
    serve = service.resolved.spec.serve
    if not observed.has_service:
        yield CreateService(service_manifest(observed.job), "the job has no Service")
    if serve is not None and serve.headless and not observed.has_headless:
        yield CreateService(service_manifest(observed.job, headless=True), "the job has no headless Service")


def _learned(observed: Observed, service: ServiceState, settings: Settings, now: datetime) -> tuple[Action, ...]:
    """What the first ready worker tells of its model."""
    model = observed.model
    if model is None or not service.replicas.ready:
        return ()
    first = own_attempt(service.replicas.ready[0])
    facts, since = observed.facts_of(first), first.started or now
    status = learned(model, facts, accelerator=first.accelerator, classes=settings.accelerators, now=now, since=since)
    return (WriteModelStatus(model.key, model.uid, status, model.resource_version),) if status is not None else ()


def _conditions(
    observed: Observed,
    state: Replicas,
    pending: PendingReason | None,
    status: InferenceJobStatus,
    *,
    placing: bool,
    rolls_out: bool,
) -> tuple[tuple[UndatedCondition, ...], Phase]:
    # Where nothing else has room, a worker on a node that is about to go is as good as any other.
    stays = state.stays and pending is not None
    ready, wanted = len(state.heard if stays else state.answering), state.wanted
    count = len(state.serving if stays else state.current)
    placed = UndatedCondition(ConditionType.PLACED, Truth.TRUE, Reason.PLACED, f"{count}/{wanted} workers placed")
    if not wanted:
        text = "no worker is wanted; set replicas above zero to serve again" if state.asleep is None else ASLEEP
        return (ACCEPTED, UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SCALED_TO_ZERO, text)), Phase.SCALED_TO_ZERO
    if state.whole or stays:
        text = f"{ready}/{wanted} workers ready at {status.endpoint}{out_of_reach(observed)}"
        return (ACCEPTED, placed, UndatedCondition(ConditionType.READY, Truth.TRUE, Reason.SERVING, text)), Phase.SERVING
    reason, text, permanent = _why_not_ready(observed, state, pending)
    serving = len(state.heard)
    if state.serving:
        text = f"{serving}/{wanted} workers answer; {text}"
    # Once all have answered, a service answers as long as one of its workers does; what it lacks is told by Reconciling.
    enough = serving >= wanted or (serving > 0 and status.ready_time is not None)
    truth = Truth.TRUE if enough else Truth.FALSE
    where = placed if not state.missing or placing else UndatedCondition(ConditionType.PLACED, Truth.FALSE, reason, text)
    if permanent and not serving:
        stalled = UndatedCondition(ConditionType.STALLED, Truth.TRUE, reason, text)
        return (ACCEPTED, where, UndatedCondition(ConditionType.READY, Truth.FALSE, reason, text), stalled), Phase.FAILED
    phase = Phase.SERVING if serving else Phase.STARTING if reason is Reason.STARTING else Phase.WAITING
    if enough and reason is Reason.STARTING:
        # A service that answers is not starting; a fault in the way of more stays its reason, for people to see.
        reason = Reason.ROLLING_OUT if rolls_out else Reason.ADDING_WORKERS
    answers = UndatedCondition(ConditionType.READY, truth, reason, text)
    return (ACCEPTED, where, answers, UndatedCondition(ConditionType.RECONCILING, Truth.TRUE, reason, text)), phase


def _why_not_ready(observed: Observed, state: Replicas, pending: PendingReason | None) -> tuple[AnyReason, str, bool]:
    """Reason, message, and whether it can't go away by itself."""
    if state.fault is not None:
        # Nothing but a change cures a permanent fault; the next worker is there to find it.
        what = "a worker looks for a change" if state.fault.permanent else "the next worker starts"
        when = f"; {what} at {rfc3339(state.retry)}" if state.retry is not None else ""
        return state.fault.reason, f"{state.fault.message}{when}", state.fault.permanent
    for pod in state.current:
        if (problem := problem_of(pod)) is not None:
            return *problem, False
        reading = observed.readings.get(pod.uid)
        if not pod.ready and reading is not None and reading.telemetry.problem is not None:
            return WorkerReason.BACKEND_UNREACHABLE, reading.telemetry.problem[:_TOLD], False
    if pending is not None:
        return pending.reason, f"{waiting_words(pending)}{out_of_reach(observed)}", pending.final
    if observed.create_failure is not None:
        failure = observed.create_failure
        return failure.reason, told(failure), failure.reason is Reason.POD_INVALID
    awaited = awaited_secrets(observed.job.spec) if observed.job.spec is not None else ""
    ready = f"{len(state.ready)}/{state.wanted} workers of the newest revision ready"
    return Reason.STARTING, f"{ready}{awaited}{out_of_reach(observed)}", False


def _status(observed: Observed, service: ServiceState, now: datetime, pending: PendingReason | None = None) -> InferenceJobStatus:
    before, state, job, resolved = observed.job.status, service.replicas, observed.job, service.resolved
    pod = max(state.current, key=lambda p: p.number, default=None)
    newest = own_attempt(pod) if pod is not None else None
    facts = observed.facts_of(newest)
    completed = _first_ready(observed, state, now)
    return replace(
        before,
        attempts=max([p.number for p in observed.pods] + [before.attempts]),
        failed_attempts=0 if state.settles is not None and state.settles <= now else before.failed_attempts + state.untold,
        last_attempt=_last_failure(state, before.last_attempt, now),
        placement=placement_status(newest, facts, before.placement),
        model=_model(service, facts, before.model),
        latency=latency_of(observed, resolved.spec, now),
        start_time=before.start_time or min((p.created for p in state.current if p.created is not None), default=None),
        ready_time=completed,
        completion_time=None,
        deadline=decided(before, resolved.spec.deadline)
        or _deadline(resolved.spec.deadline, state, completed, pending, before.deadline, now),
        queue=queue_status(pending, before.queue, now),
        replicas=len(state.current) + len(state.stale),
        ready_replicas=len(state.heard),
        desired_replicas=state.wanted,
        asleep_since=state.asleep,
        current_revision=resolved.revisions.combined if state.whole else before.current_revision,
        background_tasks=background_tasks(observed, now),
        selector=",".join(f"{k}={v}" for k, v in names.selector(job.uid).items()),
        endpoint=endpoint(job),
    )


def _model(service: ServiceState, facts: ModelFacts | None, before: ModelStatus | None) -> ModelStatus | None:
    """Which model answers: while a new one is rolled out, that is the old one until a worker has loaded the new."""
    resolved, state = service.resolved, service.replicas
    if facts is None and state.stale and before is not None:
        return before
    return model_status(resolved.source, resolved.choice, facts, before)


def _deadline(
    deadline: datetime | None,
    state: Replicas,
    completed: datetime | None,
    pending: PendingReason | None,
    before: DeadlineStatus | None,
    now: datetime,
) -> DeadlineStatus | None:
    """When the wanted workers should all be ready: as soon as the last of them, which may still wait for room."""
    if pending is not None and completed is None:
        return waiting_deadline(deadline, pending, before, now)
    starting = any(not is_running(pod) for pod in state.current)
    return deadline_status(deadline, estimated=_estimate(state), completed=completed, before=before, now=now, under_way=starting)


def _last_failure(state: Replicas, before: AttemptStatus | None, now: datetime) -> AttemptStatus | None:
    """The newest worker that failed, or was given up."""
    over = [(pod, ending, now) for pod, ending in state.given_up]
    if state.failed and state.fault is not None:
        over.append((state.failed[-1], state.fault, ended_at(state.failed[-1], now)))
    if not over:
        return before
    newest, ending, end = max(over, key=lambda one: one[0].number)
    if before is not None and before.number >= newest.number:
        return before
    return AttemptStatus(
        number=newest.number,
        pod=newest.key.name,
        outcome=ending.outcome,
        reason=ending.reason.value,
        message=ending.message[:4096],
        end_time=end.replace(microsecond=0),
        node=planned_node(newest),
    )


def _first_ready(observed: Observed, state: Replicas, now: datetime) -> datetime | None:
    """When the wanted workers were first all ready; remembered from then on."""
    before = observed.job.status.ready_time
    if before is not None:
        return before
    return now.replace(microsecond=0) if state.wanted and len(state.ready) >= state.wanted else None


def _estimate(state: Replicas) -> datetime | None:
    """When the slowest of the starting workers should be ready, where its load time was measured."""
    starting = [
        p.worker.placement for p in state.current if not is_running(p) and p.worker is not None and p.worker.placement is not None
    ]
    if not starting or state.missing or any(p.cost.estimated for p in starting):
        return None
    return max(shift(p.decision_time, p.cost.latency_seconds) for p in starting)
