"""`make bench NAME=backends`: the same model, batch limit and load on ONNX Runtime, TorchScript and Triton (Python back end).

A worker is in front of each, as the operator has it; all processes of a side share one core, the client has the other. The digits
perceptron costs next to nothing, so that what is measured is the way to it; the lane net takes tens of milliseconds a row. With
INFERENCE_ENGINES=all PyTorch is there, too. BENCH_MODELS chooses among the models, `--rounds` says how often (5).
"""

import json
import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.backends.sides import BUILT, sides
from bench.backends.table import judge
from bench.report import Result
from bench.worker import requests
from bench.worker.installs import programs
from bench.worker.load import open_loop, saturate
from bench.worker.models import Model
from bench.worker.processes import CLIENT_CORE, end_leftovers
from bench.worker.readiness import ask
from bench.worker.scenarios.context import Context, Record, digits, folder, noise
from bench.worker.sides import Running, running
from dev.cache import locked
from dev.console import DevError, say

ROUNDS = 5
_WARM = 3


@dataclass(frozen=True, slots=True)
class Load:
    """How a model is asked: `rate` is one that every back end can answer; durations in seconds."""

    model: Model
    rate: float
    open_seconds: float
    saturate_seconds: float
    connections: int
    batches: int


def run(rounds: int) -> Result:
    """Measure; back ends take turns within each round."""
    if len(os.sched_getaffinity(0)) < 2:
        raise DevError("server and client want a core each")
    names = tuple(filter(None, os.environ.get("BENCH_MODELS", "").split(",")))
    # The same as the worker's own benchmark: they would end each other's servers.
    with locked("bench-worker"):
        end_leftovers()
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {CLIENT_CORE})
        programs()
        loads = [load for load in _loads() if not names or load.model.name in names]
        able, unable = sides()
        context = Context(rounds or ROUNDS, able, {})
        records: list[Record] = []
        for load in loads:
            with context.survives(load.model.name, records):
                records += _model(context, load)
        end_leftovers()
        os.sched_setaffinity(0, cores)
    failed = context.failed | unable
    records += [{"scenario": "failed", "side": side, "reason": reason} for side, reason in failed.items()]
    return Result(records, judge(records))


def _loads() -> list[Load]:
    return [
        Load(digits(), rate=400.0, open_seconds=2.0, saturate_seconds=1.5, connections=32, batches=100),
        Load(_lane(), rate=5.0, open_seconds=4.0, saturate_seconds=3.0, connections=8, batches=4),
    ]


def _lane() -> Model:
    folder_ = BUILT / "lane"
    images = np.load(folder_ / "road.npy").astype(np.float32)
    inputs = (("image", "FP32", images.shape[1:]),)
    return Model("lane", folder_ / "model.onnx", 4, {"image": images}, inputs, (("lanes", "FP32", (1, *images.shape[2:])),))


def _model(context: Context, load: Load) -> list[Record]:
    records = []
    for number, side in context.turns():
        with context.may_fail(side, where=load.model.name), folder() as place:
            record: Record = {"scenario": load.model.name, "round": number, "side": side.name, **noise()}
            with running(side, load.model, place) as server:
                record |= _measured(server, load, number)
            records.append(record)
            say(f"  {load.model.name} round {number}: {_line(record)}")
    return records


def _measured(server: Running, load: Load, number: int) -> Record:
    record: Record = {
        "readySeconds": round(server.ready_seconds, 3),
        "firstAnswerSeconds": round(server.answer_seconds, 3),
        **_batches(server, load),
        "open": open_loop(server, "binary", rate=load.rate, seconds=load.open_seconds, seed=number + 1).summary(),
        **saturate(server, "binary", seconds=load.saturate_seconds, connections=load.connections),
    }
    resident, proportional = server.started.memory_mib()
    return record | {
        "residentMib": round(resident, 1),
        "proportionalMib": round(proportional, 1),
        "rowsPerRun": _rows_per_run(server),
    }


def _batches(server: Running, load: Load) -> Record:
    """Milliseconds of a run of one row and of a whole batch, by the worker's own clock, and what a batch is worth."""
    sizes = (1, load.model.batch)
    for rows in sizes * _WARM:
        _ask(server, load.model, rows)
    before = _spent(server)
    for rows in sizes * load.batches:
        _ask(server, load.model, rows)
    after = _spent(server)
    one, whole = ((after[rows][1] - before[rows][1]) / (after[rows][0] - before[rows][0]) for rows in sizes)
    return {
        "oneRowMs": round(one * 1e3, 4),
        "batchMs": round(whole * 1e3, 4),
        "batch": load.model.batch,
        "batchEfficiency": round(one * load.model.batch / whole, 3),
    }


def _ask(server: Running, model: Model, rows: int) -> None:
    body, headers = requests.oip_binary(model, {name: array[:rows] for name, array in model.rows.items()}, {})
    status, answer = ask(server.plan.http_port, requests.http(server.side.path.format(name=model.name), body, headers))
    if status != 200:
        raise RuntimeError(f"{rows} rows: {status} {answer[:300]!r}")


def _stats(server: Running) -> dict[str, Any]:
    path = f"/v2/models/{server.plan.model.name}/stats"
    _, body = ask(server.plan.http_port, f"GET {path} HTTP/1.1\r\nHost: bench\r\n\r\n".encode())
    return dict(json.loads(body)["model_stats"][0])


def _spent(server: Running) -> dict[int, tuple[int, float]]:
    """Runs and the seconds that they took, by their rows."""
    batches = [(entry["batch_size"], entry["compute_infer"]) for entry in _stats(server)["batch_stats"]]
    return {rows: (spent["count"], spent["ns"] / 1e9) for rows, spent in batches}


def _rows_per_run(server: Running) -> float:
    stats = _stats(server)
    return round(float(stats["inference_count"]) / max(float(stats["execution_count"]), 1.0), 2)


def _line(record: Record) -> str:
    took = record["open"]
    return (
        f"{record['side']:11} ready {record['readySeconds']:.2f} s, {record['residentMib']:.0f} MiB, p50 {took['p50Ms']:.2f} ms, "
        f"p99 {took['p99Ms']:.2f} ms, {record['requestsPerSecond']:.0f}/s, {record['cpuMicroseconds']:.0f} us a request, "
        f"a batch {record['batchEfficiency']:.1f}"
    )
