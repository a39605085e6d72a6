"""`python -m bench.worker.table [FILE]`: the last run as Markdown, with what we lose in it."""

import json
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench.report import ROOT

Record = dict[str, Any]
_PROTOCOLS = {"json": "HTTP JSON", "binary": "HTTP binary", "grpc": "gRPC"}


def main() -> int:
    """Print all tables."""
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "bench" / "worker.json"
    document = json.loads(path.read_text())
    machine, rounds = document["machine"], document["rounds"]
    where = f"{machine['cpu']}, {machine['cores']} cores, Linux {machine['kernel']}"
    print(f"{document['date']}, commit {document['commit'][:12]}: {where}.")
    print(f"{_noise(rounds)}\nEach figure is a median over rounds, with the smallest and the largest in brackets.")
    for section in (_serving, _latency, _start, _goodput, _batch, _lossless, _memory, _client, _missing):
        lines = list(section(rounds))
        if lines:
            print("\n" + "\n".join(lines))
    print("\n" + "\n".join(_targets(document["targets"])))
    return 0


def spread(values: list[float], digits: int = 0) -> str:
    """Median (smallest-largest)."""
    if not values:
        return "-"
    middle = f"{statistics.median(values):,.{digits}f}"
    return middle if len(values) == 1 else f"{middle} ({min(values):,.{digits}f}-{max(values):,.{digits}f})"


def _rows(head: list[str], rows: list[list[str]]) -> Iterator[str]:
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    yield from ("| " + " | ".join(row) + " |" for row in rows)


def _of(rounds: list[Record], scenario: str) -> list[Record]:
    return [record for record in rounds if record["scenario"] == scenario and "skipped" not in record]


def _sides(records: list[Record]) -> list[str]:
    return list(dict.fromkeys(record["side"] for record in sorted(records, key=lambda record: record["side"] != "ours")))


def _noise(rounds: list[Record]) -> str:
    rates = [record["bareRunsPerSecond"] for record in rounds if "bareRunsPerSecond" in record]
    loads = [record["loadAverage"] for record in rounds if "loadAverage" in record]
    if not rates:
        return ""
    return f"A bare loop of digits gave {spread(rates)} runs/s before each measurement, the load average was {spread(loads, 1)}."


def _serving(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "serving")
    rows = []
    for protocol, name in _PROTOCOLS.items():
        for side in _sides(records):
            found = [record[protocol] for record in records if record["side"] == side and protocol in record]
            if found:
                keys = (("requestsPerSecond", 0), ("cpuMicroseconds", 0), ("roundTripMinMicroseconds", 0))
                rows.append([name, side, *(spread([one[key] for one in found], digits) for key, digits in keys)])
    if rows:
        yield from _rows(["digits", "server", "requests/s", "server CPU µs/request", "shortest round trip µs"], rows)


def _latency(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "serving")
    rows = []
    for protocol, name in _PROTOCOLS.items():
        for side in _sides(records):
            found = [record[protocol]["open"] for record in records if record["side"] == side and protocol in record]
            if found:
                rows.append([name, side, *(spread([one[key] for one in found], 2) for key in ("p50Ms", "p99Ms"))])
    if rows:
        yield from _rows(["digits, 400 requests/s, Poisson", "server", "p50 ms", "p99 ms"], rows)


def _start(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "serving")
    rows = []
    for side in _sides(records):
        found = [record for record in records if record["side"] == side]
        keys = (("readySeconds", 2), ("firstAnswerSeconds", 2), ("residentMib", 0), ("proportionalMib", 0))
        rows.append([side, *(spread([one[key] for one in found], digits) for key, digits in keys)])
    if rows:
        yield from _rows(["server", "ready s", "first answer s", "resident MiB", "of it, shared pages once"], rows)


def _goodput(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "goodput")
    for model in dict.fromkeys(record["model"] for record in records):
        of_model = [record for record in records if record["model"] == model]
        factors = list(of_model[0]["factors"])
        rows = []
        for side in _sides(of_model):
            found = [record for record in of_model if record["side"] == side]
            columns = [spread([record["capacity"] for record in found])]
            for factor in factors:
                values = [record["factors"][factor] for record in found]
                columns.append(spread([value["goodput"] for value in values if "goodput" in value]))
            wasted = [record["wasted"] * 100 for record in found if record["wasted"] is not None]
            rows.append([side, *columns, spread(wasted, 1)])
        head = [f"{model}, in time/s at (deadline {of_model[0]['deadlineMs']:g} ms)", "capacity/s"]
        yield from _rows([*head, *(f"{factor}x" for factor in factors), "run for nobody %"], rows)
        yield ""


def _batch(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "batch")
    rows = []
    for model in dict.fromkeys(record["model"] for record in records):
        found = [record for record in records if record["model"] == model]
        both = [spread([record[who]["rowsPerSecond"] for record in found]) for who in ("ours", "bare")]
        ratios = [
            spread([record["ours"][key] / record["bare"][key] for record in found], 3)
            for key in ("rowsPerSecond", "computeRowsPerSecond")
        ]
        rows.append([model, str(found[0]["batch"]), *both, *ratios])
    if rows:
        yield from _rows(["batch mode", "batch", "rows/s", "bare loop rows/s", "ratio", "ratio of the runs alone"], rows)


def _lossless(rounds: list[Record]) -> Iterator[str]:
    rows = []
    for scenario in ("drain", "reload"):
        for protocol, name in _PROTOCOLS.items():
            found = [record for record in _of(rounds, scenario) if record["protocol"] == protocol]
            if found:
                sums = [str(sum(record[key] for record in found)) for key in ("sent", "lost", "doubled", "errors", "wrong")]
                rows.append([scenario, name, *sums, spread([record["worstMs"] for record in found], 1)])
    if rows:
        yield from _rows(["under 1000 requests/s", "protocol", "sent", "lost", "doubled", "5xx", "wrong", "slowest ms"], rows)


def _memory(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "memory")
    rows = [[name, *(f"{value:.1f}" for value in record[name])] for record in records for name in ("good", "failing")]
    if rows:
        yield from _rows(["resident MiB after", "10,000", "20,000", "30,000", "40,000", "50,000"], rows)


def _client(rounds: list[Record]) -> Iterator[str]:
    records = _of(rounds, "vegeta")
    rows = [[who, *(spread([record[who][place] for record in records], 2) for place in (0, 1))] for who in ("ours", "vegeta")]
    if records:
        yield from _rows([f"client, {records[0]['rate']} requests/s to a known queue", "p50 ms", "p99 ms"], rows)


def _missing(rounds: list[Record]) -> Iterator[str]:
    for record in rounds:
        if "skipped" in record:
            what = " ".join(str(record[key]) for key in ("scenario", "model", "protocol") if key in record)
            yield f"- not measured: {what}: {record['skipped']}"
        elif record["scenario"] == "failed":
            yield f"- {record['side']} failed: {record['reason']}"


def _targets(targets: list[Record]) -> Iterator[str]:
    rows = [
        ["holds" if one["holds"] else "**missed**", one["id"], f"{one['value']:g}", one["bound"], one["what"]] for one in targets
    ]
    yield from _rows(["", "target", "value", "bound", "what"], rows)


if __name__ == "__main__":
    sys.exit(main())
