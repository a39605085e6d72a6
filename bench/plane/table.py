"""`python -m bench.plane.table [FILE]`: the last run as Markdown. Median (smallest-largest) over runs that are not void."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from bench.plane.figures import spread
from bench.report import ROOT

Record = dict[str, Any]
Column = tuple[str, Callable[[Record], float]]
# A side's own program, whose memory is told.
_PROGRAMS = {
    "ours": "inference-operator",
    "job": "kube-controller-manager",
    "kueue": "kueue",
    "kueue-stays": "kueue",
}
_SHARED: tuple[Column, ...] = (
    ("own CPU ms/job", lambda r: float(r["ownCpuMsPerJob"])),
    ("API server and etcd CPU ms/job", lambda r: float(r["cpuMsPerJob"]["kube-apiserver"] + r["cpuMsPerJob"]["etcd"])),
    ("writes/job", lambda r: float(r["writesPerJob"])),
    ("peak MiB", lambda r: float(r["memory"][_PROGRAMS[r["side"]]]["peakMib"])),
)
_SCENARIOS: dict[str, tuple[tuple[str, ...], tuple[Column, ...]]] = {
    "burst": (
        ("limits", "side"),
        (
            ("jobs/s", lambda r: float(r["jobsPerSecond"])),
            ("to Running, p50 s", lambda r: float(r["toRunningSeconds"]["p50"])),
            ("to done, p99 s", lambda r: float(r["toDoneSeconds"]["p99"])),
            *_SHARED,
        ),
    ),
    "deadlines": (
        ("side",),
        (
            ("on time", lambda r: float(r["onTime"])),
            ("simulated", lambda r: float(r["simulated"])),
            ("simulated, as here", lambda r: float(r["simulatedAsHere"])),
            ("start s", lambda r: float(r["overheadSeconds"])),
            *_SHARED,
        ),
    ),
    "poison": (("limits", "side", "poisoned"), (("to drain, s", lambda r: float(r["drainSeconds"])), *_SHARED)),
}


def main() -> int:
    """Print all tables, the kills, and the targets."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench" / "plane.json"
    document = json.loads(path.read_text())
    print(f"{document['date']}, commit {document['commit'][:12]}, {document['machine']['cores']} cores\n")
    for line in tables(document["rounds"]):
        print(line)
    for record in document["rounds"]:
        if record["scenario"] == "kills" or "failed" in record:
            print(json.dumps({key: value for key, value in record.items() if not key.startswith("writes")}))
    for target in document["targets"]:
        print(f"| {target['what']} | {target['bound']} | {target['value']:g} | {'holds' if target['holds'] else 'missed'} |")
    return 0


def tables(records: Sequence[Record]) -> Iterator[str]:
    """One table a scenario, one row for all runs of a kind."""
    for scenario, (keys, columns) in _SCENARIOS.items():
        groups: dict[tuple[str, ...], list[Record]] = {}
        for record in records:
            if record["scenario"] == scenario and "failed" not in record:
                groups.setdefault(tuple(str(record[key]) for key in keys), []).append(record)
        if not groups:
            continue
        yield "| " + " | ".join((scenario, *keys[1:], "runs (void)", *(name for name, _ in columns))) + " |"
        yield "|" + "---|" * (len(keys) + 1 + len(columns))
        for names, found in groups.items():
            sound = [record for record in found if not record["void"]]
            yield "| " + " | ".join((*names, f"{len(found)} ({len(found) - len(sound)})", *_row(sound, columns))) + " |"
        yield ""


def _row(records: Sequence[Record], columns: Sequence[Column]) -> Iterator[str]:
    for _, read in columns:
        if not records:
            yield "-"
            continue
        found = spread([read(record) for record in records])
        one = found["min"] == found["max"]
        yield f"{found['median']:.3g}" if one else f"{found['median']:.3g} ({found['min']:.3g}-{found['max']:.3g})"


if __name__ == "__main__":
    sys.exit(main())
