"""Workloads from real arrivals: the first 1,200 requests of two production services of one hour in November 2023.

`azure_llm_2023_*.csv` are extracts (seconds since the first request, prompt tokens, generated tokens) of the Azure LLM inference
traces 2023, Azure Public Dataset, (c) Microsoft Corporation, CC BY 4.0; the request times and tokens are as they are there.

A request stands for one job. Its time on a GPU follows from its tokens: a generated token counts one, a token of the prompt, which
is read in parallel, an eighth. All that the traces don't tell is drawn as in `workload`: times on a CPU, slack, errors.
"""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from bench.scheduling.workload import CPUS, GPUS, SimJob, jobs_of

TRACES = ("conv", "code")
_PROMPT_SHARE = 1 / 8
_MEDIAN_TICKS = 20.0


def windows(trace: str, *, size: int, load: float, error: float = 0.0) -> Iterator[list[SimJob]]:
    """Runs of so many requests in a row, each with its time scaled so that the load is as asked."""
    with (Path(__file__).parent / f"azure_llm_2023_{trace}.csv").open() as file:
        rows = [(float(row["seconds"]), int(row["prompt"]), int(row["generated"])) for row in csv.DictReader(file)]
    seconds, prompt, generated = (np.array(column, dtype=float) for column in zip(*rows, strict=True))
    unit = generated + _PROMPT_SHARE * prompt
    intervals = np.maximum(1.0, np.rint(unit * _MEDIAN_TICKS / np.median(unit)))
    for seed, first in enumerate(range(0, len(rows) - size + 1, size)):
        part = slice(first, first + size)
        yield _jobs(seed, seconds[part] - seconds[first], intervals[part], load=load, error=error)


def _jobs(seed: int, seconds: np.ndarray, on_gpu: np.ndarray, *, load: float, error: float) -> list[SimJob]:
    random = np.random.default_rng(seed)
    count = len(on_gpu)
    on_cpu = np.maximum(on_gpu, np.rint(on_gpu * np.clip(random.lognormal(1.2, 0.6, count), 1, 15)))
    capacity = GPUS / on_gpu.mean() + CPUS / on_cpu.mean()
    arrival = np.floor(seconds * (count / (load * capacity)) / seconds[-1])
    return jobs_of(random, arrival, on_gpu, on_cpu, error=error)
