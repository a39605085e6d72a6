"""A node dies on which a batch runs: how long until the next attempt has committed elsewhere, on a warm worker or a new one."""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bench.failures.stage import DYING, SAFE, Stage, a_long_batch, end_node, lead_on, revive_node, settle, spread
from examples.demo.cluster import wait_for
from tests.outputs import committed_chunks

_POLL_SECONDS = 0.01
_TAINT = "nvidia.com/gpu"
_POOL = {"min": 2, "max": 2, "batchSize": 8, "accelerator": "cpu", "claims": ["data"]}


def lose_its_node(at: Stage, number: int, *, warm: bool) -> dict[str, Any]:
    """Let the node of a running batch die. With `warm`, a worker with its model waits on the other one."""
    settle(at)
    with _warm(at) if warm else nullcontext():
        name = f"{'warm' if warm else 'cold'}-{number}"
        at.kube.apply(a_long_batch(at, name, pooled=warm))
        out = at.volume / "out" / name
        wait_for(lambda: len(committed_chunks(out)) > 0, "the first commits")
        where = at.kube.get("ij", name)["status"]["placement"]["node"]
        lead_on(at, SAFE if where == DYING else DYING)
        begun = end_node(at, where)
        committed = _committed_elsewhere(out) - begun
        revive_node(at, where)
        status = at.kube.get("ij", name)["status"]
        at.kube.delete("inferencejob", name, "--wait=false")
    failed = status.get("failedAttempts", 0)
    return {"node": where, "committed": round(committed, 3), "attempts": status["attempts"], "failedAttempts": failed}


@contextmanager
def _warm(at: Stage) -> Iterator[None]:
    """A warm worker on each node. Pools bear no taints, so there is none meanwhile."""
    at.kube.run("taint", "nodes", DYING, f"{_TAINT}-", check=False)
    patch = json.dumps({"spec": {"warmPool": _POOL}})
    at.kube.run("patch", "im", "magika", "--type=merge", "-p", patch)
    try:
        spread("warm workers", at.kube, at.warm_workers)
        yield
    finally:
        at.kube.run("patch", "im", "magika", "--type=merge", "-p", json.dumps({"spec": {"warmPool": None}}))
        at.kube.run("taint", "nodes", DYING, f"{_TAINT}=present:NoSchedule", "--overwrite", check=False)


def _committed_elsewhere(out: Path) -> float:
    """When an attempt after the first has committed (time.time())."""
    give_up = time.time() + 120
    while not any(chunk["attempt"] > 1 for chunk in committed_chunks(out)):
        if time.time() > give_up:
            raise RuntimeError(f"nothing is committed elsewhere after two minutes in {out}")
        time.sleep(_POLL_SECONDS)
    return time.time()
