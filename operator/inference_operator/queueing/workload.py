"""The Workload of a batch: what it asks Kueue for, and what the operator writes into it afterwards.

Kueue writes quota and admission. The operator writes what the job's controller has to: the spec, that the work is suspended, ready
or finished, and that what was evicted has stopped, so that Kueue queues it again.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from inference_operator.api import names
from inference_operator.api.job import Backend
from inference_operator.api.schema import rfc3339
from inference_operator.queueing.nodes import queued_class
from inference_operator.settings import Settings
from inference_operator.state import kueue
from inference_operator.state.kueue import Workload, WorkloadCondition
from inference_operator.state.objects import Job
from inference_operator.workers.actions import CreateWorkload, DeleteWorkload, PatchWorkload
from inference_operator.workers.options import worker_resources
from inference_operator.workers.placeholder import quantities
from inference_operator.workers.pod import owner_reference, tolerations, without_empty
from inference_operator.workers.pod_template import template_on
from inference_operator.workers.resolve import ResolvedJob
from inference_operator.workers.triton import pod_amounts

Manifest = dict[str, Any]

POD_SET = "worker"
# How Kueue's own controllers tell an eviction after which the work is queued again at once. After all others Kueue decides when.
_QUEUED_AT_ONCE = ("Preempted", "NodeFailures")
_MESSAGE = 32768


def create_workload(resolved: ResolvedJob, settings: Settings, classes: Mapping[str, int], own_priority: int) -> CreateWorkload:
    """Return the action that puts a batch into its queue. `own_priority` counts where it has no PriorityClass."""
    job, wanted = resolved.job, spec(resolved, settings)
    manifest = {
        "apiVersion": f"{kueue.GROUP}/{kueue.VERSION}",
        "kind": "Workload",
        "metadata": {
            "name": names.workload_name(job.key.name, job.uid),
            "namespace": job.key.namespace,
            "labels": {
                names.LABEL_MANAGED_BY: names.MANAGED_BY,
                names.LABEL_JOB: names.label_value(job.key.name),
                names.LABEL_JOB_UID: job.uid,
                names.LABEL_REVISION: revision(wanted),
                names.LABEL_ACCELERATOR: queued_class(resolved),
            },
            "ownerReferences": [owner_reference(job)],
        },
        "spec": {**wanted, **priority(resolved, settings, classes, own_priority)},
    }
    return CreateWorkload(manifest, f"{job.key} is queued in LocalQueue {resolved.spec.queue_name}")


def spec(resolved: ResolvedJob, settings: Settings) -> Manifest:
    """Return what of a Workload stays as long as it is there: its queue, and one pod that asks for what the worker's would."""
    name = queued_class(resolved)
    of_class = settings.accelerators[name]
    template = template_on(resolved.spec, of_class)
    resources = worker_resources(resolved.spec, resolved.model, name, of_class)
    requests = pod_amounts(resources, template, with_sidecar=resolved.backend is Backend.TRITON)
    # As the job says, and not as an admission has narrowed it.
    written = resolved.job.spec
    selector = {**(written.node_selector if written is not None else {}), **of_class.node_selector}
    pod = {
        "restartPolicy": "Never",
        "priorityClassName": template.priority_class_name,
        # It may have an overhead, which counts.
        "runtimeClassName": template.runtime_class_name or of_class.runtime_class_name,
        # Kueue gives no quota of a flavor whose nodes these don't allow.
        "nodeSelector": selector,
        "tolerations": tolerations(resolved.spec, of_class),
        "containers": [{"name": names.CONTAINER, "resources": quantities(requests)}],
    }
    pod_set = {"name": POD_SET, "count": 1, "template": {"spec": without_empty(pod)}}
    return {"queueName": resolved.spec.queue_name, "podSets": [pod_set]}


def revision(wanted: Manifest) -> str:
    """Return the hash that names what a Workload was made of."""
    return names.short_hash(msgspec.json.encode(wanted, order="deterministic").decode())


def priority(resolved: ResolvedJob, settings: Settings, classes: Mapping[str, int], own: int) -> Manifest:
    """Return a Workload's priority: that of the worker's PriorityClass, or without one the job's `own`."""
    name = template_on(resolved.spec, settings.accelerators[queued_class(resolved)]).priority_class_name
    if name is None or name not in classes:
        return {"priority": own}
    return {"priority": classes[name], "priorityClassRef": {"group": "scheduling.k8s.io", "kind": "PriorityClass", "name": name}}


def delete(workload: Workload, why: str) -> DeleteWorkload:
    """Return the deletion of a Workload."""
    return DeleteWorkload(workload.key, workload.uid, why)


def with_priority(workload: Workload, wanted: Manifest) -> PatchWorkload | None:
    """Return the change of a Workload's priority; None where it has it."""
    ref = wanted.get("priorityClassRef")
    if (workload.priority, workload.priority_class) == (wanted["priority"], ref["name"] if ref is not None else None):
        return None
    changed = {"priority": wanted["priority"], "priorityClassRef": ref}
    return _patch(workload, {"spec": changed}, f"its priority is {wanted['priority']}")


def suspend(workload: Workload) -> PatchWorkload:
    """Return the change that takes suspended work out of the queue, as ours to put back."""
    return _patch(
        workload, {"metadata": {"annotations": {names.ANNOTATION_SUSPENDED: "true"}}, "spec": {"active": False}}, "spec.suspend"
    )


def resume(workload: Workload) -> PatchWorkload:
    """Return the change that queues again what `suspend` has taken out."""
    return _patch(
        workload, {"metadata": {"annotations": {names.ANNOTATION_SUSPENDED: None}}, "spec": {"active": True}}, "it is resumed"
    )


def give_back(workload: Workload, now: datetime) -> PatchWorkload:
    """Return the end of a quota reservation whose work has stopped, as Kueue's own job controllers write it."""
    evicted = workload.condition(kueue.EVICTED)
    reason, message = (evicted.reason, evicted.message) if evicted is not None else ("Pending", "the work has stopped")
    at_once = "True" if reason in _QUEUED_AT_ONCE else "False"
    told = (
        _condition(workload, kueue.REQUEUED, at_once, reason or "Pending", message, now),
        _condition(workload, kueue.QUOTA_RESERVED, "False", "Pending", message, now),
        _condition(workload, kueue.ADMITTED, "False", "NoReservation", "The workload has no reservation", now),
        *_unready(workload, now),
    )
    return _status(workload, told, "what was evicted has stopped", admission=True)


def _unready(workload: Workload, now: datetime) -> tuple[WorkloadCondition, ...]:
    if not workload.holds(kueue.PODS_READY):
        return ()
    return (_condition(workload, kueue.PODS_READY, "False", "WaitForStart", "The worker has stopped", now),)


def ready(workload: Workload, now: datetime) -> PatchWorkload | None:
    """Return that the worker runs; None where it is told. A Kueue with waitForPodsReady evicts what doesn't say so in time."""
    if workload.holds(kueue.PODS_READY):
        return None
    told = _condition(workload, kueue.PODS_READY, "True", "Started", "The worker runs", now)
    return _status(workload, (told,), "its worker runs")


def finish(workload: Workload, job: Job, now: datetime, *, failed: bool) -> PatchWorkload | None:
    """Return the end of a job's Workload, by which its quota is free; None where it is told."""
    if workload.holds(kueue.FINISHED):
        return None
    reason, text = ("Failed", "The InferenceJob has failed") if failed else ("Succeeded", "The InferenceJob has succeeded")
    return _status(workload, (_condition(workload, kueue.FINISHED, "True", reason, text, now),), f"{job.key} has ended")


def _condition(workload: Workload, kind: str, status: str, reason: str, message: str, now: datetime) -> WorkloadCondition:
    before = workload.condition(kind)
    kept = before is not None and before.status == status and before.last_transition_time
    since = before.last_transition_time if before is not None and kept else rfc3339(now)
    return WorkloadCondition(kind, status, reason, message[:_MESSAGE], since, workload.generation)


def _status(workload: Workload, told: tuple[WorkloadCondition, ...], why: str, *, admission: bool = False) -> PatchWorkload:
    """A merge patch of the status, which has all conditions: a list is replaced as a whole. The version keeps Kueue's news."""
    new = {one.type: one for one in told}
    kept = [new.pop(one.type, one) for one in workload.conditions]
    conditions = [msgspec.to_builtins(one) for one in (*kept, *new.values())]
    status = {"conditions": conditions, **({"admission": None} if admission else {})}
    return _patch(workload, {"status": status}, why, of_status=True)


def _patch(workload: Workload, body: Manifest, why: str, *, of_status: bool = False) -> PatchWorkload:
    metadata = {"uid": workload.uid, "resourceVersion": workload.resource_version, **body.get("metadata", {})}
    return PatchWorkload(workload.key, workload.resource_version, {**body, "metadata": metadata}, why, of_status)
