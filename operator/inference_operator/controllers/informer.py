"""From raw objects to the store, and from each change to the jobs that it concerns.

It is longer than others: every kind that is watched has its method here.
"""

from typing import Any

from inference_operator.api import names
from inference_operator.api.conditions import Reason
from inference_operator.controllers.scheduling_loop import SchedulingLoop, Wake
from inference_operator.controllers.waiting_jobs import WaitingJobs
from inference_operator.settings import Metering, NodeCache
from inference_operator.state.endpoints import parse_slice
from inference_operator.state.leaving import is_leaving
from inference_operator.state.objects import Autoscaler, Job, Key, Model, Node, Pod
from inference_operator.state.parse import (
    parse_autoscaler,
    parse_budget,
    parse_claim,
    parse_job,
    parse_model,
    parse_node,
    parse_volume,
)
from inference_operator.state.parse_pods import parse_node_agent, parse_pod
from inference_operator.state.raw import is_newer, owner_of
from inference_operator.state.request import endpoints_request, job_request, pool_request
from inference_operator.state.store import Store

Raw = dict[str, Any]
_METERING = Metering()
_NODE_CACHE = NodeCache()


class InformerHandlers:
    """One method a kind: `gone` says that the object was deleted."""

    def __init__(
        self,
        store: Store,
        scheduling: SchedulingLoop,
        wake: Wake,
        metering: Metering = _METERING,
        node_cache: NodeCache = _NODE_CACHE,
    ) -> None:
        self._store = store
        self._scheduling = scheduling
        self._wake = wake
        self._waiting_jobs = WaitingJobs(store, scheduling, wake)
        self._metering = metering
        self._node_cache = node_cache

    def job(self, raw: Raw, *, gone: bool) -> None:
        """An InferenceJob."""
        key = _key(raw)
        if gone:
            self._store.drop_job(key, raw["metadata"]["uid"])
            self._wake(job_request(key))
            return
        job = parse_job(raw)
        if self._store.put_job(job):
            self._wake(job_request(job.key))
            self._wake_unused_model(job)

    def _wake_unused_model(self, job: Job) -> None:
        """A model is told of its first job at once; the others it counts by itself."""
        model = self._store.models.get(Key(job.key.namespace, job.spec.model)) if job.spec is not None else None
        if model is None or (model.status.usage is not None and model.status.usage.jobs):
            return
        if job.key.name in self._store.users_of(model.key):
            self._wake(pool_request(model.key))

    def model(self, raw: Raw, *, gone: bool) -> None:
        """An InferenceModel concerns the jobs that name it, and its pool; what is merely told of it, those that wait."""
        key = _key(raw)
        before = self._store.models.get(key)
        model = None if gone else parse_model(raw)
        if model is None:
            if before is not None and before.uid != raw["metadata"]["uid"]:
                # The news of a deletion that was followed by a new object of the same name.
                return
            self._store.models.pop(key, None)
        else:
            if before is not None and before.uid == model.uid and not is_newer(model.resource_version, before.resource_version):
                return
            if before == model:
                return
            self._store.models[key] = model
        if _wish(before) != _wish(model):
            # What was refused was made of another spec.
            self._store.forget_refusals(pool_request(key))
            for job in self._store.jobs_of(key):
                self._store.create_failures.pop(job_request(job), None)
                self._wake(job_request(job))
            # Its pool may be there for jobs on other models.
            self._scheduling.touch()
        else:
            self._waiting_jobs.wake_if_news(key, before, model)
        self._wake(pool_request(key))

    def node(self, raw: Raw, *, gone: bool) -> None:
        """A node concerns the fleet."""
        name = raw["metadata"]["name"]
        before = self._store.nodes.get(name)
        if gone and before is not None and before.uid not in ("", raw["metadata"].get("uid", before.uid)):
            return
        node = None if gone else parse_node(raw)
        if (
            node is not None
            and before is not None
            and before.uid == node.uid
            and not is_newer(node.resource_version, before.resource_version)
        ):
            return
        if node is None:
            self._store.nodes.pop(name, None)
        else:
            self._store.nodes[name] = node
        if _substance(before) == _substance(node):
            return
        self._scheduling.touch()
        if _works(before) != _works(node):
            for pod in self._store.workers_on(name):
                self.wake_owner(pod)

    def volume(self, raw: Raw, *, gone: bool) -> None:
        """A PersistentVolume concerns those who wait for a place in its claim's namespace."""
        meta = raw["metadata"]
        name, before = meta["name"], self._store.volumes.known.get(meta["name"])
        if before is not None and before.uid == meta["uid"]:
            if not gone and not is_newer(meta["resourceVersion"], before.resource_version):
                return
        elif gone:
            return
        after = None if gone else parse_volume(raw)
        for namespace in self._store.volumes.put(name, after):
            for request in self._scheduling.waiting(namespace):
                self._wake(request)
            self._scheduling.touch()

    def claim(self, raw: Raw, *, gone: bool) -> None:
        """A PersistentVolumeClaim concerns those who wait for a place in its namespace, and those whose workers mount it."""
        key, meta = _key(raw), raw["metadata"]
        before = self._store.claims.known.get(key)
        if before is not None and before.uid == meta["uid"]:
            if not gone and not is_newer(meta["resourceVersion"], before.resource_version):
                return
        elif gone:
            return
        if not self._store.claims.put(key, None if gone else parse_claim(raw)):
            return
        for request in self._scheduling.waiting(key.namespace):
            self._wake(request)
        for pod in self._store.workers_with(key):
            self.wake_owner(pod)
        self._scheduling.touch()

    def pod(self, raw: Raw, *, gone: bool) -> None:
        """A pod concerns its job when it is a worker, and the fleet when it takes or frees room."""
        key = _key(raw)
        before = self._store.pods.get(key)
        if gone:
            self._store.drop_pod(key, raw["metadata"]["uid"])
            pod = before
        else:
            pod = parse_pod(raw)
            if not self._store.put_pod(pod):
                return
        self._exporter(key, raw, gone=gone)
        self._cache(key, raw, gone=gone)
        if pod is not None:
            if gone or (pod.terminal and before is not None and not before.terminal):
                self._quota_freed(pod)
            self.wake_owner(pod)
        if _taken(before) != (None if gone else _taken(pod)) or _opens(before) != (None if gone else _opens(pod)):
            self._scheduling.touch()

    def _quota_freed(self, pod: Pod) -> None:
        """A worker that ended may have been what was too many: its successor is tried at once, and a refusal is then a new one."""
        job = self._store.job_key(pod.owner_uid)
        if job is None or (failure := self._store.create_failures.get(job_request(job))) is None:
            return
        if failure.reason is Reason.QUOTA_EXCEEDED:
            del self._store.create_failures[job_request(job)]

    def _exporter(self, key: Key, raw: Raw, *, gone: bool) -> None:
        """A pod that may be a meter."""
        wanted = self._metering.enabled and (not self._metering.namespaces or key.namespace in self._metering.namespaces)
        found = parse_node_agent(raw, self._metering.pod_labels) if wanted and not gone else None
        if found is None:
            self._store.exporters.pop(key, None)
        else:
            self._store.exporters[key] = found

    def _cache(self, key: Key, raw: Raw, *, gone: bool) -> None:
        """A pod that may be a node's cache."""
        ours = self._node_cache.enabled and key.namespace == self._node_cache.namespace
        found = parse_node_agent(raw, self._node_cache.pod_labels, every=True) if ours and not gone else None
        if found is None:
            self._store.node_caches.pop(key, None)
        else:
            self._store.node_caches[key] = found

    def wake_owner(self, pod: Pod, *, urgent: bool = False) -> None:
        """Have all look that a worker concerns: its job and its callers, the jobs whose tasks it has, its pool."""
        if pod.placeholder is not None and (job := self._store.job_key(pod.owner_uid)) is not None:
            self._wake(job_request(job), urgent=urgent)
        if pod.worker is None:
            return
        if (job := self._store.job_key(pod.worker.job_uid)) is not None:
            self._wake(job_request(job), urgent=urgent)
            self._wake_endpoints(job, pod.worker.job_uid)
        for hosted in self._store.task_index.concerned(pod.key):
            self._wake(job_request(hosted), urgent=urgent)
        if pod.worker.pool and (model := self._store.model_key(pod.worker.job_uid)) is not None:
            self._wake(pool_request(model))

    def _wake_endpoints(self, job: Key, uid: str) -> None:
        """Those who call a worker are told of it before anything else is done about it."""
        if self._store.services.get(Key(job.namespace, names.service_name(job.name))) == uid:
            self._wake(endpoints_request(job), urgent=True)

    def slice(self, raw: Raw, *, gone: bool) -> None:
        """An EndpointSlice of a Service of ours, whoever wrote it."""
        key = _key(raw)
        before = self._store.slices.known.get(key)
        after = None if gone else parse_slice(raw)
        if before is not None and before.uid == raw["metadata"]["uid"]:
            if after is not None and not is_newer(after.resource_version, before.resource_version):
                return
        elif gone:
            return
        self._store.slices.put(key, after)
        for service in {found.service for found in (before, after) if found is not None}:
            uid = self._store.services.get(Key(key.namespace, service), "")
            if (job := self._store.job_key(uid)) is not None:
                self._wake_endpoints(job, uid)

    def service(self, raw: Raw, *, gone: bool) -> None:
        """A Service of ours: a label alone can be written by anybody, and names nobody's Service."""
        key = _key(raw)
        before = self._store.services.get(key)
        after = None if gone else owner_of(raw)
        if gone and before != raw["metadata"].get("labels", {}).get(names.LABEL_JOB_UID):
            # What is gone is another one than what is there.
            return
        self._store.selecting.pop(key, None)
        if after is not None:
            self._store.services[key] = after
            if (raw.get("spec") or {}).get("selector"):
                self._store.selecting[key] = raw["metadata"]["uid"]
            if (job := self._store.job_key(after)) is not None:
                self._wake_endpoints(job, after)
        else:
            self._store.services.pop(key, None)
        if before is not None and after != before and (job := self._store.job_key(before)) is not None:
            self._wake(job_request(job))

    def budget(self, raw: Raw, *, gone: bool) -> None:
        """A PodDisruptionBudget that has a worker's labels."""
        key = _key(raw)
        before, after = self._store.budgets.get(key), None if gone else parse_budget(raw)
        if gone and (before is None or before.uid != raw["metadata"]["uid"]):
            return
        if after is None:
            self._store.budgets.pop(key, None)
        else:
            self._store.budgets[key] = after
        if before is not None and before != after and (job := self._store.job_key(before.job_uid)) is not None:
            self._wake(job_request(job))

    def autoscaler(self, raw: Raw, *, gone: bool) -> None:
        """An HPA concerns the InferenceJob that it scales, and the one that has its name."""
        key = _key(raw)
        before = self._store.autoscalers.get(key)
        after = None if gone else parse_autoscaler(raw)
        if after is None:
            if before is None or before.uid != raw["metadata"]["uid"]:
                return
            del self._store.autoscalers[key]
        elif before is not None and before.uid == after.uid and not is_newer(after.resource_version, before.resource_version):
            return
        else:
            self._store.autoscalers[key] = after
        if _scaling(before) != _scaling(after):
            for job in {a.target for a in (before, after) if a is not None and a.target is not None} | {key}:
                if job in self._store.jobs:
                    self._wake(job_request(job))


def _key(raw: Raw) -> Key:
    return Key(raw["metadata"].get("namespace", ""), raw["metadata"]["name"])


def _wish(model: Model | None) -> object:
    """What its author says of a model."""
    return None if model is None else (model.uid, model.spec, model.invalid)


def _substance(node: Node | None) -> object:
    return None if node is None else (node.labels, node.taints, node.allocatable, node.ready, node.unschedulable, node.reachable)


def _works(node: Node | None) -> object:
    """Whether a node can be counted on to run and to end what it has, and for long."""
    return node is not None and (node.reachable, node.ready, is_leaving(node))


def _taken(pod: Pod | None) -> object:
    """What a pod takes, and where; None when it takes nothing."""
    return None if pod is None or pod.terminal else (pod.node, pod.requests)


def _opens(pod: Pod | None) -> object:
    """Whether a warm worker takes tasks; None for every other pod."""
    return (pod.ready, pod.deleting) if pod is not None and pod.worker is not None and pod.worker.pool else None


def _scaling(found: Autoscaler | None) -> object:
    """What of an HPA matters: not its status, which changes all the time."""
    return None if found is None else (found.uid, found.target, found.job_uid, found.revision, found.spec)
