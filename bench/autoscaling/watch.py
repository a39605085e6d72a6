"""What is looked at while the callers call: replicas, workers, metrics, second by second; and the legs that come of it."""

import json
import time
from dataclasses import asdict, dataclass
from datetime import datetime
from http import HTTPStatus
from itertools import pairwise
from pathlib import Path
from typing import Any

from kubernetes.config import new_client_from_config

from bench.autoscaling.load import Answered
from bench.autoscaling.service import TARGET_MILLISECONDS, metric_path, metric_value
from examples.demo.cluster import Kubectl, Manifest

_BIN_SECONDS = 2.0
# The breach is over when so many bins in a row are within the target.
_CALM_BINS = 3


@dataclass(frozen=True, slots=True)
class Moment:
    """One look; `time` is time.time(), latencies in milliseconds."""

    time: float
    asked: int
    ready: int
    p95: float | None
    desired: float | None
    # Of the whole machine, the share of its cores' time since the look before in which they had something to do.
    used: float = 0.0


class Machine:
    """How busy the cores are, by the kernel's counts."""

    def __init__(self) -> None:
        self._before = self._counts()

    def used(self) -> float:
        """The share since the last question."""
        after = self._counts()
        idle, whole = (now - before for now, before in zip(after, self._before, strict=True))
        self._before = after
        return 1 - idle / max(1, whole)

    @staticmethod
    def _counts() -> tuple[int, int]:
        fields = [int(x) for x in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
        return fields[3] + fields[4], sum(fields)


@dataclass(frozen=True, slots=True)
class Start:
    """A worker's first steps: when its pod was made (time.time()), and seconds since. The API server counts whole seconds."""

    pod: str
    made: float
    scheduled: float
    started: float
    ready: float


def starts(kube: Kubectl, name: str) -> list[Start]:
    """Of the job's workers that are ready."""
    pods = json.loads(kube.run("get", "pods", "-l", f"inference.myorg/job={name}", "-o", "json"))["items"]
    found = [start for pod in pods if (start := _start(pod)) is not None]
    return sorted(found, key=lambda start: (start.made, start.pod))


def _start(pod: Manifest) -> Start | None:
    status = pod["status"]
    when = {c["type"]: c["lastTransitionTime"] for c in status.get("conditions", ()) if c["status"] == "True"}
    running = [c["state"]["running"]["startedAt"] for c in status.get("containerStatuses", ()) if "running" in c["state"]]
    if "Ready" not in when or not running:
        return None
    made = _stamp(pod["metadata"]["creationTimestamp"])
    scheduled, started, ready = (_stamp(x) - made for x in (when["PodScheduled"], running[0], when["Ready"]))
    return Start(pod["metadata"]["name"], made, scheduled, started, ready)


def _stamp(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


class Api:
    """The API server over one connection: a kubectl a question would take a third of a core of what is measured."""

    def __init__(self, kube: Kubectl) -> None:
        self._client: Any = new_client_from_config(str(kube.kubeconfig))  # type: ignore[no-untyped-call]
        self.namespace = kube.namespace

    def get(self, path: str) -> dict[str, Any] | None:
        """An object; None where it has none, or no answer."""
        answer = self._client.rest_client.pool_manager.request("GET", self._client.configuration.host + path, timeout=5.0)
        return json.loads(answer.data) if answer.status == HTTPStatus.OK else None

    def create(self, path: str, manifest: Manifest) -> None:
        """Make an object. Raises RuntimeError with the API server's words."""
        url = self._client.configuration.host + path
        answer = self._client.rest_client.pool_manager.request("POST", url, json=manifest, timeout=5.0)
        if answer.status != HTTPStatus.CREATED:
            raise RuntimeError(f"{path}: {answer.status} {answer.data[:500]!r}")

    def metric(self, name: str, metric_name: str) -> float | None:
        """Of a job."""
        found = self.get(metric_path(self.namespace, name, metric_name))
        return None if found is None else metric_value(found)


def look(api: Api, name: str, machine: Machine) -> Moment:
    """Now."""
    job = api.get(f"/apis/inference.myorg/v1/namespaces/{api.namespace}/inferencejobs/{name}")
    assert job is not None, f"InferenceJob {name} is gone"
    return Moment(
        time=time.time(),
        asked=job["spec"]["replicas"],
        ready=job.get("status", {}).get("readyReplicas", 0),
        p95=api.metric(name, "inference_latency_ms"),
        desired=api.metric(name, "inference_desired_replicas"),
        used=round(machine.used(), 3),
    )


def bins(answers: list[Answered]) -> list[tuple[float, float, int]]:
    """(time, p95 in milliseconds, requests) by when requests were meant to be sent: what callers met."""
    found: dict[int, list[float]] = {}
    for one in answers:
        found.setdefault(int(one.time // _BIN_SECONDS), []).append(one.seconds * 1e3)
    result = []
    for number, latencies in sorted(found.items()):
        latencies.sort()
        result.append((number * _BIN_SECONDS, latencies[max(0, int(0.95 * len(latencies)) - 1)], len(latencies)))
    return result


@dataclass(frozen=True, slots=True)
class Legs:
    """Seconds from the breach (the first callers over the target) to each thing that follows; None where it never came."""

    measured: float | None
    asked: float | None
    ready: float | None
    recovered: float | None

    def document(self) -> dict[str, float | None]:
        """For the result."""
        return {name: None if value is None else round(value, 1) for name, value in asdict(self).items()}


def legs(moments: list[Moment], answers: list[Answered], *, since: float, target: float = TARGET_MILLISECONDS) -> Legs:
    """What followed the step at `since`."""
    seen = [b for b in bins(answers) if b[0] >= since - _BIN_SECONDS]
    breach = next((at for at, p95, _ in seen if p95 > target), None)
    if breach is None:
        return Legs(None, None, None, None)
    after = [m for m in moments if m.time >= since]
    asked_before = max((m.asked for m in moments if m.time < since), default=1)
    ready_before = max((m.ready for m in moments if m.time < since), default=1)

    def first(times: list[float]) -> float | None:
        return max(0.0, times[0] - breach) if times else None

    return Legs(
        measured=first([m.time for m in after if m.p95 is not None and m.p95 > target]),
        asked=first([m.time for m in after if m.asked > asked_before]),
        ready=first([m.time for m in after if m.ready > ready_before]),
        recovered=_recovered([(at, p95) for at, p95, _ in seen if at >= breach], breach, target),
    )


def _recovered(seen: list[tuple[float, float]], breach: float, target: float) -> float | None:
    calm = 0
    for at, p95 in seen:
        calm = calm + 1 if p95 <= target else 0
        if calm == _CALM_BINS:
            return at - (_CALM_BINS - 1) * _BIN_SECONDS - breach
    return None


def reversals(moments: list[Moment], *, since: float, until: float) -> int:
    """How often the number that was asked for turned round."""
    asked = [m.asked for m in moments if since <= m.time < until]
    steps = [b > a for a, b in pairwise(asked) if a != b]
    return sum(a != b for a, b in pairwise(steps))
