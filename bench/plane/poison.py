"""W4: a thousand jobs that can never run lie in the queue; how much longer do a thousand that can take?

The GPU jobs ask for more than there is: of Kueue for four GPUs where there are two, of the operator for a slice of a GPU where none
is sliced, since a class has one device. The proposal is Kueue's own (kueue#8095).
"""

import asyncio
import os
from typing import Any

from bench.plane import kueue
from bench.plane.audit import by_name
from bench.plane.control import operator
from bench.plane.deadlines import OWN
from bench.plane.figures import turns
from bench.plane.furnish import create_all, put_model
from bench.plane.measure import Meter, lag, memory, per_job
from bench.plane.objects import BATCH_JOBS, GPU, JOBS, PLACE, Manifest, Work, batch_job, inference_job, rooms
from bench.plane.simulated_kubelets import AGENT as KUBELETS
from bench.plane.stage import AGENT, Limits, Stage, all_done, stage
from dev.console import say
from dev.kueue import crds

Record = dict[str, Any]
SIDES = ("ours", "kueue")
_WORK = Work({"cpu": 0.5, "gpu": 0.5})
_NODES, _PLACES = 10, 10
_TOO_MANY_GPUS = 4
_ACCELERATORS = {
    "gpu": {
        "executionProviders": ["CUDAExecutionProvider"],
        "resourceName": "nvidia.com/mig-1g.10gb",
        "wattsBusy": 300,
    },
    "cpu": {"executionProviders": ["CPUExecutionProvider"], "requests": {"cpu": "1"}, "wattsBusy": 15},
}
_SETTLE_SECONDS = 5.0
_PATIENCE_SECONDS = 900.0


def measure(rounds: int, jobs: int, limits: Limits) -> list[Record]:
    """Both sides, with and without the poison, by turns."""
    found = []
    for side, poisoned in turns(rounds, [(side, poisoned) for side in SIDES for poisoned in (False, True)]):
        record = asyncio.run(_run(side, limits, jobs, poisoned=poisoned))
        with_it = "with" if poisoned else "without"
        say(f"  {side}, {limits.name} limits, {with_it} poison: drained in {record['drainSeconds']} s")
        found.append(record)
    return found


async def _run(side: str, limits: Limits, jobs: int, *, poisoned: bool) -> Record:
    fleet = [*rooms(_NODES, cpus=_PLACES), *rooms(1, device="gpu", cpus=0, gpus=2)]
    async with stage(fleet, limits, crds() if side == "kueue" else ()) as at:
        if side == "ours":
            await put_model(at.kube, "digits", _WORK)
            with operator(at.plane, at.folder, **at.operator_settings(_ACCELERATORS)) as running:
                await running.leads()
                return await _drain(at, side, jobs, {"inference-operator": running.pid}, poisoned=poisoned)
        flavors = (kueue.Flavor("cpu", PLACE, _NODES * _PLACES), kueue.Flavor("gpu", GPU, 2))
        async with kueue.kueue(at, flavors, preempts=True) as pid:
            return await _drain(at, side, jobs, {"kueue": pid}, poisoned=poisoned)


async def _drain(at: Stage, side: str, jobs: int, own: dict[str, int], *, poisoned: bool) -> Record:
    path = JOBS if side == "ours" else BATCH_JOBS
    if poisoned:
        await create_all(at.kube, path, [_job(side, f"gpu-{n}", "gpu") for n in range(jobs)])
    await asyncio.sleep(_SETTLE_SECONDS)
    pids = at.pids(**own)
    mark, meter = at.plane.mark(), Meter.of(pids)
    await create_all(at.kube, path, [_job(side, f"cpu-{n}", "cpu") for n in range(jobs)])
    await all_done(at.kube, path, seconds=_PATIENCE_SECONDS, selector="bench=cpu")
    requests, pod_runs = at.plane.requests(mark), at.pod_runs()
    kind = path.rsplit("/", 1)[1]
    created = by_name(requests, "create", kind)
    written = by_name(requests, "patch" if side == "ours" else "update", f"{kind}/status", last=True)
    ends = [r.answered for name, r in written.items() if name.startswith("cpu-")]
    seconds = max(ends) - min(r.received for r in created.values())
    cpu = {name: value * 1e3 / jobs for name, value in meter.since(idle={}, seconds=seconds).items()}
    return {
        "scenario": "poison",
        "side": side,
        "limits": at.limits.name,
        "jobs": jobs,
        "poisoned": poisoned,
        "drainSeconds": round(seconds, 2),
        "ownCpuMsPerJob": round(sum(cpu[name] for name in OWN[side]), 2),
        "cpuMsPerJob": {name: round(value, 2) for name, value in cpu.items()},
        "memory": memory(pids),
        "loadAverage": round(os.getloadavg()[0], 2),
        **lag(requests, pod_runs),
        **per_job(requests, jobs, without=(AGENT, KUBELETS)),
    }


def _job(side: str, name: str, device: str) -> Manifest:
    if side == "ours":
        job = inference_job(name, _WORK, model="digits", accelerator=device)
    else:
        asks = {GPU: str(_TOO_MANY_GPUS)} if device == "gpu" else {PLACE: "1"}
        job = batch_job(name, _WORK, requests=asks, labels=kueue.labels())
    job["metadata"].setdefault("labels", {})["bench"] = device
    return job
