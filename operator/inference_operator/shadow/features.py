"""What a learned policy sees of waiting work, in numbers without a unit: one code for its training and for the shadow.

Nothing of the operator imports this unless a policy is set: it needs numpy, which the operator's image does not have.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import numpy.typing as npt

NAMES = (
    "slack in GPU times", "slack in CPU times", "log GPU time", "log CPU over GPU", "jobs waiting", "share that are shorter",
    "share that are due sooner", "share that are shorter and due sooner", "work due sooner over GPU time left", "GPUs free",
    "CPUs free", "time until a GPU is free over slack", "jobs come lately",
)  # fmt: skip
# How far back an arrival counts as lately.
RECENT_SECONDS = 60.0
# Slack in the units of the time: what is due at once is not divided by.
_LEAST_SLACK = 1e-3

Table = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """One job: how long it takes on either class, and how long until its deadline."""

    gpu: float
    cpu: float
    slack: float


@dataclass(frozen=True, slots=True)
class Scene:
    """The fleet at an instant: `gpus` in all, how many workers find a free device of either class, how long until a GPU is free."""

    waiting: Sequence[WaitingJob]
    gpus: int
    free_gpus: int
    free_cpus: int
    gpu_wait: float
    lately: int


def table(scene: Scene) -> Table:
    """A row of NAMES for each job that waits."""
    if not scene.waiting:
        return np.empty((0, len(NAMES)))
    gpu = np.array([job.gpu for job in scene.waiting])
    cpu = np.array([job.cpu for job in scene.waiting])
    slack = np.maximum(np.array([job.slack for job in scene.waiting]), _LEAST_SLACK)
    shorter, sooner = gpu[None, :] < gpu[:, None], slack[None, :] < slack[:, None]
    same = np.ones(len(gpu))
    return np.column_stack(
        [
            slack / gpu, slack / cpu, np.log(gpu), np.log(cpu / gpu), len(gpu) * same, shorter.mean(1), sooner.mean(1),
            (shorter & sooner).mean(1), (sooner * gpu[None, :]).sum(1) / (scene.gpus * slack), scene.free_gpus * same,
            scene.free_cpus * same, scene.gpu_wait / slack, log(1 + scene.lately) * same,
        ]
    )  # fmt: skip
