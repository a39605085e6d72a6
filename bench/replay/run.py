"""Who keeps a service within its target while real arrivals come: the operator's HPA, an HPA on CPU, KEDA on the plain latency.

The same bounds, the same behaviour of the HPA, the same load; one after the other. `BENCH_PARTS="conv:ours,cpu code"` picks traces
and sides.
"""

import json
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from bench.autoscaling.load import read
from bench.autoscaling.others import PROMETHEUS_URL, Others, others
from bench.autoscaling.service import CPU, TARGET_MILLISECONDS, job, plan
from bench.autoscaling.stage import Watched, build, call, space
from bench.autoscaling.watch import Machine, bins
from bench.replay.traces import Piece
from bench.report import Result, Target, at_least
from examples.demo.cluster import Kubectl, Manifest
from inference_operator.autoscaling.hpa_manifest import behavior

# What a machine of two cores bears: six workers of 0.3 of one are nearly all of it.
LEAST, MOST = 2, 6
# Half of the hour, in little time; and some of the wildest minutes as they were.
PIECES = {
    "conv": Piece("conv", 0, 1600, faster=16.0, share=0.5),
    "code": Piece("code", 810, 1026, faster=1.0, share=2.0),
}
_HPA_SECONDS, _DOWN_SECONDS, _SCRAPE_SECONDS = 5, 20, 5
# Before the callers begin: what others leave of the machine.
_QUIET_SECONDS = 5.0
# What an HPA on CPU is mostly told, and about what the operator finds for this service.
_CPU_PERCENT = 60


def run(rounds: int) -> Result:
    """Every side once over every trace; more for more rounds."""
    build()
    found = []
    with (
        space(hpa_seconds=_HPA_SECONDS, scale_down_seconds=_DOWN_SECONDS) as kube,
        tempfile.TemporaryDirectory() as folder,
        others(kube, Path(folder)) as beside,
    ):
        _start(beside, {side for _, sides in _parts() for side in sides})
        for number in range(max(1, rounds)):
            found += [_round(kube, trace, side, number) for trace, sides in _parts() for side in sides]
    return Result(found, list(_targets(found)))


def _parts() -> list[tuple[str, list[str]]]:
    chosen = [part.partition(":") for part in os.environ.get("BENCH_PARTS", "conv code").split()]
    return [(trace, sides.split(",") if sides else list(SIDES)) for trace, _, sides in chosen]


def _start(beside: Others, sides: set[str]) -> None:
    """What the sides need: the rest would only take of the machine."""
    if "cpu" in sides:
        beside.metrics_server()
    if sides & {"keda", "keda-number"}:
        beside.prometheus(scrape_seconds=_SCRAPE_SECONDS)
        beside.keda()


def _round(kube: Kubectl, trace: str, side: str, number: int) -> dict[str, Any]:
    name, piece = f"{trace}-{side}-{number}", PIECES[trace]
    mode = "HPA" if side == "ours" else "External"
    kube.apply(job(name, mode=mode, least=LEAST, most=MOST, asks=CPU))
    # What everybody begins with; nobody's from now on but the autoscaler's.
    kube.run("scale", f"ij/{name}", f"--replicas={LEAST}")
    kube.wait(name, "Ready")
    scaling = SIDES[side](kube.namespace, name)
    if scaling:
        kube.apply(*scaling)
    try:
        if side == "ours":
            kube.run("wait", f"ij/{name}", "--for=condition=Autoscaled", "--timeout=60s")
        else:
            hpa = f"hpa/keda-hpa-{name}" if side.startswith("keda") else f"hpa/{name}"
            kube.run("wait", hpa, "--for=create", "--timeout=60s")
            kube.run("wait", hpa, "--for=condition=ScalingActive", "--timeout=90s")
        with tempfile.TemporaryDirectory() as folder:
            wanted = plan(kube, name, [], Path(folder))
            wanted.times.extend(piece.times())
            machine = Machine()
            time.sleep(_QUIET_SECONDS)
            before = round(machine.used(), 3)
            seen = call(kube, name, wanted, Path(folder))
            found = {"trace": trace, "side": side, "machineUsedBefore": before, **_result(seen, Path(wanted.result))}
            # Told at once: the whole takes long, and may be ended.
            print(json.dumps({key: value for key, value in found.items() if not isinstance(value, list)}), flush=True)
            return found
    finally:
        for one in scaling:
            kube.delete(one["kind"], name)
        kube.delete("ij", name)


def _result(seen: Watched, file: Path) -> dict[str, Any]:
    answers = read(file)
    within = [one.seconds * 1e3 <= TARGET_MILLISECONDS for one in answers if one.status == 200]
    told = bins(answers)
    asked = [m.asked for m in seen.moments]
    steps = [b > a for a, b in pairwise(asked) if a != b]
    return {
        "requests": len(answers),
        "failed": sum(one.status != 200 for one in answers),
        "requestsWithin": round(sum(within) / max(1, len(answers)), 4),
        "timeWithin": round(sum(p95 <= TARGET_MILLISECONDS for _, p95, _ in told) / max(1, len(told)), 4),
        "workerSeconds": sum(b.ready * (b.time - a.time) for a, b in pairwise(seen.moments)),
        "mostReplicas": max(asked),
        "reversals": sum(a != b for a, b in pairwise(steps)),
        "machineUsed": round(sum(m.used for m in seen.moments) / len(seen.moments), 3),
        "moments": seen.told_moments(),
        "callers": [(round(at - seen.begun, 1), round(p95, 1), count) for at, p95, count in told],
    }


def _targets(found: list[dict[str, Any]]) -> Iterator[Target]:
    for trace in dict.fromkeys(r["trace"] for r in found):
        for side in ("cpu", "keda"):
            ours, theirs = (_mean(found, trace, one) for one in ("ours", side))
            if ours is not None and theirs is not None:
                yield at_least(f"{trace}-{side}", f"time within the target, ours less that of {side}", ours - theirs, 0)


def _mean(found: list[dict[str, Any]], trace: str, side: str) -> float | None:
    shares = [r["timeWithin"] for r in found if (r["trace"], r["side"]) == (trace, side)]
    return sum(shares) / len(shares) if shares else None


def _ours(namespace: str, name: str) -> list[Manifest]:  # noqa: ARG001 -- sides share a form
    return []


def _by_cpu(namespace: str, name: str) -> list[Manifest]:  # noqa: ARG001
    spec = {
        "scaleTargetRef": _reference(name),
        "minReplicas": LEAST,
        "maxReplicas": MOST,
        "behavior": behavior(_DOWN_SECONDS),
        "metrics": [
            {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": _CPU_PERCENT}}}
        ],
    }
    return [{"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}]


def _by_latency(namespace: str, name: str) -> list[Manifest]:
    query = f'max(inference_job_latency_seconds{{namespace="{namespace}",inference_job="{name}",percentile="95"}}) * 1e3'
    return [_scaled_object(name, query, "Value", str(TARGET_MILLISECONDS))]


def _by_number(namespace: str, name: str) -> list[Manifest]:
    query = f'max(inference_job_desired_replicas{{namespace="{namespace}",inference_job="{name}"}})'
    return [_scaled_object(name, query, "AverageValue", "1")]


def _scaled_object(name: str, query: str, kind: str, threshold: str) -> Manifest:
    metadata = {"serverAddress": PROMETHEUS_URL, "query": query, "threshold": threshold, "ignoreNullValues": "false"}
    spec = {
        "scaleTargetRef": _reference(name),
        "minReplicaCount": LEAST,
        "maxReplicaCount": MOST,
        "advanced": {"horizontalPodAutoscalerConfig": {"behavior": behavior(_DOWN_SECONDS)}},
        "triggers": [{"type": "prometheus", "metricType": kind, "metadata": metadata}],
    }
    return {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": {"name": name}, "spec": spec}


def _reference(name: str) -> Manifest:
    return {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": name}


SIDES: dict[str, Callable[[str, str], list[Manifest]]] = {
    "ours": _ours,
    "cpu": _by_cpu,
    "keda": _by_latency,
    "keda-number": _by_number,
}
