"""Load from the other core: our open-loop client for latencies, h2load for the most that a server gives."""

import os
import re
import resource
import subprocess
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from bench.report import ROOT
from bench.worker import requests
from bench.worker.client.spec import Spec, save_requests
from bench.worker.installs import HERE, environment
from bench.worker.processes import CLIENT_CORE, started
from bench.worker.sides import Running

# Above this share of its core the client, not the server, may be what was measured.
SATURATED = 0.9


@dataclass(frozen=True, slots=True)
class Trace:
    """What became of each request: seconds from the start, statuses as in client/spec.py. `busy`: the client's share of a core."""

    intended: NDArray[np.float64]
    sent: NDArray[np.float64]
    done: NDArray[np.float64]
    status: NDArray[np.int64]
    tails: NDArray[np.uint8]
    busy: float
    doubled: int
    cpu_seconds: float

    @property
    def good(self) -> NDArray[np.bool_]:
        """Answered with success."""
        good: NDArray[np.bool_] = self.status == 200
        return good

    @property
    def latency(self) -> NDArray[np.float64]:
        """Seconds from the intended moment, of those that were answered with success."""
        return (self.done - self.intended)[self.good]

    def within(self, seconds: float) -> int:
        """How many were answered with success within so many seconds of their intended moment."""
        return int((self.latency <= seconds).sum())

    def statuses(self) -> dict[str, int]:
        """How many ended how."""
        values, counts = np.unique(self.status, return_counts=True)
        return {str(value): int(count) for value, count in zip(values, counts, strict=True)}

    def summary(self) -> dict[str, Any]:
        """Milliseconds and shares, for the rounds of a result."""
        latency = self.latency * 1e3
        p50, p99 = np.quantile(latency, (0.5, 0.99)) if latency.size else (float("nan"), float("nan"))
        lag = (self.sent - self.intended)[self.sent > 0]
        return {
            "p50Ms": round(float(p50), 4),
            "p99Ms": round(float(p99), 4),
            "sent": int(self.status.size),
            "statuses": self.statuses(),
            "clientBusy": round(self.busy, 3),
            "sendLagP99Ms": round(float(np.quantile(lag, 0.99)) * 1e3, 4) if lag.size else None,
        }


class OpenLoop:
    """A client process under way."""

    def __init__(self, spec: Mapping[str, Any], bodies: list[bytes]) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="inference-bench-")
        folder = Path(self._folder.name)
        save_requests(folder / "requests", bodies)
        Spec(requests=str(folder / "requests"), result=str(folder / "result.npz"), **spec).save(folder / "spec.json")
        python = environment(HERE / "client.txt") / "bin" / "python"
        command = [str(python), "-m", "bench.worker.client", str(folder / "spec.json")]
        self._context = started(command, log=folder / "log", core=CLIENT_CORE, environment={"PYTHONPATH": str(ROOT)}, folder=folder)

    def __enter__(self) -> Self:
        self._started = self._context.__enter__()
        return self

    def __exit__(self, *fault: object) -> None:
        self._context.__exit__(None, None, None)
        self._folder.cleanup()

    def result(self, server: Running | None = None) -> Trace:
        """Wait for the end. With a server, its CPU seconds from now to then are in the trace."""
        before = server.started.cpu_seconds if server is not None else 0.0
        code = self._started.process.wait()
        after = server.started.cpu_seconds if server is not None else 0.0
        if code != 0:
            raise RuntimeError(f"the client failed: {self._started.tail()}")
        found = np.load(Path(self._folder.name) / "result.npz")
        arrays = {name: found[name] for name in ("intended", "sent", "done", "status", "tails")}
        return Trace(**arrays, busy=float(found["busy"]), doubled=int(found["doubled"]), cpu_seconds=after - before)


def open_loop(
    server: Running, protocol: str, *, rate: float, seconds: float, deadline_ms: float | None = None, **more: Any
) -> Trace:
    """Send at a rate and wait for the answers."""
    spec = {
        "protocol": protocol,
        "ports": [(0.0, server.port(protocol))],
        "rate": rate,
        "seconds": seconds,
        "path": requests.GRPC_PATH,
        "timeout_ms": deadline_ms if protocol == "grpc" and server.side.deadlines == "header" else None,
        "connections": 4 if protocol == "grpc" else 64,
        **more,
    }
    with OpenLoop(spec, server.side.bodies(server.plan.model, protocol, deadline_ms)) as client:
        return client.result(server)


def saturate(server: Running, protocol: str, *, seconds: float, connections: int) -> dict[str, Any]:
    """The most that a closed loop gets out of a server, and what a request costs it."""
    side, model = server.side, server.plan.model
    row = requests.feeds(model, 1)[0]
    kind: tuple[str, ...] = ()
    with tempfile.TemporaryDirectory(prefix="inference-bench-") as name:
        body = Path(name) / "body"
        if protocol == "grpc":
            body.write_bytes(requests.framed(requests.protobuf(model, row, {})))
            path, headers = requests.GRPC_PATH, {"content-type": "application/grpc", "te": "trailers"}
        else:
            data, headers = side.body_and_headers(model, row, protocol)
            body.write_bytes(data)
            path, kind = side.path.format(name=model.name), ("--h1",)
        command = ["h2load", *kind, "-t", "1", "-c", str(connections), "-m", "1", "-D", f"{seconds * 1000:.0f}ms", "-d", str(body)]
        for header, value in headers.items():
            command += ["-H", f"{header}: {value}"]
        command.append(f"http://127.0.0.1:{server.port(protocol)}{path}")
        log = Path(name) / "log"
        before = server.started.cpu_seconds
        with started(command, log=log, core=CLIENT_CORE, environment={}, folder=Path(name)) as client:
            usage = _wait(client.process)
        cpu = server.started.cpu_seconds - before
        return _counted(log.read_text(errors="replace"), seconds, cpu, usage.ru_utime + usage.ru_stime)


def _wait(process: subprocess.Popen[bytes]) -> resource.struct_rusage:
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return usage


def _counted(text: str, seconds: float, cpu: float, client_cpu: float) -> dict[str, Any]:
    done = int(_find(r"requests: .*?(\d+) succeeded", text))
    failed = int(_find(r"status codes: .*?(\d+) 5xx", text)) + int(_find(r"(\d+) 4xx", text))
    return {
        "requestsPerSecond": round(done / seconds, 1),
        "cpuMicroseconds": round(cpu / done * 1e6, 2) if done else None,
        "failed": failed,
        "answerBytes": round(int(_find(r"\((\d+)\) data", text)) / max(done, 1), 1),
        "clientBusy": round(client_cpu / seconds, 3),
    }


def _find(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if found is None:
        raise RuntimeError(f"h2load said something else: {text[-1500:]}")
    return found.group(1)
