"""Objects for tests, with good defaults: a test names only what matters to it."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from inference_operator.api.conditions import Reason
from inference_operator.api.job import Backend, DeadlinePolicy, InferenceJobSpec, Input, Output, Serve, wanted_replicas
from inference_operator.api.job_status import CostTerms, InferenceJobStatus, Placement
from inference_operator.api.model import InferenceModelSpec, InferenceModelStatus, ModelVersion, Profile
from inference_operator.api.names import budget_name, pod_name
from inference_operator.scheduling.estimate import Estimate, Subject
from inference_operator.scheduling.requirements import Tolerance, pod_requirements
from inference_operator.scheduling.types import (
    Assignment,
    Decision,
    Explanation,
    Option,
    PendingReason,
    PlacementRequest,
    RunningWork,
)
from inference_operator.settings import Settings
from inference_operator.state.load import Load, Recommendation, ScalingMetrics, Workers
from inference_operator.state.objects import (
    Autoscaler,
    Budget,
    CreateFailure,
    Job,
    Key,
    Model,
    Node,
    Pod,
    PodPhase,
    PodProblem,
    Reading,
    Taint,
    Worker,
)
from inference_operator.state.observed import Observed
from inference_operator.state.request import job_request
from inference_operator.state.resources import PODS, amounts
from inference_operator.template_limits import TemplateLimits
from inference_operator.warmpools.credentials import TaskKey
from inference_operator.workers.resolve import ResolvedJob, resolve
from inference_protocol.messages import Latency, ModelFacts, Progress, Telemetry, TerminationReport
from inference_protocol.reasons import WorkerReason

# Not on a whole second: the API keeps whole seconds, and what is rounded late shows only so.
NOW = datetime(2026, 4, 2, 12, 0, 0, 654_321, tzinfo=UTC)
# Lets jobs add what tests add; what the defaults refuse is tested apart.
LIMITS = TemplateLimits(labels=("team",), annotations=("note",), priority_classes=("high",), tolerations=("k", "spot", "gpu"))
SETTINGS = Settings(pod_template=LIMITS)
TOKENS = TaskKey(b"of the tests")
DIGEST = "sha256:" + "a" * 64
OTHER_DIGEST = "sha256:" + "b" * 64
GPU = "nvidia.com/gpu"
MODEL_URI = "file:///models/m.onnx"


def whole(instant: datetime) -> datetime:
    """The instant as the API keeps it."""
    return instant.replace(microsecond=0)


def a_job(
    name: str = "job",
    *,
    namespace: str = "default",
    uid: str | None = None,
    deadline_in: float | None = None,
    firm: bool = False,
    gpu: int = 0,
    items: int | None = None,
    serve: Serve | bool = False,
    created_ago: float = 10.0,
    generation: int = 1,
    deleting: bool = False,
    status: InferenceJobStatus | None = None,
    **spec: Any,
) -> Job:
    """A batch job over one line of JSON; over a volume with `items`; a serving one with `serve`. `gpu` asks for one."""
    if serve:
        spec.setdefault("serve", serve if isinstance(serve, Serve) else None)
    elif items is not None:
        spec.setdefault("input", Input(uri="pvc://data/in.npy", items=items))
        spec.setdefault("output", Output(uri="pvc://data/out"))
    else:
        spec.setdefault("input", Input(data='{"x": [1.0]}'))
    if gpu:
        spec.setdefault("accelerator", "gpu")
    if deadline_in is not None:
        spec.setdefault("deadline", NOW + timedelta(seconds=deadline_in))
    if firm:
        spec.setdefault("deadline_policy", DeadlinePolicy.FIRM)
    spec.setdefault("model", MODEL_URI)
    return Job(
        key=Key(namespace, name),
        uid=uid or f"uid-of-{name}",
        generation=generation,
        resource_version="1",
        created=whole(NOW - timedelta(seconds=created_ago)),
        deleting=deleting,
        spec=InferenceJobSpec(**spec),
        status=status or InferenceJobStatus(),
    )


def a_profile(
    accelerator: str = "cpu",
    *,
    items_per_second: float = 1.0,
    load_seconds: float = 2.0,
    batch_size: int = 1,
    digest: str = DIGEST,
    variant_of: str | None = None,
    backend: Backend = Backend.ONNX,
    observed_ago: float = 3600.0,
) -> Profile:
    """What was measured on one class."""
    return Profile(
        digest=digest,
        variant_of=variant_of,
        accelerator=accelerator,
        backend=backend,
        batch_size=batch_size,
        items_per_second=items_per_second,
        load_seconds=load_seconds,
        observed_time=whole(NOW - timedelta(seconds=observed_ago)),
    )


def a_version(name: str = "1", *, uri: str = MODEL_URI, digest: str | None = DIGEST, file_format: str = "onnx") -> ModelVersion:
    """One file of a model."""
    return ModelVersion(name=name, uri=uri, digest=digest, format=file_format)


def a_model(
    name: str = "m", *versions: ModelVersion, profiles: Sequence[Profile] = (), invalid: str | None = None, **spec: Any
) -> Model:
    """An InferenceModel, by default with one version; jobs name it by `model="m"`."""
    return Model(
        key=Key("default", name),
        uid=f"uid-of-model-{name}",
        generation=1,
        resource_version="1",
        spec=None if invalid else InferenceModelSpec(versions=list(versions) or [a_version()], **spec),
        status=InferenceModelStatus(profiles=list(profiles)),
        invalid=invalid,
    )


def a_node(
    name: str = "node-1",
    *,
    cpu: str = "8",
    memory: str = "32Gi",
    gpu: int = 0,
    pods: int = 110,
    labels: dict[str, str] | None = None,
    taints: Sequence[Taint] = (),
    ready: bool = True,
    cordoned: bool = False,
    user_namespaces: bool = False,
) -> Node:
    """A node that takes pods."""
    allocatable = amounts({"cpu": cpu, "memory": memory, PODS: str(pods)} | ({GPU: str(gpu)} if gpu else {}))
    return Node(
        name=name,
        resource_version="1",
        labels=labels or {},
        taints=tuple(taints),
        allocatable=allocatable,
        ready=ready,
        unschedulable=cordoned,
        user_namespaces=user_namespaces,
    )


def cost_terms(*, seconds: float = 33.0, estimated: bool = True) -> CostTerms:
    """What a place costs; the total is told by the time alone."""
    return CostTerms(total=seconds, latency_seconds=seconds, energy_joules=0.0, switch_seconds=3.0, estimated=estimated)


def a_pod(
    job: Job,
    number: int = 1,
    *,
    phase: PodPhase = PodPhase.RUNNING,
    ready: bool | None = None,
    node: str | None = "node-1",
    accelerator: str = "cpu",
    revision: str | None = None,
    model: Model | None = None,
    report: TerminationReport | None = None,
    exit_code: int | None = None,
    problem: PodProblem | None = None,
    deleting: bool = False,
    lingering: tuple[str, ...] = (),
    created_ago: float = 8.0,
    ended_ago: float = 1.0,
    seconds: float | None = None,
    uid: str | None = None,
    settings: Settings = SETTINGS,
) -> Pod:
    """A worker of the job: it answers when it runs, unless told otherwise. `seconds` is what its work was measured to take.

    With `lingering` containers beside it, it has ended and its pod has not.
    """
    name = pod_name(job.key.name, job.uid, number)
    created = whole(NOW - timedelta(seconds=created_ago))
    terminal = phase in (PodPhase.SUCCEEDED, PodPhase.FAILED) or bool(lingering)
    placement = Placement(
        accelerator=accelerator,
        node=node or "node-1",
        pod=name,
        cost=cost_terms(seconds=seconds or 33.0, estimated=seconds is None),
        decision_time=created,
    )
    if revision is None:
        revision = resolved_of(observed(job, model=model), settings).revisions.by_class.get(accelerator, "of another class")
    return Pod(
        key=Key(job.key.namespace, name),
        uid=uid if uid is not None else f"uid-of-{name}",
        resource_version="1",
        node=node,
        requests={**amounts({"cpu": "500m", "memory": "512Mi"}), PODS: 1},
        phase=phase,
        deleting=deleting,
        ready=(phase is PodPhase.RUNNING and not lingering) if ready is None else ready,
        lingering=lingering,
        address="10.0.0.1" if phase is PodPhase.RUNNING else None,
        worker=Worker(job.uid, number, revision, accelerator, placement),
        problem=problem,
        report=report,
        exit_code=exit_code if exit_code is not None else 0 if report is not None else None,
        created=created,
        started=created if phase is not PodPhase.PENDING else None,
        ended=whole(NOW - timedelta(seconds=ended_ago)) if terminal else None,
    )


def somebodys_pod(
    name: str = "other", *, node: str | None = "node-1", phase: PodPhase = PodPhase.RUNNING, gpu: int = 0, **requests: str
) -> Pod:
    """A pod that is not ours."""
    taken = {**amounts(requests), PODS: 1, **({GPU: gpu} if gpu else {})}
    return Pod(
        key=Key("elsewhere", name),
        uid=f"uid-of-{name}",
        resource_version="1",
        node=node,
        requests=taken,
        phase=phase,
        deleting=False,
    )


def a_subject(digest: str | None = DIGEST, *, variant: bool = False, backend: Backend = Backend.ONNX) -> Subject:
    """A file that is run as it is by ONNX Runtime."""
    return Subject(digest, variant, backend)


def a_fact(
    *, provider: str = "CPUExecutionProvider", items_per_second: float | None = 1.0, digest: str = DIGEST, **more: Any
) -> ModelFacts:
    """What a worker found out about its model."""
    return ModelFacts(
        digest=digest,
        provider=provider,
        load_seconds=1.5,
        warmup_seconds=0.5,
        batch_size=1,
        memory_bytes=2**28,
        items_per_second=items_per_second,
        **more,
    )


def a_report(
    outcome: Literal["Succeeded", "Failed", "Drained"] = "Succeeded",
    *,
    reason: WorkerReason | None = None,
    message: str = "as the worker says",
    total: int = 10,
    completed: int = 10,
    model: ModelFacts | None = None,
    output: str | None = None,
) -> TerminationReport:
    """A worker's last words."""
    return TerminationReport(
        outcome=outcome,
        message=message,
        reason=reason,
        model=model,
        progress=Progress(total=total, completed=completed),
        latency=Latency(p50=1.0, p95=2.0, p99=3.0, count=completed) if outcome == "Succeeded" else None,
        output=output,
    )


def a_reading(
    *,
    progress: tuple[int, int] | None = None,
    model: ModelFacts | None = None,
    sketch: dict[int, int] | None = None,
    ago: float = 0.5,
    problem: str | None = None,
) -> Reading:
    """A telemetry answer; `progress` is (completed, total)."""
    telemetry = Telemetry(
        ready=problem is None,
        problem=problem,
        draining=False,
        model=model,
        progress=Progress(total=progress[1], completed=progress[0]) if progress else None,
        sketch=sketch or {},
    )
    return Reading(telemetry, NOW - timedelta(seconds=ago))


def budget_of(job: Job, wanted: int) -> Budget | None:
    """The budget that a service of so many workers has once the operator has made it."""
    if job.is_batch or wanted < 2:
        return None
    return Budget(Key(job.key.namespace, budget_name(job.key.name)), "budget", job.uid, wanted - 1)


def observed(
    job: Job,
    *pods: Pod,
    model: Model | None = None,
    has_service: bool = True,
    budget: Budget | None = None,
    create_failure: CreateFailure | None = None,
    lost: Sequence[Pod] = (),
    readings: dict[str, Reading] | None = None,
    **more: Any,
) -> Observed:
    """A snapshot of one job. The nodes of `lost` pods are out of reach."""
    return Observed(
        job=job,
        model=model,
        pods=pods,
        has_service=has_service,
        budget=budget if budget is not None or job.spec is None else budget_of(job, wanted_replicas(job.spec)),
        create_failure=create_failure,
        lost=frozenset(pod.uid for pod in lost),
        readings=readings or {},
        **more,
    )


def a_load(
    p95: float | None = None,
    *,
    count: int = 100,
    seconds: float = 15.0,
    busy: float = 0.5,
    demand: float | None = None,
    **more: Any,
) -> Load:
    """A window; p95 and the rest of latencies in seconds, and none of them without requests."""
    if p95 is None:
        return Load(seconds=seconds, busy=busy, demand=busy)
    spread = {"floor": p95 / 3, "p50": p95 / 2, "p95": p95, "p99": p95 * 1.2}
    given = {"count": count, "arrived": count, "requests_per_second": count / max(seconds, 1.0), **spread, **more}
    return Load(seconds=seconds, busy=busy, demand=busy if demand is None else demand, **given)


def some_scaling_metrics(
    load: Load | None = None,
    *,
    ready: int = 1,
    measured: int | None = None,
    recommendation: Recommendation | None = None,
    settled: bool = False,
) -> ScalingMetrics:
    """What the newest round has found."""
    workers = Workers(ready=ready, measured=ready if measured is None else measured)
    return ScalingMetrics(0.0, load if load is not None else a_load(0.01), workers, recommendation, settled)


def an_autoscaler(
    name: str = "job", *, target: str | None = "job", job_uid: str | None = None, revision: str = "", **more: Any
) -> Autoscaler:
    """An HPA; ours if it has a job's uid."""
    scaled = Key("default", target) if target is not None else None
    return Autoscaler(Key("default", name), f"uid-of-hpa-{name}", "1", scaled, job_uid, revision, **more)


def a_create_failure(
    message: str = "exceeded quota: q", *, reason: Reason = Reason.QUOTA_EXCEEDED, ago: float = 0.0, count: int = 0
) -> CreateFailure:
    """A refusal of the API server."""
    return CreateFailure(reason, message, NOW - timedelta(seconds=ago), count)


def an_option(
    accelerator: str = "cpu",
    *,
    seconds: float = 30.0,
    measured: bool = True,
    cpu: str = "1",
    gpu: int = 0,
    watts: float | None = None,
    node_selector: dict[str, str] | None = None,
    tolerations: Sequence[Tolerance] = (),
) -> Option:
    """One class that a need may be met on; `seconds` from cold start to done."""
    taken = {**amounts({"cpu": cpu, "memory": "512Mi"} | ({GPU: str(gpu)} if gpu else {})), PODS: 1}
    return Option(
        accelerator=accelerator,
        requirements=pod_requirements(
            tuple(sorted(taken.items())), tuple(sorted((node_selector or {}).items())), tuple(tolerations)
        ),
        estimate=Estimate(load_seconds=2.0, work_seconds=seconds - 2.0, measured=measured),
        watts=watts if watts is not None else 300.0 if gpu else 15.0,
    )


def resolved_of(seen: Observed, settings: Settings = SETTINGS) -> ResolvedJob:
    """The job, resolved; it must be one that may run."""
    assert seen.job.spec is not None
    found = resolve(seen, seen.job.spec, settings)
    assert isinstance(found, ResolvedJob), found
    return found


def a_request(
    name: str = "n",
    *options: Option,
    workers: int = 1,
    deadline_in: float | None = None,
    priority: int = 0,
    firm: bool = False,
    created_ago: float = 10.0,
    namespace: str = "default",
) -> PlacementRequest:
    """Workers that a job wants, by default one on one core for 30 seconds."""
    return PlacementRequest(
        key=job_request(Key(namespace, name)),
        uid=f"uid-of-{name}",
        revision="r",
        workers=workers,
        options=options or (an_option(),),
        created=NOW - timedelta(seconds=created_ago),
        priority=priority,
        deadline=NOW + timedelta(seconds=deadline_in) if deadline_in is not None else None,
        firm=firm,
    )


def a_running_work(
    name: str = "t",
    *,
    node: str = "node-1",
    option: Option | None = None,
    left: float = 100.0,
    begun_ago: float = 10.0,
    deadline_in: float | None = None,
    priority: int = 0,
    movable: bool = True,
    leaving: float = 1.0,
    resuming: float = 2.0,
    namespace: str = "default",
) -> RunningWork:
    """A batch at its place, by default on one core and for a hundred seconds more; `a_tenants_pod` is what it holds there."""
    return RunningWork(
        key=job_request(Key(namespace, name)),
        uid=f"uid-of-{name}",
        revision="r",
        node=node,
        requirements=(option or an_option()).requirements,
        begun=NOW - timedelta(seconds=begun_ago),
        end=NOW + timedelta(seconds=left),
        priority=priority,
        deadline=NOW + timedelta(seconds=deadline_in) if deadline_in is not None else None,
        movable=movable,
        leaving_seconds=leaving,
        resuming_seconds=resuming,
    )


def a_tenants_pod(running_work: RunningWork) -> Pod:
    """The worker of running work, as far as capacity goes."""
    return Pod(
        key=Key("default", f"{running_work.key.name}-1"),
        uid=f"uid-of-{running_work.key.name}-1",
        resource_version="1",
        node=running_work.node,
        requests=dict(running_work.requirements.amounts),
        phase=PodPhase.RUNNING,
        deleting=False,
    )


def a_worker(name: str = "w", *, namespace: str = "default", node: str = "node-1", option: Option | None = None) -> Pod:
    """A worker that runs, as far as capacity, caps and shares go."""
    option = option or an_option()
    return Pod(
        key=Key(namespace, name),
        uid=f"uid-of-{name}",
        resource_version="1",
        node=node,
        requests=dict(option.requirements.amounts),
        phase=PodPhase.RUNNING,
        deleting=False,
        worker=Worker(f"uid-of-job-of-{name}", 1, "r", option.accelerator, None),
    )


def placed_on(
    placement_request: PlacementRequest,
    *nodes: str,
    accelerator: str = "cpu",
    seconds: float | None = None,
    pending: PendingReason | None = None,
) -> Decision:
    """The scheduler gives these nodes. `seconds` is a measured estimate."""
    explanation = Explanation(cost_terms(seconds=seconds or 33.0, estimated=seconds is None))
    return Decision(
        placement_request.uid,
        placement_request.revision,
        tuple(Assignment(accelerator, node) for node in nodes),
        pending,
        explanations=(explanation,) * len(nodes),
    )


def no_room(
    placement_request: PlacementRequest,
    message: str = "waits for room",
    *,
    reason: Reason = Reason.NO_FREE_CAPACITY,
    final: bool = False,
) -> Decision:
    """The scheduler gives nothing."""
    return Decision(placement_request.uid, placement_request.revision, pending=PendingReason(reason, message, final=final))
