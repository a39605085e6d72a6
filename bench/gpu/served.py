"""A worker process on the device, and streams of requests at it: open loops from processes of their own."""

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.gpu.nets import BATCH, INPUT, OUTPUT, images
from bench.proc import end
from bench.report import ROOT
from bench.worker.client.spec import Spec, save_requests
from bench.worker.requests import GRPC_PATH, http, protobuf_of

_READY_SECONDS = 120.0
_WARM_SECONDS = 1.0
_KINDS = 4


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker. `report` is where it leaves its last words."""

    http_port: int
    grpc_port: int
    ready_seconds: float
    process: "subprocess.Popen[bytes]"
    report: Path

    def get(self, path: str) -> Any:
        """A document of its HTTP server."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}{path}", timeout=5) as answer:
            return json.load(answer)

    def ended(self, seconds: float) -> Any:
        """Wait for its end, and return its report. Raises subprocess.TimeoutExpired."""
        self.process.wait(seconds)
        return json.loads(self.report.read_text())


@contextmanager
def worker(
    path: Path,
    /,
    *,
    source: Path = ROOT,
    batch: int = BATCH,
    variables: Mapping[str, str] = MappingProxyType({}),
    waits: bool = True,
    **more: Any,
) -> Iterator[Worker]:
    """Start one, of this checkout or another `source`, and wait until it is ready; `variables` are added to its environment.

    Raises RuntimeError with its last words.
    """
    with tempfile.TemporaryDirectory(prefix="inference-bench-") as name:
        folder = Path(name)
        (folder / "volumes").mkdir()
        (folder / "volumes" / "data").symlink_to(path.parent)
        ports = _free_ports()
        config = {
            "namespace": "bench",
            "job": "bench",
            "uid": "bench",
            "attempt": 1,
            "model": {"name": "net", "version": "1", "uri": f"pvc://data/{path.name}"},
            "providers": ["CUDAExecutionProvider", "CPUExecutionProvider"],
            "batchSize": batch,
            **more,
        }
        ours = [str(source / part) for part in ("protocol", "worker-image")]
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*ours, os.environ.get("PYTHONPATH", "")]),
            "INFERENCE_VOLUME_ROOT": str(folder / "volumes"),
            "INFERENCE_HTTP_PORT": str(ports[0]),
            "INFERENCE_GRPC_PORT": str(ports[1]),
            "INFERENCE_HEALTH_PORT": "0",
            "INFERENCE_TERMINATION_PATH": str(folder / "report"),
            "INFERENCE_WORKER_CONFIG": json.dumps(config),
            **variables,
        }
        log = folder / "log"
        begun = time.monotonic()
        with log.open("wb") as out:
            process = subprocess.Popen([sys.executable, "-m", "inference_worker"], env=environment, stdout=out, stderr=out)
        try:
            if waits:
                _wait(process, ports[0], log)
            yield Worker(*ports, round(time.monotonic() - begun, 2), process, folder / "report")
        finally:
            end(process, 30)


def _free_ports() -> tuple[int, int]:
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(2)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return sockets[0].getsockname()[1], sockets[1].getsockname()[1]


def _wait(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    until = time.monotonic() + _READY_SECONDS
    while time.monotonic() < until and process.poll() is None:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/v2/health/ready", timeout=1):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    raise RuntimeError(f"the worker is not ready: {log.read_text(errors='replace')[-2000:]}")


@dataclass(frozen=True, slots=True)
class Stream:
    """Requests of so many rows each, so many images a second in all, from so many processes.

    `deadline_ms` is told to the server where `told`; it is what an answer is late by in any case.
    """

    rate: float
    rows: int = 1
    processes: int = 6
    connections: int = 64
    protocol: str = "http"
    deadline_ms: float | None = None
    told: bool = True
    priority: int | None = None
    arrivals: str = "poisson"
    inputs: tuple[str, str] = (INPUT, OUTPUT)

    def bodies(self) -> list[bytes]:
        """Whole requests, of different images."""
        return [self.request(images(self.rows, seed)) for seed in range(_KINDS)]

    def request(self, rows: NDArray[np.uint8]) -> bytes:
        """A whole HTTP request, or a protobuf message."""
        parameters = {"priority": self.priority} if self.priority is not None and self.told else {}
        name, answer = self.inputs
        if self.protocol == "grpc":
            return protobuf_of("net", {name: ("UINT8", rows)}, parameters)
        tensor = {"name": name, "datatype": "UINT8", "shape": rows.shape, "parameters": {"binary_data_size": rows.nbytes}}
        head = {"inputs": [tensor], "outputs": [{"name": answer, "parameters": {"binary_data": True}}], "parameters": parameters}
        text = json.dumps(head).encode()
        headers = {"Inference-Header-Content-Length": str(len(text))}
        if self.deadline_ms is not None and self.told:
            headers["Inference-Timeout-Ms"] = f"{self.deadline_ms:g}"
        return http("/v2/models/net/infer", text + rows.tobytes(), headers)


@dataclass(frozen=True, slots=True)
class Heard:
    """What became of a stream, the first second left out: milliseconds from the intended moment of each that was answered.

    `in_window` are those answered while requests were sent: of more than can be answered, the rest comes later.
    """

    latency: NDArray[np.float64]
    in_window: int
    asked: int
    seconds: float
    rows: int
    deadline_ms: float | None
    statuses: Mapping[str, int]
    busy: float

    def summary(self) -> dict[str, Any]:
        """For the record."""
        p50, p99 = np.quantile(self.latency, (0.5, 0.99)) if self.latency.size else (float("inf"), float("inf"))
        return {
            "p50Ms": round(float(p50), 2),
            "p99Ms": round(float(p99), 2),
            "imagesPerSecond": round(self.in_window * self.rows / self.seconds),
            "answered": round(self.latency.size / max(1, self.asked), 5),
            "inTime": round(self.in_time, 5),
            "statuses": dict(self.statuses),
            "clientBusy": round(self.busy, 2),
        }

    @property
    def in_time(self) -> float:
        """The share of all requests that were answered by their deadline."""
        limit = self.deadline_ms if self.deadline_ms is not None else float("inf")
        return float((self.latency <= limit).sum()) / max(1, self.asked)


def load(on: Worker, streams: Sequence[Stream], seconds: float) -> list[Heard]:
    """Send all streams at once for so long."""
    with tempfile.TemporaryDirectory(prefix="inference-bench-") as name, ExitStack() as stack:
        folder = Path(name)
        clients = [
            [_client(on, stream, seconds, folder, f"{at}-{number}", stack) for number in range(stream.processes)]
            for at, stream in enumerate(streams)
        ]
        return [_heard(stream, each, seconds) for stream, each in zip(streams, clients, strict=True)]


def _client(
    on: Worker, stream: Stream, seconds: float, folder: Path, name: str, stack: ExitStack
) -> tuple[subprocess.Popen[bytes], Path]:
    bodies, result = folder / f"{name}.requests", folder / f"{name}.npz"
    save_requests(bodies, stream.bodies())
    port = on.grpc_port if stream.protocol == "grpc" else on.http_port
    deadline = stream.deadline_ms if stream.told and stream.protocol == "grpc" else None
    spec = Spec(
        protocol=stream.protocol,
        ports=[(0.0, port)],
        requests=str(bodies),
        result=str(result),
        rate=stream.rate / stream.rows / stream.processes,
        seconds=seconds,
        arrivals=stream.arrivals,
        seed=zlib.crc32(name.encode()),
        connections=stream.connections if stream.protocol == "http" else 4,
        grace_seconds=seconds if stream.arrivals == "serial" else 1.0,
        timeout_ms=deadline,
        path=GRPC_PATH,
    )
    spec.save(folder / f"{name}.json")
    # A later PYTHONPATH than ours would let another checkout's client in.
    variables = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    process = subprocess.Popen([sys.executable, "-m", "bench.worker.client", str(folder / f"{name}.json")], env=variables)
    stack.callback(process.kill)
    return process, result


def _heard(stream: Stream, clients: list[tuple[subprocess.Popen[bytes], Path]], seconds: float) -> Heard:
    latency, in_window, asked, busy = [], 0, 0, 0.0
    statuses: Counter[str] = Counter()
    for process, result in clients:
        if process.wait(seconds + 60):
            raise RuntimeError(f"a client failed with {process.returncode}")
        found = np.load(result)
        # One after another is meant for when the last one was answered.
        due = found["sent"] if stream.arrivals == "serial" else found["intended"]
        counted = due >= _WARM_SECONDS
        good = counted & (found["status"] == 200)
        latency.append((found["done"] - due)[good] * 1e3)
        answered = found["done"][found["status"] == 200]
        in_window += int(((answered >= _WARM_SECONDS) & (answered < seconds)).sum())
        asked += int(counted.sum())
        busy = max(busy, float(found["busy"]))
        statuses.update(map(str, found["status"].tolist()))
    return Heard(
        np.concatenate(latency), in_window, asked, seconds - _WARM_SECONDS, stream.rows, stream.deadline_ms, statuses, busy
    )


def answers(on: Worker, rows: NDArray[np.uint8]) -> NDArray[np.float32] | None:
    """The answers to a request of many rows; None where it is refused."""
    request = Stream(1).request(rows)
    with socket.create_connection(("127.0.0.1", on.http_port), timeout=60) as link:
        link.sendall(request)
        reader = link.makefile("rb")
        status = reader.readline().split()[1]
        headers = dict(_headers(reader))
        body = reader.read(int(headers["content-length"]))
    if status != b"200":
        return None
    return np.frombuffer(body[int(headers["inference-header-content-length"]) :], np.float32).reshape(len(rows), -1)


def _headers(reader: Iterable[bytes]) -> Iterator[tuple[str, str]]:
    for line in reader:
        if not line.strip():
            return
        name, _, value = line.decode().partition(":")
        yield name.lower(), value.strip()
