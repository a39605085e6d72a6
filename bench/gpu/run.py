"""The worker on a real CUDA device, beside the bare runtime, and beside another checkout where BENCH_OTHER_SOURCE names one.

BENCH_PARTS selects among device, mixed, served, study, slack, memory, torchscript, refused (by a provider), hang, pair (of two
devices), other and other-half (which put that other checkout beside this one, figure by figure, in single and in half precision).
Needs onnxruntime-gpu, torch with torchvision and nvidia-ml-py. Without a CUDA provider it says so and measures nothing.
"""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnxruntime as ort

from bench.gpu import bare, device, hang, other, pair, refused, serving, shortage, slack, study
from bench.gpu.nets import INPUT, OUTPUT, PRECISIONS, SIDE, export
from bench.gpu.served import Stream, load, worker
from bench.report import ROOT, Result, Target, at_least, at_most
from dev.console import say

_FOLDER = ROOT / "build" / "bench" / "nets"
_HALF_LOAD = 1500.0
"""Images a second: half of what is held at a latency (docs/measurements.md)."""

_MOST = 9000.0
"""Images a second that no device answers."""

_TORCH_SIGNATURE = {
    "inputs": [{"name": INPUT, "datatype": "UINT8", "shape": [-1, SIDE, SIDE, 3]}],
    "outputs": [{"name": OUTPUT, "datatype": "FP32", "shape": [-1, 1000]}],
}

Part = Callable[[dict[str, Path]], tuple[dict[str, Any], list[Target]]]


def run(rounds: int) -> Result:  # noqa: ARG001 -- every benchmark takes it; a device is measured within one round
    """Measure, or say why not."""
    if serving.CUDA not in ort.get_available_providers():
        found = ", ".join(ort.get_available_providers())
        raise SystemExit(f"this ONNX Runtime has no {serving.CUDA} ({found}); run it on a machine with a GPU")
    wanted = os.environ.get("BENCH_PARTS", " ".join(_PARTS)).split()
    nets = export(_FOLDER)
    record: dict[str, Any] = {"onnxruntime": ort.__version__, "card": _card()}
    targets: list[Target] = []
    for name in wanted:
        measured, more = _PARTS[name](nets)
        say(f"{name}: {measured}")
        record[name] = measured
        targets += more
    return Result([record], targets)


def _card() -> str:
    query = ["nvidia-smi", "--query-gpu=name,driver_version,memory.total", "--format=csv,noheader"]
    return subprocess.run(query, capture_output=True, text=True, check=False).stdout.strip()


def _device(_: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    found = device.measure()
    return found.rounds[0], found.targets


def _mixed(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    record: dict[str, Any] = {}
    targets = []
    for precision in PRECISIONS:
        alone = bare.measure(nets[precision])
        found = serving.mixed(nets[precision]) | {"bare": alone}
        share = found["batchImagesPerSecond"] / alone["boundImagesPerSecond"]
        record[precision] = found | {"batchOverBare": round(share, 3)}
        targets += [
            at_most(f"gpu.mixed.{precision}", "mixed sizes over the same runs by size", found["mixedOverFixed"], 1.15),
            at_least(f"gpu.batch.{precision}", "images/s of a batch over the bare bound session's", share, 0.97),
        ]
    return record, targets


def _served(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    record: dict[str, Any] = {}
    targets: list[Target] = []
    for precision in PRECISIONS:
        alone = bare.measure(nets[precision])
        top = alone["boundImagesPerSecond"]
        found: dict[str, Any] = {"bare": alone}
        with worker(nets[precision]) as on:
            load(on, [Stream(500)], 2.0)
            found["readySeconds"] = on.ready_seconds
            found["single"] = serving.single(on, alone["millisecondsByRows"][1])
            found["1000"] = serving.at(on, 1000)
            for protocol in ("http", "grpc"):
                found[protocol] = serving.held(on, top, protocol)
                share = found[protocol]["best"]["imagesPerSecond"] / top
                what = f"images/s over {protocol} at p99 <= {serving.P99_MS:g} ms over the bare bound session's"
                targets.append(at_least(f"gpu.{protocol}.{precision}", what, share, 0.8))
            found["most"] = serving.most(on, top * 1.2).summary()
            found["profile"] = on.get("/v2/models/net/stats")
        targets += [
            at_most(f"gpu.p50.{precision}", "p50 of 1,000 images/s, ms", found["1000"]["p50Ms"], 5.0),
            at_most(f"gpu.p99.{precision}", "p99 of 1,000 images/s, ms", found["1000"]["p99Ms"], 12.0),
            at_most(f"gpu.single.{precision}", "ms that the worker adds to one row", found["single"]["addedMs"], 0.6),
        ]
        record[precision] = found
    if before := os.environ.get("BENCH_OTHER_SOURCE"):
        with worker(nets["fp32"], source=Path(before)) as on:
            load(on, [Stream(500)], 2.0)
            record["other"] = [serving.at(on, rate) for rate in (1000, 2000)]
    return record, targets


def _study(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    top = bare.measure(nets["fp32"])["boundImagesPerSecond"]
    with worker(nets["fp32"]) as on:
        load(on, [Stream(500)], 2.0)
        found = study.measure(on, top)
    return found, [
        at_least("gpu.study.rate", "rate with each kind on target, over first come first served", found["overFirstCome"], 1.5),
        at_least("gpu.study.utilisation", "utilisation there", found["deadlines"]["best"].get("utilisation", 0.0), 0.85),
    ]


def _slack(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    found = slack.measure(nets["fp32"], _HALF_LOAD)
    return found, [
        at_most("gpu.slack.p99", "p99 with a batch in the slack over alone", found["p99OverAlone"], 1.05),
        at_least("gpu.slack.utilisation", "utilisation with a batch in the slack", found["utilisation"], 0.85),
    ]


def _memory(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    found = shortage.measure(nets["fp32"])
    return found, [at_most(f"gpu.shortage.{key}", f"answers {key}", found[key], 0) for key in ("lost", "wrong", "restarts")]


def _hang(_: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    found = hang.measure()
    return found, [
        at_most("gpu.hang.live", "seconds until a worker whose run never ends is not live", found["notLiveSeconds"], 63.0),
        at_least("gpu.hang.batch", "a batch whose run never ends says ModelHung", found["batch"]["reason"] == "ModelHung", 1),
    ]


def _refused(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    found = refused.measure(nets["fp32"])
    return found, [
        at_most("gpu.refused.lost", "answers lost where the next provider serves", found["lost"], 0),
        at_most("gpu.refused.wrong", "answers that differ from CUDA's there", found["wrong"], 0),
        at_least("gpu.refused.alone", "a class of such a provider alone is refused with its reason", found["refused"], 1),
    ]


def _torch_model(nets: dict[str, Path]) -> dict[str, Any]:
    uri = f"pvc://data/{nets['torchscript'].name}"
    return {"name": "net", "version": "1", "uri": uri, "signature": _TORCH_SIGNATURE}


def _torchscript(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    alone = bare.torchscript(nets["torchscript"])
    with worker(nets["torchscript"], backend="torchscript", model=_torch_model(nets)) as on:
        load(on, [Stream(500)], 2.0)
        heard = serving.most(on, alone["imagesPerSecond"] * 1.2)
        at_half = serving.at(on, alone["imagesPerSecond"] / 2)
    share = float(heard.summary()["imagesPerSecond"]) / alone["imagesPerSecond"]
    found = {"bare": alone, "most": heard.summary(), "half": at_half, "share": round(share, 3)}
    return found, [at_least("gpu.torchscript", "images/s over HTTP over the bare loop's", share, 0.8)]


def _beside(measure: Callable[[Path], dict[str, Any]]) -> dict[str, Any]:
    """What is measured of another checkout too, where one is named."""
    source = os.environ.get("BENCH_OTHER_SOURCE")
    return measure(Path(source)) if source else {"why": "BENCH_OTHER_SOURCE names no other checkout"}


def _other(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    return _beside(lambda source: other.measure(nets, source, _torch_model(nets))), []


def _other_half(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    return _beside(lambda source: other.half(nets["fp16"], source)), []


def _pair(nets: dict[str, Path]) -> tuple[dict[str, Any], list[Target]]:
    if len(_card().splitlines()) < 2:
        return {"why": "this machine has one device"}, []
    found = pair.measure(nets["fp32"], _MOST)
    found["other"] = _beside(lambda source: pair.measure(nets["fp32"], _MOST, source))
    return found, [at_least("gpu.pair", "images/s of two devices over one", found["overOne"], 1.9)]


_PARTS: dict[str, Part] = {
    "device": _device,
    "mixed": _mixed,
    "served": _served,
    "study": _study,
    "slack": _slack,
    "memory": _memory,
    "torchscript": _torchscript,
    "refused": _refused,
    "hang": _hang,
    "pair": _pair,
    "other": _other,
    "other-half": _other_half,
}
