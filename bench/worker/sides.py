"""The servers under comparison: how each is started, and what a request to it looks like."""

import socket
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.worker import requests
from bench.worker.models import Model, Tensor
from bench.worker.processes import Started
from bench.worker.readiness import wait_for_answer, wait_for_status

HTTP_PROTOCOLS = ("json", "binary")
_LOAD_SECONDS = 60.0
# Triton's timeout bounds the wait only; what the run takes after it has to be left over, as whoever sets it there would.
_QUEUE_SHARE = 0.6


@dataclass(frozen=True, slots=True)
class Plan:
    """What a server is to run. `deadline_ms` lets servers that know deadlines prepare for them; `folder` is theirs."""

    model: Model
    folder: Path
    http_port: int
    grpc_port: int
    metrics_port: int = 0
    deadline_ms: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        """The plan as peers read it."""
        return {
            "name": self.model.name,
            "path": str(self.model.path),
            "batch": self.model.batch,
            "httpPort": self.http_port,
            "grpcPort": self.grpc_port,
            "inputs": self.model.inputs,
            "outputs": self.model.outputs,
        }


Starter = Callable[[Plan], AbstractContextManager[Started]]


@dataclass(frozen=True, slots=True)
class Side:
    """A kind of server. `protocols` are those it speaks; `deadlines` tells how it takes a request's deadline, if at all."""

    name: str
    start: Starter
    protocols: frozenset[str]
    ready_path: str
    oip: bool = True
    deadlines: str | None = None
    path: str = "/v2/models/{name}/infer"

    def bodies(self, model: Model, protocol: str, deadline_ms: float | None = None) -> list[bytes]:
        """Whole HTTP requests, or protobuf messages for gRPC."""
        return [self._body(model, row, protocol, deadline_ms) for row in requests.feeds(model)]

    def body_and_headers(self, model: Model, row: Mapping[str, Tensor], protocol: str) -> tuple[bytes, dict[str, str]]:
        """The body of an HTTP request, and the headers that it wants."""
        return self._http(model, row, protocol, {})

    def _body(self, model: Model, row: Mapping[str, Tensor], protocol: str, deadline_ms: float | None) -> bytes:
        parameters: dict[str, Any] = {}
        if deadline_ms is not None and self.deadlines == "parameter":
            parameters["timeout"] = int(deadline_ms * _QUEUE_SHARE * 1000)
        if protocol == "grpc":
            return requests.protobuf(model, row, parameters)
        body, headers = self._http(model, row, protocol, parameters)
        if deadline_ms is not None and self.deadlines == "header":
            headers["Inference-Timeout-Ms"] = f"{deadline_ms:g}"
        return requests.http(self.path.format(name=model.name), body, headers)

    def _http(
        self, model: Model, row: Mapping[str, Tensor], protocol: str, parameters: dict[str, Any]
    ) -> tuple[bytes, dict[str, str]]:
        if protocol == "json":
            body = requests.oip_json(model, row, parameters) if self.oip else requests.plain_json(row)
            return body, {"Content-Type": "application/json"}
        if self.oip:
            return requests.oip_binary(model, row, parameters)
        # The leading byte tells our mosec worker that this is no JSON.
        return b"\0" + b"".join(array.tobytes() for array in row.values()), {"Content-Type": "application/octet-stream"}


@dataclass(frozen=True, slots=True)
class Running:
    """A server that has answered. Seconds are from just before exec."""

    side: Side
    plan: Plan
    started: Started
    ready_seconds: float
    answer_seconds: float

    def port(self, protocol: str) -> int:
        """Where it serves a protocol."""
        return self.plan.grpc_port if protocol == "grpc" else self.plan.http_port


@contextmanager
def running(side: Side, model: Model, folder: Path, *, deadline_ms: float | None = None, **extra: Any) -> Iterator[Running]:
    """Start a server, wait for its word that it is ready and for a right answer, and end it. Raises PeerError."""
    folder.mkdir(parents=True, exist_ok=True)
    http_port, grpc_port, metrics_port = free_ports(3)
    plan = Plan(model, folder, http_port, grpc_port, metrics_port, deadline_ms, extra)
    with side.start(plan) as started:
        protocol = "binary" if "binary" in side.protocols else "json"
        ready = wait_for_status(started, http_port, side.ready_path.format(name=model.name), seconds=_LOAD_SECONDS)
        answered = wait_for_answer(started, http_port, side.bodies(model, protocol)[0], seconds=_LOAD_SECONDS)
        yield Running(side, plan, started, ready, answered)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]
    finally:
        for one in sockets:
            one.close()
