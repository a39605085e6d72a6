"""A node dies as a machine does: callers are led elsewhere at once, what ran there goes on, nothing is doubled, the status says why."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from examples.demo.cluster import RELEASE, ROOT, SYSTEM, Kubectl, wait_for
from tests.e2e.conftest import Space
from tests.e2e.load import digits_of, load
from tests.e2e.support import a_job, a_slow_batch, condition, kill_leader, leader, progress, workers
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


@pytest.fixture
def both_well_again(kube: Kubectl) -> Iterator[None]:
    """Nodes as they were."""
    yield
    for name in (DYING, SAFE):
        kube.run("uncordon", name)
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
    # A batch that goes on elsewhere says it only while its first worker is still asked, and may be done before that.
    wait_for(partial(says_why, space, "guarded"), "the service says that its node is out of reach", seconds=90)

    kube.wait("guarded", "Ready")
    job = kube.wait("moved", "Succeeded")
    assert nodes(space, "moved") == nodes(space, "guarded") == [DYING, SAFE]
    assert (job["status"]["attempts"], job["status"]["failedAttempts"]) == (2, 0)
    assert answered(space, "moved") == [(0, 2048)]


@pytest.mark.usefixtures("both_well_again")
def test_a_dead_nodes_worker_leaves_the_endpoints_while_requests_go_on(space: Space) -> None:
    kube, name = space.kube, "halved"
    # No node has room for two: a cordoned one would be left.
    kube.apply(a_job(name, replicas=2, resources=more_than_half(kube), tolerations=TOLERATIONS))
    kube.wait(name, "Ready")
    wait_for(lambda: taking(kube, name) == {DYING, SAFE}, "a worker on each node")
    before = {pod["metadata"]["uid"] for pod in workers(kube, name)}

    with load(digits_of(kube, name)) as running:
        node("kill-node")
        wait_for(lambda: taking(kube, name) == {SAFE}, "the dead one has left")
        # Of those before, some wait for its answer. Nobody else is sent there.
        with load(digits_of(kube, name)) as after:
            wait_for(lambda: after.answered > 100, "requests go on")

    assert running.answered > 0
    assert after.faults == []
    assert before <= {pod["metadata"]["uid"] for pod in workers(kube, name)}


@pytest.mark.usefixtures("both_well_again")
@pytest.mark.parametrize("warned", [True, False], ids=["cordoned-first", "at-once"])
def test_the_only_worker_moves_before_its_node_is_drained_and_no_request_is_lost(space: Space, warned: bool) -> None:  # noqa: FBT001
    kube, name = space.kube, f"moves-{warned}".lower()
    kube.run("cordon", SAFE)
    kube.apply(a_job(name, tolerations=TOLERATIONS))
    kube.wait(name, "Ready")
    kube.run("uncordon", SAFE)

    with load(digits_of(kube, name)) as callers:
        wait_for(lambda: callers.answered > 20, "requests are answered")
        if warned:
            kube.run("cordon", DYING)
            wait_for(lambda: taking(kube, name) == {SAFE}, "the successor has taken over")
        kube.run("drain", DYING, f"--pod-selector=inference.myorg/job={name}", "--delete-emptydir-data", "--force", "--timeout=60s")
        wait_for(lambda: taking(kube, name) == {SAFE}, "the successor takes requests")
        before = callers.answered
        wait_for(lambda: callers.answered > before + 20, "requests go on")

    assert callers.faults == []


@pytest.mark.usefixtures("both_well_again")
def test_a_drain_takes_the_workers_of_a_service_one_at_a_time(space: Space) -> None:
    kube, name = space.kube, "budgeted"
    kube.run("cordon", SAFE)
    kube.apply(a_job(name, replicas=2, tolerations=TOLERATIONS))
    kube.wait(name, "Ready")
    kube.run("uncordon", SAFE)
    assert kube.get("pdb", f"{name}-workers")["spec"]["minAvailable"] == 1

    with load(digits_of(kube, name)) as callers:
        wait_for(lambda: callers.answered > 20, "requests are answered")
        kube.run("drain", DYING, f"--pod-selector=inference.myorg/job={name}", "--delete-emptydir-data", "--force", "--timeout=90s")
        wait_for(lambda: taking(kube, name) == {SAFE}, "the successors take requests")

    assert callers.faults == []
    kube.run("scale", "ij", name, "--replicas=1")
    wait_for(lambda: not kube.run("get", "pdb", f"{name}-workers", "--ignore-not-found", "-o", "name"), "one worker needs none")


@pytest.mark.usefixtures("both_well_again")
def test_the_standby_takes_over_when_the_leaders_node_dies(space: Space) -> None:
    kube = space.kube
    wait_for(lambda: set(operators(kube).values()) == {DYING, SAFE}, "an operator on each node")
    if operators(kube)[leader(kube)] != DYING:
        kill_leader(kube, signal.SIGTERM)
        wait_for(lambda: operators(kube).get(leader(kube)) == DYING, "the one on the node that will die leads")

    node("kill-node")
    kube.apply(a_job("next", nodeSelector={"kubernetes.io/hostname": SAFE}))

    kube.wait("next", "Ready")
    assert operators(kube)[leader(kube)] == SAFE


def more_than_half(kube: Kubectl) -> dict[str, dict[str, str]]:
    """What fits no node twice."""
    nodes = json.loads(kube.run("get", "nodes", "-o", "json"))["items"]
    kib = max(int(node["status"]["allocatable"]["memory"].removesuffix("Ki")) for node in nodes)
    return {"requests": {"memory": f"{kib * 11 // 20}Ki"}, "limits": {"memory": f"{kib * 11 // 20}Ki"}}


def taking(kube: Kubectl, name: str) -> set[str]:
    """The nodes of the workers that the Service sends requests to."""
    listed = kube.run("get", "endpointslices", "-l", f"kubernetes.io/service-name={name}", "-o", "json")
    found = (one for each in json.loads(listed)["items"] for one in each.get("endpoints") or ())
    return {one["nodeName"] for one in found if one["conditions"]["ready"]}


def operators(kube: Kubectl) -> dict[str, str]:
    """The operator's pods, with their nodes."""
    listed = replace(kube, namespace=SYSTEM).run("get", "pods", "-l", f"app.kubernetes.io/name={RELEASE}", "-o", "json")
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName", "") for pod in json.loads(listed)["items"]}


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
