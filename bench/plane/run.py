"""`make bench NAME=plane`: the operator beside `batch/v1` Jobs and beside Kueue, on control planes without kubelets.

BENCH_SCENARIOS chooses among the scenarios by name (comma-separated), BENCH_JOBS gives the number of jobs of those that have one
(1,000); `--rounds 1` is a quick look. A run in which the simulated kubelets were late is void: no target judges it.
"""

import os
import time
from collections.abc import Callable
from typing import Any

from bench.plane import burst, deadlines, kills, poison
from bench.plane.stage import LIFTED, SHIPPED
from bench.plane.targets import judge
from bench.report import Result
from dev.cache import locked
from dev.console import DevError, say

Record = dict[str, Any]
JOBS = int(os.environ.get("BENCH_JOBS", "1000"))
SCENARIOS: dict[str, Callable[[int], list[Record]]] = {
    "burst": lambda rounds: burst.measure(rounds or 3, JOBS),
    "deadlines": lambda rounds: deadlines.measure(rounds or 4),
    "poison": lambda rounds: poison.measure(rounds or 3, JOBS, LIFTED),
    "poison-shipped": lambda rounds: poison.measure(rounds or 1, JOBS, SHIPPED),
    "kills": lambda rounds: kills.measure(rounds or 1, min(JOBS, 400), 20),
}
DEFAULT_SCENARIOS = ("burst", "deadlines", "poison", "kills")


def run(rounds: int) -> Result:
    """Measure; a scenario that breaks is said to have, and what the others measured is kept."""
    chosen = tuple(filter(None, os.environ.get("BENCH_SCENARIOS", "").split(","))) or DEFAULT_SCENARIOS
    unknown = sorted(set(chosen) - set(SCENARIOS))
    if unknown:
        raise DevError(f"BENCH_SCENARIOS: {', '.join(unknown)} is none of {', '.join(SCENARIOS)}")
    records: list[Record] = []
    # Two runs at once would measure each other.
    with locked("bench-plane"):
        for scenario in chosen:
            begun = time.monotonic()
            say(f"{scenario} ...")
            try:
                records += SCENARIOS[scenario](rounds)
            except Exception as error:  # noqa: BLE001 -- whatever it was, it goes into the report
                say(f"  {scenario} broke: {type(error).__name__}: {error}")
                records.append({"scenario": scenario, "failed": f"{type(error).__name__}: {str(error)[-600:]}"})
            say(f"{scenario} took {time.monotonic() - begun:.0f} s")
    return Result(records, judge(records))
