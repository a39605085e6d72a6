"""What a job wants from the fleet just now: nothing, or workers of some shape on some accelerator classes."""

from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.instants import shift
from inference_operator.api.job import DeadlinePolicy, InferenceJobSpec
from inference_operator.jobs import admission
from inference_operator.jobs.replicas import Replicas, replicas
from inference_operator.jobs.status import facts_of
from inference_operator.scheduling.estimate import key_of
from inference_operator.scheduling.types import PlacementRequest, RunningWork
from inference_operator.settings import Settings
from inference_operator.state.finished import is_finished
from inference_operator.state.objects import Model, Observed
from inference_operator.warmpools.eligibility import colocated_model_of, is_failing, pool_for
from inference_operator.workers.attempts import Attempts, attempts, expected_end, is_running, retry_time
from inference_operator.workers.options import _bound, _option, _planned_node, nodes_of, options
from inference_operator.workers.template_hash import revision

# From the signal to the free place, beside the batch that is finished first: a commit, and the kubelet's part.
_STOPPING_SECONDS = 2.0


@dataclass(frozen=True, slots=True)
class JobState:
    """How a job stands: admitted or not, and its attempts (batch) or replicas (serve)."""

    refusal: admission.Refusal | None
    revision: str = ""
    attempts: Attempts | None = None
    replicas: Replicas | None = None


def job_state(observed: Observed, settings: Settings, now: datetime) -> JobState:
    """Judge one job by what is observed of it."""
    refused = admission.refusal(observed, settings, now)
    spec = observed.job.spec
    if refused is not None or spec is None:
        return JobState(refused)
    current = revision(observed, settings)
    if spec.input is not None:
        state = attempts(observed, current, now, start_timeout_seconds=settings.start_timeout_seconds)
        return JobState(None, current, attempts=state)
    return JobState(None, current, replicas=replicas(observed, current, settings, now))


def placement_request(observed: Observed, job_state: JobState, settings: Settings, now: datetime) -> PlacementRequest | None:
    """The workers that the job wants placed now; None when it wants none."""
    job, spec = observed.job, observed.job.spec
    if spec is None or job_state.refusal or job.unreadable or job.deleting or spec.suspend or is_finished(job):
        return None
    if observed.create_failure is not None and create_retry_time(observed, settings) > now:
        return None
    slots = (
        _batch_slots(observed, job_state.attempts, spec, settings, now)
        if job_state.attempts
        else _serve_slots(job_state.replicas, spec, now)
    )
    if not slots:
        return None
    # A service that was ready once has met its deadline or missed it; workers that it wants later are neither late nor refused.
    was_ready = spec.input is None and job.status.completion_time is not None
    return PlacementRequest(
        key=job.key,
        uid=job.uid,
        revision=job_state.revision,
        slots=slots,
        options=options(observed, settings),
        created=job.created,
        priority=spec.priority,
        deadline=None if was_ready else spec.deadline,
        firm=spec.deadline_policy is DeadlinePolicy.FIRM and not was_ready,
        holds=spec.input is None,
        pool=pool_for(observed, settings) if spec.input is not None else None,
        # Whatever an attempt failed of, company does not make the next one better.
        colocated=colocated_model_of(observed, settings)
        if job_state.attempts is not None and not job_state.attempts.failed
        else None,
        beside=nodes_of(job_state.replicas.current) if job_state.replicas is not None else (),
    )


def reckoned(model: Model | None) -> object:
    """What of a model's status changes what a job that waits wants: what is measured at all, and whether its pool keeps jobs away.

    How fast it was in the last run is not: it is told once a second, and ten thousand jobs need not be looked at for that.
    """
    if model is None:
        return None
    return is_failing(model), {(key_of(p), p.device_bytes > 0) for p in model.status.profiles}


def running_work(observed: Observed, job_state: JobState, settings: Settings, now: datetime) -> RunningWork | None:
    """The place that a batch holds, and whether it may be asked to give it up; None for all that hold none, or for good."""
    job, spec, state = observed.job, observed.job.spec, job_state.attempts
    if spec is None or state is None or state.pod is None or job.deleting:
        return None
    pod, worker = state.pod, state.pod.worker
    # A task on a warm worker holds no place of its own.
    if (
        pod.hosted_task is not None
        or pod.terminal
        or pod.uid in observed.lost
        or worker is None
        or worker.accelerator not in settings.accelerators
    ):
        return None
    node = pod.node or _planned_node(pod)
    if node is None:
        return None
    accelerator = settings.accelerators[worker.accelerator]
    option = _option(observed, spec, worker.accelerator, accelerator, settings, _bound(observed, spec, None))
    begun = pod.started or pod.created or now
    leaves = pod.deleting or state.ending is not None
    end = expected_end(observed, state) or shift(begun, option.estimate.total_seconds)
    facts = facts_of(pod, observed.readings)
    batch_seconds = facts.batch_size / facts.items_per_second if facts is not None and facts.items_per_second else 0.0
    leaving = _STOPPING_SECONDS + batch_seconds
    return RunningWork(
        key=job.key,
        uid=job.uid,
        revision=job_state.revision,
        node=node,
        requirements=option.requirements,
        begun=begun,
        end=shift(now, leaving) if leaves else end,
        priority=spec.priority,
        deadline=spec.deadline,
        # Answers in place are kept nowhere but in the worker: leaving would do the work twice.
        movable=is_running(pod)
        and not leaves
        and not spec.suspend
        and spec.output is not None
        and job.status.preemptions < settings.preemptions_per_job,
        leaving_seconds=leaving,
        resuming_seconds=option.estimate.load_seconds,
    )


def create_retry_time(observed: Observed, settings: Settings) -> datetime:
    """When what the API server refused is tried again."""
    create_failure = observed.create_failure
    assert create_failure is not None
    wait = min(settings.backoff_seconds * 2.0 ** min(create_failure.count, 20), settings.backoff_limit_seconds)
    return shift(create_failure.time, wait)


def _batch_slots(observed: Observed, state: Attempts, spec: InferenceJobSpec, settings: Settings, now: datetime) -> int:
    if state.number and state.ending is None:
        return 0
    if any(not pod.terminal and pod.uid not in observed.lost for pod in observed.pods):
        # A worker that is on its way out still holds the output's lock and its place on the node.
        return 0
    if state.ending is not None and (state.succeeded or is_lost(state, spec)):
        return 0
    retry = retry_time(state, settings)
    return 1 if retry is None or retry <= now else 0


def is_lost(state: Attempts, spec: InferenceJobSpec) -> bool:
    """Whether no further attempt will be made after a failure."""
    return state.ending is not None and not state.succeeded and (state.ending.permanent or state.failed >= spec.max_attempts)


def _serve_slots(state: Replicas | None, spec: InferenceJobSpec, now: datetime) -> int:
    if state is None or (spec.serve is not None and spec.serve.until is not None and spec.serve.until <= now):
        return 0
    if state.fault is not None and state.retry is not None and state.retry > now:
        return 0
    return state.missing
