"""Start to first placement, memory, CPU at rest, and writes, with ten thousand InferenceJobs present."""

import asyncio
import contextlib
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from bench.plane.audit import writes
from bench.plane.control import Operator, Plane, control_plane, operator
from bench.plane.furnish import create_all, furnish
from bench.plane.kube import Client, client
from bench.plane.objects import JOBS as JOBS_PATH
from bench.plane.objects import rooms
from bench.report import Result, at_most
from inference_operator.errors import RetryableError
from inference_operator.kube.client import Kube

JOBS = 10_000
NODES = 100
ROUNDS = 3
REST_SECONDS = 60


def run(rounds: int) -> Result:
    """Measure; every round has a fresh API server."""
    measured = [asyncio.run(_round()) for _ in range(rounds or ROUNDS)]

    def median(key: str) -> float:
        return float(statistics.median(one[key] for one in measured))

    return Result(
        measured,
        [
            at_most("scale.memory", "MiB resident with 10,000 jobs, at the peak", median("memoryPeakMib"), 200),
            at_most("scale.rest", "share of one core at rest over a minute", median("cpuShareAtRest"), 0.02),
            at_most(
                "scale.first-placement", "seconds from process start to the first worker pod", median("firstPlacementSeconds"), 20
            ),
            at_most("scale.writes", "API writes a job, everything waiting or placed", median("writesPerJob"), 2),
        ],
    )


async def _round() -> dict[str, Any]:
    with control_plane() as plane, tempfile.TemporaryDirectory() as folder:
        async with client(plane.kubeconfig) as kube:
            await furnish(kube, rooms(NODES))
            await create_jobs(kube, JOBS)
            written = count_writes(plane)
            begun = time.monotonic()
            with operator(plane, Path(folder), accelerators=one_class(), resyncSeconds=300) as running:
                first = await first_pod(kube, begun)
                settled = await settle(kube, begun)
                rest = await at_rest(running)
                now, peak = running.memory_mib
            writes = count_writes(plane) - written
    return {
        "jobs": JOBS,
        "firstPlacementSeconds": round(first, 2),
        "settledSeconds": round(settled, 2),
        "memoryMib": round(now, 1),
        "memoryPeakMib": round(peak, 1),
        "cpuShareAtRest": round(rest, 5),
        "writesPerJob": round(sum(writes.values()) / JOBS, 3),
        "writes": {" ".join(key): value for key, value in writes.items()},
    }


def one_class() -> dict[str, Any]:
    """One accelerator class, of which a hundred nodes hold eight hundred workers."""
    return {"cpu": {"executionProviders": ["CPUExecutionProvider"], "requests": {"cpu": "1", "memory": "1Gi"}, "wattsBusy": 15}}


async def create_jobs(kube: Client, count: int) -> None:
    """Batch jobs with deadlines, more than there is room for, so that most of them wait."""
    await create_all(kube, JOBS_PATH, (_job(number) for number in range(count)))


def _job(number: int) -> dict[str, Any]:
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "metadata": {"name": f"job-{number}", "labels": {"team": f"team-{number % 17}"}},
        "spec": {
            "model": "pvc://models/m.onnx",
            "accelerator": "cpu",
            "deadline": f"2031-01-{1 + number % 28:02d}T{number % 24:02d}:00:00Z",
            "priority": number % 3,
            "batchSize": 8,
            "input": {"uri": f"pvc://data/in-{number}.npy"},
            "output": {"uri": f"pvc://data/out-{number}"},
        },
    }


async def first_pod(kube: Kube, begun: float) -> float:
    """Seconds until the first worker pod exists."""
    while True:
        if (await kube.get("/api/v1/namespaces/default/pods?limit=1"))["items"]:
            return time.monotonic() - begun
        await asyncio.sleep(0.05)


async def settle(kube: Kube, begun: float) -> float:
    """Seconds until every job has a status."""
    while True:
        # A walk through all jobs can take longer than an answer may: it is asked again.
        with contextlib.suppress(RetryableError):
            waiting = await kube.get(f"{JOBS_PATH}?fieldSelector=status.phase%3D&limit=1")
            if not waiting["items"]:
                return time.monotonic() - begun
        # Each look has the API server walk through all ten thousand: seldom enough not to be what is measured.
        await asyncio.sleep(2)


async def at_rest(running: Operator) -> float:
    """CPU share of one core while nothing happens."""
    await asyncio.sleep(10)
    before, then = running.cpu_seconds, time.monotonic()
    await asyncio.sleep(REST_SECONDS)
    return (running.cpu_seconds - before) / (time.monotonic() - then)


def count_writes(plane: Plane) -> Counter[tuple[str, str, str]]:
    """Writes by actor, verb and resource, from the API server's audit log."""
    return writes(plane.requests())
