"""`make bench NAME=local`: from a job's creation to its last word on the local cluster, with real kubelets.

A `batch/v1` Job, a cold InferenceJob and one with a warm worker take turns; then many warm ones come at once. Times are the API
server's. BENCH_SCENARIOS chooses among latency and burst, BENCH_JOBS is how many come at once (1,000); `--rounds` is how many of
each form are timed alone (30).
"""

import asyncio
import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import yaml

from bench.local.jobs import WARM_SUFFIX, Manifest, batch_job, inference_job
from bench.local.place import MODEL, NAMESPACE, Place, await_warm, place
from bench.plane.audit import by_name, parse
from bench.plane.figures import quantile, turns
from bench.plane.furnish import create_all
from bench.plane.kube import Client, client
from bench.plane.stage import is_done, outcome, until
from bench.report import Result, Target, at_least, at_most
from dev.cache import locked
from dev.cluster import default_layout
from dev.console import DevError, say
from examples.demo.cluster import MANIFESTS
from inference_operator.api.schema import API_VERSION

Record = dict[str, Any]
ALONE = 30
AT_ONCE = int(os.environ.get("BENCH_JOBS", "1000"))
# A few dozen pods are what this machine's kubelets can start in a bearable time.
COLD_AT_ONCE = 60
WARM_WORKERS = 2
_JOBS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/inferencejobs"
_BATCH_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PATHS = {"job": _BATCH_JOBS, "cold": _JOBS, "warm": _JOBS}
SIDES = tuple(PATHS)


def run(rounds: int) -> Result:
    """Measure. Without warm workers the cold forms are measured alone, and the result says so."""
    scenarios = tuple(filter(None, os.environ.get("BENCH_SCENARIOS", "").split(","))) or ("latency", "burst")
    with locked("bench-local"), place(WARM_WORKERS) as at:
        sides = SIDES
        records: list[Record] = []
        try:
            await_warm(at, WARM_WORKERS)
        except RuntimeError as error:
            say(f"  {error}")
            records.append({"scenario": "warm", "failed": str(error)})
            sides = ("job", "cold")
        records += asyncio.run(_measure(at, sides, scenarios, rounds or ALONE))
    return Result(records, judge(records))


def judge(records: list[Record]) -> list[Target]:
    """The targets; what was not measured has none."""
    targets = []
    for record in records:
        match record:
            case {"scenario": "latency", "side": "warm", "p50": p50, "p99": p99}:
                targets.append(at_most("warm.p50", "seconds from create to Complete on a warm worker, p50", p50, 0.15))
                targets.append(at_most("warm.p99", "seconds from create to Complete on a warm worker, p99", p99, 0.5))
    rates = {record["side"]: record["jobsPerSecond"] for record in records if record["scenario"] == "burst"}
    if "warm" in rates and "job" in rates:
        targets.append(at_least("warm.rate", "times the rate of batch/v1 Jobs, at once", rates["warm"] / rates["job"], 15))
        targets.append(at_least("warm.aim", "times the rate of batch/v1 Jobs, at once: the aim", rates["warm"] / rates["job"], 30))
    return targets


async def _measure(at: Place, sides: tuple[str, ...], scenarios: tuple[str, ...], alone: int) -> list[Record]:
    found: list[Record] = []
    make = _forms(at)
    async with client(at.kube.kubeconfig, agent="bench") as kube:
        for side in sides:
            # The first of a kind pays for caches that the others find warm.
            await _one(kube, side, make[side](f"first-{side}"))
        if "latency" in scenarios:
            found += await _latency(kube, sides, make, alone)
        if "burst" in scenarios:
            for side in sides:
                found.append(await _burst(kube, side, make, AT_ONCE if side == "warm" else min(AT_ONCE, COLD_AT_ONCE)))
    return found


def _forms(at: Place) -> Mapping[str, Callable[[str], Manifest]]:
    example = yaml.safe_load((MANIFESTS / "51-digits-auto.yaml").read_text())
    rows = "\n".join([example["spec"]["input"]["data"]] * 4)
    return {
        "job": lambda name: batch_job(name, NAMESPACE, at.model, rows, at.accelerator, at.image),
        "cold": lambda name: inference_job(name, NAMESPACE, MODEL, rows),
        "warm": lambda name: inference_job(name, NAMESPACE, MODEL + WARM_SUFFIX, rows),
    }


async def _latency(kube: Client, sides: tuple[str, ...], make: Mapping[str, Callable[[str], Manifest]], count: int) -> list[Record]:
    mark = _mark()
    for number, side in enumerate(turns(count, sides)):
        await _one(kube, side, make[side](f"{side}-{number}"))
    taken = _taken(mark)
    records = []
    for side in sides:
        seconds = [value for name, value in taken.items() if name.startswith(f"{side}-")]
        p50, p99 = (round(quantile(seconds, share), 3) for share in (0.5, 0.99))
        say(f"  {side}: p50 {p50} s, p99 {p99} s")
        load = round(os.getloadavg()[0], 2)
        records.append({"scenario": "latency", "side": side, "count": len(seconds), "p50": p50, "p99": p99, "loadAverage": load})
    return records


async def _burst(kube: Client, side: str, make: Mapping[str, Callable[[str], Manifest]], count: int) -> Record:
    names = [f"many-{side}-{number}" for number in range(count)]
    mark = _mark()
    await create_all(kube, PATHS[side], [make[side](name) for name in names])

    async def none_left() -> bool:
        return all(map(is_done, await _all(kube, side, set(names))))

    await until(none_left, f"{count} jobs of {side}", seconds=600, every=1.0)
    ends = [outcome(job) for job in await _all(kube, side, set(names))]
    created, done = _times(mark)
    seconds = max(done[name] for name in names) - min(created[name] for name in names)
    await asyncio.gather(*(kube.remove(f"{PATHS[side]}/{name}") for name in names))
    rate = round(count / seconds, 2)
    say(f"  {side}: {count} at once, {rate} a second")
    return {
        "scenario": "burst",
        "side": side,
        "jobs": count,
        "succeeded": ends.count("Succeeded"),
        "seconds": round(seconds, 2),
        "jobsPerSecond": rate,
        "loadAverage": round(os.getloadavg()[0], 2),
    }


async def _all(kube: Client, side: str, names: set[str]) -> list[Manifest]:
    return [job for job in (await kube.get(PATHS[side]))["items"] if job["metadata"]["name"] in names]


async def _one(kube: Client, side: str, body: Manifest) -> None:
    """Create it, wait for its end, and remove it. Raises DevError when it does not succeed."""
    path = f"{PATHS[side]}/{body['metadata']['name']}"
    await kube.create(PATHS[side], body)
    give_up = time.monotonic() + 120
    while not is_done(job := await kube.get(path)):
        if time.monotonic() > give_up:
            raise DevError(f"{path} has not ended: {json.dumps(job.get('status'))[:1000]}")
        await asyncio.sleep(0.02)
    if outcome(job) != "Succeeded":
        raise DevError(f"{path} failed: {json.dumps(job.get('status'))[:1000]}")
    await kube.remove(path)


def _mark() -> int:
    return default_layout().audit_log.stat().st_size


def _taken(mark: int) -> dict[str, float]:
    created, done = _times(mark)
    return {name: done[name] - begun for name, begun in created.items() if name in done}


def _times(mark: int) -> tuple[dict[str, float], dict[str, float]]:
    """When each job came, and when its last word was written."""
    with default_layout().audit_log.open("rb") as log:
        log.seek(mark)
        requests = parse(line for line in log if line.endswith(b"\n"))
    requests = [r for r in requests if r.namespace == NAMESPACE]
    created: dict[str, float] = {}
    done: dict[str, float] = {}
    for verb, kind in (("patch", "inferencejobs"), ("update", "jobs")):
        created |= {name: r.received for name, r in by_name(requests, "create", kind).items()}
        done |= {name: r.answered for name, r in by_name(requests, verb, f"{kind}/status", last=True).items()}
    return created, done
