"""The case study: 500 callers of three kinds on one card, each kind with a bound of its own; beside it first come, first served."""

import time
from dataclasses import dataclass
from typing import Any

from bench.gpu.meter import metered
from bench.gpu.served import Heard, Stream, Worker, load

_SECONDS = 5.0
_IDLE_SECONDS = 2.0
_ON_TARGET = 0.99
_STEPS = [round(0.3 + 0.05 * i, 2) for i in range(17)]


@dataclass(frozen=True, slots=True)
class Kind:
    """Callers of one kind: their share of the images, the rows of a request, and how soon 99 of 100 must be answered."""

    name: str
    share: float
    rows: int
    deadline_ms: float | None
    callers: int
    processes: int
    priority: int | None = None


KINDS = (
    Kind("detection", 0.3, 1, 24.0, 300, 3),
    Kind("package", 0.3, 2, 50.0, 120, 2),
    Kind("background", 0.4, 4, None, 80, 2, priority=200),
)


def measure(on: Worker, most: float) -> dict[str, Any]:
    """The highest rate, in steps of a twentieth of `most` images a second, at which each kind keeps its bound; by both orders."""
    found: dict[str, Any] = {}
    for order, told in (("deadlines", True), ("firstCome", False)):
        found[order] = highest(on, most, told=told)
    best = found["deadlines"]["best"]
    found["overFirstCome"] = round(best["rate"] / max(1.0, found["firstCome"]["best"]["rate"]), 3)
    found["half"] = _at(on, best["rate"] / 2, told=True)
    with metered() as meter:
        time.sleep(_IDLE_SECONDS)
    found["idle"] = meter.summary()
    return found


def highest(on: Worker, most: float, *, told: bool = True) -> dict[str, Any]:
    """The looks at it, and the best of those where each kind keeps its bound; `told`: workers hear of deadlines and priorities."""
    low, high, best, tried = 0, len(_STEPS), {"rate": 0.0}, []
    while low < high:
        middle = (low + high) // 2
        look = _at(on, _STEPS[middle] * most, told=told)
        tried.append(look)
        if look["onTarget"]:
            low, best = middle + 1, look
        else:
            high = middle
    return {"best": best, "tried": tried}


def _at(on: Worker, rate: float, *, told: bool) -> dict[str, Any]:
    streams = [
        Stream(
            rate * kind.share,
            kind.rows,
            kind.processes,
            kind.callers // kind.processes,
            deadline_ms=kind.deadline_ms,
            told=told,
            priority=kind.priority,
        )
        for kind in KINDS
    ]
    with metered() as meter:
        heard = load(on, streams, _SECONDS)
    images = sum(each.latency.size * each.rows for each in heard) / (_SECONDS - 1)
    return {
        "rate": round(rate),
        "onTarget": all(map(_keeps, heard)),
        **{kind.name: each.summary() for kind, each in zip(KINDS, heard, strict=True)},
        "joulesAnImage": round(meter.joules / max(meter.seconds, 1e-9) / max(images, 1.0), 4),
        **meter.summary(),
    }


def _keeps(heard: Heard) -> bool:
    return heard.in_time >= _ON_TARGET
