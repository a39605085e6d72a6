"""The operator's view of the cluster: what the watches and our own writes have shown, indexed by job.

Only the newest version of an object counts, so a watch that lags behind our own write can't turn the view back. Bodies are
cut down to domain values on the way in: ten thousand raw objects would not fit.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from inference_operator.decisions.lodging import pool_key
from inference_operator.decisions.need import is_finished
from inference_operator.domain.cluster import (
    Autoscaler,
    Job,
    Key,
    Lodging,
    MetricsApi,
    MetricsApiState,
    Model,
    Node,
    Observed,
    Pod,
    PodPhase,
    PoolObserved,
    Reading,
    Setback,
    TaskId,
    Worker,
)
from inference_operator.domain.instants import shift
from inference_operator.domain.job import AttemptOutcome, AttemptStatus
from inference_operator.domain.load import Measure
from inference_operator.domain.power import Drawn, Exporter
from inference_operator.domain.topology import Terms, Volume
from inference_protocol.messages import TaskState

# An assumed pod that the API server never showed is dropped after this: the write was lost.
_ASSUMED_FOR = timedelta(seconds=30)


def is_newer(new: str, old: str) -> bool:
    """Compare resource versions. They are opaque by contract, numbers in fact; what can't be compared counts as newer."""
    if new.isdigit() and old.isdigit():
        return int(new) >= int(old)
    return True


class Store:
    """Jobs, models, nodes, pods, services, and what the operator itself remembers. One event loop; no locks."""

    def __init__(self) -> None:
        self.jobs: dict[Key, Job] = {}
        self.models: dict[Key, Model] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[Key, Pod] = {}
        # Services by their job's uid.
        self.services: dict[str, Key] = {}
        self.readings: dict[str, Reading] = {}
        # Tasks that a worker's last reading told of and no job owned then, with the time when that was first so, by the pod's uid.
        self._unowned: dict[str, dict[TaskId, datetime]] = {}
        # What warm workers have said of tasks, with the time it was heard, by job's uid and attempt.
        self.tasks: dict[TaskId, tuple[TaskState, datetime]] = {}
        # Tasks that a worker was told to stop, as pods are marked that we have deleted.
        self._stopping: set[TaskId] = set()
        # What a warm worker ran when it ended, as far as is known, by its pod's uid.
        self._last_run: dict[str, TaskId] = {}
        # Jobs whose newest attempt runs, by the pod that runs it.
        self._lodgers: dict[Key, set[Key]] = {}
        self.setbacks: dict[Key, Setback] = {}
        # Measures of serving jobs by their uid.
        self.measures: dict[str, Measure] = {}
        self.autoscalers: dict[Key, Autoscaler] = {}
        self.volumes: dict[str, Volume] = {}
        # The same by their claims' namespaces and names: all jobs of a namespace share one look.
        self._terms: dict[str, dict[str, Terms]] = {}
        self.metrics_api = MetricsApi(MetricsApiState.DISABLED)
        self.exporters: dict[Key, Exporter] = {}
        # What the devices of a worker have drawn, by its pod's uid and theirs.
        self.meters: dict[str, dict[str, Drawn]] = {}
        # How nodes are used beyond what their pods ask for: by strangers, as meters tell, and by our workers, as they tell.
        self.strangers: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        self._pods_of: dict[str, set[Key]] = {}
        self._jobs_of: dict[Key, set[Key]] = {}
        self._keys_by_uid: dict[str, Key] = {}
        self._gone: dict[str, None] = {}

    # jobs

    def put_job(self, job: Job) -> bool:
        """Take a job in; False when nothing changed or it is older than what is known."""
        old = self.jobs.get(job.key)
        if job.uid in self._gone:
            return False
        if old is not None and old.uid == job.uid and (not is_newer(job.resource_version, old.resource_version) or old == job):
            return False
        self._unlink(old)
        if old is not None and old.uid != job.uid:
            self.setbacks.pop(job.key, None)
        self.jobs[job.key] = job
        self._keys_by_uid[job.uid] = job.key
        if (pod := _at_work(job)) is not None:
            self._lodgers.setdefault(pod, set()).add(job.key)
        if job.spec is not None:
            self._jobs_of.setdefault(Key(job.key.namespace, job.spec.model), set()).add(job.key)
        return True

    def drop_job(self, key: Key, uid: str, *, for_good: bool = True) -> None:
        """The job is gone; for good, unless that is only what one answer said."""
        if for_good:
            self._bury(uid)
        old = self.jobs.get(key)
        if old is None or old.uid != uid:
            return
        self._unlink(old)
        del self.jobs[key]
        self.setbacks.pop(key, None)
        for id_ in [id_ for id_ in self.tasks if id_[0] == uid] if old.status.attempts else ():
            self.drop_task(*id_)

    def _unlink(self, job: Job | None) -> None:
        if job is None:
            return
        self._keys_by_uid.pop(job.uid, None)
        if (pod := _at_work(job)) is not None and (lodgers := self._lodgers.get(pod)) is not None:
            lodgers.discard(job.key)
            if not lodgers:
                del self._lodgers[pod]
        if job.spec is not None and (users := self._jobs_of.get(Key(job.key.namespace, job.spec.model))) is not None:
            users.discard(job.key)
            if not users:
                del self._jobs_of[Key(job.key.namespace, job.spec.model)]

    def jobs_of(self, model: Key) -> tuple[Key, ...]:
        """The jobs that name a model."""
        return tuple(self._jobs_of.get(model, ()))

    def job_key(self, uid: str) -> Key | None:
        """The key of a job by its uid."""
        return self._keys_by_uid.get(uid)

    def model_key(self, uid: str) -> Key | None:
        """The key of a model by its uid."""
        return next((key for key, model in self.models.items() if model.uid == uid), None)

    # pods

    def put_pod(self, pod: Pod) -> bool:
        """Take a pod in; False when it is older than what is known."""
        old = self.pods.get(pod.key)
        if pod.uid and pod.uid in self._gone:
            return False
        if (
            old is not None
            and old.uid == pod.uid
            and pod.uid
            and (pod == old or not is_newer(pod.resource_version, old.resource_version))
        ):
            return False
        if old is not None:
            self._forget_pod(old)
            if old.uid not in ("", pod.uid):
                self._forget_tasks(old.key)
        self.pods[pod.key] = pod
        if pod.worker is not None and pod.worker.pool and pod.terminal and (running := self._at_its_turn(pod)) is not None:
            self._last_run.setdefault(pod.uid, running)
        if pod.worker is not None:
            self._pods_of.setdefault(pod.worker.job_uid, set()).add(pod.key)
        return True

    def drop_pod(self, key: Key, uid: str) -> None:
        """The pod is gone. An assumed pod (no uid yet) goes by its key alone."""
        old = self.pods.get(key)
        if uid:
            self._bury(uid)
        if old is None or (uid and old.uid and old.uid != uid):
            return
        self._forget_pod(old)
        self._forget_tasks(key)
        del self.pods[key]
        self.readings.pop(old.uid, None)
        self.meters.pop(old.uid, None)
        self._unowned.pop(old.uid, None)
        self._last_run.pop(old.uid, None)

    def mark_deleting(self, key: Key, uid: str) -> None:
        """We have deleted the pod: until the watch says so too, nobody needs to delete it again."""
        pod = self.pods.get(key)
        if pod is not None and pod.uid == uid:
            self.pods[key] = replace(pod, deleting=True)

    def _forget_pod(self, pod: Pod) -> None:
        if pod.worker is None:
            return
        keys = self._pods_of.get(pod.worker.job_uid)
        if keys is not None:
            keys.discard(pod.key)
            if not keys:
                del self._pods_of[pod.worker.job_uid]

    def _forget_tasks(self, host: Key) -> None:
        """What a worker has said of tasks that it has not ended says nothing of one that comes after it under its name."""
        for job in self.lodgers(host):
            attempt = self.jobs[job].status.last_attempt
            id_ = (self.jobs[job].uid, attempt.number if attempt is not None else 0)
            known = self.tasks.get(id_)
            if known is not None and known[0].report is None:
                self.drop_task(*id_)

    def drop_stale_assumptions(self, now: datetime) -> tuple[str, ...]:
        """Drop assumed pods that never appeared; returns the uids of their jobs."""
        lost = [p for p in self.pods.values() if not p.uid and p.created is not None and now - p.created > _ASSUMED_FOR]
        for pod in lost:
            self.drop_pod(pod.key, "")
        return tuple(pod.worker.job_uid for pod in lost if pod.worker is not None)

    def workers_on(self, node: str) -> tuple[Pod, ...]:
        """The worker pods on one node."""
        keys = (key for keys in self._pods_of.values() for key in keys)
        return tuple(pod for key in keys if (pod := self.pods[key]).node == node)

    def leaked(self, now: datetime) -> tuple[Pod, ...]:
        """Workers that live though their owner is unknown or finished, and that nobody has told to stop for a while."""
        models = {model.uid for model in self.models.values()}
        return tuple(
            pod
            for keys in self._pods_of.values()
            for key in keys
            if _holds(pod := self.pods[key], now) and pod.worker is not None and not self._is_wanted(pod.worker, models)
        )

    def _is_wanted(self, worker: Worker, models: set[str]) -> bool:
        if worker.pool:
            return worker.job_uid in models
        key = self._keys_by_uid.get(worker.job_uid)
        return key is not None and not is_finished(self.jobs[key])

    def _is_lost(self, pod: Pod) -> bool:
        if pod.node is None:
            return False
        node = self.nodes.get(pod.node)
        # What a node that is not ready was told to end it may never end, or never say so.
        return node is None or not node.reachable or (pod.deleting and not node.ready)

    def workers_of(self, uid: str) -> tuple[Pod, ...]:
        """The worker pods of one job."""
        return tuple(self.pods[key] for key in self._pods_of.get(uid, ()))

    # volumes

    def put_volume(self, name: str, volume: Volume | None) -> set[str]:
        """Take a volume in, None for one that holds nobody back; returns the namespaces where what can be mounted has changed."""
        before = self.volumes.pop(name, None)
        if volume is not None:
            self.volumes[name] = volume
        if before is not None and volume is not None and before.says == volume.says:
            return set()
        touched = {found.namespace for found in (before, volume) if found is not None}
        for namespace in touched:
            # Made anew, not changed: snapshots share it.
            self._terms[namespace] = dict(self._terms.get(namespace, {}))
        # The claim may have another volume by now.
        if before is not None and self._terms[before.namespace].get(before.claim) is before.terms:
            del self._terms[before.namespace][before.claim]
        if volume is not None:
            self._terms[volume.namespace][volume.claim] = volume.terms
        return touched

    # tasks on warm workers

    def put_reading(self, pod: Pod, reading: Reading) -> None:
        """Take in a worker's answer, and which of its tasks no job owns: looked for later, one that has ended would seem so."""
        before = self._unowned.pop(pod.uid, {})
        unowned = [(t.uid, t.attempt) for t in reading.telemetry.tasks if not (t.stopping or self._is_owned(t))]
        if unowned:
            self._unowned[pod.uid] = {id_: before.get(id_, reading.time) for id_ in unowned}
        self.readings[pod.uid] = reading

    def _is_owned(self, task: TaskState) -> bool:
        key = self.job_key(task.uid)
        return key is not None and task.attempt >= self.jobs[key].status.attempts

    def strays(self, pod: Pod, now: datetime) -> tuple[TaskId, ...]:
        """A worker's tasks that nobody waits for: their job has gone or gone on, or is unknown for longer than news take."""
        return tuple(id_ for id_, since in self._unowned.get(pod.uid, {}).items() if self._is_stray(id_, since, now))

    def _is_stray(self, id_: TaskId, since: datetime, now: datetime) -> bool:
        uid, attempt = id_
        if (key := self.job_key(uid)) is not None:
            return attempt < self.jobs[key].status.attempts
        return uid in self._gone or now - since > _ASSUMED_FOR

    def forget_stray(self, host: Key, id_: TaskId) -> None:
        """A worker was told to stop it: its next answer says whether it has heard."""
        if (pod := self.pods.get(host)) is not None:
            self._unowned.get(pod.uid, {}).pop(id_, None)

    def _at_its_turn(self, host: Pod) -> TaskId | None:
        """The task that a worker runs, which takes one after the other as they come; None when nothing is known of any.

        First come those that its last reading told of, in their order, then those that were ordered since.
        """
        reading = self.readings.get(host.uid)
        told = [(t.uid, t.attempt) for t in reading.telemetry.tasks] if reading is not None else []
        newest = [(job.uid, job.status.attempts) for job in (self.jobs[key] for key in self.lodgers(host.key))]
        ordered = sorted((id_ for id_ in newest if id_ in self.tasks), key=lambda id_: self.tasks[id_][1])
        known = ((id_, self.tasks.get(id_)) for id_ in (*told, *ordered))
        return next((id_ for id_, heard in known if heard is None or heard[0].report is None), None)

    def put_task(self, state: TaskState, now: datetime) -> bool:
        """Take in what a worker says of a task; False when it is nothing new."""
        id_ = (state.uid, state.attempt)
        before = self.tasks.get(id_)
        if before is not None and (before[0] == state or before[0].report is not None):
            return False
        self.tasks[id_] = (state, now)
        return True

    def drop_task(self, uid: str, attempt: int) -> None:
        """A worker does not know the task."""
        self.tasks.pop((uid, attempt), None)
        self._stopping.discard((uid, attempt))

    def mark_stopping(self, uid: str, attempt: int) -> None:
        """A worker was told to stop the task: until it says that it has, nobody needs to tell it again."""
        self._stopping.add((uid, attempt))

    def lodgers(self, pod: Key) -> tuple[Key, ...]:
        """The jobs whose newest attempt a pod runs."""
        return tuple(self._lodgers.get(pod, ()))

    def autoscalers_of(self, key: Key) -> tuple[Autoscaler, ...]:
        """The HPAs that scale a job, and whichever has the name that ours would have."""
        found = (a for a in self.autoscalers.values() if a.key.namespace == key.namespace)
        return tuple(sorted((a for a in found if key in (a.target, a.key)), key=lambda a: a.key))

    # replacing by a list

    def _bury(self, uid: str) -> None:
        """Remember that an object is gone: an event that was under way must not bring it back."""
        self._gone[uid] = None
        if len(self._gone) > 20_000:
            for old in list(self._gone)[:10_000]:
                del self._gone[old]

    # views

    def observe(self, key: Key) -> Observed | None:
        """A snapshot of one job and of all that belongs to it."""
        job = self.jobs.get(key)
        if job is None:
            return None
        model = self.models.get(Key(key.namespace, job.spec.model)) if job.spec is not None else None
        # A uid in a label of another namespace is a forgery: owners and what they own share theirs.
        pods = tuple(pod for pod in self.workers_of(job.uid) if pod.key.namespace == key.namespace)
        readings = {pod.uid: self.readings[pod.uid] for pod in pods if pod.uid in self.readings}
        if (lodger := self._lodger(job)) is not None:
            pods = (*pods, lodger)
            if (reading := self.readings.get(lodger.uid)) is not None:
                host = self.pods[lodger.key].worker
                own = model is not None and host is not None and host.job_uid == model.uid
                readings[lodger.uid] = _of_task(reading, job.uid, lodger.number, own=own)
        return Observed(
            job=job,
            model=model,
            pods=pods,
            has_service=job.uid in self.services,
            setback=self.setbacks.get(key),
            lost=frozenset(pod.uid for pod in pods if self._is_lost(pod)),
            readings=readings,
            meters={pod.uid: dict(self.meters[pod.uid]) for pod in pods if pod.uid in self.meters},
            measure=self.measures.get(job.uid),
            autoscalers=self.autoscalers_of(key),
            metrics_api=self.metrics_api,
            volumes=self._terms.get(key.namespace, {}),
        )

    def _lodger(self, job: Job) -> Pod | None:
        """The warm worker that has the job's newest attempt, as if it were the attempt's own pod."""
        attempt = job.status.last_attempt
        host = self.pods.get(Key(job.key.namespace, attempt.pod)) if attempt is not None else None
        if attempt is None or host is None or host.worker is None or not host.worker.pool:
            return None
        own = (job.uid, attempt.number)
        known = self.tasks.get(own)
        state, heard = known if known is not None else (None, None)
        if attempt.outcome is not AttemptOutcome.RUNNING and not _may_go_on(attempt, host, state):
            return None
        stopping = own in self._stopping or (state is not None and state.stopping)
        placement = job.status.placement
        report = state.report if state is not None else None
        phase = host.phase
        if report is not None and not host.terminal:
            phase = PodPhase.FAILED if report.outcome == "Failed" else PodPhase.SUCCEEDED
        ordered = placement.decision_time if placement is not None else host.started
        started = ordered
        if state is not None and heard is not None and state.ran_seconds is not None:
            # What the worker did and drew before its turn came is others'.
            began = shift(heard, -state.ran_seconds)
            started = began if ordered is None else max(ordered, began)
        return replace(
            host,
            phase=phase,
            deleting=host.deleting or stopping,
            # An order that was heard is not yet work that goes on: that is what the worker's telemetry tells.
            ready=host.ready and self._works_on(host, job.uid, attempt.number),
            worker=Worker(job.uid, attempt.number, state.revision if state is not None else "", host.worker.accelerator, placement),
            report=report if report is not None else host.report if host.terminal else None,
            created=ordered,
            started=started,
            ended=heard if report is not None else host.ended,
            lodging=Lodging(state, waited=report is None and self._last_run.get(host.uid, own) != own),
        )

    def _works_on(self, host: Pod, uid: str, attempt: int) -> bool:
        reading = self.readings.get(host.uid)
        tasks = reading.telemetry.tasks if reading is not None else ()
        return any((task.uid, task.attempt) == (uid, attempt) and task.state == "Running" for task in tasks)

    def observe_pool(self, key: Key, now: datetime) -> PoolObserved | None:
        """A snapshot of one model's warm pool."""
        model = self.models.get(key)
        if model is None:
            return None
        pods = tuple(pod for pod in self.workers_of(model.uid) if pod.key.namespace == key.namespace)
        lodgers = {pod.key: [self.jobs[job] for job in self.lodgers(pod.key) if job in self.jobs] for pod in pods}
        return PoolObserved(
            model=model,
            pods=pods,
            lodgers={pod: len(jobs) for pod, jobs in lodgers.items()},
            busy_seconds={pod: sum(_left(job, now) for job in jobs) for pod, jobs in lodgers.items()},
            idle_seconds={
                pod.uid: reading.telemetry.idle_seconds
                for pod in pods
                if (reading := self.readings.get(pod.uid)) is not None and reading.telemetry.idle_seconds is not None
            },
            guests={pod.key: frozenset(r.telemetry.guests) for pod in pods if (r := self.readings.get(pod.uid)) is not None},
            volumes=self._terms.get(key.namespace, {}),
            strays=tuple((pod.key, id_) for pod in pods for id_ in self.strays(pod, now)),
            setback=self.setbacks.get(pool_key(key)),
            lost=frozenset(pod.uid for pod in pods if self._is_lost(pod)),
        )


def _at_work(job: Job) -> Key | None:
    """The pod that runs a job's newest attempt; None too for a job that wants nothing any more, whatever its status remembers."""
    attempt = job.status.last_attempt
    if attempt is None or attempt.outcome is not AttemptOutcome.RUNNING or job.spec is None:
        return None
    if job.spec.suspend or is_finished(job):
        return None
    return Key(job.key.namespace, attempt.pod)


def _may_go_on(attempt: AttemptStatus, host: Pod, state: TaskState | None) -> bool:
    """Whether a warm worker may still have an attempt that was cut short: until it says that it has not."""
    if attempt.outcome is not AttemptOutcome.DISRUPTED or (state is not None and state.report is not None):
        return False
    # Another worker that came under the name of the one that is gone never had it.
    return host.created is None or attempt.end_time is None or host.created <= attempt.end_time


def _holds(pod: Pod, now: datetime) -> bool:
    """Whether a pod holds a place and has done so for longer than news take."""
    return not pod.terminal and not pod.deleting and (pod.created is None or now - pod.created > _ASSUMED_FOR)


def _left(job: Job, now: datetime) -> float:
    """What a task should still take, seconds: as placement expected it; a twentieth once that is over."""
    placement = job.status.placement
    if placement is None:
        return 0.0
    whole = placement.cost.latency_seconds
    # Decision times are whole seconds: within the first, nothing is known to have gone by.
    gone = max((now - placement.decision_time).total_seconds() - 1.0, 0.0)
    return max(whole - gone, 0.05 * whole)


def _of_task(reading: Reading, uid: str, attempt: int, *, own: bool) -> Reading:
    """A warm worker's reading as one task's: its progress, nothing of the others', and its model if that is the task's `own`."""
    tasks = reading.telemetry.tasks
    progress = next((task.progress for task in tasks if (task.uid, task.attempt) == (uid, attempt)), None)
    model = reading.telemetry.model if own else None
    return replace(reading, telemetry=msgspec.structs.replace(reading.telemetry, progress=progress, model=model, sketch={}))


def ghosts(known: Mapping[Key, str], listed: Iterable[tuple[Key, str]]) -> list[tuple[Key, str]]:
    """What the view still holds though a complete list no longer has it (kopf reports no deletion that it missed)."""
    present = dict(listed)
    return [(key, uid) for key, uid in known.items() if present.get(key) != uid]
