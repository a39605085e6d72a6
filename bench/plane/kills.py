"""W5: the operator is killed twenty times while it works. Nothing may be leaked, doubled or lost.

It is started the way a container's first process is, so that the next one knows its Lease again, as after a restart by the kubelet.
"""

import asyncio
import os
import random
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

from bench.plane.control import AS_A_CONTAINER, Operator, start_operator
from bench.plane.figures import overlaps
from bench.plane.furnish import put_model
from bench.plane.measure import lag, per_job
from bench.plane.objects import JOBS, NODES, PODS, Manifest, Work, inference_job, rooms
from bench.plane.simulated_kubelets import AGENT as KUBELETS
from bench.plane.simulated_kubelets import PodRun
from bench.plane.stage import AGENT, LIFTED, Stage, all_done, outcome, stage
from dev.console import say
from inference_operator.scheduling.node_capacity import free_amounts
from inference_operator.state.parse import parse_node
from inference_operator.state.parse_pods import parse_pod

Record = dict[str, Any]
ACTOR = "inference-operator"
_WORK = Work({"cpu": 2.0}, 100)
_ACCELERATORS = {"cpu": {"executionProviders": ["CPUExecutionProvider"], "requests": {"cpu": "1"}, "wattsBusy": 15}}
_NODES, _CPUS = 4, 5
# Most are killed while they lead, some before: at a moment of their start, or of their work.
_SHARE_LEADING = 0.75
_START_SECONDS, _LEAD_SECONDS = (0.2, 2.5), (0.0, 2.5)
_SECONDS_PER_KILL = 3.5
_PATIENCE_SECONDS = 600.0


def measure(rounds: int, jobs: int, kills: int) -> list[Record]:
    """One load after another, each with its own moments of death."""
    found = []
    for number in range(rounds):
        record = asyncio.run(_run(number, jobs, kills))
        say(f"  {record['kills']} kills: leaked {record['leakedPods']}, doubled {record['doubled']}, lost {record['lost']}")
        found.append(record)
    return found


async def _run(seed: int, jobs: int, kills: int) -> Record:
    chance = random.Random(seed)
    async with stage(rooms(_NODES, cpus=_CPUS), LIFTED) as at:
        await put_model(at.kube, "digits", _WORK)
        mark = at.plane.mark()
        arriving = asyncio.create_task(_arrive(at, chance, jobs, seconds=kills * _SECONDS_PER_KILL))
        leading = 0
        for _ in range(kills):
            running = _start(at)
            if chance.random() < _SHARE_LEADING:
                await running.leads()
                await asyncio.sleep(chance.uniform(*_LEAD_SECONDS))
            else:
                await asyncio.sleep(chance.uniform(*_START_SECONDS))
            leading += running.is_leading
            _kill(running)
        running = _start(at)
        try:
            await arriving
            ended = await all_done(at.kube, JOBS, seconds=_PATIENCE_SECONDS)
            killed = {"jobs": jobs, "kills": kills, "killedWhileLeading": leading}
            return {**await _judge(at, mark, ended), "scenario": "kills", **killed}
        finally:
            _kill(running)


async def _arrive(at: Stage, chance: random.Random, jobs: int, *, seconds: float) -> None:
    """Jobs with soft deadlines and priorities, spread over the time of the kills."""
    for number in range(jobs):
        deadline = datetime.now(UTC) + timedelta(seconds=chance.uniform(4, 60))
        job = inference_job(f"job-{number}", _WORK, model="digits", accelerator="cpu", deadline=deadline)
        job["spec"] |= {"deadlinePolicy": "Soft", "priority": chance.randrange(3)}
        await at.kube.create(JOBS, job)
        await asyncio.sleep(seconds / jobs)


def _start(at: Stage) -> Operator:
    return start_operator(at.plane, at.folder, prefix=AS_A_CONTAINER, **at.operator_settings(_ACCELERATORS))


def _kill(running: Operator) -> None:
    # Its parent takes it along; killed alone, it would leave a zombie to be waited for.
    os.kill(running.process.pid, signal.SIGKILL)
    running.process.wait()


async def _judge(at: Stage, mark: int, ended: list[Manifest]) -> Record:
    requests, pod_runs = at.plane.requests(mark), at.pod_runs()
    nodes = (await at.kube.get(NODES))["items"]
    pods = (await at.kube.get(PODS))["items"]
    free = free_amounts(map(parse_node, nodes), map(parse_pod, pods))
    stopped = Counter(run.job for run in pod_runs if run.outcome == "Drained")
    return {
        "seconds": round(max(r.answered for r in requests) - min(r.received for r in requests), 1),
        "succeeded": sum(outcome(job) == "Succeeded" for job in ended),
        "lost": sum(outcome(job) != "Succeeded" for job in ended),
        "leakedPods": sum(pod["status"]["phase"] not in ("Succeeded", "Failed") for pod in pods),
        "leakedMilliCpu": sum(_CPUS * 1000 - amounts["cpu"] for amounts in free.values()),
        # By those that ran: the log does not call a request a success whose caller was killed while it was carried out.
        "podsMade": len({run.pod for run in pod_runs}),
        # Every attempt beyond the first must have been made room for by a preemption.
        "attemptsWithoutCause": sum(max(0, job["status"]["attempts"] - 1 - stopped[job["metadata"]["name"]]) for job in ended),
        "failedAttempts": sum(job["status"].get("failedAttempts", 0) for job in ended),
        "doubled": doubled(pod_runs),
        "preemptionsOfOneJobAtMost": max(stopped.values(), default=0),
        "preemptions": sum(stopped.values()),
        "loadAverage": round(os.getloadavg()[0], 2),
        **lag(requests, pod_runs),
        **per_job(requests, len(ended), without=(AGENT, KUBELETS)),
    }


def doubled(pod_runs: list[PodRun]) -> int:
    """How often a job's pod was started while another of the same job still ran."""
    by_job: dict[str, list[tuple[float, float]]] = {}
    for run in pod_runs:
        by_job.setdefault(run.job, []).append((run.started, run.ended))
    return sum(map(overlaps, by_job.values()))
