"""API server and etcd are away for a minute: what callers and a running batch notice, and how soon decisions go on."""

import os
import time
from pathlib import Path
from typing import Any

from bench.autoscaling.load import read
from bench.failures.deaths import failures
from bench.failures.stage import SERVICE, Stage, a_job, a_long_batch, calling, settle
from dev.cluster import kill_api, start_api
from examples.demo.cluster import wait_for
from tests.outputs import committed_items

_SECONDS = float(os.environ.get("BENCH_OUTAGE_SECONDS", "60"))
_BEFORE_SECONDS, _AFTER_SECONDS = 3.0, 40.0


def take_api_away(at: Stage, number: int) -> dict[str, Any]:
    """One outage under load."""
    settle(at)
    name = f"batch-{number}"
    at.kube.apply(a_long_batch(at, name))
    out = at.volume / "out" / name
    wait_for(lambda: committed_items(out) > 0, "the first commit")
    plan = at.plan(SERVICE, _BEFORE_SECONDS + _SECONDS + _AFTER_SECONDS, f"outage-{number}")
    with calling(at, plan) as (callers,):
        time.sleep(_BEFORE_SECONDS)
        kill_api(at.layout)
        begun, first = time.time(), committed_items(out)
        time.sleep(_SECONDS)
        last = committed_items(out)
        start_api(at.layout)
        back = time.time()
        at.create(a_job(f"after-{number}", serve={"minReplicas": 1, "maxReplicas": 1}))
        decided = _told(at, f"after-{number}") - back
        callers.wait()
    _, failed, asked = failures(read(Path(plan.result)), begun)
    status = at.kube.get("ij", name)["status"]
    for job in (name, f"after-{number}"):
        at.kube.delete("inferencejob", job, "--wait=false")
    return {
        "outageSeconds": _SECONDS,
        "asked": asked,
        "failed": failed,
        "committedMeanwhile": last - first,
        "attempts": status["attempts"],
        "failedAttempts": status.get("failedAttempts", 0),
        "decided": round(decided, 2),
    }


def _told(at: Stage, name: str) -> float:
    """When a job has a status (time.time()): for a place it needs a node, and the control plane knows of none for a while."""
    path = f"{at.jobs}/{name}"
    wait_for(lambda: bool((at.api.get(path) or {}).get("status", {}).get("conditions")), f"a status of {name}", seconds=90)
    return time.time()
