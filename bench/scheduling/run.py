"""`make bench NAME=scheduling`: deadlines kept, energy and time of a pass. BENCH_PARTS="table speed" picks parts.

All but the time of a pass are simulations of a small fleet with the operator's own `schedule()` in it, and say so.
"""

import os
from collections.abc import Callable
from typing import Any

from bench.report import Result, Target
from bench.scheduling import idle, pareto, speed, table

SEEDS = 12

Part = Callable[[int], tuple[list[dict[str, Any]], list[Target]]]
# Each takes the number of rounds; 0 is its own.
PARTS: dict[str, Part] = {
    "table": lambda rounds: table.synthetic(range(rounds or SEEDS)),
    "traces": table.real,
    "pareto": lambda rounds: pareto.front(range(rounds or SEEDS)),
    "speed": speed.passes,
    "idle": lambda rounds: idle.scale_down(range(rounds or SEEDS)),
}


def run(rounds: int) -> Result:
    """The parts asked for, one after the other."""
    scenarios: list[dict[str, Any]] = []
    targets: list[Target] = []
    for name in os.environ.get("BENCH_PARTS", " ".join(PARTS)).split():
        found, judged = PARTS[name](rounds)
        scenarios += [{"part": name, **scenario} for scenario in found]
        targets += judged
    return Result(scenarios, targets)
