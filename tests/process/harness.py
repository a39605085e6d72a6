"""Real worker processes on loopback, with real files: started, waited for by what they answer, and always ended."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from inference_protocol.messages import (
    CONFIG_VARIABLE,
    BatchTask,
    ModelSource,
    TerminationReport,
    WorkerConfig,
    decode_report,
    encode,
)
from tests.loopback import free_ports
from tests.outputs import committed_chunks
from tests.process import wire
from tests.process.patched import PATCHES_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from tests.process.tritons import Triton

REPOSITORY = Path(__file__).resolve().parents[2]
CPU = "CPUExecutionProvider"
CLAIM = "data"
ON_TRITON = os.environ.get("WORKER_TEST_BACKEND") == "triton"
# Tests of what a device changes run on one where this names its provider.
PROVIDER = os.environ.get("WORKER_TEST_PROVIDER", CPU)
ON_DEVICE = PROVIDER != CPU
PROVIDERS = (PROVIDER, CPU) if ON_DEVICE else (CPU,)
# A runtime for the device lies where the machine has it.
_ELSEWHERE = os.environ.get("PYTHONPATH", "").split(os.pathsep) if ON_DEVICE else []
_DEADLINE_SECONDS = 60.0
QUICK_COMMITS = {"inference_worker.batch.directory:_COMMIT_SECONDS": 0.02}
QUICK_DRAIN = {"inference_worker.__main__:_LINGER_SECONDS": 0.2}


def until(condition: Callable[[], bool], what: str, *, seconds: float = _DEADLINE_SECONDS) -> None:
    """Poll until it holds; the deadline is only there so that a broken worker fails a test instead of hanging it."""
    give_up = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up:
            raise TimeoutError(f"waited {seconds:.0f} s for {what}")
        time.sleep(0.005)


@dataclass
class Place:
    """A directory that plays the cluster's part: volumes, and where reports go."""

    root: Path
    workers: list[Worker] = field(default_factory=list)
    triton: Triton | None = None

    @property
    def volumes(self) -> Path:
        return self.root / "volumes"

    @property
    def claim(self) -> Path:
        path = self.volumes / CLAIM
        path.mkdir(parents=True, exist_ok=True)
        return path

    def put(self, name: str, data: bytes) -> str:
        """Write a file into the claim; returns its location."""
        path = self.claim / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return f"pvc://{CLAIM}/{name}"

    def put_array(self, name: str, array: np.ndarray) -> str:
        path = self.claim / name
        np.save(path, array)
        return f"pvc://{CLAIM}/{name}"

    def start(
        self,
        config: WorkerConfig | str,
        *,
        patches: dict[str, Any] | None = None,
        port: int | None = None,
        command: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> Worker:
        """Start a worker; `command` stands for the usual one, and `variables` are added to its environment."""
        config = self._on_asked_backend(config)
        http, grpc = free_ports(2)
        worker = Worker(
            self,
            config,
            patches or {},
            number=len(self.workers),
            port=port or http,
            grpc_port=grpc,
            command=command,
            variables=variables,
        )
        self.workers.append(worker)
        return worker

    def run(self, config: WorkerConfig, *, patches: dict[str, Any] | None = None) -> Ended:
        return self.start(config, patches=patches).ended()

    def _on_asked_backend(self, config: WorkerConfig | str) -> WorkerConfig | str:
        """The same on Triton when WORKER_TEST_BACKEND asks for it: `WORKER_TEST_BACKEND=triton pytest tests/process/reports`."""
        if not ON_TRITON or isinstance(config, str) or config.triton is not None:
            return config
        from tests.process.tritons import Triton

        if self.triton is None:
            self.triton = Triton(self.root / "beside")
        return msgspec.structs.replace(config, backend="triton", triton=self.triton.told)

    def end(self) -> None:
        for worker in self.workers:
            worker.kill()
        if self.triton is not None:
            self.triton.end()


@dataclass(frozen=True)
class Ended:
    """A worker that is gone."""

    code: int
    report: TerminationReport | None
    report_bytes: bytes
    log: str

    @property
    def said(self) -> TerminationReport:
        assert self.report is not None, f"exit {self.code} without a report; it logged:\n{self.log[-3000:]}"
        return self.report


class Worker:
    """One process."""

    def __init__(
        self,
        place: Place,
        config: WorkerConfig | str,
        patches: dict[str, Any],
        *,
        number: int,
        port: int,
        grpc_port: int,
        command: Sequence[str] = (),
        variables: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.port = port
        self.grpc_port = grpc_port
        self.health_port, self.control_port = free_ports(2)
        self._report = place.root / f"report-{number}"
        self._log = place.root / f"log-{number}"
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([*(str(REPOSITORY / chunk) for chunk in ("protocol", "worker-image", "")), *_ELSEWHERE]),
            "INFERENCE_VOLUME_ROOT": str(place.volumes),
            "INFERENCE_HTTP_PORT": str(self.port),
            "INFERENCE_GRPC_PORT": str(self.grpc_port),
            "INFERENCE_HEALTH_PORT": str(self.health_port),
            "INFERENCE_CONTROL_PORT": str(self.control_port),
            "INFERENCE_TERMINATION_PATH": str(self._report),
            CONFIG_VARIABLE: config if isinstance(config, str) else encode(config).decode(),
            PATCHES_VARIABLE: json.dumps(patches),
            **variables,
        }
        module = "tests.process.patched" if patches else "inference_worker"
        with self._log.open("wb") as log:
            self.process = subprocess.Popen(
                command or [sys.executable, "-m", module],
                env=environment,
                stdout=log,
                stderr=log,
                cwd=place.root,
                start_new_session=True,
            )

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def answers(self, path: str) -> int:
        """The status of a GET, 0 when nobody listens."""
        try:
            return wire.get(self.port, path).status
        except OSError:
            return 0

    def wait_answering(self) -> Worker:
        until(lambda: not self.running or self.answers("/v2/health/live") == 200, "the first answer")
        assert self.running, self.log
        return self

    def wait_ready(self, *, seconds: float = _DEADLINE_SECONDS) -> Worker:
        assert self.ready_or_ended(seconds=seconds), self.log
        return self

    def ready_or_ended(self, *, seconds: float = _DEADLINE_SECONDS) -> bool:
        """Wait for one of them; whether it is the first."""
        try:
            until(lambda: not self.running or self.answers("/v2/health/ready") == 200, "ready", seconds=seconds)
        except TimeoutError as error:
            error.add_note(self.log)
            raise
        return self.running

    def stop(self) -> Worker:
        """SIGTERM, as the kubelet sends it."""
        self.process.terminate()
        return self

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def ended(self, *, seconds: float = _DEADLINE_SECONDS) -> Ended:
        until(lambda: not self.running, "the worker's end", seconds=seconds)
        raw = self._report.read_bytes() if self._report.exists() else b""
        return Ended(self.process.returncode, decode_report(raw.decode()), raw, self.log)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")


def a_config(model_uri: str, *, task: BatchTask | None = None, **changes: Any) -> WorkerConfig:
    """What a worker is told; a test names what matters to it."""
    source = ModelSource(name="net", version="1", uri=model_uri, digest=changes.pop("digest", None))
    plain = WorkerConfig(namespace="team", job="job", uid="uid-1", attempt=1, model=source, providers=PROVIDERS, task=task)
    return msgspec.structs.replace(plain, **changes)


def answers_in(directory: Path) -> dict[str, np.ndarray]:
    """All answers of a finished output, by its summary: what a user's program would read."""
    summary = json.loads((directory / "manifest.json").read_bytes())
    chunks = [dict(np.load(directory / chunk["file"])) for chunk in summary["chunks"]]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0]}


def committed(directory: Path, attempt: int | None = None) -> int:
    """How many chunks are committed: see committed_chunks."""
    return len(committed_chunks(directory, attempt))


def spans(directory: Path) -> Iterator[tuple[int, int]]:
    for chunk in committed_chunks(directory):
        yield chunk["start"], chunk["end"]
