"""Warm pools for the tests of decisions: a model that has one, its workers, and jobs on them as the store shows them."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Literal

import msgspec

from inference_operator.api.conditions import Condition, ConditionType, Truth
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus, Placement
from inference_operator.api.model import AcceleratorResources, ModelVersion, WarmPool, WarmPoolStatus
from inference_operator.scheduling.types import Decision, PoolDemand
from inference_operator.settings import Backends, Settings, TritonBackend
from inference_operator.state.objects import Job, Model, Pod, Reading
from inference_operator.state.observed import Observed, PoolObserved
from inference_operator.state.store import Store
from inference_operator.warmpools.eligibility import Pool, pool_of
from inference_operator.warmpools.pool import plan_pool, pool_placement_request
from inference_operator.warmpools.pool_state import pool_state
from inference_operator.workers.actions import Plan
from inference_protocol.messages import TaskState, Telemetry, TerminationReport
from tests.builders import NOW, SETTINGS, TOKENS, a_job, a_model, a_node, a_pod, cost_terms, observed, placed_on, resolved_of, whole

# An operator that has Triton as well.
WITH_TRITON = msgspec.structs.replace(SETTINGS, backends=Backends(triton=TritonBackend(image="triton", platform="python")))


def a_pool_status(workers: int = 0, ready: int = 0, fault: str | None = None) -> WarmPoolStatus:
    """What was said of a pool: that all its workers take tasks, or a fault as `Reason: words`."""
    if fault is None:
        truth, reason, message = Truth.TRUE, "Serving", "warm workers take tasks"
    else:
        truth, (reason, message) = Truth.FALSE, fault.split(": ", 1)
    told = Condition(
        type=ConditionType.READY.value,
        status=truth,
        reason=reason,
        message=message,
        last_transition_time=whole(NOW),
        observed_generation=1,
    )
    return WarmPoolStatus(workers=workers, ready=ready, conditions=[told])


def said(status: WarmPoolStatus | None) -> tuple[int, int, str] | None:
    """Workers, ready ones, and the condition Ready, if it is there: its reason, with the words of a fault."""
    if status is None:
        return None
    faults = [f"{c.reason}: {c.message}" if c.status is Truth.FALSE else c.reason for c in status.conditions]
    return status.workers, status.ready, ", ".join(faults)


def a_pooled_model(
    *versions: ModelVersion, told: WarmPoolStatus | None = None, resources: Sequence[AcceleratorResources] = (), **pool: Any
) -> Model:
    """A model with a warm pool on CPUs that mounts the claim `data`; `told` is what its status says of it."""
    spec = WarmPool(**{"max": 4, "accelerator": "cpu", "claims": ["data"], **pool})
    model = a_model("m", *versions, warm_pool=spec, resources=list(resources))
    return replace(model, status=replace(model.status, warm_pool=told))


def the_pool(model: Model, settings: Settings = WITH_TRITON) -> Pool:
    """Its pool, which it must have."""
    found = pool_of(model, settings)
    assert found is not None
    return found


def a_worker(model: Model, number: int = 1, *, revision: str | None = None, **how: Any) -> Pod:
    """A warm worker of the model."""
    like = a_job(model.key.name, namespace=model.key.namespace, uid=model.uid)
    pod = a_pod(like, number, **how)
    assert pod.worker is not None
    made_now = the_pool(model).revisions.by_class.get(pod.worker.accelerator, "of another class")
    worker = replace(pod.worker, revision=made_now if revision is None else revision, pool=True)
    return replace(pod, worker=worker)


def a_view(
    model: Model,
    *workers: Pod,
    tasks: dict[int, int] | None = None,
    idle: dict[int, float] | None = None,
    busy: dict[int, float] | None = None,
    **rest: Any,
) -> PoolObserved:
    """What is seen of the pool; tasks, idle and busy seconds by worker's number."""
    by_number = {pod.number: pod for pod in workers}
    return PoolObserved(
        model=model,
        pods=workers,
        tasks={by_number[n].key: count for n, count in (tasks or {}).items()},
        busy_seconds={by_number[n].key: seconds for n, seconds in (busy or {}).items()},
        idle_seconds={by_number[n].uid: seconds for n, seconds in (idle or {}).items()},
        **rest,
    )


def decide_pool(
    seen: PoolObserved,
    *,
    waiting: int = 0,
    priority: int = 0,
    room: int = 100,
    now: datetime = NOW,
    settings: Settings = SETTINGS,
) -> Plan:
    """One look, as in `Pools.plan`, after a scheduler that gives as many workers a place as there is `room`."""
    demand = PoolDemand(waiting, priority)
    state = pool_state(seen, demand, settings, now)
    placement_request = pool_placement_request(seen, state, demand, settings, now)
    decision: Decision | None = (
        placed_on(placement_request, *["node-1"] * min(placement_request.workers, room)) if placement_request is not None else None
    )
    return plan_pool(seen, state, decision, settings, TOKENS, now)


# Attempts on warm workers.


def a_hosted_job(model: Model, warm_worker: Pod, *, attempt: int = 1, failed: int = 0, **job: Any) -> Job:
    """A batch whose newest attempt was given to a warm worker."""
    placement = Placement(
        accelerator="cpu",
        node="node-1",
        pod=warm_worker.key.name,
        cost=cost_terms(),
        decision_time=whole(NOW - timedelta(seconds=2)),
    )
    last = AttemptStatus(number=attempt, pod=warm_worker.key.name, outcome=AttemptOutcome.RUNNING)
    status = InferenceJobStatus(
        observed_generation=1, attempts=attempt, failed_attempts=failed, last_attempt=last, placement=placement
    )
    return a_job(model=model.key.name, status=status, **{"items": 10, **job})


def a_task(
    job: Job,
    model: Model,
    *,
    attempt: int = 1,
    state: Literal["Queued", "Running", "Ended"] = "Running",
    report: TerminationReport | None = None,
    of: str | None = None,
) -> TaskState:
    """What a worker says of the attempt; `of` is another revision than the job's."""
    made_of = of if of is not None else resolved_of(observed(job, model=model)).revisions.combined
    return TaskState(job.uid, attempt, made_of, "Ended" if report is not None else state, report=report)


def a_store(model: Model, *pods: Pod) -> Store:
    """A store with a node, the model and pods."""
    store = Store()
    store.nodes["node-1"] = a_node()
    store.models[model.key] = model
    for pod in pods:
        store.put_pod(pod)
    return store


def hosting(job: Job, model: Model, warm_worker: Pod | None, task: TaskState | None = None, *, node_lost: bool = False) -> Observed:
    """What is seen of a job whose attempt was given to `warm_worker`, of which the worker has said `task`."""
    store = a_store(model, *((warm_worker,) if warm_worker is not None else ()))
    if node_lost:
        del store.nodes["node-1"]
    store.put_job(job)
    if task is not None:
        store.task_index.put_task(task, NOW)
        if warm_worker is not None and task.report is None:
            store.readings[warm_worker.uid] = Reading(Telemetry(ready=True, draining=False, tasks=(task,)), NOW)
    found = store.observe(job.key)
    assert found is not None
    return found
