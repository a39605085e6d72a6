"""A node dies as a machine does: what ran there goes on elsewhere, nothing is doubled, and the status says why."""

import subprocess
import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
import pytest

from examples.demo.cluster import ROOT, Kubectl, wait_for
from tests.e2e.conftest import Space
from tests.e2e.support import a_job, a_slow_batch, condition, progress, workers
from tests.outputs import committed_chunks

DYING, SAFE = "gpu-1", "cpu-1"
# Work for CPUs may go to the node of the GPUs: it is the other one that there is.
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}]


def node(verb: str) -> None:
    subprocess.run([sys.executable, "-m", "dev.cluster", verb, DYING], cwd=ROOT, check=True)


@pytest.fixture
def only_there(kube: Kubectl) -> Iterator[None]:
    """Whatever is placed goes to the node that will die; both nodes are well again at the end."""
    kube.run("cordon", SAFE)
    yield
    kube.run("uncordon", SAFE)
    node("start-node")


def says_why(space: Space, name: str) -> bool:
    return f"node {DYING} is out of reach" in condition(space.kube.get("ij", name), "Ready").get("message", "")


def nodes(space: Space, name: str) -> list[str]:
    """Where a job has workers, oldest first."""
    pods = sorted(workers(space.kube, name), key=lambda pod: pod["metadata"]["creationTimestamp"])
    return [pod["spec"].get("nodeName", "") for pod in pods]


@pytest.mark.usefixtures("only_there")
def test_what_ran_on_a_node_that_died_goes_on_elsewhere(space: Space) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("moved", space.folder, tolerations=TOLERATIONS), a_job("guarded", tolerations=TOLERATIONS))
    kube.wait("guarded", "Ready")
    wait_for(lambda: progress(space.folder, "moved") > 0, "first chunk")
    assert nodes(space, "moved") == nodes(space, "guarded") == [DYING]

    kube.run("uncordon", SAFE)
    node("kill-node")
    for name in ("moved", "guarded"):
        # A node is known to be dead when it has been silent for long enough.
        wait_for(partial(says_why, space, name), f"{name} says that its node is out of reach", seconds=90)

    kube.wait("guarded", "Ready")
    job = kube.wait("moved", "Succeeded")
    assert nodes(space, "moved") == nodes(space, "guarded") == [DYING, SAFE]
    assert (job["status"]["attempts"], job["status"]["failedAttempts"]) == (2, 0)
    assert answered(space, "moved") == [(0, 2048)]


def answered(space: Space, name: str) -> list[tuple[int, int]]:
    """The spans of items that are answered, those that adjoin as one; the files hold as many answers as the manifest says."""
    where = space.folder / "out" / name
    whole: list[tuple[int, int]] = []
    for chunk in committed_chunks(where):
        rows = next(iter(np.load(where / chunk["file"]).values()))
        assert len(rows) == chunk["end"] - chunk["start"]
        if whole and whole[-1][1] == chunk["start"]:
            whole[-1] = (whole[-1][0], chunk["end"])
        else:
            whole.append((chunk["start"], chunk["end"]))
    return whole
