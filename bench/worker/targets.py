"""What we set ourselves, as ratios within one run. A target whose scenario was left out or could not be measured is left out."""

import statistics
from collections.abc import Callable, Iterator
from typing import Any

from bench.report import Target, at_least, at_most

Record = dict[str, Any]
Rounds = list[Record]
# Pages that an allocator takes once and keeps: what a slope below this looks like over forty thousand requests.
_MEMORY_NOISE_MIB = 2.0


def judge(records: Rounds) -> list[Target]:
    """All targets that these records can answer."""
    return [target for targets in _TARGETS for target in targets(records)]


def median(records: Rounds, side: str, *keys: str) -> float | None:
    """The median over a side's rounds of the value behind the keys; None when there is none."""
    values = [_behind(record, keys) for record in records if record.get("side") == side]
    found = [value for value in values if value is not None]
    return statistics.median(found) if found else None


def _behind(record: Any, keys: tuple[str, ...]) -> float | None:
    for key in keys:
        if not isinstance(record, dict) or key not in record:
            return None
        record = record[key]
    return float(record) if record is not None else None


def _of(records: Rounds, scenario: str) -> Rounds:
    return [record for record in records if record["scenario"] == scenario and "skipped" not in record]


def _ratio(records: Rounds, peer: str, protocol: str, key: str) -> float | None:
    ours, theirs = (median(_of(records, "serving"), side, protocol, key) for side in ("ours", peer))
    return ours / theirs if ours is not None and theirs else None


def _serving(records: Rounds) -> Iterator[Target]:
    wanted: tuple[tuple[str, str, str, str, Callable[..., Target], float], ...] = (
        ("worker.http-cpu", "triton", "binary", "cpuMicroseconds", at_most, 0.35),
        ("worker.http-rate", "triton", "binary", "requestsPerSecond", at_least, 2.0),
        ("worker.grpc-cpu", "triton", "grpc", "cpuMicroseconds", at_most, 1.0),
        ("worker.grpc-rate", "triton", "grpc", "requestsPerSecond", at_least, 1.0),
        ("worker.http-mlserver", "mlserver", "json", "requestsPerSecond", at_least, 5.0),
        ("worker.http-kserve", "kserve", "json", "requestsPerSecond", at_least, 5.0),
        ("worker.http-litserve", "litserve", "json", "requestsPerSecond", at_least, 5.0),
        ("worker.grpc-mlserver", "mlserver", "grpc", "requestsPerSecond", at_least, 2.5),
        ("worker.grpc-kserve", "kserve", "grpc", "requestsPerSecond", at_least, 2.5),
    )
    texts = {"cpuMicroseconds": "server CPU a request", "requestsPerSecond": "requests/s at saturation"}
    for name, peer, protocol, key, bound, value in wanted:
        if (ratio := _ratio(records, peer, protocol, key)) is not None:
            yield bound(name, f"of {peer}'s {texts[key]}, digits over {protocol}", ratio, value)


def _start(records: Rounds) -> Iterator[Target]:
    serving = _of(records, "serving")
    if (ready := median(serving, "ours", "readySeconds")) is not None:
        yield at_most("worker.ready", "seconds from exec to ready, digits", ready, 0.8)
    if (resident := median(serving, "ours", "residentMib")) is not None:
        yield at_most("worker.memory", "MiB resident when ready, digits", resident, 110)


def _goodput(records: Rounds) -> Iterator[Target]:
    heavy = [record for record in _of(records, "goodput") if record["model"] == "magika"]
    share = median([{"side": r["side"], "share": _share(r)} for r in heavy], "ours", "share")
    if share is None:
        return
    yield at_least("worker.goodput", "of capacity in time at twice capacity, magika", share, 0.90)
    ours = median(heavy, "ours", "factors", "2.0", "goodput") or 0.0
    peers = [median(heavy, side, "factors", "2.0", "goodput") for side in {r["side"] for r in heavy} - {"ours"}]
    if best := max((peer for peer in peers if peer is not None), default=None):
        yield at_least("worker.goodput-peers", "of the best peer's answers in time at twice its capacity, magika", ours / best, 1.0)
    wasted = median(heavy, "ours", "wasted")
    late = median(heavy, "ours", "factors", "2.0", "lateShare")
    if (worse := max((value for value in (wasted, late) if value is not None), default=None)) is not None:
        yield at_most("worker.wasted", "of computed answers were for nobody or late, magika", worse, 0.02)


def _share(record: Record) -> float | None:
    goodput = _behind(record, ("factors", "2.0", "goodput"))
    return goodput / record["capacity"] if goodput is not None else None


def _batch(records: Rounds) -> Iterator[Target]:
    batches = _of(records, "batch")
    for model in dict.fromkeys(record["model"] for record in batches):
        ratios = [r["ours"]["rowsPerSecond"] / r["bare"]["rowsPerSecond"] for r in batches if r["model"] == model]
        yield at_least(
            f"worker.batch-{model}", "of a bare loop's rows/s, with reading and writing", statistics.median(ratios), 0.95
        )


def _lossless(records: Rounds) -> Iterator[Target]:
    for scenario, text in (("drain", "a stop"), ("reload", "reloads")):
        if found := _of(records, scenario):
            total = sum(record[key] for record in found for key in ("lost", "doubled", "errors", "wrong"))
            yield at_most(f"worker.{scenario}", f"requests lost, doubled, wrong or 5xx during {text}", total, 0)


def _memory(records: Rounds) -> Iterator[Target]:
    for record in _of(records, "memory"):
        for name in ("good", "failing"):
            grown = record[name][-1] - record[name][0]
            yield at_most(
                f"worker.memory-{name}", f"MiB more after 50,000 {name} requests than after 10,000", grown, _MEMORY_NOISE_MIB
            )


def _client(records: Rounds) -> Iterator[Target]:
    rounds = _of(records, "vegeta")
    if not rounds:
        return
    for place, name in enumerate(("p50", "p99")):
        ours, theirs = (statistics.median(record[who][place] for record in rounds) for who in ("ours", "vegeta"))
        text = f"difference of our client's {name} to vegeta's"
        yield at_most(f"worker.client-against-vegeta-{name}", text, abs(ours / theirs - 1), 0.05)


_TARGETS: tuple[Callable[[Rounds], Iterator[Target]], ...] = (_client, _serving, _start, _goodput, _batch, _lossless, _memory)
