"""`make bench NAME=scheduling`: deadlines kept, energy and time of a pass. BENCH_PARTS="table speed" picks parts.

All but the time of a pass are simulations of a small fleet with the operator's own `schedule()` in it, and say so.
"""

import os
from collections.abc import Callable
from typing import Any

from bench.report import Bar, Result
from bench.scheduling import idle, pareto, speed, table

SEEDS = 12

Part = Callable[[int], tuple[list[dict[str, Any]], list[Bar]]]
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
    cells: list[dict[str, Any]] = []
    bars: list[Bar] = []
    for name in os.environ.get("BENCH_PARTS", " ".join(PARTS)).split():
        found, running_unit = PARTS[name](rounds)
        cells += [{"part": name, **cell} for cell in found]
        bars += running_unit
    return Result(cells, bars)
