"""What a job wants from the scheduler just now, if anything, and the work that it has running."""

from dataclasses import replace
from datetime import datetime

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import shift
from inference_operator.api.job import DeadlinePolicy
from inference_operator.api.job_status import AttemptOutcome
from inference_operator.jobs.replicas import Replicas
from inference_operator.scheduling.estimate import key_of
from inference_operator.scheduling.slack_types import SlackTask
from inference_operator.scheduling.types import ColocatedModel, PlacementRequest, RunningWork
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Model
from inference_operator.state.observed import Observed
from inference_operator.state.request import job_request
from inference_operator.state.runner import OwnPod
from inference_operator.warmpools.eligibility import colocated_model_of, is_failing, pool_for
from inference_operator.warmpools.slack import slack_task
from inference_operator.workers.attempts import Attempts, is_lost, moves_at, retry_time
from inference_operator.workers.creation import is_held_up
from inference_operator.workers.options import nodes_of, planned_node
from inference_operator.workers.pace import expected_end
from inference_operator.workers.placeholder import growing
from inference_operator.workers.resolve import ResolvedJob
from inference_protocol.reasons import WorkerReason

# From the signal to the free place, beside the batch that is finished first: a commit, and the kubelet's part.
_STOPPING_SECONDS = 2.0
# What workers say of their ends themselves.
_WORKERS_OWN = frozenset(reason.value for reason in WorkerReason)


def batch_request(
    observed: Observed, resolved: ResolvedJob, tried: Attempts, settings: Settings, now: datetime
) -> PlacementRequest | None:
    """Return the worker that a batch wants placed now; None when it wants none."""
    if _held_up(observed, resolved, settings, now) or not _wants_attempt(observed, resolved, tried, settings, now):
        return None
    failed_on = _failed_on(observed, tried)
    if resolved.spec.queue_name is not None:
        # Its quota is of a worker of its own: what others have made is not counted to it.
        return _request(resolved, settings, 1, failed_on=failed_on, now=now)
    return _request(
        resolved,
        settings,
        1,
        pool=pool_for(resolved, settings),
        # Whatever an attempt failed of, company does not make the next one better.
        colocated=colocated_model_of(resolved, settings) if not tried.failed else None,
        slack=slack_task(resolved, tried.failed, settings),
        failed_on=failed_on,
        now=now,
    )


def service_request(
    observed: Observed, resolved: ResolvedJob, ours: Replicas, settings: Settings, now: datetime
) -> PlacementRequest | None:
    """Return the workers that a service wants placed now; None when it wants none."""
    serve = resolved.spec.serve
    ended = serve is not None and serve.until is not None and serve.until <= now
    backing_off = ours.fault is not None and ours.retry is not None and ours.retry > now
    spreads = ours.spreads is not None and ours.spreads <= now
    if _held_up(observed, resolved, settings, now) or ended or backing_off or not (ours.missing or spreads):
        return None
    # A service that was ready once has met its deadline or missed it; workers that it wants later are neither late nor refused.
    was_ready = observed.job.status.ready_time is not None
    wanted = _request(
        resolved,
        settings,
        ours.missing or 1,
        was_ready=was_ready,
        holds=True,
        beside=nodes_of(ours.current),
        failed_on=_workers_failed_on(observed, ours),
        now=now,
    )
    return _spreading(wanted, ours) if spreads else wanted


def _failed_on(observed: Observed, tried: Attempts) -> tuple[str, ...]:
    """The node where the last attempt failed, could not start or was lost."""
    ending, told = tried.ending, observed.job.status.last_attempt
    if ending is None or not (ending.outcome is AttemptOutcome.FAILED or ending.reason is Reason.WORKER_LOST):
        return ()
    if tried.newest is not None:
        return nodes_of((tried.newest.pod,))
    return (told.node,) if told is not None and told.number == tried.number and told.node is not None else ()


def _workers_failed_on(observed: Observed, ours: Replicas) -> tuple[str, ...]:
    """The nodes where a service's workers are silent or could not start, until a later one has answered for long enough.

    One that failed by itself says little of its node, and its successor is better off there than beside the others.
    """
    told = observed.job.status.last_attempt
    newest = max((pod.number for pod in ours.current), default=0)
    fresh = told is not None and (observed.job.status.failed_attempts > 0 or told.number > newest)
    before = (told.node,) if fresh and told is not None and told.node is not None and told.reason not in _WORKERS_OWN else ()
    silent = [pod for pod in ours.stale if pod.uid in ours.silent]
    turned_away = [pod for pod in ours.failed if pod.started is None]
    return tuple(sorted({*before, *nodes_of((*silent, *turned_away, *(pod for pod, _ in ours.given_up)))}))


def _spreading(wanted: PlacementRequest, ours: Replicas) -> PlacementRequest:
    """For another node of the classes that the workers are on: it is no reason for another class, or for new nodes."""
    classes = {pod.worker.accelerator for pod in ours.current if pod.worker is not None}
    options = tuple(option for option in wanted.options if option.accelerator in classes)
    return replace(wanted, options=options or wanted.options, spreads=True, deadline=None, firm=False, grows=frozenset())


def _held_up(observed: Observed, resolved: ResolvedJob, settings: Settings, now: datetime) -> bool:
    return resolved.spec.suspend or is_held_up(observed.create_failure, settings, now)


def _request(
    resolved: ResolvedJob,
    settings: Settings,
    count: int,
    *,
    was_ready: bool = False,
    holds: bool = False,
    pool: Key | None = None,
    colocated: ColocatedModel | None = None,
    slack: SlackTask | None = None,
    beside: tuple[str, ...] = (),
    failed_on: tuple[str, ...] = (),
    now: datetime,
) -> PlacementRequest:
    job, spec = resolved.job, resolved.spec
    return PlacementRequest(
        key=job_request(job.key),
        uid=job.uid,
        revision=resolved.revisions.combined,
        workers=count,
        options=resolved.options,
        created=job.created,
        priority=priority(resolved, settings),
        deadline=None if was_ready else spec.deadline,
        firm=spec.deadline_policy is DeadlinePolicy.FIRM and not was_ready,
        holds=holds,
        pool=pool,
        colocated=colocated,
        slack=slack,
        beside=beside,
        failed_on=failed_on,
        grows=growing(job, [option.accelerator for option in resolved.options], settings, now),
    )


def priority(resolved: ResolvedJob, settings: Settings) -> int:
    """Return the priority that a job has: its own, or the highest that its namespace may have."""
    return min(resolved.spec.priority, settings.namespace_limits.of(resolved.job.key.namespace).max_priority)


def _wants_attempt(observed: Observed, resolved: ResolvedJob, tried: Attempts, settings: Settings, now: datetime) -> bool:
    unheard = observed.lost | observed.silent
    under_way = tried.newest is not None and tried.ending is None
    if under_way and tried.newest is not None and tried.newest.pod.uid not in observed.silent:
        return False
    if any(not attempt.terminal and attempt.pod.uid not in unheard for attempt in observed.attempts):
        # A worker that is on its way out still commits what it has, and holds its place on the node.
        return False
    if tried.ending is not None and (tried.succeeded or is_lost(tried, resolved.spec)):
        return False
    if tried.takes_over:
        # It claims by its status, which is not written yet.
        return False
    retry = moves_at(tried, settings) if under_way else retry_time(tried, settings)
    return retry is None or retry <= now


def running_work(
    observed: Observed, resolved: ResolvedJob, tried: Attempts, settings: Settings, now: datetime
) -> RunningWork | None:
    """Return the place that a batch holds, and whether it may be asked to give it up; None for all that hold none, or for good."""
    attempt, spec = tried.newest, resolved.spec
    # A task on a warm worker holds no place of its own.
    if attempt is None or not isinstance(attempt.runner, OwnPod) or attempt.terminal or attempt.pod.uid in observed.lost:
        return None
    option = next((o for o in resolved.options if o.accelerator == attempt.accelerator), None)
    node = planned_node(attempt.pod)
    if option is None or node is None:
        return None
    begun = attempt.started or attempt.created or now
    leaves = attempt.leaving or tried.ending is not None
    end = expected_end(observed, tried) or shift(begun, option.estimate.total_seconds)
    facts = observed.facts_of(attempt)
    batch_seconds = facts.batch_size / facts.items_per_second if facts is not None and facts.items_per_second else 0.0
    leaving = _STOPPING_SECONDS + batch_seconds
    return RunningWork(
        key=job_request(resolved.job.key),
        uid=resolved.job.uid,
        revision=resolved.revisions.combined,
        node=node,
        requirements=option.requirements,
        begun=begun,
        end=shift(now, leaving) if leaves else end,
        priority=priority(resolved, settings),
        deadline=spec.deadline,
        # Answers in place are kept nowhere but in the worker: leaving would do the work twice.
        movable=attempt.running
        and not leaves
        and attempt.pod.uid not in observed.silent
        and not spec.suspend
        and spec.output is not None
        and resolved.job.status.preemptions < settings.preemptions_per_job,
        leaving_seconds=leaving,
        resuming_seconds=option.estimate.load_seconds,
    )


def what_waiting_jobs_read(model: Model | None) -> object:
    """Return what of a model's status changes what a waiting job wants: what is measured at all, and whether its pool fails.

    How fast it was in the last run is not: it is told once a second, and ten thousand jobs need not be looked at for that.
    """
    if model is None:
        return None
    return is_failing(model), {(key_of(p), p.device_bytes > 0) for p in model.status.profiles}
