"""What TLS costs: a handshake, a request on a connection that stays, an idle connection, and the operator's questions.

The worker is the shipped process, on loopback, with a model that takes no time. CPU is the worker's own, from /proc. Plain and TLS
take turns within a round, so that what else the machine does falls on both.
"""

import http.client
import json
import os
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from bench import proc
from bench.report import ROOT, Result, at_most
from bench.tls.polls import polls
from tests.authority import Authority
from tests.loopback import free_ports
from tests.process import models

_REQUESTS, _BLOCK = 6000, 200
_HANDSHAKES = 1500
_IDLE = 1000
_BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1.0, 2.0]}]}).encode()
_REQUEST = (
    f"POST /v2/models/net/infer HTTP/1.1\r\nHost: net\r\nContent-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n"
).encode() + _BODY


@dataclass(frozen=True, slots=True)
class Side:
    """A worker, and how a client connects to it."""

    name: str
    pid: int
    port: int
    context: ssl.SSLContext | None

    def connect(self) -> socket.socket:
        """A connection that is ready for requests."""
        plain = socket.create_connection(("127.0.0.1", self.port))
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return plain if self.context is None else self.context.wrap_socket(plain, server_hostname="net")


def run(rounds: int) -> Result:
    """Each cost, so many times."""
    with ExitStack() as stack:
        ca = Authority()
        sides = [stack.enter_context(_worker(name, ca)) for name in ("plain", "ecdsa", "rsa", "mutual")]
        found = [_round(sides) | {"pollCpuMicroseconds": polls()} for _ in range(rounds or 3)]
    best = min(found, key=lambda one: float(one["addedP50Microseconds"]))
    return Result(
        found,
        [
            at_most("p50", "microseconds that TLS adds to the p50 of a request, best round", best["addedP50Microseconds"], 100),
            at_most("handshake", "milliseconds of the worker's CPU a handshake, best round", _least(found, "handshakeCpuMs"), 2),
            # Later rounds use the memory of the first again.
            at_most("idle", "KiB that an idle connection takes, first round", float(found[0]["idleKib"]["ecdsa"]), 64),
        ],
    )


def _least(found: list[dict[str, Any]], what: str) -> float:
    return min(float(one[what]["ecdsa"]) for one in found)


def _round(sides: list[Side]) -> dict[str, Any]:
    requests = _requests(sides[:2])
    plain, ecdsa = (requests[side.name] for side in sides[:2])
    handshakes = {side.name: _handshakes(side) for side in sides[1:]}
    idle = {side.name: _idle(side) for side in sides[:2]}
    return {
        "requests": requests,
        "addedP50Microseconds": round(ecdsa["p50Microseconds"] - plain["p50Microseconds"], 1),
        "addedCpuMicroseconds": round(ecdsa["cpuMicroseconds"] - plain["cpuMicroseconds"], 1),
        "handshakeCpuMs": {name: cpu for name, (cpu, _) in handshakes.items()},
        "handshakesASecondOfCpu": {name: round(1000 / cpu) for name, (cpu, _) in handshakes.items()},
        "handshakeP50Ms": {name: wall for name, (_, wall) in handshakes.items()},
        "idleKib": {name: round(size, 1) for name, size in idle.items()},
    }


def _requests(sides: list[Side]) -> dict[str, dict[str, float]]:
    """Closed loop on one connection of each side, in turns of _BLOCK requests."""
    open_ = {side.name: side.connect() for side in sides}
    walls: dict[str, list[float]] = {side.name: [] for side in sides}
    cpu = dict.fromkeys(open_, 0.0)
    for _ in range(_REQUESTS // _BLOCK):
        for side in sides:
            before = proc.cpu_seconds(side.pid)
            for _ in range(_BLOCK):
                begun = time.perf_counter()
                _ask(open_[side.name])
                walls[side.name].append(time.perf_counter() - begun)
            cpu[side.name] += proc.cpu_seconds(side.pid) - before
    for connection in open_.values():
        connection.close()
    return {
        name: {"p50Microseconds": round(median(each) * 1e6, 1), "cpuMicroseconds": round(cpu[name] / len(each) * 1e6, 1)}
        for name, each in walls.items()
    }


def _ask(connection: socket.socket) -> None:
    connection.sendall(_REQUEST)
    got = b""
    while b"\r\n\r\n" not in got:
        got += connection.recv(65536)
    assert got.startswith(b"HTTP/1.1 200"), got


def _handshakes(side: Side) -> tuple[float, float]:
    """Milliseconds of the worker's CPU, and of wall time in the middle, for a connection that only shakes hands."""
    before, walls = proc.cpu_seconds(side.pid), []
    for _ in range(_HANDSHAKES):
        begun = time.perf_counter()
        side.connect().close()
        walls.append(time.perf_counter() - begun)
    cpu = proc.cpu_seconds(side.pid) - before
    return round(cpu / _HANDSHAKES * 1e3, 3), round(median(walls) * 1e3, 3)


def _idle(side: Side) -> float:
    """KiB that a connection takes in the worker on which one request was answered."""
    before = proc.memory_mib(side.pid)[0]
    held = [side.connect() for _ in range(_IDLE)]
    for connection in held:
        _ask(connection)
    size = proc.memory_mib(side.pid)[0] - before
    for connection in held:
        connection.close()
    return size * 1024 / _IDLE


@contextmanager
def _worker(name: str, ca: Authority) -> Iterator[Side]:
    http_port, grpc_port, health_port = free_ports(3)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        (folder / "volumes" / "data").mkdir(parents=True)
        (folder / "volumes" / "data" / "model.onnx").write_bytes(models.two_outputs())
        ca.server("net", rsa=name == "rsa").put(folder / "tls")
        (folder / "clients").mkdir()
        (folder / "clients" / "ca.crt").write_text(ca.pem)
        tls = {"ownCertificate": True, "clientCertificates": name == "mutual"}
        config = {
            "namespace": "bench",
            "job": "bench",
            "uid": "bench",
            "attempt": 1,
            "model": {"name": "net", "version": "1", "uri": "pvc://data/model.onnx"},
            "providers": ["CPUExecutionProvider"],
            **({"servingTls": tls} if name != "plain" else {}),
        }
        variables = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(ROOT / part) for part in ("protocol", "worker-image")),
            "INFERENCE_VOLUME_ROOT": str(folder / "volumes"),
            "INFERENCE_IDENTITY_ROOT": str(folder),
            "INFERENCE_HTTP_PORT": str(http_port),
            "INFERENCE_GRPC_PORT": str(grpc_port),
            "INFERENCE_HEALTH_PORT": str(health_port),
            "INFERENCE_TERMINATION_PATH": str(folder / "report"),
            "INFERENCE_WORKER_CONFIG": json.dumps(config),
        }
        with (
            (folder / "log").open("wb") as log,
            subprocess.Popen([sys.executable, "-m", "inference_worker"], env=variables, stdout=log, stderr=log) as process,
        ):
            try:
                _until(lambda: _ready(health_port), process)
                context = None if name == "plain" else ssl.create_default_context(cadata=ca.pem)
                if context is not None and name == "mutual":
                    context.load_cert_chain(ca.client().file(folder, "client"))
                yield Side(name, process.pid, http_port, context)
            finally:
                process.kill()


def _ready(port: int) -> bool:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/readyz")
        return connection.getresponse().status == 200
    except OSError:
        return False
    finally:
        connection.close()


def _until(holds: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 60
    while not holds():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError("the worker did not become ready")
        time.sleep(0.05)
