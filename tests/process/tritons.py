"""Real tritonservers on loopback, as the operator puts them beside a worker: started, killed and started anew by tests."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from pathlib import Path

from dev.tritonserver import ensure_tritonserver
from inference_protocol.messages import TritonServer
from tests.loopback import free_ports
from tests.process import wire
from tests.process.harness import until


class Triton:
    """One server with a repository of its own."""

    def __init__(self, root: Path) -> None:
        self.repository = root / "triton"
        self.repository.mkdir(parents=True)
        (self.port,) = free_ports(1)
        self._log = root / "triton.log"
        self._prefix = f"test_{uuid.uuid4().hex[:12]}_"
        self._server = ensure_tritonserver()
        self.process = self._start()

    @property
    def told(self) -> TritonServer:
        """What a worker is told of it."""
        return TritonServer(platform="python", repository=str(self.repository), port=self.port, startup_seconds=30.0)

    @property
    def log(self) -> str:
        return self._log.read_text(errors="replace")

    def wait(self) -> Triton:
        until(self._answers, "tritonserver")
        return self

    def kill(self) -> None:
        """As the kernel does it that needs memory: the server and its stubs at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._sweep()

    def restart(self) -> Triton:
        """What the kubelet does to a sidecar that has ended: a new one on the same volumes."""
        self.process = self._start()
        return self

    def stubs(self) -> list[int]:
        """The processes that run models."""
        return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and self._is_stub(entry)]

    def kill_stubs(self) -> None:
        for pid in self.stubs():
            os.kill(pid, signal.SIGKILL)

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._sweep()

    def _is_stub(self, entry: Path) -> bool:
        try:
            command = (entry / "cmdline").read_bytes()
        except OSError:
            return False
        return b"triton_python_backend_stub" in command and str(self.repository).encode() in command

    def _start(self) -> subprocess.Popen[bytes]:
        command = self._server.command(self.repository, self.port, shared_memory_prefix=self._prefix)
        with self._log.open("ab") as log:
            return subprocess.Popen(command, env=self._server.environment, stdout=log, stderr=log, start_new_session=True)

    def _sweep(self) -> None:
        for region in Path("/dev/shm").glob(f"{self._prefix}*"):
            region.unlink(missing_ok=True)

    def _answers(self) -> bool:
        assert self.process.poll() is None, self.log
        try:
            return wire.get(self.port, "/v2/health/ready").status == 200
        except OSError:
            return False
