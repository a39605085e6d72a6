"""W2: jobs with deadlines on two GPU and four CPU places, in real time, beside a simulation of the same jobs.

Kueue knows no deadline. It gets the best emulation that its API allows: priority classes by deadline, pre-emption of lower ones, a
GPU for what no CPU could finish in time, and a load generator that deletes a Job that waits past its latest start, or runs past
its deadline (ours does both itself, by `deadlinePolicy: Firm`).
"""

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import Any

from bench.plane import kueue
from bench.plane.audit import Request, by_name
from bench.plane.control import operator
from bench.plane.furnish import put_model
from bench.plane.measure import Meter, lag, memory, per_job
from bench.plane.objects import BATCH_JOBS, GPU, JOBS, LABEL_CLASS, NAMESPACE, PLACE, PODS, Work, batch_job, inference_job, rooms
from bench.plane.simulated_kubelets import AGENT as KUBELETS
from bench.plane.simulated_kubelets import PodRun
from bench.plane.stage import AGENT, LIFTED, Stage, all_done, stage, until
from bench.scheduling.simulate import Ours, Simulation
from bench.scheduling.workload import CPUS, GPUS, SimJob, generate
from dev.console import say
from dev.kueue import crds
from inference_operator.errors import NotFoundError

Record = dict[str, Any]
# Kueue with and without pre-emption, since it is not plain which is the better for it.
SIDES = ("ours", "kueue", "kueue-stays")
TICK_SECONDS = float(os.environ.get("BENCH_TICK_SECONDS", "0.1"))
# Enough that a job which is stopped has something to show for it.
_ITEMS = 100
ACCELERATORS = {
    "gpu": {"executionProviders": ["CUDAExecutionProvider"], "resourceName": GPU, "wattsBusy": 300},
    "cpu": {"executionProviders": ["CPUExecutionProvider"], "requests": {"cpu": "1"}, "wattsBusy": 15},
}
OWN = {
    "ours": ("inference-operator", "kube-scheduler"),
    "kueue": ("kueue", "kube-controller-manager", "kube-scheduler"),
    "kueue-stays": ("kueue", "kube-controller-manager", "kube-scheduler"),
}


def measure(seeds: int, count: int = 120, *, load: float = 1.0, variation: float = 4.0) -> list[Record]:
    """Every seed on every side, by turns."""
    found = []
    for seed in range(seeds):
        jobs = generate(seed, count=count, load=load, variation=variation)
        for side in SIDES if seed % 2 == 0 else SIDES[::-1]:
            record = asyncio.run(_run(side, seed, jobs))
            say(f"  {side}, seed {seed}: {record['onTime']} on time, kubelets {record['lagP99Ms']} ms late (p99)")
            found.append({**record, "load": load, "variation": variation})
    return found


def places() -> list[Any]:
    """The small fleet of `bench/scheduling`."""
    return [*rooms(1, device="gpu", cpus=0, gpus=GPUS), *rooms(1, device="cpu", cpus=CPUS)]


def work(job: SimJob) -> Work:
    """What a job takes, in seconds."""
    return Work({"gpu": job.on_gpu * TICK_SECONDS, "cpu": job.on_cpu * TICK_SECONDS}, _ITEMS)


async def _run(side: str, seed: int, jobs: list[SimJob]) -> Record:
    async with stage(places(), LIFTED, crds() if side != "ours" else ()) as at:
        if side == "ours":
            for job in jobs:
                await put_model(at.kube, name(job), work(job))
            with operator(at.plane, at.folder, **at.operator_settings(ACCELERATORS)) as running:
                await running.leads()
                record = await _submit_all(at, side, jobs, FirmJobs(at), {"inference-operator": running.pid})
        else:
            flavors = (kueue.Flavor("gpu", PLACE, GPUS), kueue.Flavor("cpu", PLACE, CPUS))
            async with kueue.kueue(at, flavors, preempts=side == "kueue") as pid:
                record = await _submit_all(at, side, jobs, QueuedJobs(at, max(job.deadline for job in jobs)), {"kueue": pid})
    return {
        **record,
        "seed": seed,
        "tickSeconds": TICK_SECONDS,
        "simulated": simulated(jobs, Ours()),
        "simulatedAsHere": simulated([delayed(job, record["overheadSeconds"]) for job in jobs], Ours(preemptions_per_job=0)),
    }


def simulated(jobs: list[SimJob], policy: Ours) -> float:
    """The share on time that `schedule()` reaches in the simulation.

    There a start and a preemption cost nothing. Here a start takes a while that nobody reckons with, and the operator allows two
    seconds for a worker to leave: of jobs that run for two, none is worth that. So the second simulation has such starts and no
    preemptions; with longer ticks (BENCH_TICK_SECONDS) the two come together.
    """
    return round(Simulation(jobs).run(policy).on_time, 4)


def delayed(job: SimJob, seconds: float) -> SimJob:
    """The job with a start that takes so long, which nobody reckons with."""
    ticks = seconds / TICK_SECONDS
    return replace(job, on_gpu=job.on_gpu + ticks, on_cpu=job.on_cpu + ticks)


class FirmJobs:
    """InferenceJobs with deadlines: nothing else is needed."""

    path = JOBS

    def __init__(self, at: Stage) -> None:
        self._at = at

    async def submit(self, job: SimJob, zero: float) -> None:
        """Create it."""
        deadline = datetime.fromtimestamp(zero + job.deadline * TICK_SECONDS, UTC)
        await self._at.kube.create(JOBS, inference_job(name(job), work(job), model=name(job), deadline=deadline))

    async def finish(self, seconds: float) -> int:
        """Wait for the last word on every job. How often one made room for another."""
        ended = await all_done(self._at.kube, JOBS, seconds=seconds)
        return sum(job["status"].get("preemptions", 0) for job in ended)


class QueuedJobs:
    """Jobs in Kueue's queue, and somebody who deletes what has become hopeless."""

    path = BATCH_JOBS

    def __init__(self, at: Stage, horizon: float) -> None:
        self._at = at
        self._horizon = horizon

    async def submit(self, job: SimJob, zero: float) -> None:
        """Create it, and look after it until its deadline."""
        hopeless_on_cpu = job.arrival + job.believed_cpu > job.deadline
        body = batch_job(
            name(job),
            work(job),
            requests={PLACE: "1"},
            node_selector={LABEL_CLASS: "gpu"} if hopeless_on_cpu else {},
            labels=kueue.labels(kueue.bucket(job.deadline, self._horizon)),
        )
        await self._at.kube.create(BATCH_JOBS, body)
        latest_start = job.deadline - (job.believed_gpu if hopeless_on_cpu else min(job.believed_gpu, job.believed_cpu))
        await _sleep_until(zero + latest_start * TICK_SECONDS)
        await self._give_up(job, when=lambda found: bool(found["spec"].get("suspend")))
        await _sleep_until(zero + job.deadline * TICK_SECONDS)
        await self._give_up(job, when=lambda found: not found.get("status", {}).get("completionTime"))

    async def _give_up(self, job: SimJob, *, when: Callable[[Mapping[str, Any]], bool]) -> None:
        path = f"{BATCH_JOBS}/{name(job)}"
        with suppress(NotFoundError):
            if when(await self._at.kube.get(path)):
                await self._at.kube.remove(path)

    async def finish(self, seconds: float) -> int:
        """Wait until nothing runs; every Job has been looked after to its end by then. How many were told to make room."""

        async def quiet() -> bool:
            pods = (await self._at.kube.get(PODS))["items"]
            return all(pod["status"]["phase"] in ("Succeeded", "Failed") for pod in pods)

        await until(quiet, "the last pods", seconds=seconds)
        events = (await self._at.kube.get(f"/api/v1/namespaces/{NAMESPACE}/events?fieldSelector=reason=Preempted"))["items"]
        return sum(event.get("count") or 1 for event in events)


async def _submit_all(at: Stage, side: str, jobs: list[SimJob], party: FirmJobs | QueuedJobs, own: dict[str, int]) -> Record:
    await asyncio.sleep(2)
    pids = at.pids(**own)
    mark, meter, begun = at.plane.mark(), Meter.of(pids), time.time()
    zero = begun + 0.5
    async with asyncio.TaskGroup() as group:
        for job in jobs:
            group.create_task(_at(zero + job.arrival * TICK_SECONDS, partial(party.submit, job, zero)))
    last = zero + max(job.deadline for job in jobs) * TICK_SECONDS
    await _sleep_until(last)
    preemptions = await party.finish(60)
    # Some writes follow the end, and belong to it.
    await asyncio.sleep(1)
    seconds = time.time() - begun
    requests, pod_runs = at.plane.requests(mark), at.pod_runs()
    cpu = {name: value * 1e3 / len(jobs) for name, value in meter.since(idle={}, seconds=seconds).items()}
    ends = finished(requests, pod_runs)
    met = sum(name(job) in ends and ends[name(job)] <= zero + job.deadline * TICK_SECONDS for job in jobs)
    return {
        "scenario": "deadlines",
        "side": side,
        "jobs": len(jobs),
        "onTime": round(met / len(jobs), 4),
        "done": len(ends),
        "preemptions": preemptions,
        "stopped": sum(run.outcome == "Drained" for run in pod_runs),
        "overheadSeconds": round(overhead(requests, pod_runs), 3),
        "seconds": round(seconds, 1),
        "ownCpuMsPerJob": round(sum(cpu[name] for name in OWN[side]), 2),
        "cpuMsPerJob": {name: round(value, 2) for name, value in cpu.items()},
        "memory": memory(pids),
        "loadAverage": round(os.getloadavg()[0], 2),
        **lag(requests, pod_runs),
        **per_job(requests, len(jobs), without=(AGENT, KUBELETS)),
    }


def name(job: SimJob) -> str:
    """A job's name, and its model's."""
    return f"job-{job.number}"


def finished(requests: list[Request], pod_runs: list[PodRun]) -> dict[str, float]:
    """When each job's work was done, by the API server's clock: its pod was said to have succeeded."""
    last = by_name((r for r in requests if r.actor == KUBELETS), "patch", "pods/status", last=True)
    return {run.job: last[run.pod].answered for run in pod_runs if run.outcome == "Succeeded" and run.pod in last}


def overhead(requests: list[Request], pod_runs: list[PodRun]) -> float:
    """Seconds from create to Running where a place is free: what a real start takes and no policy reckons with.

    It is read from the quickest tenth of all starts (their median), since the others have queueing in them.
    """
    created = by_name(requests, "create", "inferencejobs") or by_name(requests, "create", "jobs")
    starts = sorted(run.started - created[run.job].received for run in pod_runs if run.job in created)
    return statistics.median(starts[: max(1, len(starts) // 10)]) if starts else 0.0


async def _at(when: float, act: Callable[[], Awaitable[None]]) -> None:
    await _sleep_until(when)
    await act()


async def _sleep_until(when: float) -> None:
    await asyncio.sleep(max(0.0, when - time.time()))
