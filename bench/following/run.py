"""Real arrivals of whole hours, a target of 15 ms and 2 to 20 workers: more than this machine holds, so simulated.

The operator's own control law and the HPA's arithmetic with a queue around them (`tests/simulation/queueing.py`). Arrivals are
Poisson at the rate of the trace, scaled so that its busiest minute is computing for a third of the workers; a request takes 4 to
6 ms.
"""

import random
from concurrent.futures import ProcessPoolExecutor
from itertools import pairwise
from typing import Any

from bench.replay.traces import counts
from bench.report import Result, Target, at_least
from tests.simulation.queueing import Moment, Service, Signal, reversals, share_over

TARGET_SECONDS = 0.015
_LEAST, _MOST = 2, 20
_COMPUTING = (0.004, 0.006)
_SMOOTH_SECONDS = 15
_TRACES = ("conv", "code")
# CPU at what most are told, and at what one would find by trying until this very service holds this very target.
_SIDES: dict[str, tuple[Signal, float]] = {
    "ours": (Signal.RECOMMENDED, 0),
    "cpu-60": (Signal.CPU, 0.6),
    "cpu-35": (Signal.CPU, 0.35),
    "keda": (Signal.KEDA_P95, 0),
    "keda-number": (Signal.KEDA_NUMBER, 0),
}
# While it learns nobody is judged: every side has the same minutes.
_FROM = 60.0


def run(rounds: int) -> Result:
    """Each side over each trace, with as many seeds as rounds (one)."""
    tasks = [(trace, side, seed) for seed in range(max(1, rounds)) for trace in _TRACES for side in _SIDES]
    with ProcessPoolExecutor(2) as pool:
        found = list(pool.map(_round, tasks))
    return Result(found, list(_targets(found)))


def _targets(found: list[dict[str, Any]]) -> list[Target]:
    return [
        at_least(
            f"{trace}-{side}",
            f"time within the target, ours less that of {side}",
            _mean(found, trace, "ours") - _mean(found, trace, side),
            0,
        )
        for trace in _TRACES
        for side in ("cpu-60", "cpu-35", "keda")
    ]


def _mean(found: list[dict[str, Any]], trace: str, side: str) -> float:
    shares = [r["timeWithin"] for r in found if (r["trace"], r["side"]) == (trace, side)]
    return float(sum(shares) / len(shares))


def smoothed(by_second: list[int]) -> list[float]:
    """The mean of some seconds: with a hundred times the users, chance in one of them is no wave a hundred times as high."""
    half = _SMOOTH_SECONDS // 2
    parts = (by_second[max(0, at - half) : at + half + 1] for at in range(len(by_second)))
    return [sum(part) / len(part) for part in parts]


def _round(task: tuple[str, str, int]) -> dict[str, Any]:
    trace, side, seed = task
    signal, cpu = _SIDES[side]
    by_second = smoothed(counts(trace))
    busiest = max(sum(by_second[at : at + 60]) for at in range(0, len(by_second), 60)) / 60
    scale = _MOST / 3 / (sum(_COMPUTING) / 2) / busiest

    def rate(time: float) -> float:
        return by_second[min(int(time), len(by_second) - 1)] * scale

    def computing(dice: random.Random) -> float:
        return dice.uniform(*_COMPUTING)

    service = Service(
        rate,
        computing,
        TARGET_SECONDS,
        minimum=_LEAST,
        maximum=_MOST,
        asked=_LEAST,
        seed=seed,
        signal=signal,
        cpu_target=cpu,
    )
    moments = service.run(float(len(by_second)))
    return {
        "trace": trace,
        "side": side,
        "seed": seed,
        "timeWithin": round(1 - share_over(moments, TARGET_SECONDS, since=_FROM), 4),
        "meanWorkers": round(_worker_seconds(moments) / len(moments), 2),
        "mostReplicas": max(m.asked for m in moments),
        "reversals": reversals(moments, since=_FROM),
    }


def _worker_seconds(moments: list[Moment]) -> float:
    return sum(b.ready * (b.time - a.time) for a, b in pairwise(moments))
