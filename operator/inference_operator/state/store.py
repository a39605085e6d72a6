"""The operator's view of the cluster: what the watches and our own writes have shown, indexed by job.

One class in one module, somewhat longer than others: every index has to change with the objects that it indexes.

Only the newest version of an object counts, so a watch that lags behind our own write can't turn the view back. Bodies are
cut down to domain values on the way in: ten thousand raw objects would not fit.
"""

from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace
from datetime import datetime
from typing import Protocol

from inference_operator.api.names import budget_name, headless_name, service_name
from inference_operator.state.endpoints import EndpointsObserved, Slices
from inference_operator.state.finished import is_finished, reopened
from inference_operator.state.index import discard
from inference_operator.state.kueue import Queues
from inference_operator.state.leaving import is_leaving
from inference_operator.state.load import ScalingMetrics
from inference_operator.state.node_caches import NodeAgent, NodeModel, Prefetch
from inference_operator.state.objects import (
    Autoscaler,
    Budget,
    CreateFailure,
    Job,
    Key,
    MetricsApi,
    MetricsApiState,
    Model,
    Node,
    Pod,
    Reading,
    Worker,
)
from inference_operator.state.observed import LendingService, Observed, PoolObserved
from inference_operator.state.power import Drawn
from inference_operator.state.raw import is_newer
from inference_operator.state.request import Request, job_request, pool_request
from inference_operator.state.runner import Attempt
from inference_operator.state.task_index import NEWS_TAKE, TaskIndex
from inference_operator.state.topology import ZONE_LABEL
from inference_operator.state.volumes import Claims, Volumes

# An assumed pod that the API server never showed is dropped after this: the write was lost.
_ASSUMED_FOR = NEWS_TAKE
_NOBODY = Key("", "")


class JobWatcher(Protocol):
    """Hears of each change of a job."""

    def job_changed(self, old: Job | None, new: Job) -> None:
        """The newest version of a job, and the one before; None at first sight."""
        ...


class Store:
    """Jobs, models, nodes, pods, services, and what the operator itself remembers. One event loop; no locks."""

    def __init__(self, watcher: JobWatcher | None = None) -> None:
        self._watcher = watcher
        self.jobs: dict[Key, Job] = {}
        self.models: dict[Key, Model] = {}
        self.nodes: dict[str, Node] = {}
        self.pods: dict[Key, Pod] = {}
        # The jobs that our Services are of, by their uids.
        self.services: dict[Key, str] = {}
        # Our Services that still have a selector, with their own uids.
        self.selecting: dict[Key, str] = {}
        self.slices = Slices()
        self.budgets: dict[Key, Budget] = {}
        self.readings: dict[str, Reading] = {}
        self.create_failures: dict[Request, CreateFailure] = {}
        self.autoscaler_failures: dict[Request, CreateFailure] = {}
        self.budget_failures: dict[Request, CreateFailure] = {}
        # Measures of serving jobs by their uid.
        self.scaling_metrics: dict[str, ScalingMetrics] = {}
        self.autoscalers: dict[Key, Autoscaler] = {}
        self.volumes = Volumes()
        self.claims = Claims()
        self.metrics_api = MetricsApi(MetricsApiState.DISABLED)
        self.exporters: dict[Key, NodeAgent] = {}
        # The caches of models; what nodes should have, by the service that it is for; and how that stands, by node, namespace and
        # digest.
        self.node_caches: dict[Key, NodeAgent] = {}
        self.prefetches: dict[Key, Prefetch] = {}
        self.node_models: dict[str, Mapping[tuple[str, str], NodeModel]] = {}
        self.queues = Queues()
        # What the devices of a worker have drawn, by its pod's uid and theirs.
        self.meters: dict[str, dict[str, Drawn]] = {}
        # How nodes are used beyond what their pods ask for: by unmanaged users, as meters tell, and by our workers, as they tell.
        self.unmanaged_usage: dict[str, float] = {}
        self.busy: dict[str, float] = {}
        # Workers, by their pods' uids, that our own polls get no answer from.
        self.suspected: frozenset[str] = frozenset()
        # Those of them that answer again.
        self.recovering: frozenset[str] = frozenset()
        # Of these the silent ones, by uid: to be refused is to hear that the node lives, and its kubelet tells the rest.
        self.silent: Mapping[str, Pod] = {}
        # Of these, who fell silent a moment ago: after an outage of the API server every node counts as out of reach for a while.
        self.just_silent: frozenset[str] = frozenset()
        # Nodes where workers fell silent and none has answered since.
        self.silent_nodes: frozenset[str] = frozenset()
        # When workers of a serving job were last seen to have requests, by its uid.
        self.requested: dict[str, datetime] = {}
        # Workers whose address a later pod has: whoever calls there reaches somebody else.
        self.displaced: frozenset[str] = frozenset()
        # Those that answer the operator's own polls.
        self.heard: set[str] = set()
        self._pods_of: dict[str, set[Key]] = {}
        self._placeholders_of: dict[str, set[Key]] = {}
        self._jobs_of: dict[Key, set[Key]] = {}
        self._users_of: dict[Key, set[str]] = {}
        self._keys_by_uid: dict[str, Key] = {}
        self._tombstones: dict[str, None] = {}
        self.task_index = TaskIndex(self.jobs, self._keys_by_uid, self._tombstones, self.pods, self.readings)

    # jobs

    def put_job(self, job: Job) -> bool:
        """Take a job in; False when nothing changed or it is older than what is known."""
        old = self.jobs.get(job.key)
        if job.uid in self._tombstones:
            return False
        if old is not None and old.uid == job.uid and (not is_newer(job.resource_version, old.resource_version) or old == job):
            return False
        self._unlink(old)
        if old is not None and (old.uid, old.generation) != (job.uid, job.generation):
            # What was refused was made of another spec; this one is yet to be tried.
            self.forget_refusals(job_request(job.key))
        self.jobs[job.key] = job
        if self._watcher is not None:
            self._watcher.job_changed(old, job)
        self._keys_by_uid[job.uid] = job.key
        self.task_index.link(job)
        if (model := _model_of(job)) is not None:
            self._jobs_of.setdefault(model, set()).add(job.key)
            if not is_finished(job):
                self._users_of.setdefault(model, set()).add(job.key.name)
        return True

    def drop_job(self, key: Key, uid: str, *, for_good: bool = True) -> None:
        """The job is gone; for good, unless that is only what one answer said."""
        if for_good:
            self._add_tombstone(uid)
        old = self.jobs.get(key)
        if old is None or old.uid != uid:
            return
        self._unlink(old)
        del self.jobs[key]
        self.forget_refusals(job_request(key))
        self.task_index.drop_tasks_of(old)

    def forget_refusals(self, request: Request) -> None:
        """Forget what the API server has refused: what is asked for now is something else."""
        self.create_failures.pop(request, None)
        self.autoscaler_failures.pop(request, None)
        self.budget_failures.pop(request, None)

    def _unlink(self, job: Job | None) -> None:
        if job is None:
            return
        self._keys_by_uid.pop(job.uid, None)
        self.task_index.unlink(job)
        if (model := _model_of(job)) is None:
            return
        discard(self._jobs_of, model, job.key)
        discard(self._users_of, model, job.key.name)

    def jobs_of(self, model: Key) -> tuple[Key, ...]:
        """The jobs that name a model."""
        return tuple(self._jobs_of.get(model, ()))

    def users_of(self, model: Key) -> AbstractSet[str]:
        """The names of the jobs that name a model and have not ended: a view."""
        return self._users_of.get(model, frozenset())

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
        if pod.uid and pod.uid in self._tombstones:
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
                self.task_index.worker_replaced(old.key)
        self.pods[pod.key] = pod
        self.task_index.worker_seen(pod)
        if pod.worker is not None:
            self._pods_of.setdefault(pod.owner_uid, set()).add(pod.key)
        elif pod.placeholder is not None:
            self._placeholders_of.setdefault(pod.owner_uid, set()).add(pod.key)
        return True

    def drop_pod(self, key: Key, uid: str) -> None:
        """The pod is gone. An assumed pod (no uid yet) goes by its key alone."""
        old = self.pods.get(key)
        if uid:
            self._add_tombstone(uid)
        if old is None or (uid and old.uid and old.uid != uid):
            return
        self._forget_pod(old)
        self.task_index.worker_replaced(key)
        del self.pods[key]
        self.readings.pop(old.uid, None)
        self.meters.pop(old.uid, None)
        self.task_index.worker_gone(old.uid)

    def mark_deleting(self, key: Key, uid: str) -> None:
        """We have deleted the pod: until the watch says so too, nobody needs to delete it again."""
        pod = self.pods.get(key)
        if pod is not None and pod.uid == uid:
            self.pods[key] = replace(pod, deleting=True)

    def _forget_pod(self, pod: Pod) -> None:
        if pod.worker is not None:
            discard(self._pods_of, pod.owner_uid, pod.key)
        elif pod.placeholder is not None:
            discard(self._placeholders_of, pod.owner_uid, pod.key)

    def put_reading(self, pod: Pod, reading: Reading) -> None:
        """Take in a worker's answer."""
        self.task_index.heard(pod, reading)
        self.readings[pod.uid] = reading

    def drop_stale_assumptions(self, now: datetime) -> tuple[str, ...]:
        """Drop assumed pods that never appeared; returns the uids of their jobs."""
        lost = [p for p in self.pods.values() if not p.uid and p.created is not None and now - p.created > _ASSUMED_FOR]
        for pod in lost:
            self.drop_pod(pod.key, "")
        return tuple(pod.owner_uid for pod in lost)

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
        if node is None:
            return True
        # What a node that is not ready was told to end it may never end, or never say so.
        unheard = pod.uid not in self.heard and pod.uid not in self.just_silent
        return (not node.reachable and unheard) or (pod.deleting and not node.ready)

    def _as_heard(self, pod: Pod) -> Pod:
        """The control plane takes a pod for not ready when it can't reach its node; a worker that answers us knows better."""
        node = self.nodes.get(pod.node or "")
        if pod.ready or not pod.containers_ready or pod.uid not in self.heard or node is None or node.ready:
            return pod
        return replace(pod, ready=True)

    def workers_with(self, claim: Key) -> tuple[Pod, ...]:
        """The worker pods that mount a claim, whether they live or not."""
        keys = (key for keys in self._pods_of.values() for key in keys if key.namespace == claim.namespace)
        return tuple(pod for key in keys if claim.name in (pod := self.pods[key]).claims)

    def workers_of(self, owner: Job | Model) -> tuple[Pod, ...]:
        """The worker pods of one job, or of one model's pool."""
        # A uid in a label of another namespace is a forgery: owners and what they own share theirs.
        keys = (key for key in self._pods_of.get(owner.uid, ()) if key.namespace == owner.key.namespace)
        return tuple(self._as_heard(self.pods[key]) for key in keys)

    def placeholders_of(self, uid: str) -> tuple[Pod, ...]:
        """The placeholder pods of one job."""
        return tuple(self.pods[key] for key in sorted(self._placeholders_of.get(uid, ())))

    @property
    def placeholders(self) -> tuple[Pod, ...]:
        """The placeholder pods of all jobs."""
        return tuple(self.pods[key] for uid, keys in self._placeholders_of.items() for key in keys if self._has_job(uid, key))

    @property
    def counted_pods(self) -> tuple[Pod, ...]:
        """All pods. What says to be a placeholder, and is of no job of its namespace, takes its room: nobody makes it give way."""
        forged = {key for uid, keys in self._placeholders_of.items() for key in keys if not self._has_job(uid, key)}
        if not forged:
            return tuple(self.pods.values())
        return tuple(replace(pod, placeholder=None) if key in forged else pod for key, pod in self.pods.items())

    def _has_job(self, uid: str, pod: Key) -> bool:
        # A uid in a label of another namespace is a forgery: owners and what they own share theirs.
        job = self.job_key(uid)
        return job is not None and job.namespace == pod.namespace

    def autoscalers_of(self, key: Key) -> tuple[Autoscaler, ...]:
        """The HPAs that scale a job, and whichever has the name that ours would have."""
        found = (a for a in self.autoscalers.values() if a.key.namespace == key.namespace)
        return tuple(sorted((a for a in found if key in (a.target, a.key)), key=lambda a: a.key))

    # replacing by a list

    def _add_tombstone(self, uid: str) -> None:
        """Remember that an object is gone: an event that was under way must not bring it back."""
        self._tombstones[uid] = None
        if len(self._tombstones) > 20_000:
            for old in list(self._tombstones)[:10_000]:
                del self._tombstones[old]

    # views

    def observe(self, key: Key) -> Observed | None:
        """A snapshot of one job and of all that belongs to it."""
        job = self.jobs.get(key)
        if job is None:
            return None
        model = self.models.get(Key(key.namespace, job.spec.model)) if job.spec is not None else None
        pods = self.workers_of(job)
        readings = {pod.uid: self.readings[pod.uid] for pod in pods if pod.uid in self.readings}
        seen = pods
        if (hosted := self.task_index.attempt(job)) is not None:
            seen = (*pods, hosted.pod)
            worker = hosted.pod.worker
            # A service lends its workers to batches on its own model alone.
            own = worker is not None and (not worker.pool or (model is not None and worker.job_uid == model.uid))
            if (reading := self.task_index.reading(hosted, job, own=own)) is not None:
                readings[hosted.pod.uid] = reading
        return Observed(
            job=reopened(job),
            model=model,
            pods=pods,
            placeholders=tuple(pod for pod in self.placeholders_of(job.uid) if pod.key.namespace == key.namespace),
            nodes_created={name: node.created for name, node in self.nodes.items() if node.created is not None}
            if job.uid in self._placeholders_of
            else {},
            has_service=self.services.get(Key(key.namespace, service_name(key.name))) == job.uid,
            has_headless=self.services.get(Key(key.namespace, headless_name(key.name))) == job.uid,
            budget=self._budget(key, job.uid),
            create_failure=self.create_failures.get(job_request(key)),
            autoscaler_failure=self.autoscaler_failures.get(job_request(key)),
            budget_failure=self.budget_failures.get(job_request(key)),
            lost=frozenset(pod.uid for pod in seen if self._is_lost(pod)),
            silent=frozenset(pod.uid for pod in seen if pod.uid in self.silent),
            moving=frozenset(pod.uid for pod in seen if (node := self.nodes.get(pod.node or "")) is not None and is_leaving(node)),
            readings=readings,
            meters={pod.uid: dict(self.meters[pod.uid]) for pod in seen if pod.uid in self.meters},
            hosted=hosted,
            idle_since=self.requested.get(job.uid),
            lent_by=self._lent_by(hosted),
            background=() if job.is_batch else self.task_index.background(pods),
            orphaned_tasks=() if job.is_batch else self.task_index.orphans_on(pods),
            scaling_metrics=self.scaling_metrics.get(job.uid),
            autoscalers=self.autoscalers_of(key),
            metrics_api=self.metrics_api,
            volumes=self.volumes.terms(key.namespace),
            claims=self.claims.of(key.namespace),
            node_models=self._node_models(key.namespace),
            kueue=self.queues.of(job),
        )

    def want_in_caches(self, job: Key, prefetch: Prefetch | None) -> None:
        """Remember what nodes should have for a service; None for nothing any more."""
        if prefetch is None:
            self.prefetches.pop(job, None)
        else:
            self.prefetches[job] = prefetch

    def _node_models(self, namespace: str) -> Mapping[str, Mapping[str, NodeModel]]:
        """How models of a namespace stand on each node that has a cache, by node and digest."""
        return {
            cache.node: {digest: one for (whose, digest), one in self.node_models.get(cache.node, {}).items() if whose == namespace}
            for cache in self.node_caches.values()
        }

    def _budget(self, job: Key, uid: str) -> Budget | None:
        found = self.budgets.get(Key(job.namespace, budget_name(job.name)))
        return found if found is not None and found.job_uid == uid else None

    def _lent_by(self, hosted: Attempt | None) -> LendingService | None:
        worker = hosted.pod.worker if hosted is not None else None
        service = self.jobs.get(self._keys_by_uid.get(worker.job_uid, _NOBODY)) if worker is not None and not worker.pool else None
        if service is None:
            return None
        target = service.spec.serve.latency_target_milliseconds if service.spec is not None and service.spec.serve else None
        seconds = target / 1e3 if target is not None else None
        return LendingService(service.key, seconds, self.scaling_metrics.get(service.uid))

    def observe_endpoints(self, key: Key) -> tuple[EndpointsObserved, ...]:
        """A snapshot of who answers for a serving job, for each of its Services that is there."""
        job, found = self.jobs.get(key), (service_name(key.name), headless_name(key.name))
        services = [service for service in (Key(key.namespace, name) for name in found) if service in self.services]
        return tuple(self._endpoints(job, one) for one in services if job is not None and self.services[one] == job.uid)

    def _endpoints(self, job: Job, service: Key) -> EndpointsObserved:
        pods = tuple(pod for pod in self.workers_of(job) if pod.uid not in self.displaced)
        nodes = {pod.node: self.nodes[pod.node] for pod in pods if pod.node in self.nodes}
        return EndpointsObserved(
            job=job,
            service=service,
            selecting=self.selecting.get(service),
            pods=pods,
            suspected=self.suspected & {pod.uid for pod in pods},
            heard=frozenset(self.heard & {pod.uid for pod in pods}),
            zones={name: zone for name, node in nodes.items() if (zone := node.labels.get(ZONE_LABEL)) is not None},
            slices=self.slices.of(service),
            recovering=self.recovering & {pod.uid for pod in pods},
        )

    def observe_pool(self, key: Key, now: datetime) -> PoolObserved | None:
        """A snapshot of one model's warm pool."""
        model = self.models.get(key)
        if model is None:
            return None
        pods = self.workers_of(model)
        hosted = {pod.key: [self.jobs[job] for job in self.task_index.on(pod.key) if job in self.jobs] for pod in pods}
        return PoolObserved(
            model=model,
            pods=pods,
            tasks={pod: len(jobs) for pod, jobs in hosted.items()},
            busy_seconds={pod: sum(_left(job, now) for job in jobs) for pod, jobs in hosted.items()},
            idle_seconds={
                pod.uid: reading.telemetry.idle_seconds
                for pod in pods
                if (reading := self.readings.get(pod.uid)) is not None and reading.telemetry.idle_seconds is not None
            },
            colocated={pod.key: frozenset(r.telemetry.colocated) for pod in pods if (r := self.readings.get(pod.uid)) is not None},
            device_free_bytes={
                pod.key: facts.device_free_bytes
                for pod in pods
                if (r := self.readings.get(pod.uid)) is not None and (facts := r.telemetry.model) is not None
            },
            volumes=self.volumes.terms(key.namespace),
            claims=self.claims.of(key.namespace),
            orphaned_tasks=tuple((pod.key, id_) for pod in pods for id_ in self.task_index.orphaned_tasks(pod, now)),
            create_failure=self.create_failures.get(pool_request(key)),
            lost=frozenset(pod.uid for pod in pods if self._is_lost(pod)),
        )


def _model_of(job: Job) -> Key | None:
    """The InferenceModel that a job names, whether there is one or not."""
    return Key(job.key.namespace, job.spec.model) if job.spec is not None else None


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


def stale_objects(known: Mapping[Key, str], listed: Iterable[tuple[Key, str]]) -> list[tuple[Key, str]]:
    """What the view still holds though a complete list no longer has it (kopf reports no deletion that it missed)."""
    present = dict(listed)
    return [(key, uid) for key, uid in known.items() if present.get(key) != uid]
