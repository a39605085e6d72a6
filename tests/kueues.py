"""Workloads of Kueue's for tests, and what becomes of one by a patch of the operator's or an answer of Kueue's."""

from dataclasses import replace
from typing import Any

import msgspec

from inference_operator.api.names import workload_name
from inference_operator.queueing import workload as workloads
from inference_operator.settings import KueueSettings, Settings
from inference_operator.state.kueue import Flavor, KueueApi, KueueObserved, Workload, WorkloadCondition, parse_workload
from inference_operator.state.objects import Job, Key
from inference_operator.workers.actions import CreateWorkload, PatchWorkload
from inference_operator.workers.resolve import ResolvedJob
from tests.builders import LIMITS

QUEUED = Settings(pod_template=LIMITS, kueue=KueueSettings(enabled=True))
FLAVOR = Flavor("small", "uid-of-small", {"zone": "a"})
SINCE = "2026-04-02T11:00:00Z"


def says(kind: str, status: str = "True", message: str = "", *, reason: str = "Because", since: str = SINCE) -> WorkloadCondition:
    """A condition."""
    return WorkloadCondition(kind, status, reason, message, since)


def a_workload(job: Job, *conditions: WorkloadCondition, **more: Any) -> Workload:
    """The Workload of a job."""
    key = Key(job.key.namespace, workload_name(job.key.name, job.uid))
    given = {"uid": "uid-of-workload", "resource_version": "7", "generation": 1, "priority": 0, **more}
    return Workload(key, job_uid=job.uid, conditions=conditions, **given)


def waiting(job: Job, message: str = "insufficient quota", **more: Any) -> Workload:
    """One that waits."""
    return a_workload(job, says("QuotaReserved", "False", message, reason="Pending"), **more)


def admitted(job: Job, *conditions: WorkloadCondition, flavors: tuple[str, ...] = ("small",), **more: Any) -> Workload:
    """One that may run."""
    told = (says("QuotaReserved"), says("Admitted"), *conditions)
    return a_workload(job, *told, flavors=flavors, cluster_queue="all", **more)


def evicted(job: Job, message: str = "preempted to accommodate a workload", *, reason: str = "Preempted", **more: Any) -> Workload:
    """One that has to stop."""
    return admitted(job, says("Evicted", message=message, reason=reason), **more)


def kueue(workload: Workload | None = None, *flavors: Flavor, api: KueueApi = KueueApi.SERVING, **more: Any) -> KueueObserved:
    """What a look sees."""
    return KueueObserved(api, workload, {one.name: one for one in (flavors or (FLAVOR,))}, **more)


def made_of(resolved: ResolvedJob, settings: Settings = QUEUED) -> str:
    """The revision of a Workload that asks for what the job does."""
    return workloads.revision(workloads.spec(resolved, settings))


def created(action: CreateWorkload) -> Workload:
    """The Workload as the API server shows it."""
    meta = {**action.manifest["metadata"], "uid": "uid-of-workload", "resourceVersion": "1", "generation": 1}
    found = parse_workload({**action.manifest, "metadata": meta})
    assert found is not None
    return found


def patched(workload: Workload, action: PatchWorkload) -> Workload:
    """The Workload after a merge patch of ours."""
    body, changed = action.body, replace(workload, resource_version=workload.resource_version + "0")
    assert body["metadata"]["resourceVersion"] == workload.resource_version
    spec, status = body.get("spec", {}), body.get("status", {})
    assert bool(status) == action.of_status
    assert not (spec and status)
    if "active" in spec:
        changed = replace(changed, active=spec["active"], suspended=body["metadata"]["annotations"].popitem()[1] is not None)
    if "priority" in spec:
        ref = spec["priorityClassRef"]
        changed = replace(changed, priority=spec["priority"], priority_class=ref and ref["name"])
    if "admission" in status:
        assert status["admission"] is None
        changed = replace(changed, flavors=None, cluster_queue="")
    if "conditions" in status:
        changed = replace(changed, conditions=tuple(msgspec.convert(status["conditions"], list[WorkloadCondition])))
    return changed
