"""Callers of a service that go on during a test and count what goes wrong."""

import json
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import numpy as np

from examples.demo.cluster import Kubectl, wait_for
from examples.demo.steps import service_address

DIGIT = json.dumps(
    {"inputs": [{"name": "pixels", "datatype": "FP32", "shape": [1, 64], "data": np.zeros((1, 64)).tolist()}]}
).encode()
"""A request for the model digits."""


def digits_of(kube: Kubectl, name: str) -> str:
    """Where a job's Service answers for the model digits."""
    return f"http://{service_address(kube, name)}:8000/v2/models/digits/infer"


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
def load(url: str) -> Iterator[Load]:
    """Load on the model digits, from the moment on at which it runs; the test fails where it doesn't run on."""
    running = Load(url, DIGIT)
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


def post(url: str, body: bytes = DIGIT, headers: Mapping[str, str] | None = None, *, seconds: float = 60) -> dict[str, object]:
    """An answer's JSON. Raises HTTPError."""
    request = urllib.request.Request(url, body, {"Content-Type": "application/json", **(headers or {})})
    with urllib.request.urlopen(request, timeout=seconds) as response:
        answer: dict[str, object] = json.load(response)
    return answer
