"""What callers notice when a node, a leader or the API server dies, on the local cluster; and what Kubernetes alone does.

Callers send 40 requests a second through the Service's ClusterIP, each on a connection of its own. A request fails that has no 200
within a second; the time of a failure is when the request was sent. A node dies silent: its packets are dropped, and then all that
runs on it is killed.
"""

import os
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

from bench.failures.batches import lose_its_node
from bench.failures.deaths import die, die_alone
from bench.failures.leaders import kill_leader
from bench.failures.outage import take_api_away
from bench.failures.stage import Stage, stage
from bench.failures.steady import watch
from bench.report import Result, Target, at_least, at_most
from dev.console import say

# So many deaths of nodes, and as many of leaders; those beside plain Kubernetes take a minute each.
_ROUNDS, _PLAIN_ROUNDS = 20, 2

Round = dict[str, Any]


def run(rounds: int) -> Result:
    """All parts, or those of BENCH_PARTS="nodes alone plain warm cold leader api steady"; `rounds` deaths of each kind (20)."""
    count = rounds or _ROUNDS
    parts = os.environ.get("BENCH_PARTS", "nodes alone plain warm cold leader api steady").split()
    found: list[Round] = []
    # Whoever ends it finds the cluster whole.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder, stage(Path(folder), plain="plain" in parts) as at:
        for part, times, one in _rounds(at, count):
            for turn in range(times if part in parts else 0):
                found.append({"part": part, **one(turn)})
                say(f"{part} {turn + 1}/{times}: {found[-1]}")
    return Result(found, _targets(found))


def _rounds(at: Stage, count: int) -> list[tuple[str, int, Callable[[int], Round]]]:
    batches = -(-count // 4)
    return [
        ("nodes", count, lambda number: die(at, number, with_leader=number % 2 == 1, plain=False).document()),
        ("alone", batches, lambda number: die_alone(at, number)),
        ("plain", _PLAIN_ROUNDS, lambda number: die(at, 1000 + number, with_leader=False, plain=True).document()),
        ("warm", batches, lambda number: lose_its_node(at, number, warm=True)),
        ("cold", batches, lambda number: lose_its_node(at, number, warm=False)),
        ("leader", count, lambda number: kill_leader(at, number)),
        ("api", 1, lambda number: take_api_away(at, number)),
        ("steady", 1, lambda _: watch(at)),
    ]


def _targets(found: list[Round]) -> list[Target]:
    def of(part: str, field: str, **where: object) -> list[float]:
        rounds = (r for r in found if r["part"] == part and all(r[key] == value for key, value in where.items()))
        # What never came is worse than any bound.
        return [r[field] if r[field] is not None else 1e9 for r in rounds]

    targets: list[Target] = []

    def bound(name: str, what: str, values: list[float], p50: float, worst: float) -> None:
        if values:
            targets.append(at_most(f"{name}-p50", f"{what}, median of {len(values)}", median(values), p50))
            targets.append(at_most(f"{name}-worst", f"{what}, worst of {len(values)}", max(values), worst))

    failed = "seconds from a node's death to the last failed request"
    bound("node", failed, of("nodes", "last_failed"), 1.0, 2.3)
    bound("node-leads-elsewhere", f"{failed}, the leader lives", of("nodes", "last_failed", leader_died=False), 1.0, 2.3)
    bound("node-with-leader", f"{failed}, the leader dies too", of("nodes", "last_failed", leader_died=True), 2.3, 2.3)
    bound("alone", f"{failed}, of a service with one worker", of("alone", "last_failed"), 2.3, 2.3)
    bound("warm", "seconds from a node's death to its batch's next commit, on a warm worker", of("warm", "committed"), 2.3, 2.3)
    bound("leader", "seconds from the leader's death to the next decision", of("leader", "decided"), 2.0, 2.0)
    bound("leaders-node", "the same, its node dies too", of("nodes", "decided", leader_died=True), 3.0, 3.0)
    for part, field, what in (
        ("api", "failed", "failed requests in an outage of the API server"),
        ("api", "failedAttempts", "failed attempts of a batch in it"),
        ("steady", "failed", "failed requests while all cores are busy"),
    ):
        targets += [at_most(f"{part}-{field}", what, value, 0) for value in of(part, field)]
    targets += [at_least("api-committed", "items committed in an outage", value, 1) for value in of("api", "committedMeanwhile")]
    return targets
