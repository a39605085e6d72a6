"""The bounds that we set ourselves, over what was measured. Pure: records in, targets out; what was not measured has no target."""

import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from bench.report import Target, at_least, at_most
from inference_operator.settings import Settings

Record = dict[str, Any]


def judge(records: Sequence[Record]) -> list[Target]:
    """All targets that these records allow."""
    sound = [record for record in records if "failed" not in record and not record.get("void")]
    return [*_burst(sound), *_deadlines(sound), *_poison(sound), *_kills(records)]


def middle(records: Sequence[Record], key: str, **which: object) -> float | None:
    """The median of a figure over the records that are meant; None without any."""
    found = [record[key] for record in records if key in record and all(record.get(k) == v for k, v in which.items())]
    return statistics.median(found) if found else None


def _burst(records: Sequence[Record]) -> Iterator[Target]:
    for limits, name, bound, what in (
        ("shipped", "rate", 15, "times the Job controller's rate"),
        ("shipped", "aim", 30, "times the Job controller's rate: the aim"),
        # Without limits on either side what is left is the CPU that both share with the API server.
        ("lifted", "rate", 1, "times the Job controller's rate"),
    ):
        ours, theirs = (middle(records, "jobsPerSecond", scenario="burst", limits=limits, side=side) for side in ("ours", "job"))
        if ours is not None and theirs is not None:
            yield at_least(f"burst.{limits}.{name}", f"{what}, {limits} limits", ours / theirs, bound)
    mine = {"scenario": "burst", "side": "ours", "limits": "lifted"}
    rate, cpu, writes = (middle(records, key, **mine) for key in ("jobsPerSecond", "ownCpuMsPerJob", "writesPerJob"))
    if rate is not None and cpu is not None and writes is not None:
        yield at_least("burst.admitted", "jobs a second, lifted limits", rate, 75)
        yield at_most("burst.cpu", "CPU ms a job of operator and kube-scheduler", cpu, 20)
        yield at_most("burst.writes", "API writes a job of operator and kube-scheduler", writes, 5)


def _deadlines(records: Sequence[Record]) -> Iterator[Target]:
    found = [record for record in records if record["scenario"] == "deadlines"]
    ours = [record for record in found if record["side"] == "ours"]
    theirs = [
        statistics.mean(record["onTime"] for record in found if record["side"] == side)
        for side in {record["side"] for record in found} - {"ours"}
    ]
    if ours:
        mean = statistics.mean(record["onTime"] for record in ours)
        for key, name in (("simulated", "simulation"), ("simulatedAsHere", "simulation-as-here")):
            off = mean - statistics.mean(record[key] for record in ours)
            yield at_least(f"deadlines.{name}", f"share on time above the {name}'s", off, -0.02)
        if theirs:
            yield at_least("deadlines.kueue", "share on time above Kueue's, in its better form", mean - max(theirs), 0.10)


def _poison(records: Sequence[Record]) -> Iterator[Target]:
    for limits in ("shipped", "lifted"):
        mine = {"scenario": "poison", "side": "ours", "limits": limits}
        with_it, without = (middle(records, "drainSeconds", **mine, poisoned=poisoned) for poisoned in (True, False))
        if with_it is not None and without is not None:
            yield at_most(
                f"poison.{limits}", f"time to drain with the poison over without, {limits} limits", with_it / without, 1.1
            )


def _kills(records: Sequence[Record]) -> Iterator[Target]:
    # Late kubelets change nothing about what is counted here.
    found = [record for record in records if record["scenario"] == "kills" and "failed" not in record]
    if not found:
        return
    for key, what in (
        ("leakedPods", "pods left after 20 kills"),
        ("leakedMilliCpu", "CPU (m) held by nobody"),
        ("doubled", "jobs that ran twice at once"),
        ("lost", "jobs that did not succeed"),
        ("attemptsWithoutCause", "attempts that no preemption explains"),
    ):
        yield at_most(f"kills.{key}", what, max(record[key] for record in found), 0)
    most = max(record["preemptionsOfOneJobAtMost"] for record in found)
    yield at_most("kills.preemptions", "preemptions of one job at most", most, Settings().preemptions_per_job)
