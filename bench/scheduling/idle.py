"""What giving idle devices back saves: a simulated day of a warm pool, in energy that declared watts come to (no meter)."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.report import Target
from bench.scheduling.figures import summary
from inference_operator.settings import Settings

DAY_SECONDS = 86_400.0
IDLE_SECONDS = (0.0, 60.0, 300.0, 900.0, 3600.0)
LOAD_SECONDS = 20.0
# Jobs an hour at the quietest and the busiest time of the day, and the median of their seconds.
_QUIET, _BUSY, _MEDIAN = 12.0, 240.0, 60.0


@dataclass(frozen=True, slots=True)
class Day:
    """What a day cost: energy in joules, and the share of jobs that met no warm device."""

    joules: float
    cold: float


def scale_down(seeds: range) -> tuple[list[dict[str, Any]], list[Target]]:
    """A GPU class, held the whole day against given back after so many idle seconds."""
    accelerator = Settings().accelerators["gpu"]
    scenarios: list[dict[str, Any]] = []
    for idle in (None, *IDLE_SECONDS):
        running_unit, days = [], []
        for seed in seeds:
            arrivals, seconds = a_day(seed)
            always = spend(arrivals, seconds, None, busy=accelerator.watts_busy, resting=accelerator.watts_idle)
            day = spend(arrivals, seconds, idle, busy=accelerator.watts_busy, resting=accelerator.watts_idle)
            running_unit.append(1 - day.joules / always.joules)
            days.append(day)
        scenarios.append(
            {
                "idleSeconds": "held all day" if idle is None else idle,
                "megajoules": summary([day.joules / 1e6 for day in days], 2),
                "saved": summary(running_unit),
                "coldStarts": summary([day.cold for day in days]),
            }
        )
    return scenarios, []


def a_day(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Arrivals of a day whose rate goes up and down once (Poisson, thinned), and how long each job runs."""
    random = np.random.default_rng(seed)
    most = _BUSY / 3600
    times = np.cumsum(random.exponential(1 / most, int(2 * most * DAY_SECONDS)))
    times = times[times < DAY_SECONDS]
    rate = (_QUIET + (_BUSY - _QUIET) * (1 - np.cos(2 * np.pi * times / DAY_SECONDS)) / 2) / 3600
    arrivals = times[random.random(len(times)) < rate / most]
    return arrivals, random.lognormal(np.log(_MEDIAN), 0.6, len(arrivals))


def spend(arrivals: np.ndarray, seconds: np.ndarray, idle_seconds: float | None, *, busy: float, resting: float) -> Day:
    """The day's energy. The device that was used last is used first, so that the others can go; None holds them all day.

    A device is there from its first job on; what was given back has to load the model again, at busy watts.
    """
    free_since: list[float] = []
    joules, cold, ever = 0.0, 0, 0
    ends: list[float] = []
    for arrival, length in zip(arrivals, seconds, strict=True):
        done = sorted(end for end in ends if end <= arrival)
        ends = [end for end in ends if end > arrival]
        free_since += done
        if idle_seconds is not None:
            joules += resting * idle_seconds * sum(arrival - since > idle_seconds for since in free_since)
            free_since = [since for since in free_since if arrival - since <= idle_seconds]
        if free_since:
            joules += resting * (arrival - free_since.pop())
            began = arrival
        else:
            cold, ever = cold + 1, ever + 1
            joules += busy * LOAD_SECONDS
            began = arrival + LOAD_SECONDS
        joules += busy * length
        ends.append(began + length)
    for since in [*free_since, *ends]:
        rest = max(0.0, DAY_SECONDS - since)
        joules += resting * (rest if idle_seconds is None else min(rest, idle_seconds))
    return Day(joules, cold / len(arrivals))
