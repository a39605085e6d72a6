"""W0: a thousand jobs at once, room for all. InferenceJobs beside `batch/v1` Jobs, on planes of their own, by turns."""

import asyncio
import os
from typing import Any

from bench.plane.audit import by_name
from bench.plane.control import operator
from bench.plane.figures import quantile, turns
from bench.plane.furnish import create_all, put_model
from bench.plane.measure import Meter, lag, memory, per_job
from bench.plane.objects import BATCH_JOBS, JOBS, Manifest, Work, batch_job, inference_job, rooms
from bench.plane.simulated_kubelets import AGENT as KUBELETS
from bench.plane.stage import AGENT, LIFTED, SHIPPED, Limits, Stage, all_done, outcome, stage
from dev.console import say

Record = dict[str, Any]
SIDES = ("ours", "job")
_WORK = Work({"cpu": 0.2})
_ASKS = {"cpu": "50m", "memory": "64Mi"}
_CLASSES = {"cpu": {"executionProviders": ["CPUExecutionProvider"], "requests": _ASKS, "wattsBusy": 15}}
_NODES = 100
_IDLE_SECONDS = 10.0
_PATIENCE_SECONDS = 1200.0
# Whose CPU a side's figure is: what it runs itself, and kube-scheduler, which binds for both.
_OWN = {
    "ours": ("inference-operator", "kube-scheduler"),
    "job": ("kube-controller-manager", "kube-scheduler"),
}


def measure(rounds: int, jobs: int) -> list[Record]:
    """All runs, at shipped and at lifted limits."""
    found = []
    for limits in (SHIPPED, LIFTED):
        for side in turns(rounds, SIDES):
            record = asyncio.run(_run(side, limits, jobs))
            say(f"  {side} at {limits.name} limits: {record['jobsPerSecond']} jobs/s, kubelets {record['lagP99Ms']} ms late (p99)")
            found.append(record)
    return found


async def _run(side: str, limits: Limits, jobs: int) -> Record:
    async with stage(rooms(_NODES), limits) as at:
        if side == "job":
            bodies = [batch_job(f"job-{n}", _WORK, requests=_ASKS) for n in range(jobs)]
            return await _load(at, side, BATCH_JOBS, bodies, {})
        await put_model(at.kube, "digits", _WORK)
        with operator(at.plane, at.folder, **at.operator_settings(_CLASSES)) as running:
            await running.leads()
            bodies = [inference_job(f"job-{n}", _WORK, model="digits", accelerator="cpu") for n in range(jobs)]
            return await _load(at, side, JOBS, bodies, {"inference-operator": running.pid})


async def _load(at: Stage, side: str, path: str, bodies: list[Manifest], own: dict[str, int]) -> Record:
    await asyncio.sleep(3)
    pids = at.pids(**own)
    before = Meter.of(pids)
    await asyncio.sleep(_IDLE_SECONDS)
    idle = before.share(_IDLE_SECONDS)
    mark, meter = at.plane.mark(), Meter.of(pids)
    await create_all(at.kube, path, bodies)
    ended = await all_done(at.kube, path, seconds=_PATIENCE_SECONDS)
    requests = at.plane.requests(mark)
    kind = path.rsplit("/", 1)[1]
    created = {name: r.received for name, r in by_name(requests, "create", kind).items()}
    written = by_name(requests, "patch" if side == "ours" else "update", f"{kind}/status", last=True)
    pod_runs = at.pod_runs()
    seconds = max(r.answered for r in written.values()) - min(created.values())
    cpu = {name: value * 1e3 / len(bodies) for name, value in meter.since(idle=idle, seconds=seconds).items()}
    running = [run.started - created[run.job] for run in pod_runs]
    done = [r.answered - created[name] for name, r in written.items()]
    return {
        "scenario": "burst",
        "side": side,
        "limits": at.limits.name,
        "jobs": len(bodies),
        "succeeded": sum(outcome(job) == "Succeeded" for job in ended),
        "seconds": round(seconds, 2),
        "jobsPerSecond": round(len(bodies) / seconds, 2),
        "toRunningSeconds": {"p50": round(quantile(running, 0.5), 3), "p99": round(quantile(running, 0.99), 3)},
        "toDoneSeconds": {"p50": round(quantile(done, 0.5), 3), "p99": round(quantile(done, 0.99), 3)},
        "ownCpuMsPerJob": round(sum(cpu[name] for name in _OWN[side]), 2),
        "cpuMsPerJob": {name: round(value, 2) for name, value in cpu.items()},
        "memory": memory(pids),
        "loadAverage": round(os.getloadavg()[0], 2),
        **lag(requests, pod_runs),
        **per_job(requests, len(bodies), without=(AGENT, KUBELETS)),
    }
