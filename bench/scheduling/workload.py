"""Jobs with deadlines: run times on both classes, bursty arrivals, slack."""

from dataclasses import dataclass

import numpy as np

GPUS = 2
CPUS = 4


@dataclass(frozen=True, slots=True)
class SimJob:
    """One job, in ticks. `believed_*` is what the scheduler is told, the others are what is so."""

    number: int
    arrival: float
    deadline: float
    priority: int
    on_gpu: float
    on_cpu: float
    believed_gpu: float
    believed_cpu: float


def generate(seed: int, *, count: int = 120, load: float = 1.0, variation: float = 1.0, error: float = 0.0) -> list[SimJob]:
    """A workload.

    GPU time is lognormal (median 20 ticks), CPU time up to fifteen times that; gaps are Gamma with coefficient of variation
    `variation` (1 is Poisson); slack is uniform in 1.3..6 GPU times; priority has three levels, independent of the deadline.
    `error` is the sigma of a lognormal factor between what is so and what is believed.
    """
    random = np.random.default_rng(seed)
    on_gpu = np.maximum(2, np.rint(random.lognormal(3.0, 0.6, count)))
    ratio = np.clip(random.lognormal(1.2, 0.6, count), 1, 15)
    on_cpu = np.maximum(on_gpu, np.rint(on_gpu * ratio))
    capacity = GPUS / on_gpu.mean() + CPUS / on_cpu.mean()
    gaps = random.gamma(1 / variation**2, variation**2 / (load * capacity), count)
    arrival = np.floor(np.cumsum(gaps))
    return jobs_of(random, arrival, on_gpu, on_cpu, error=error)


def jobs_of(
    random: np.random.Generator, arrival: np.ndarray, on_gpu: np.ndarray, on_cpu: np.ndarray, *, error: float
) -> list[SimJob]:
    """Jobs of these arrivals and run times (ticks, one a job); slack, priority and errors are drawn."""
    count = len(on_gpu)
    deadline = arrival + np.ceil(random.uniform(1.3, 6, count) * on_gpu)
    priority = random.integers(0, 3, count)
    believed = random.lognormal(0.0, error, count) if error else np.ones(count)
    return [
        SimJob(
            number=i,
            arrival=float(arrival[i]),
            deadline=float(deadline[i]),
            priority=int(priority[i]),
            on_gpu=float(on_gpu[i]),
            on_cpu=float(on_cpu[i]),
            believed_gpu=float(on_gpu[i] * believed[i]),
            believed_cpu=float(on_cpu[i] * believed[i]),
        )
        for i in range(count)
    ]
