"""Who is sent to: each target starts real processes, and says how a caller's session with them goes."""

from __future__ import annotations

import contextlib
import json
import ssl
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from inference_worker.frontends.supervisor import FRONTENDS_VARIABLE
from tests.fuzz.wire import cases1, cases2, http1, http2
from tests.fuzz.wire.drive import Figures, run
from tests.process import models
from tests.process.harness import REPOSITORY, Place, a_config, until

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.harness import Worker

_REGION = Path("/dev/shm/fuzz-wire")


def family(pid: int) -> list[int]:
    """A process and its children."""
    return [pid, *map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split())]


@contextlib.contextmanager
def worker(folder: Path, frontends: int) -> Iterator[Worker]:
    """A worker that may do all that callers can be allowed; x [N, 2] -> y, unchanged."""
    place = Place(folder)
    _REGION.write_bytes(bytes(64))
    config = a_config(place.put("m.onnx", models.identity()), batch_size=8, model_control="explicit", shared_memory=True)
    try:
        yield place.start(config, variables={FRONTENDS_VARIABLE: str(frontends)}).wait_ready()
    finally:
        place.end()
        _REGION.unlink(missing_ok=True)


def _of_traceback(log: str) -> str:
    at = log.index("Traceback")
    return log[max(0, at - 500) : at + 5000]


def _fuzzed(target: str, folder: Path, *, frontends: int, requests: int, seed: int, callers: int) -> Figures:
    with worker(folder, frontends) as made:
        sessions = {
            "http1": [partial(http1.talk, port=made.port, make=cases1.any_request, known=cases1.KNOWN)],
            "http2": [partial(http2.talk, port=made.grpc_port, make=cases2.worker, known=cases2.KNOWN)],
            "repository": [partial(http1.talk, port=made.port, make=cases1.repository, known=cases1.KNOWN_OR_UNLOADED)],
        }[target]
        pids = family(made.process.pid)
        found = run(target, sessions, pids, requests=requests, seed=seed, callers=callers, alive=lambda: made.running)
        assert "Traceback" not in made.log, _of_traceback(made.log)
        return found


@contextlib.contextmanager
def operator_servers(folder: Path) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, int], Path]]:
    """The process, its ports by server, and its log."""
    log, ready = folder / "log", folder / "ready"
    command = [sys.executable, "-m", "tests.fuzz.wire.operator_servers", str(folder)]
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=REPOSITORY)
    try:
        until(lambda: ready.exists() or process.poll() is not None, "the operator's servers")
        assert process.poll() is None, log.read_text()
        yield process, json.loads(ready.read_text()), log
    finally:
        process.kill()
        process.wait()


def _operator_fuzzed(*, folder: Path, requests: int, seed: int, callers: int) -> Figures:
    with operator_servers(folder) as (process, ports, log):
        tls = http1.Tls(ssl.create_default_context(cafile=str(folder / "ca.pem")), "metrics.system.svc")
        sessions = [
            partial(http1.talk, port=ports["metrics"], make=cases1.metrics_api, known=cases1.METRIC, tls=tls),
            partial(http2.talk, port=ports["keda"], make=cases2.scaler, known=cases2.SCALED),
            partial(http1.talk, port=ports["health"], make=cases1.health, known=cases1.HEALTH),
        ]

        def alive() -> bool:
            return process.poll() is None

        found = run("operator", sessions, [process.pid], requests=requests, seed=seed, callers=callers, alive=alive)
        assert "Traceback" not in log.read_text(), _of_traceback(log.read_text())
        return found


TARGETS: dict[str, Callable[..., Figures]] = {
    "http1": partial(_fuzzed, "http1", frontends=0),
    "http1-frontends": partial(_fuzzed, "http1", frontends=2),
    "http2": partial(_fuzzed, "http2", frontends=0),
    "http2-frontends": partial(_fuzzed, "http2", frontends=2),
    "repository": partial(_fuzzed, "repository", frontends=0),
    "operator": _operator_fuzzed,
}
