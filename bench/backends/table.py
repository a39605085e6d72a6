"""`python -m bench.backends.table [FILE]`: the last run as Markdown; and its targets."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.report import ROOT, Target, at_least, at_most
from bench.worker.table import spread
from bench.worker.targets import median

Record = dict[str, Any]
_NAMES = {
    "onnx": "ONNX Runtime in the worker",
    "torchscript": "TorchScript in the worker",
    "triton": "Triton beside it, Python back end",
}


def main() -> int:
    """Print a table for each model."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench" / "backends.json"
    document = json.loads(path.read_text())
    print(f"{document['date']}, commit {document['commit'][:12]}. Median (smallest-largest) of the rounds.")
    for line in tables(document["rounds"]):
        print(line)
    return 0


def tables(rounds: list[Record]) -> Iterator[str]:
    """A row for each back end of each model."""
    for model in dict.fromkeys(record["scenario"] for record in rounds if "requestsPerSecond" in record):
        records = [record for record in rounds if record["scenario"] == model and "requestsPerSecond" in record]
        head = ("requests/s", "p50 ms", "p99 ms", "CPU µs a request", "MiB", "ready s", "a batch is worth")
        yield f"\n| {model} | " + " | ".join(head) + " |"
        yield "|" + "---|" * (len(head) + 1)
        for side, name in _NAMES.items():
            found = [record for record in records if record["side"] == side]
            if found:
                yield f"| {name} | " + " | ".join(_cells(found)) + " |"
    for record in rounds:
        if record["scenario"] == "failed" or "skipped" in record:
            yield f"\n- not measured: {record.get('side', record['scenario'])}: {record.get('reason') or record['skipped']}"


def _cells(found: list[Record]) -> Iterator[str]:
    yield spread([record["requestsPerSecond"] for record in found], 0 if found[0]["requestsPerSecond"] > 100 else 1)
    for key in ("p50Ms", "p99Ms"):
        yield spread([record["open"][key] for record in found], 2)
    for key, digits in (("cpuMicroseconds", 0), ("residentMib", 0), ("readySeconds", 2), ("batchEfficiency", 2)):
        yield spread([record[key] for record in found], digits)


def judge(rounds: list[Record]) -> list[Target]:
    """What we set ourselves; what was not measured has no target."""
    targets = []
    for model in dict.fromkeys(record["scenario"] for record in rounds if "requestsPerSecond" in record):
        records = [record for record in rounds if record["scenario"] == model]
        rates = {side: median(records, side, "requestsPerSecond") for side in _NAMES}
        for other in ("torchscript", "triton"):
            ours, theirs = rates["onnx"], rates[other]
            if ours is not None and theirs is not None:
                text = f"of {other}'s requests/s with ONNX Runtime in the worker, {model}"
                targets.append(at_least(f"backends.{model}-{other}", text, ours / theirs, 1.0))
        failed = sum(record.get("failed", 0) + _failures(record) for record in records)
        targets.append(at_most(f"backends.{model}-failed", f"requests that failed, all back ends, {model}", failed, 0))
    return targets


def _failures(record: Record) -> int:
    statuses: dict[str, int] = record.get("open", {}).get("statuses", {})
    return sum(count for status, count in statuses.items() if status != "200")


if __name__ == "__main__":
    sys.exit(main())
