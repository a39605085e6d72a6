"""A roll-out and a scale-down under load lose no request."""

import json
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from examples.demo.cluster import Kubectl, wait_for
from examples.demo.steps import service_address
from tests.e2e.conftest import Space
from tests.e2e.support import a_job, workers


class Load:
    """Callers that ask again and again, each time on a new connection, until they are stopped."""

    def __init__(self, url: str, body: bytes, callers: int = 3) -> None:
        self.answered = 0
        self.faults: list[str] = []
        self._url = url
        self._body = body
        self._counting = threading.Event()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._ask, daemon=True) for _ in range(callers)]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def count(self) -> None:
        """Count the faults of requests that begin from now on; one that began before may still end in a fault, seconds later."""
        self._counting.set()

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)

    def _ask(self) -> None:
        while not self._stop.is_set():
            request = urllib.request.Request(self._url, self._body, {"Content-Type": "application/json"})
            counts = self._counting.is_set()
            try:
                with urllib.request.urlopen(request, timeout=10) as response:
                    ok = "outputs" in json.load(response)
                with self._lock:
                    self.answered += ok
            except OSError as error:
                with self._lock:
                    self.faults += [repr(error)] * counts


@contextmanager
def load(kube: Kubectl, name: str) -> Iterator[Load]:
    pixels = np.zeros((1, 64)).tolist()
    body = json.dumps({"inputs": [{"name": "pixels", "datatype": "FP32", "shape": [1, 64], "data": pixels}]}).encode()
    running = Load(f"http://{service_address(kube, name)}:8000/v2/models/digits/infer", body)
    running.start()
    try:
        wait_for(lambda: running.answered > 20, "the load runs")
        # kube-proxy opens a new Service a moment after its pods are ready; from here on nothing may be refused.
        running.count()
        yield running
        before = running.answered
        wait_for(lambda: running.answered > before + 20, "the load runs on")
    finally:
        running.stop()


def test_a_roll_out_under_load_loses_no_request(space: Space) -> None:
    kube = space.kube
    kube.apply(a_job("rolling", batchSize=1, serve={"minReplicas": 2}))
    kube.wait("rolling", "Ready")
    old = {pod["metadata"]["name"] for pod in workers(kube, "rolling")}

    with load(kube, "rolling") as running:
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

    with load(kube, "shrinking") as running:
        kube.run("scale", "ij", "shrinking", "--replicas=1")
        wait_for(lambda: len(workers(kube, "shrinking")) == 1, "one worker is left")

    assert running.faults == []


def test_a_roll_out_without_room_makes_room_one_by_one(space: Space) -> None:
    kube = space.kube
    # All four devices are taken by the job itself: the new revision fits only where an old worker goes first.
    kube.apply(a_job("tight", accelerator="gpu", batchSize=1, serve={"minReplicas": 4}))
    kube.wait("tight", "Ready")
    old = {pod["metadata"]["name"] for pod in workers(kube, "tight")}

    with load(kube, "tight") as running:
        kube.apply(a_job("tight", accelerator="gpu", batchSize=2, serve={"minReplicas": 4}))
        wait_for(
            lambda: not old & {pod["metadata"]["name"] for pod in workers(kube, "tight")}, "the old workers are gone", seconds=120
        )
        kube.wait("tight", "Ready")

    assert running.faults == []
    kube.run("delete", "ij", "tight")
