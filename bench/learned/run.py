"""`make bench NAME=learned`: imitate the exact optimum, and see whether that keeps more deadlines than the rule. A simulation.

Labels: in many small windows, at instants of contention, the exact optimum of all that is left from there on (which knows the
future) says which of the waiting jobs it brings in on time. Gradient boosting learns that from what can be seen at that instant.
The veto's threshold is chosen on other windows, and what counts is measured on others again, with other bursts and loads too.
It would be shipped only if it kept more than two standard errors more than the rule.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.ensemble import HistGradientBoostingClassifier

from bench.learned.features import State, rows
from bench.learned.policy import Judged, Score, Veto
from bench.report import Result, Target, at_least
from bench.scheduling import traces
from bench.scheduling.figures import paired, summary
from bench.scheduling.optimum import solve
from bench.scheduling.simulate import Ours
from bench.scheduling.workload import SimJob, generate
from inference_operator.shadow.features import NAMES

WINDOWS = 300
_WINDOW_JOBS = 60
# Every so many instants of contention one is labelled.
_EVERY = 6
_CHOOSING_SEEDS = range(5000, 5024)
_JUDGING_SEEDS = range(9000, 9048)
THRESHOLDS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4)
HELD_OUT = ((4.0, 1.0), (4.0, 1.3), (2.0, 1.0), (1.0, 1.3))


def run(rounds: int) -> Result:
    """Train, choose, judge; `rounds` is the number of windows that are labelled."""
    table, labels = labelled(range(1000, 1000 + (rounds or WINDOWS)))
    half = len(labels) * 4 // 5
    model = untrained().fit(table[:half], labels[:half])

    def score(rows: np.ndarray) -> np.ndarray:
        return np.asarray(model.predict_proba(rows)[:, 1]) if len(rows) else np.empty(0)

    guess = score(table[half:])
    learnt = {
        "rows": len(labels), "windows": rounds or WINDOWS, "onTimeInOptimum": round(float(labels.mean()), 3),
        "accuracy": round(float(((guess > 0.5) == labels[half:]).mean()), 3),
        "accuracyOfAlwaysYes": round(float(labels[half:].mean()), 3), "features": list(NAMES),
    }  # fmt: skip
    chosen, choosing = _choose(score)
    scenarios = [learnt, *choosing]
    targets: list[Target] = []
    for name, jobs in _held_out():
        scenario = _judge(name, jobs, Veto(score, chosen))
        scenarios.append(scenario)
        gain = scenario["learnedLessOurs"]
        targets.append(
            at_least(
                f"learned.{name}", "gain over the rule less two standard errors", gain["mean"] - 2 * gain["standardError"], 0.0001
            )
        )
    return Result(scenarios, targets)


def untrained() -> HistGradientBoostingClassifier:
    """What is trained."""
    return HistGradientBoostingClassifier(max_iter=200, learning_rate=0.06, max_leaf_nodes=15, random_state=0)


def labelled(seeds: range) -> tuple[np.ndarray, np.ndarray]:
    """Rows of waiting jobs in contention, and whether the optimum from there on brings them in on time."""
    found: list[np.ndarray] = []
    labels: list[float] = []
    for seed in seeds:
        seen = 0

        def watch(state: State, world: Judged) -> None:
            nonlocal seen
            if len(state.waiting) < 3:
                return
            seen += 1
            if seen % _EVERY:
                return
            numbers, table = rows(state)
            left = world.left(state.now)
            _, on_time, _ = solve(left, whole=True, limit_seconds=5.0)
            best = {job.number: share for job, share in zip(left, on_time, strict=True)}
            found.append(table)
            labels.extend(best[number] > 0.5 for number in numbers)

        load = (0.8, 1.0, 1.3)[seed % 3]
        jobs = generate(seed, count=_WINDOW_JOBS, load=load, variation=4.0)
        Judged(jobs, watch=watch).run(Ours())
    return np.concatenate(found), np.array(labels, dtype=float)


def _choose(score: Score) -> tuple[float, list[dict[str, Any]]]:
    workloads = [generate(seed, load=1.0, variation=4.0) for seed in _CHOOSING_SEEDS]
    usual = [Judged(jobs).run(Ours()).on_time for jobs in workloads]
    scenarios: list[dict[str, Any]] = []
    for threshold in THRESHOLDS:
        shares = [Judged(jobs, Veto(score, threshold)).run(Ours()).on_time for jobs in workloads]
        scenarios.append({"choosing": threshold, "learnedLessOurs": paired(shares, usual)})
    best = max(scenarios, key=lambda scenario: scenario["learnedLessOurs"]["mean"])
    return float(best["choosing"]), scenarios


def _held_out() -> list[tuple[str, Sequence[list[SimJob]]]]:
    found: list[tuple[str, Sequence[list[SimJob]]]] = [
        (f"cv{variation:g}-{load:g}", [generate(seed, load=load, variation=variation) for seed in _JUDGING_SEEDS])
        for variation, load in HELD_OUT
    ]
    return [*found, *((trace, list(traces.windows(trace, size=120, load=1.0))) for trace in traces.TRACES)]


def _judge(name: str, workloads: Sequence[list[SimJob]], veto: Veto) -> dict[str, Any]:
    ours = [Judged(jobs).run(Ours()).on_time for jobs in workloads]
    learned = [Judged(jobs, veto).run(Ours()).on_time for jobs in workloads]
    return {
        "heldOut": name, "workloads": len(workloads), "threshold": veto.threshold, "ours": summary(ours),
        "learned": summary(learned), "learnedLessOurs": paired(learned, ours),
    }  # fmt: skip
