"""What to do and what to say about one job: the whole decision, as a plan that can be printed and compared."""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import NO_PLACE, ConditionType, Reason, Truth, UndatedCondition, calm, dated, find
from inference_operator.api.instants import shift
from inference_operator.api.job_status import InferenceJobStatus, ModelStatus, Outlook, Phase
from inference_operator.autoscaling.hpa import decide_hpa, removed
from inference_operator.jobs.batch import plan_batch
from inference_operator.jobs.batch_status import batch_status
from inference_operator.jobs.bounds import bounded, bounded_after_the_end
from inference_operator.jobs.events import job_events
from inference_operator.jobs.outcome import Outcome, released, stop_all, suspended
from inference_operator.jobs.provisioning import provisioned, withdrawn
from inference_operator.jobs.queued import finished, queued
from inference_operator.jobs.refused import plan_refused
from inference_operator.jobs.serve import plan_serve
from inference_operator.jobs.state import BatchState, Closed, JobState, Refused, ServiceState
from inference_operator.jobs.status import failed_by, missed_for_good, model_status
from inference_operator.scheduling.types import Decision
from inference_operator.settings import Settings
from inference_operator.state.finished import spec_hash
from inference_operator.state.observed import Observed
from inference_operator.warmpools.credentials import Tokens
from inference_operator.workers.actions import Action, CreatePod, DeleteJob, DeletePod, Plan, WriteStatus
from inference_operator.workers.attempts import Attempts
from inference_operator.workers.resolve import ResolvedJob
from inference_operator.workers.source import remembered


def plan(observed: Observed, state: JobState, decision: Decision | None, settings: Settings, tokens: Tokens, now: datetime) -> Plan:
    """Decide. `decision` is the scheduler's, and None before it has spoken."""
    job = observed.job
    if isinstance(state, Closed):
        # Owner references do the rest of a deletion: nothing here may hold it up.
        return Plan() if job.deleting or job.unreadable is not None else _after_the_end(observed, now)
    outcome = _outcome(observed, state, _current(decision, state), settings, tokens, now)
    outcome = _autoscaled(outcome, observed, settings, now)
    outcome = replace(outcome, actions=_each_once((*released(observed), *outcome.actions)))
    if outcome.silent:
        return Plan(outcome.actions, outcome.recheck, outcome.prefetch)
    outcome = _told_of_its_model(outcome, observed, state)
    outcome = provisioned(outcome, observed, state, _current(decision, state), settings, now)
    outcome = queued(outcome, observed, state, settings, now)
    due = missed_for_good(outcome.status.deadline, job.status.deadline, is_batch=job.is_batch)
    outcome = replace(outcome, status=replace(outcome.status, deadline=failed_by(due) if outcome.failed else due))
    status = _settle(outcome, observed, now)
    actions: list[Action] = list(outcome.actions)
    if status != job.status:
        actions.append(WriteStatus(job.key, job.uid, status, job.resource_version))
    return Plan((*actions, *job_events(observed, state, status)), outcome.recheck, outcome.prefetch)


def _current(decision: Decision | None, state: Refused | BatchState | ServiceState) -> Decision | None:
    """The decision, unless it was made about another job of this name or another revision of it."""
    if decision is None or isinstance(state, Refused):
        return None
    resolved = state.resolved
    return decision if (decision.uid, decision.revision) == (resolved.job.uid, resolved.revisions.combined) else None


def _outcome(
    observed: Observed,
    state: Refused | BatchState | ServiceState,
    decision: Decision | None,
    settings: Settings,
    tokens: Tokens,
    now: datetime,
) -> Outcome:
    match state:
        case Refused():
            return plan_refused(observed, state.refusal, now)
        case BatchState() if state.resolved.spec.suspend:
            return suspended(observed, batch_status(observed, state, settings, now, stops=True), now)
        case ServiceState() if state.resolved.spec.suspend:
            return suspended(observed, replace(observed.job.status, model=_model(state.resolved), latency=None), now)
        case BatchState():
            # The scheduler answers within milliseconds; a status that says "not decided yet" would cost a write and tell nothing.
            undecided = decision is None and state.request is not None and not _has_news(observed, state.attempts)
            return Outcome(silent=True) if undecided else plan_batch(observed, state, decision, settings, now)
        case ServiceState():
            outcome = plan_serve(observed, state, decision, settings, tokens, now)
            # What needs no place is done without waiting for one: workers that go, the Service, and its end. A worker that is
            # given up is told by the look that deletes it.
            undecided = decision is None and state.request is not None and not outcome.ended and not state.replicas.given_up
            return replace(outcome, silent=True) if undecided else outcome


def _told_of_its_model(outcome: Outcome, observed: Observed, state: Refused | BatchState | ServiceState) -> Outcome:
    """Remember the InferenceModel that workers are made of, and say so where they are made without it, because it is deleted."""
    if isinstance(state, Refused):
        return outcome
    model, version = state.resolved.model, state.resolved.version
    begun = outcome.status.attempts or any(isinstance(action, CreatePod) for action in outcome.actions)
    if model is None or version is None or not begun or outcome.ended:
        return replace(outcome, status=replace(outcome.status, resolved_model=None))
    known = replace(outcome.status, resolved_model=remembered(model.key.name, version, model))
    if observed.model is not None:
        return replace(outcome, status=known)
    text = (
        f"InferenceModel {model.key.name!r} is deleted; the job goes on with version {version.name!r} as it was: "
        "create the InferenceModel again, and the job follows it"
    )
    deleted = UndatedCondition(ConditionType.ACCEPTED, Truth.TRUE, Reason.MODEL_DELETED, text)
    conditions = tuple(deleted if (one.type, one.status) == deleted[:2] else one for one in outcome.conditions)
    return replace(outcome, status=known, conditions=conditions)


def _model(resolved: ResolvedJob) -> ModelStatus:
    return model_status(resolved.source, resolved.choice, None, resolved.job.status.model)


def _autoscaled(outcome: Outcome, observed: Observed, settings: Settings, now: datetime) -> Outcome:
    """Add what autoscaling asks for to what was decided about the job."""
    if outcome.silent or observed.job.spec is None:
        return outcome
    no_place = any(c.type is ConditionType.PLACED and c.reason in NO_PLACE for c in outcome.conditions)
    over = outcome.phase in (Phase.FAILED, Phase.SUCCEEDED) or outcome.status.asleep_since is not None
    decided = decide_hpa(observed, observed.job.spec, settings, now, over=over, no_place=no_place)
    more = (decided.condition,) if decided.condition is not None else ()
    namespace = observed.job.key.namespace
    limits = settings.namespace_limits.of(namespace)
    conditions = bounded((*outcome.conditions, *more), observed.job.spec, namespace, limits)
    return replace(outcome, actions=(*outcome.actions, *decided.actions), conditions=conditions)


def _has_news(observed: Observed, state: Attempts) -> bool:
    """Whether an attempt ended and no status tells it yet: the next one must not begin before that is written."""
    return state.ending is not None and state.untold_by(observed.job.status.last_attempt)


def _settle(outcome: Outcome, observed: Observed, now: datetime) -> InferenceJobStatus:
    """The status to be: conditions dated, and what would only make noise kept as it was."""
    before = observed.job.status
    conditions = dated(outcome.conditions, before=before.conditions, generation=observed.job.generation, now=now)
    if _outlook(before) == _outlook(outcome.status):
        conditions = tuple(calm(c, before.conditions) for c in conditions)
    kinds = (ConditionType.READY, ConditionType.SUSPENDED, ConditionType.SUCCEEDED)
    summary = next((found for kind in kinds if (found := find(conditions, kind)) is not None), None)
    return replace(
        outcome.status,
        observed_generation=observed.job.generation,
        phase=outcome.phase.value,
        reason=summary.reason if summary is not None else None,
        conditions=list(conditions),
        ended_spec=spec_hash(observed.job.spec) if outcome.ended and observed.job.spec is not None else None,
    )


def _each_once(actions: tuple[Action, ...]) -> tuple[Action, ...]:
    """The actions without a second deletion of the same pod."""
    found: dict[object, Action] = {}
    for number, action in enumerate(actions):
        found.setdefault(action.uid if isinstance(action, DeletePod) else number, action)
    return tuple(found.values())


def _outlook(status: InferenceJobStatus) -> Outlook | None:
    return status.deadline.outlook if status.deadline is not None else None


def _after_the_end(observed: Observed, now: datetime) -> Plan:
    """Free what is still held, keep the generation current, and delete the job when its time is up."""
    job = observed.job
    freed = (*stop_all(observed, "the job has ended"), *released(observed), *withdrawn(observed, "the job has ended"))
    actions: list[Action] = [*freed, *removed(observed, "the job has ended"), *finished(observed, now)]
    if job.status.observed_generation != job.generation:
        conditions = [replace(condition, observed_generation=job.generation) for condition in job.status.conditions]
        if job.spec is not None:
            conditions = [bounded_after_the_end(condition, job.spec) for condition in conditions]
        status = replace(job.status, observed_generation=job.generation, conditions=conditions)
        actions.append(WriteStatus(job.key, job.uid, status, job.resource_version))
    ttl = job.spec.ttl_seconds_after_finished if job.spec is not None else None
    ended = job.status.completion_time or _ended_since(job.status)
    if ttl is None or ended is None:
        return Plan(tuple(actions))
    due = shift(ended, ttl)
    if now >= due:
        return Plan((*actions, DeleteJob(job.key, job.uid, f"finished {ttl} s ago, as ttlSecondsAfterFinished says")))
    return Plan(tuple(actions), due)


def _ended_since(status: InferenceJobStatus) -> datetime | None:
    succeeded = find(status.conditions, ConditionType.SUCCEEDED)
    return succeeded.last_transition_time if succeeded is not None else None
