"""The gateway: what it adds, and what it holds to under load, beside plain Envoys at equal settings and by turns.

The real Envoy with the chart's bootstrap, told by the operator's own control plane in this process. BENCH_PARTS names the parts.
"""

import asyncio
import os
import statistics
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

from bench.gateway.added import added
from bench.gateway.balance import shares, two_speeds
from bench.gateway.cached import frames, repeated
from bench.gateway.load import beside_plain, connections, goodput
from bench.gateway.lost import lost
from bench.gateway.picked import picked
from bench.gateway.schedule import schedules
from bench.gateway.tenants import tenants
from bench.gateway.zero import from_zero
from bench.report import Result, Target, at_least, at_most

Row = dict[str, Any]
_PARTS: dict[str, Callable[[Path, int], Awaitable[list[Row]]]] = {
    "added": added,
    "plain": beside_plain,
    "speeds": two_speeds,
    "schedule": schedules,
    "shares": shares,
    "lost": lost,
    "zero": from_zero,
    "tenants": tenants,
    "goodput": goodput,
    "connections": connections,
    "cache": repeated,
    "frames": frames,
    "picked": picked,
}


def run(rounds: int) -> Result:
    """So many rounds of each part."""
    rows: list[Row] = []
    for part in os.environ.get("BENCH_PARTS", " ".join(_PARTS)).split():
        with tempfile.TemporaryDirectory() as made:
            found = asyncio.run(measured(part, Path(made), rounds or 5))
            rows += found
    return Result(rows, list(targets(rows)))


async def measured(part: str, folder: Path, rounds: int) -> list[Row]:
    """The rows of a part."""
    return await _PARTS[part](folder, rounds)


def targets(rows: list[Row]) -> Iterator[Target]:
    """What the rows say of our bounds; a part that was not run, or is void, says nothing."""
    for protocol, bound in (("http", 0.30), ("grpc", 0.40)):
        if found := _of(rows, "added", protocol=protocol):
            yield at_most(protocol, f"ms that Envoy adds to the p50 over {protocol}, one caller", _median(found, "addedMs"), bound)
    ours, plain = (_of(rows, "plain", way=way) for way in ("gateway", "plain"))
    if ours and plain:
        rate = _median(ours, "rate") / _median(plain, "rate")
        yield at_least("rate", "rate over a plain Envoy's, least request, 16 callers", rate, 0.9)
        yield at_most("p99", "p99 over a plain Envoy's, the same", _median(ours, "p99Ms") / _median(plain, "p99Ms"), 1.1)
    if known := _of(rows, "speeds", way="clairvoyant"):
        for way in ("gateway", "leastRequest", "roundRobin"):
            over = _median(_of(rows, "speeds", way=way), "p99Ms") / _median(known, "p99Ms")
            yield at_most(f"speeds-{way}", f"p99 over a clairvoyant split's, one of two workers twice as slow: {way}", over, 1.2)
    if found := _of(rows, "shares"):
        worst = max(abs(row["canaryPercent"] - 10) for row in found)
        yield at_most("canary", "percent of 10,000 requests by which a canary's 10 % are missed, worst round", worst, 0.5)
        yield at_most("mirror", "answers that a mirror changes", sum(row["answersChanged"] for row in found), 0)
    for what in ("drain", "rollOut", "operatorKilled", "envoyStopped", "envoyKilled"):
        if found := _of(rows, "lost", what=what):
            yield at_most(what, f"requests lost, all rounds: {what}", sum(row["lost"] for row in found), 0)
    if found := _of(rows, "zero"):
        yield at_most("zero", "s from the worker's first answer to the gateway's", _median(found, "firstAfterSeconds"), 0.3)
        yield at_most("zero-lost", "requests lost of bursts of 500", sum(row["lost"] for row in found), 0)
    yield from _of_tenants(rows)
    for way in ("gateway", "direct"):
        if found := _of(rows, "goodput", way=way):
            yield at_least(
                f"goodput-{way}", f"answers in 100 ms at twice the capacity, over that: {way}", _median(found, "share"), 0.9
            )
    many, few = (_of(rows, "connections", connections=count) for count in (15_000, 100))
    if many and few:
        yield at_most(
            "connections", "p99 of 15,000 connections over that of 100", _median(many, "p99Ms") / _median(few, "p99Ms"), 2
        )
    yield from _of_cache(rows)


def _of_cache(rows: list[Row]) -> Iterator[Target]:
    if found := _of(rows, "cache", inputs="repeated"):
        yield at_least("cache", "rate of a repeated input over that without a cache", _median(found, "ratio"), 5)
    if found := _of(rows, "frames", scene="still"):
        yield at_least("frames", "frames of a still scene at 30 a second for each run", _median(found, "framesPerRun"), 10)
    if found := _of(rows, "frames"):
        yield at_most("frames-below", "answers used again below the bound, all scenes", sum(row["belowBound"] for row in found), 0)


def _of_tenants(rows: list[Row]) -> Iterator[Target]:
    if alone := _of(rows, "tenants", way="alone"):
        ways = {"atQuota": "its quota", "overQuota": "ten times its quota", "noQuota": "the same without a quota"}
        for way, what in ways.items():
            over = _median(_of(rows, "tenants", way=way), "p99Ms") / _median(alone, "p99Ms")
            yield at_most(f"tenants-{way}", f"p99 of the others over theirs alone, a tenant at {what}", over, 1.1)


def _of(rows: list[Row], part: str, **more: object) -> list[Row]:
    return [row for row in rows if row["part"] == part and all(row.get(key) == value for key, value in more.items())]


def _median(rows: list[Row], key: str) -> float:
    return float(statistics.median(row[key] for row in rows))
