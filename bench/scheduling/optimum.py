"""The clairvoyant optimum: how many jobs could have been on time, with free pre-emption and migration.

Lawler and Labetoulle (1978): on unrelated machines with pre-emption, amounts of work in the intervals between all arrivals and
deadlines can be turned into a schedule when no machine class is over-full in any interval and no job works longer than the
interval lasts. A binary for "on time" makes it a mixed-integer programme, which HiGHS solves exactly. No online policy reaches it.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

from bench.scheduling.workload import CPUS, GPUS, SimJob


def on_time_at_best(jobs: Sequence[SimJob], *, limit_seconds: float = 60.0) -> tuple[int, bool]:
    """The most jobs that can be on time, and whether that is proven within the time limit."""
    most, _, proven = solve(jobs, whole=True, limit_seconds=limit_seconds)
    return round(most), proven


def on_time_at_most(jobs: Sequence[SimJob]) -> float:
    """A bound on it: a job may be on time in part. For workloads too large for the exact one."""
    return solve(jobs, whole=False)[0]


def solve(jobs: Sequence[SimJob], *, whole: bool, limit_seconds: float = 60.0) -> tuple[float, list[float], bool]:
    """The number on time, which jobs these are (0..1 each), and whether it is proven."""
    points = np.unique([t for job in jobs for t in (job.arrival, job.deadline)])
    lengths = np.diff(points)
    rows: list[int] = []
    columns: list[int] = []
    values: list[float] = []
    upper: list[float] = []
    lower: list[float] = []
    count = len(jobs)
    width = count
    per_interval: dict[tuple[int, int], list[int]] = {}
    per_job_interval: list[tuple[list[int], float]] = []
    unit: list[list[tuple[int, float]]] = [[] for _ in jobs]
    for j, job in enumerate(jobs):
        first, last = np.searchsorted(points, (job.arrival, job.deadline))
        for k in range(first, last):
            pair = [width, width + 1]
            width += 2
            per_job_interval.append((pair, lengths[k]))
            for klass, (variable, time) in enumerate(zip(pair, (job.on_gpu, job.on_cpu), strict=True)):
                per_interval.setdefault((klass, k), []).append(variable)
                unit[j].append((variable, 1 / time))

    def constrain(terms: Sequence[tuple[int, float]], least: float, most: float) -> None:
        row = len(upper)
        for column, value in terms:
            rows.append(row)
            columns.append(column)
            values.append(value)
        lower.append(least)
        upper.append(most)

    for (klass, k), variables in per_interval.items():
        constrain([(v, 1.0) for v in variables], 0, (GPUS, CPUS)[klass] * lengths[k])
    for pair, length in per_job_interval:
        constrain([(v, 1.0) for v in pair], 0, length)
    for j in range(count):
        constrain([*unit[j], (j, -1.0)], 0, np.inf)
    matrix = coo_matrix((values, (rows, columns)), shape=(len(upper), width)).tocsr()
    goal = np.concatenate([-np.ones(count), np.zeros(width - count)])
    integral = np.concatenate([np.full(count, float(whole)), np.zeros(width - count)])
    top = np.concatenate([np.ones(count), np.full(width - count, np.inf)])
    solved = milp(
        goal,
        constraints=LinearConstraint(matrix, lower, upper),
        integrality=integral,
        bounds=Bounds(0, top),
        options={"time_limit": limit_seconds, "mip_rel_gap": 0.0},
    )
    if solved.x is None:
        raise RuntimeError(f"HiGHS: {solved.message}")
    return -solved.fun, [float(x) for x in solved.x[:count]], solved.status == 0
