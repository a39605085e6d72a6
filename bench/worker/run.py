"""`make bench NAME=worker`: the worker beside its peers and beside a bare ONNX Runtime loop, on two cores of one machine.

BENCH_SCENARIOS chooses among the scenarios by name (comma-separated) and BENCH_SIDES among the servers; targets of what is left
out are left out, too. `--rounds 1` is a quick look.
"""

import os
import time
from collections.abc import Callable

from bench.report import Result
from bench.worker.installs import programs
from bench.worker.launch import SIDES, prepare
from bench.worker.processes import CLIENT_CORE, end_leftovers
from bench.worker.scenarios import batch, goodput, lossless, memory, serving, vegeta
from bench.worker.scenarios.context import Context, Record
from bench.worker.targets import judge
from dev.cache import locked
from dev.console import DevError, say

ROUNDS = 5
SCENARIOS: dict[str, Callable[[Context], list[Record]]] = {
    "vegeta": vegeta.measure,
    "serving": serving.measure,
    "http": lambda context: serving.measure(context, ("json", "binary")),
    "grpc": lambda context: serving.measure(context, ("grpc",)),
    "goodput": goodput.measure,
    "batch": batch.measure,
    "drain": lossless.drain,
    "reload": lossless.reload,
    "memory": memory.measure,
}
DEFAULT_SCENARIOS = ("vegeta", "serving", "goodput", "batch", "drain", "reload", "memory")


def run(rounds: int) -> Result:
    """Measure; sides take turns within each round."""
    if len(os.sched_getaffinity(0)) < 2:
        raise DevError("server and client want a core each")
    chosen = tuple(filter(None, os.environ.get("BENCH_SCENARIOS", "").split(","))) or DEFAULT_SCENARIOS
    names = tuple(filter(None, os.environ.get("BENCH_SIDES", "").split(",")))
    # Two runs at once would measure each other, and end each other's servers.
    with locked("bench-worker"):
        end_leftovers()
        # The server's core is for servers only.
        cores = os.sched_getaffinity(0)
        os.sched_setaffinity(0, {CLIENT_CORE})
        programs()
        sides = tuple(side for side in SIDES if side.name == "ours" or not names or side.name in names)
        context = Context(rounds or ROUNDS, sides, {})
        prepare(context.sides, context.failed)
        records: list[Record] = []
        for scenario in chosen:
            begun = time.monotonic()
            say(f"{scenario} ...")
            with context.survives(scenario, records):
                records += SCENARIOS[scenario](context)
            say(f"{scenario} took {time.monotonic() - begun:.0f} s")
        end_leftovers()
        os.sched_setaffinity(0, cores)
    records += [{"scenario": "failed", "side": side, "reason": reason} for side, reason in context.failed.items()]
    return Result(records, judge(records))
