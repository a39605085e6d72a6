"""The legs from a breach to its end with the real HPA, at its periods of 5 s and 15 s; and how still it is under steady load.

Both nodes share this machine's cores with the control plane and the callers. Each worker is limited to 0.3 of a core, so that what
is measured is the number of workers, not the machine.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

from bench.autoscaling.draw import draw
from bench.autoscaling.load import Plan, read
from bench.autoscaling.service import TARGET_MILLISECONDS, job, plan
from bench.autoscaling.stage import Watched, build, call, space
from bench.autoscaling.watch import bins, legs, reversals
from bench.report import Result, Target, at_most
from examples.demo.cluster import ROOT, Kubectl

# About half of what one such worker answers with all that a request costs it (some 26 a second), and a third more than it can.
# At the higher rate callers and workers together take less than half of a machine of two cores.
LOW, HIGH = 12.0, 34.0
_BEFORE = 30.0
# By the HPA's period, seconds of the higher rate and of the lower after it.
_STEADY, _AFTER = {5: 120.0, 15: 180.0}, {5: 20.0, 15: 90.0}
# Breach to recovered, seconds, by the HPA's period.
BOUNDS = {5: 20.0, 15: 35.0}


def run(rounds: int) -> Result:
    """One round a part; more for more rounds. The picture is of the last, at 15 s: the HPA's default.

    `BENCH_PARTS="15:600"` picks periods, and for how many seconds the higher rate lasts.
    """
    parts = _parts()
    build()
    found = [one_round(period, steady, number) for number in range(max(1, rounds)) for period, steady in parts.items()]
    targets = [target for period in parts for target in _targets(period, [r for r in found if r["periodSeconds"] == period])]
    draw(found[-1], ROOT / "docs" / "pictures" / "autoscaling.svg")
    return Result(found, targets)


def _parts() -> dict[int, float]:
    """Seconds of steady load by the HPA's period."""
    given = [part.partition(":") for part in os.environ.get("BENCH_PARTS", "5 15").split()]
    return {int(period): float(steady) if steady else _STEADY[int(period)] for period, _, steady in given}


def _targets(period: int, found: list[dict[str, Any]]) -> list[Target]:
    worst = max(r["legs"]["recovered"] if r["legs"]["recovered"] is not None else 1e9 for r in found)
    return [
        at_most(f"recovered-{period}s", "seconds from breach to recovered", worst, BOUNDS[period]),
        at_most(
            f"reversals-{period}s",
            f"reversals in {found[0]['steadySeconds']:.0f} s of steady load",
            max(r["reversals"] for r in found),
            1,
        ),
        at_most(f"failed-{period}s", "failed requests", sum(r["failed"] for r in found), 0),
    ]


def one_round(period: int, steady: float, number: int) -> dict[str, Any]:
    """Bring the cluster to the period, call the service low, high, low."""
    name = f"elastic-{period}-{number}"
    # The chart's default, not the local cluster's impatience.
    with space(hpa_seconds=period, scale_down_seconds=60) as kube, tempfile.TemporaryDirectory() as folder:
        kube.apply(job(name))
        kube.wait(name, "Ready")
        kube.run("wait", f"ij/{name}", "--for=condition=Autoscaled", "--timeout=60s")
        return _measured(kube, name, period, steady, Path(folder))


def _measured(kube: Kubectl, name: str, period: int, steady: float, folder: Path) -> dict[str, Any]:
    high = _BEFORE + steady
    rates = [(_BEFORE, LOW), (high, HIGH), (high + _AFTER[period], LOW)]
    wanted = plan(kube, name, rates, folder)
    return _result(wanted, call(kube, name, wanted, folder), period, steady)


def _result(wanted: Plan, seen: Watched, period: int, steady: float) -> dict[str, Any]:
    moments, begun = seen.moments, seen.begun
    answers = read(Path(wanted.result))
    step = begun + _BEFORE
    found = legs(moments, answers, since=step)
    # What is left for the rest tells whether the number of workers was measured, or the machine.
    before = [m.used for m in moments[1:] if m.time < step]
    within = [one.seconds * 1e3 <= TARGET_MILLISECONDS for one in answers if one.status == 200]
    return {
        "periodSeconds": period,
        "steadySeconds": steady,
        "targetMilliseconds": TARGET_MILLISECONDS,
        "rates": wanted.rates,
        "legs": found.document(),
        "reversals": reversals(moments, since=step, until=step + steady),
        "requests": len(answers),
        "failed": sum(one.status != 200 for one in answers),
        "withinTarget": round(sum(within) / max(1, len(within)), 4),
        "machineUsedBefore": round(sum(before) / len(before), 3),
        "mostReplicas": max(m.asked for m in moments),
        "lastReplicas": moments[-1].asked,
        "moments": seen.told_moments(),
        "starts": seen.told_starts(),
        "callers": [(round(at - begun, 1), round(p95, 1), count) for at, p95, count in bins(answers)],
    }
