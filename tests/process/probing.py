"""Probes that are asked while a worker does something large, and what it computes before it answers them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Self

from bench.proc import cpu_seconds

if TYPE_CHECKING:
    from tests.process.harness import Worker

_PAUSE_SECONDS = 0.005


class Probes:
    """Asks for liveness again and again while it is entered.

    The kubelet gives a probe a second. What counts here is the CPU time that the worker takes in one question at most: how long
    that lasts is up to the machine.
    """

    def __init__(self, worker: Worker) -> None:
        self.most_cpu_seconds = 0.0
        self.statuses: set[int] = set()
        self._worker = worker
        self._over = threading.Event()
        self._asking = threading.Thread(target=self._ask)

    def __enter__(self) -> Self:
        self._asking.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._asking.join()

    def _ask(self) -> None:
        while not self._over.wait(_PAUSE_SECONDS):
            before = cpu_seconds(self._worker.process.pid)
            self.statuses.add(self._worker.answers("/v2/health/live"))
            self.most_cpu_seconds = max(self.most_cpu_seconds, cpu_seconds(self._worker.process.pid) - before)
