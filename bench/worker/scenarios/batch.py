"""Batch mode beside a bare loop that does the same: read rows, run them in batches, keep the answers, write them."""

import json
import re
import sys
import time
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench.report import ROOT
from bench.worker.launch import start_ours
from bench.worker.models import Model, Tensor
from bench.worker.processes import SERVER_CORE, started
from bench.worker.scenarios.context import Context, Record, digits, folder, magika, noise, resnet, silero
from bench.worker.sides import Plan, free_ports
from dev.console import say

_LONGEST_SECONDS = 120.0


def _jobs() -> list[tuple[Model, int]]:
    """Models with the rows to run: some seconds of work each, so that reading and writing at the ends weigh little."""
    return [
        (replace(digits(), batch=128), 3_000_000),
        (replace(magika(), batch=16), 512),
        (replace(silero(), batch=32), 60_000),
        (resnet(), 40),
    ]


def measure(context: Context) -> list[Record]:
    """A record for each model and round. Worker and loop take turns at going first."""
    records: list[Record] = []
    skipped: set[str] = set()
    for number in range(min(context.rounds, 3)):
        for model, count in _jobs():
            if model.name in skipped:
                continue
            of_model = {"model": model.name, "rows": count, "batch": model.batch}
            record: Record = {"scenario": "batch", "round": number, **of_model, **noise()}
            try:
                record |= _pair(model, count, ours_first=number % 2 == 0)
            except TaskRefusedError as error:
                record["skipped"] = str(error)
                skipped.add(model.name)
            records.append(record)
            say(f"  batch round {number}: {_line(record)}")
    return records


def _pair(model: Model, count: int, *, ours_first: bool) -> Record:
    record: Record = {}
    with folder() as place:
        rows = _input(model, count, place)
        for ours in (ours_first, not ours_first):
            record["ours" if ours else "bare"] = (_worker if ours else _bare)(model, rows, place)
    return record


class TaskRefusedError(Exception):
    """The worker does not take this model's rows, in its own words."""


def _input(model: Model, count: int, place: Path) -> Path:
    """An .npz as a user would write it: each input with its rows where the model has them, shared ones as they are."""
    folder_ = place / "volumes" / "data"
    folder_.mkdir(parents=True)
    axes = model.batch_axes
    arrays = {name: array if axes[name] is None else _repeated(array, axes[name] or 0, count) for name, array in model.rows.items()}
    if len(arrays) == 1:
        np.save(folder_ / "rows.npy", next(iter(arrays.values())))
        return folder_ / "rows.npy"
    np.savez(folder_ / "rows.npz", allow_pickle=False, **arrays)
    return folder_ / "rows.npz"


def _repeated(array: Tensor, axis: int, count: int) -> Tensor:
    return np.ascontiguousarray(np.take(array, np.arange(count) % array.shape[axis], axis=axis))


def _worker(model: Model, rows: Path, place: Path) -> Record:
    task = {"inputUri": f"pvc://data/{rows.name}", "outputUri": f"pvc://data/out-{time.monotonic_ns()}"}
    http_port, grpc_port = free_ports(2)
    plan = Plan(model, place, http_port, grpc_port, extra={"task": task})
    with start_ours(plan) as process:
        code = process.process.wait(_LONGEST_SECONDS)
        ended = time.time()
        log = process.log.read_text(errors="replace")
    report = _report(place / "report")
    if code != 0:
        raise TaskRefusedError(str(report.get("message", log[-500:])))
    count = report["progress"]["completed"]
    seconds = ended - _ready_at(log)
    return {"rowsPerSecond": round(count / seconds, 1), "computeRowsPerSecond": round(report["model"]["itemsPerSecond"], 1)}


def _report(path: Path) -> Record:
    return dict(json.loads(path.read_bytes()))


def _ready_at(log: str) -> float:
    """Seconds since the epoch at which the worker had its model ready: from there on it is rows only."""
    found = re.search(r"^(\S+ \S+?),(\d+) INFO ready", log, re.MULTILINE)
    if found is None:
        raise TaskRefusedError(f"no ready in its log: {log[-500:]}")
    # The log is in the machine's own time zone, as is fromisoformat without one.
    return datetime.fromisoformat(found.group(1)).timestamp() + int(found.group(2)) / 1e3


def _bare(model: Model, rows: Path, place: Path) -> Record:
    python = "import sys; from bench.worker.bare import main; main(sys.argv[1:])"
    command = [sys.executable, "-c", python, str(model.path), str(rows), str(model.batch), str(place / "bare.npz")]
    environment = {"PYTHONPATH": str(ROOT)}
    with started(command, log=place / "bare-log", core=SERVER_CORE, environment=environment, folder=place) as process:
        code = process.process.wait(_LONGEST_SECONDS)
        text = process.tail()
    if code != 0:
        raise RuntimeError(f"the bare loop failed: {text}")
    values: list[Any] = text.split()[-2:]
    return {"rowsPerSecond": round(float(values[0]), 1), "computeRowsPerSecond": round(float(values[1]), 1)}


def _line(record: Record) -> str:
    if "skipped" in record:
        return f"{record['model']:7} skipped: {record['skipped'][:150]}"
    ours, bare = record["ours"], record["bare"]
    whole, compute = (ours[key] / bare[key] for key in ("rowsPerSecond", "computeRowsPerSecond"))
    return f"{record['model']:7} {ours['rowsPerSecond']:.0f} rows/s, {whole:.3f} of the bare loop, {compute:.3f} of its runs"
