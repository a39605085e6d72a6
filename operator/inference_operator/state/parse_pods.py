"""Pods from the API server, cut down to what decisions need."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec
from pydantic import ValidationError

from inference_operator.api import names
from inference_operator.state.node_caches import NodeAgent
from inference_operator.state.objects import Key, Placeholder, Pod, PodPhase, PodProblem, Worker
from inference_operator.state.raw import PLACEMENT, Raw, RawAmounts, RawCondition, RawMeta, RawStruct, is_ours
from inference_operator.state.resources import PODS, add, amounts
from inference_protocol.messages import decode_report

_BEGINNING = ("", "ContainerCreating", "PodInitializing")


_PHASES = {phase.value: phase for phase in PodPhase}


class _Container(RawStruct, frozen=True):
    resources: RawAmounts = RawAmounts()
    restart_policy: str | None = None


class _ClaimSource(RawStruct, frozen=True):
    claim_name: str = ""


class _PodVolume(RawStruct, frozen=True):
    persistent_volume_claim: _ClaimSource | None = None


class _PodSpec(RawStruct, frozen=True):
    node_name: str | None = None
    containers: list[_Container] = msgspec.field(default_factory=list)
    init_containers: list[_Container] = msgspec.field(default_factory=list)
    overhead: dict[str, str] = msgspec.field(default_factory=dict)
    volumes: list[_PodVolume] = msgspec.field(default_factory=list)
    resources: RawAmounts = RawAmounts()
    termination_grace_period_seconds: int | None = None


class _Waiting(RawStruct, frozen=True):
    reason: str = ""
    message: str = ""


class _Running(RawStruct, frozen=True):
    started_at: datetime | None = None


class _Terminated(RawStruct, frozen=True):
    exit_code: int = 0
    reason: str = ""
    message: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None


class _State(RawStruct, frozen=True):
    waiting: _Waiting | None = None
    running: _Running | None = None
    terminated: _Terminated | None = None


class _ContainerStatus(RawStruct, frozen=True):
    name: str = ""
    ready: bool = False
    state: _State = _State()


class _PodStatus(RawStruct, frozen=True):
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    pod_ip: str | None = msgspec.field(name="podIP", default=None)
    conditions: list[RawCondition] = msgspec.field(default_factory=list)
    container_statuses: list[_ContainerStatus] = msgspec.field(default_factory=list)
    init_container_statuses: list[_ContainerStatus] = msgspec.field(default_factory=list)


class _RawPod(RawStruct, frozen=True):
    metadata: RawMeta
    spec: _PodSpec = _PodSpec()
    status: _PodStatus = _PodStatus()


def parse_pod(raw: Raw) -> Pod:
    """A pod, ours or another's."""
    pod = msgspec.convert(raw, _RawPod)
    meta, status = pod.metadata, pod.status
    phase = _PHASES.get(status.phase, PodPhase.UNKNOWN)
    plain = Pod(
        key=Key(meta.namespace, meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        node=pod.spec.node_name,
        requests=_reserved(pod.spec, _effective),
        phase=phase,
        deleting=meta.deletion_timestamp is not None,
        created=meta.creation_timestamp,
        claims=tuple([v.persistent_volume_claim.claim_name for v in pod.spec.volumes if v.persistent_volume_claim is not None]),
        address=status.pod_ip,
        bound_since=next(
            (c.last_transition_time for c in status.conditions if c.type == "PodScheduled" and c.status == "True"), None
        ),
    )
    if not is_ours(meta):
        return plain
    if names.LABEL_PLACEHOLDER in meta.labels:
        if pod.spec.termination_grace_period_seconds != 0:
            # Its room doesn't count as taken, because it makes way at once: somebody else's may run on for years.
            return plain
        return replace(
            plain,
            placeholder=Placeholder(meta.labels[names.LABEL_PLACEHOLDER], meta.labels.get(names.LABEL_ACCELERATOR, "")),
            problem=_problem(status, _State(), ()),
        )
    # By name: what others inject into the pod may stand before it.
    own = next((c for c in status.container_statuses if c.name == names.CONTAINER), _ContainerStatus())
    state, ended = own.state, own.state.terminated
    beside = tuple(c for c in status.container_statuses if c.name != names.CONTAINER)
    started = ended.started_at if ended else state.running.started_at if state.running else None
    behind = _behind(meta.creation_timestamp, started)
    ready = next((c for c in status.conditions if c.type == "Ready" and c.status == "True"), None)
    return replace(
        plain,
        limits=_reserved(pod.spec, _limits),
        ready=ready is not None,
        ready_since=_later(ready.last_transition_time if ready is not None else None, behind),
        worker_ready=own.ready,
        containers_ready=any(c.type == "ContainersReady" and c.status == "True" for c in status.conditions),
        lingering=tuple(c.name for c in beside if c.state.terminated is None) if ended else (),
        worker=_worker(meta),
        problem=_problem(status, state, beside),
        report=decode_report(ended.message) if ended else None,
        exit_code=ended.exit_code if ended else None,
        started=_later(started, behind),
        ended=_later(ended.finished_at if ended else None, behind),
    )


def _behind(made: datetime | None, started: datetime | None) -> timedelta:
    """How far a node's clock is behind the API server's, at the least: no container starts before its pod is made."""
    return max(made - started, timedelta()) if made is not None and started is not None else timedelta()


def _later(instant: datetime | None, behind: timedelta) -> datetime | None:
    return instant + behind if instant is not None else None


def parse_node_agent(raw: Raw, labels: Mapping[str, str], *, every: bool = False) -> NodeAgent | None:
    """A pod that has one of these labels, or `every` one, and can be asked about its node; None for every other."""
    meta, status = raw["metadata"], raw.get("status") or {}
    node, address = (raw.get("spec") or {}).get("nodeName"), status.get("podIP")
    found = meta.get("labels") or {}
    has = [found.get(name) == value for name, value in labels.items()]
    if not (all(has) if every else any(has)) or not has or status.get("phase") != PodPhase.RUNNING:
        return None
    return NodeAgent(node, address) if node and address else None


def _worker(meta: RawMeta) -> Worker:
    number = meta.labels.get(names.LABEL_ATTEMPT, "0")
    text = meta.annotations.get(names.ANNOTATION_PLACEMENT)
    try:
        placement = PLACEMENT.validate_json(text) if text else None
    except ValidationError:
        placement = None
    return Worker(
        job_uid=names.owner_uid(meta.labels) or "",
        pool=names.LABEL_JOB_UID not in meta.labels,
        number=int(number) if number.isdigit() else 0,
        revision=meta.labels.get(names.LABEL_REVISION, ""),
        accelerator=meta.labels.get(names.LABEL_ACCELERATOR, ""),
        placement=placement,
    )


def _problem(status: _PodStatus, state: _State, beside: tuple[_ContainerStatus, ...]) -> PodProblem | None:
    """The first thing that keeps a pod from running, or that ended it."""
    if status.reason:
        return PodProblem(status.reason, status.message, over_limit=_is_over_limit(status, state))
    if state.terminated is not None and state.terminated.exit_code != 0:
        return PodProblem(state.terminated.reason or "Error", state.terminated.message)
    if state.waiting is not None and state.waiting.reason not in _BEGINNING:
        return PodProblem(state.waiting.reason, state.waiting.message)
    if state.terminated is not None:
        return None
    for sidecar in status.init_container_statuses:
        # While the worker runs, what its sidecar is at is the worker's to tell.
        if state.running is None and (waits := sidecar.state.waiting) is not None and waits.reason not in _BEGINNING:
            return PodProblem(waits.reason, waits.message, sidecar.name)
        if state.running is None and (failed := sidecar.state.terminated) is not None and failed.exit_code != 0:
            return PodProblem(failed.reason or "Error", failed.message or f"exit code {failed.exit_code}", sidecar.name)
    for other in beside:
        # The pod takes no requests before all its containers are ready.
        if (waits := other.state.waiting) is not None and waits.reason not in _BEGINNING:
            return PodProblem(waits.reason, waits.message, other.name)
    for condition in status.conditions:
        if condition.type == "PodScheduled" and condition.status == "False":
            return PodProblem(condition.reason, condition.message)
    return None


def _is_over_limit(status: _PodStatus, state: _State) -> bool:
    # The kubelet marks those that it ends for its node's sake as disrupted, and those that it turns away never run.
    disrupted = any(c.type == "DisruptionTarget" and c.status == "True" for c in status.conditions)
    return status.reason == "Evicted" and state.terminated is not None and not disrupted


def _reserved(spec: _PodSpec, of: Callable[[RawAmounts], dict[str, str]]) -> dict[str, int]:
    """What the scheduler reserves, or a quota counts as limits (core/v1's rule for both); `of` takes it from a container.

    The sum of containers and sidecars, or the greediest moment of the init sequence, whichever is more; what the pod as a whole
    asks for stands instead of that; the overhead comes on top.
    """
    total: dict[str, int] = {PODS: 1}
    for container in spec.containers:
        add(total, amounts(of(container.resources)))
    sidecars: dict[str, int] = {}
    greediest: dict[str, int] = {}
    for container in spec.init_containers:
        own = amounts(of(container.resources))
        moment = dict(sidecars)
        add(moment, own)
        if container.restart_policy == "Always":
            sidecars = moment
        for name, value in moment.items():
            greediest[name] = max(greediest.get(name, 0), value)
    add(total, sidecars)
    for name, value in greediest.items():
        total[name] = max(total.get(name, 0), value)
    total |= amounts(of(spec.resources))
    add(total, amounts(spec.overhead))
    return total


def _limits(resources: RawAmounts) -> dict[str, str]:
    return resources.limits


def _effective(resources: RawAmounts) -> dict[str, str]:
    return {**resources.limits, **resources.requests}
