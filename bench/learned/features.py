"""A simulated instant as the learned policy sees it: by the operator's own code, so that training and shadow can't differ."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from bench.scheduling.workload import CPUS, GPUS, SimJob
from inference_operator.shadow.features import RECENT_SECONDS, Scene, WaitingJob, table


@dataclass(frozen=True, slots=True)
class State:
    """The fleet at an instant: waiting jobs with the share of their work that is left, and the ends of what runs, by class."""

    now: float
    waiting: Mapping[int, tuple[SimJob, float]]
    ends: Mapping[str, Sequence[float]]
    arrivals: Sequence[float]


def rows(state: State) -> tuple[list[int], np.ndarray]:
    """The numbers of the waiting jobs, and a row for each. A tick is a second."""
    numbers = sorted(state.waiting)
    free = GPUS - len(state.ends["gpu"])
    scene = Scene(
        waiting=[
            WaitingJob(job.believed_gpu * share, job.believed_cpu * share, job.deadline - state.now)
            for job, share in (state.waiting[number] for number in numbers)
        ],
        gpus=GPUS,
        free_gpus=free,
        free_cpus=CPUS - len(state.ends["cpu"]),
        gpu_wait=0.0 if free > 0 else min(state.ends["gpu"]) - state.now,
        lately=sum(state.now - RECENT_SECONDS <= arrival <= state.now for arrival in state.arrivals),
    )
    return numbers, table(scene)
