"""Nothing dies, and all cores are busy: how many workers are suspected, and whom that harms."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from urllib.request import urlopen

from bench.autoscaling.load import read
from bench.failures.deaths import failures
from bench.failures.stage import SERVICE, Stage, calling, settle

_SECONDS = float(os.environ.get("BENCH_STEADY_SECONDS", "300"))
_SUSPICIONS = "inference_operator_suspicions_total{"


def watch(at: Stage) -> dict[str, Any]:
    """Minutes of load beside loops that never rest, one for each core."""
    settle(at)
    plan = at.plan(SERVICE, _SECONDS, "steady")
    before, leader, begun = _suspicions(at), at.leader(), time.time()
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(os.cpu_count() or 1)]
    try:
        with calling(at, plan) as (callers,):
            callers.wait()
    finally:
        for process in busy:
            process.kill()
            process.wait()
    _, failed, asked = failures(read(Path(plan.result)), begun)
    after = _suspicions(at)
    return {
        "seconds": _SECONDS,
        "asked": asked,
        "failed": failed,
        "suspicions": {name: count - before.get(name, 0.0) for name, count in after.items()},
        "leaderStayed": at.leader() == leader,
    }


def _suspicions(at: Stage) -> dict[str, float]:
    """So many each operator has had, by its pod."""
    found = {}
    for name in at.operators():
        address = at.system.get("pod", name)["status"]["podIP"]
        with urlopen(f"http://{address}:8080/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        found[name] = sum(float(line.split()[1]) for line in lines if line.startswith(_SUSPICIONS))
    return found
