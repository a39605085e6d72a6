"""A roll-out and a scale-down under load lose no request."""

from examples.demo.cluster import wait_for
from tests.e2e.conftest import Space
from tests.e2e.load import digits_of, load
from tests.e2e.support import a_job, workers


def test_a_roll_out_under_load_loses_no_request(space: Space) -> None:
    kube = space.kube
    kube.apply(a_job("rolling", batchSize=1, serve={"minReplicas": 2}))
    kube.wait("rolling", "Ready")
    old = {pod["metadata"]["name"] for pod in workers(kube, "rolling")}

    with load(digits_of(kube, "rolling")) as running:
        kube.apply(a_job("rolling", batchSize=2, serve={"minReplicas": 2}))
        wait_for(lambda: not old & {pod["metadata"]["name"] for pod in workers(kube, "rolling")}, "the old workers are gone")
        kube.wait("rolling", "Ready")

    assert running.faults == []
    assert len(workers(kube, "rolling")) == 2


def test_a_scale_down_under_load_loses_no_request(space: Space) -> None:
    kube = space.kube
    kube.apply(a_job("shrinking", serve={"minReplicas": 1, "maxReplicas": 3}))
    kube.run("scale", "ij", "shrinking", "--replicas=3")
    kube.run("wait", "ij/shrinking", "--for=jsonpath={.status.readyReplicas}=3", "--timeout=60s")

    with load(digits_of(kube, "shrinking")) as running:
        kube.run("scale", "ij", "shrinking", "--replicas=1")
        wait_for(lambda: len(workers(kube, "shrinking")) == 1, "one worker is left")

    assert running.faults == []


def test_a_roll_out_without_room_makes_room_one_by_one(space: Space) -> None:
    kube = space.kube
    # All four devices are taken by the job itself: the new revision fits only where an old worker goes first.
    kube.apply(a_job("tight", accelerator="gpu", batchSize=1, serve={"minReplicas": 4}))
    kube.wait("tight", "Ready")
    old = {pod["metadata"]["name"] for pod in workers(kube, "tight")}

    with load(digits_of(kube, "tight")) as running:
        kube.apply(a_job("tight", accelerator="gpu", batchSize=2, serve={"minReplicas": 4}))
        wait_for(
            lambda: not old & {pod["metadata"]["name"] for pod in workers(kube, "tight")}, "the old workers are gone", seconds=120
        )
        kube.wait("tight", "Ready")

    assert running.faults == []
    kube.run("delete", "ij", "tight")
