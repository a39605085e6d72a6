"""The legs from a breach to its end with the real HPA, at its periods of 5 s and 15 s; and how still it is under steady load.

Both nodes share this machine's cores with the control plane and the callers. Each worker is limited to 0.3 of a core, so that what
is measured is the number of workers, not the machine.
"""

import subprocess
import sys
import tempfile
import time
import uuid
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from bench.autoscaling.draw import draw
from bench.autoscaling.load import Plan, read
from bench.autoscaling.service import TARGET_MILLISECONDS, job, plan
from bench.autoscaling.watch import Machine, Moment, Start, bins, legs, look, reversals, starts
from bench.report import Bar, Result, at_most
from examples.demo import steps
from examples.demo.cluster import ROOT, Kubectl, build_images, copy_tree, install, load, local
from examples.models.index import build_all
from examples.models.magika_features import default_trees

# About half of what one such worker answers with all that a request costs it (some 26 a second), and a third more than it can.
# At the higher rate callers and workers together take less than half of a machine of two cores.
LOW, HIGH = 12.0, 34.0
_BEFORE = 30.0
# By the HPA's period, seconds of the higher rate and of the lower after it.
_STEADY, _AFTER = {5: 150.0, 15: 600.0}, {5: 90.0, 15: 20.0}
_BUILT = ROOT / "build" / "examples"
# Breach to recovered, seconds, by the HPA's period.
BOUNDS = {5: 20.0, 15: 35.0}


def run(rounds: int) -> Result:
    """One round a period; more for more rounds. The picture is of the last at 15 s, the HPA's default."""
    build_all(_BUILT, default_trees())
    found = [one_round(period, number) for number in range(max(1, rounds)) for period in BOUNDS]
    bars = [bar for period in BOUNDS for bar in _bars(period, [r for r in found if r["periodSeconds"] == period])]
    pictured = next(r for r in reversed(found) if r["periodSeconds"] == 15)
    draw(pictured, ROOT / "docs" / "pictures" / "autoscaling.svg")
    return Result(found, bars)


def _bars(period: int, found: list[dict[str, Any]]) -> list[Bar]:
    worst = max(r["legs"]["recovered"] if r["legs"]["recovered"] is not None else 1e9 for r in found)
    return [
        at_most(f"recovered-{period}s", "seconds from breach to recovered", worst, BOUNDS[period]),
        at_most(f"reversals-{period}s", f"reversals in {_STEADY[period]:.0f} s of steady load", max(r["reversals"] for r in found), 1),
        at_most(f"failed-{period}s", "failed requests", sum(r["failed"] for r in found), 0),
    ]


def one_round(period: int, number: int) -> dict[str, Any]:
    """Bring the cluster to the period, call the service low, high, low."""
    subprocess.run([sys.executable, "-m", "dev.cluster", "up", "--hpa-sync-period", f"{period}s"], cwd=ROOT, check=True)
    kube = local()
    # The default, not the local cluster's impatience.
    install(kube, build_images(), settings=("autoscaling.scaleDownSeconds=60",))
    kube = _space(kube)
    name = f"elastic-{period}-{number}"
    try:
        kube.apply(job(name))
        kube.wait(name, "Ready")
        kube.run("wait", f"ij/{name}", "--for=condition=Autoscaled", "--timeout=60s")
        with tempfile.TemporaryDirectory() as folder:
            return _measured(kube, name, period, Path(folder))
    finally:
        kube.delete("namespace", kube.namespace, "--wait=false")


def _measured(kube: Kubectl, name: str, period: int, folder: Path) -> dict[str, Any]:
    high = _BEFORE + _STEADY[period]
    rates = [(_BEFORE, LOW), (high, HIGH), (high + _AFTER[period], LOW)]
    wanted = plan(kube, name, rates, folder)
    wanted.save(folder / "plan.json")
    begun = time.time()
    callers = subprocess.Popen([sys.executable, "-m", "bench.autoscaling.load", str(folder / "plan.json")], cwd=ROOT)
    moments: list[Moment] = []
    machine = Machine()
    first: dict[str, Start] = {}
    while callers.poll() is None:
        due = begun + len(moments) + 1
        moments.append(look(kube, name, machine))
        if len(moments) % 10 == 0:
            first |= {start.pod: start for start in starts(kube, name)}
        time.sleep(max(0.0, due - time.time()))
    made = [{**asdict(start), "made": round(start.made - begun, 1)} for start in first.values()]
    return {**_result(wanted, moments, period, begun), "starts": made}


def _result(wanted: Plan, moments: list[Moment], period: int, begun: float) -> dict[str, Any]:
    answers = read(Path(wanted.result))
    step = begun + _BEFORE
    found = legs(moments, answers, since=step)
    within = [one.seconds * 1e3 <= TARGET_MILLISECONDS for one in answers if one.status == 200]
    return {
        "periodSeconds": period,
        "targetMilliseconds": TARGET_MILLISECONDS,
        "rates": wanted.rates,
        "legs": found.document(),
        "reversals": reversals(moments, since=step, until=step + _STEADY[period]),
        "requests": len(answers),
        "failed": sum(one.status != 200 for one in answers),
        "withinTarget": round(sum(within) / max(1, len(within)), 4),
        "mostReplicas": max(m.asked for m in moments),
        "lastReplicas": moments[-1].asked,
        "moments": [{**asdict(m), "time": round(m.time - begun, 1)} for m in moments],
        "callers": [(round(at - begun, 1), round(p95, 1), count) for at, p95, count in bins(answers)],
    }


def _space(kube: Kubectl) -> Kubectl:
    """A namespace with the models."""
    name = f"bench-{uuid.uuid4().hex[:6]}"
    inside = replace(kube, namespace=name)
    namespace, claim = load("00-namespace.yaml", namespace=name)
    del namespace["metadata"]["namespace"]
    namespace["metadata"]["name"] = name
    inside.apply(namespace, claim)
    copy_tree(_BUILT, inside.volume("data"))
    models = list(steps.pinned_models(_BUILT))
    for model in models:
        model["metadata"]["namespace"] = name
    inside.apply(*models)
    return inside
