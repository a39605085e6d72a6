"""What a learned policy sees of one waiting job: the job and the state of the fleet, in numbers without a unit."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import log

import numpy as np

from bench.scheduling.workload import CPUS, GPUS, SimJob

NAMES = (
    "slack in GPU times", "slack in CPU times", "log GPU time", "log CPU over GPU", "jobs waiting", "share that are shorter",
    "share that are due sooner", "share that are shorter and due sooner", "work due sooner over GPU time left", "GPUs free",
    "CPUs free", "time until a GPU is free over slack", "jobs come lately",
)  # fmt: skip
# How far back an arrival counts as recent, in ticks.
_RECENT = 60.0


@dataclass(frozen=True, slots=True)
class State:
    """The fleet at an instant: waiting jobs with the share of their work that is left, and the ends of what runs, by class."""

    now: float
    waiting: Mapping[int, tuple[SimJob, float]]
    ends: Mapping[str, Sequence[float]]
    arrivals: Sequence[float]


def rows(state: State) -> tuple[list[int], np.ndarray]:
    """The numbers of the waiting jobs, and a row for each."""
    numbers = sorted(state.waiting)
    jobs = [state.waiting[number] for number in numbers]
    if not jobs:
        return [], np.empty((0, len(NAMES)))
    gpu = np.array([job.believed_gpu * share for job, share in jobs])
    cpu = np.array([job.believed_cpu * share for job, share in jobs])
    slack = np.maximum(np.array([job.deadline - state.now for job, _ in jobs]), 1e-3)
    shorter, sooner = gpu[None, :] < gpu[:, None], slack[None, :] < slack[:, None]
    free = {"gpu": GPUS - len(state.ends["gpu"]), "cpu": CPUS - len(state.ends["cpu"])}
    wait = 0.0 if free["gpu"] > 0 else min(state.ends["gpu"]) - state.now
    lately = sum(state.now - _RECENT <= arrival <= state.now for arrival in state.arrivals)
    same = np.ones(len(jobs))
    table = np.column_stack(
        [
            slack / gpu, slack / cpu, np.log(gpu), np.log(cpu / gpu), len(jobs) * same, shorter.mean(1), sooner.mean(1),
            (shorter & sooner).mean(1), (sooner * gpu[None, :]).sum(1) / (GPUS * slack), free["gpu"] * same, free["cpu"] * same,
            wait / slack, log(1 + lately) * same,
        ]
    )  # fmt: skip
    return numbers, table
