"""How a conformance model comes to be served: in a worker of its own, or loaded anew in one that has served others before.

A start takes a second and a half, and a load takes milliseconds. Only a start shows how a worker ends.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Protocol

from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.harness import a_config
from tests.process.wire import post

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

_REFUSED = re.compile(r"failed to load 'net': (\w+): ")


class Serving(Protocol):
    """Serves one model after another."""

    def serve(self, model: bytes) -> Worker | WorkerReason:
        """A worker that answers by this model as `net`, or the reason for which it refuses it."""
        ...


class OwnWorkers:
    """Each model has a worker of its own."""

    def __init__(self, place: Place) -> None:
        self._place = place

    def serve(self, model: bytes) -> Worker | WorkerReason:
        """See Serving."""
        self._place.end()
        worker = self._place.start(a_config(self._place.put("own.onnx", model)))
        if worker.ready_or_ended():
            return worker
        said = worker.ended().said
        assert said.reason is not None, said
        return said.reason


class SharedWorker:
    """One worker is told to load each model in the place of the last."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._worker: Worker | None = None

    def serve(self, model: bytes) -> Worker | WorkerReason:
        """See Serving."""
        worker = self._worker
        if worker is None or not worker.running:
            worker = self._worker = self._started()
        self._place.put("shared.onnx", model)
        reply = post(worker.port, "/v2/repository/models/net/load", b"{}")
        if reply.status == 200:
            return worker
        refused = _REFUSED.match(reply.json["error"])
        assert refused is not None, reply.json
        return WorkerReason(refused[1])

    def _started(self) -> Worker:
        first = self._place.put("shared.onnx", models.identity())
        return self._place.start(a_config(first, model_control="explicit")).wait_ready()
