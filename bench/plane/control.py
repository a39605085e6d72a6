"""A control plane of our own on loopback, its state and its audit log in memory, and an operator process to measure."""

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from bench import proc
from bench.plane.audit import Request, parse, since
from bench.plane.objects import ANNOTATION_WORK, Manifest
from bench.report import ROOT
from dev.cluster import ClientLimits, ControlPlane, Layout, api_only_control_plane, start_api_only, stop_api_only
from dev.cluster.api import api_as
from dev.cluster.processes import Processes
from dev.console import DevError
from inference_operator.api.crd import inference_job_crd, inference_model_crd
from inference_operator.settings import Settings

_MEMORY = Path("/dev/shm")
_MEMORY_BYTES = 2 << 30
_TASK_KEY = {"metadata": {"name": Settings().task_key_name}}


@dataclass(frozen=True, slots=True)
class PlaneLimits:
    """What Kubernetes' own components may do at once."""

    controllers: ClientLimits
    scheduler: ClientLimits
    job_syncs: int


# Their own defaults; and limits that nobody reaches here, with as many jobs side by side as the operator has workers.
SHIPPED = PlaneLimits(ClientLimits(20, 30), ClientLimits(50, 100), job_syncs=5)
LIFTED = PlaneLimits(ClientLimits(1000, 1000), ClientLimits(1000, 1000), job_syncs=16)


@dataclass(frozen=True, slots=True)
class Plane:
    """A running control plane."""

    control: ControlPlane
    kubeconfig: Path

    @property
    def audit_log(self) -> Path:
        """Every request, one a line."""
        return self.control.layout.audit_log

    def pids(self) -> dict[str, int]:
        """Its processes by name."""
        layout = self.control.layout
        return {record.name: record.pid for record in Processes(run=layout.run, logs=layout.logs).records()}

    def mark(self) -> int:
        """A place in the audit log: what is asked from now on stands behind it."""
        return self.audit_log.stat().st_size

    def requests(self, mark: int = 0) -> list[Request]:
        """What was asked since a mark."""
        return parse(since(self.audit_log, mark))


@contextmanager
def control_plane(
    port: int = 17443,
    *,
    scheduler: bool = False,
    limits: PlaneLimits = LIFTED,
    crds: Iterable[Manifest] = (),
) -> Iterator[Plane]:
    """Start one with our CRDs and others, and end it with everything in it."""
    with tempfile.TemporaryDirectory(prefix="inference-bench-", dir=_memory()) as folder:
        plain = api_only_control_plane(Layout(Path(folder) / "state"), port_base=port)
        control = replace(
            plain,
            controllers=(*plain.controllers, "ttl-after-finished-controller"),
            has_scheduler=scheduler,
            controller_limits=limits.controllers,
            scheduler_limits=limits.scheduler,
            job_syncs=limits.job_syncs,
            one_priority_level=True,
        )
        try:
            kubeconfig = start_api_only(control, [inference_job_crd(), inference_model_crd(), *crds])
            # As the chart makes it; its data is the operator's.
            api_as(control, "admin").create("/api/v1/namespaces/default/secrets", _TASK_KEY)
            yield Plane(control, kubeconfig)
        finally:
            stop_api_only(control)


def _memory() -> Path | None:
    """A folder in memory, where there is room for etcd and the audit log."""
    return _MEMORY if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free > _MEMORY_BYTES else None


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator process. `pid` is its own, also where something else started it."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """The process that runs the operator."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        # unshare stays as the parent; the operator itself starts nothing.
        found = children.read_text().split()
        return int(found[0]) if found else self.process.pid

    @property
    def cpu_seconds(self) -> float:
        """User and system time so far."""
        return proc.cpu_seconds(self.pid)

    @property
    def memory_mib(self) -> tuple[float, float]:
        """Resident now, and at its peak."""
        return proc.memory_mib(self.pid)

    @property
    def is_leading(self) -> bool:
        """Whether it has said that it has the Lease."""
        return "leading as" in self.log.read_text()

    async def leads(self) -> None:
        """Wait until it has the Lease. Raises DevError with the end of its log when it ends before."""
        while not self.is_leading:
            if self.process.poll() is not None:
                raise DevError(f"the operator ended:\n{self.log.read_text()[-2000:]}")
            await asyncio.sleep(0.05)


# A container's first process is number one each time it starts, so that the Lease knows it again. So is this one.
AS_A_CONTAINER = ("unshare", "--pid", "--fork", "--kill-child")


@contextmanager
def operator(plane: Plane, folder: Path, *, prefix: Sequence[str] = (), **settings: Any) -> Iterator[Operator]:
    """Run the operator against the plane, and end it."""
    running = start_operator(plane, folder, prefix=prefix, **settings)
    try:
        yield running
    finally:
        running.process.send_signal(signal.SIGTERM)
        try:
            running.process.wait(20)
        except subprocess.TimeoutExpired:
            running.process.kill()
            running.process.wait()


def start_operator(plane: Plane, folder: Path, *, prefix: Sequence[str] = (), **settings: Any) -> Operator:
    """Start the operator; `prefix` stands before its command."""
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"httpPort": 18080, "podTemplate": {"annotations": [ANNOTATION_WORK]}, **settings}))
    log = folder / f"operator-{time.monotonic_ns()}.log"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "INFERENCE_OPERATOR_CONFIG": str(config)}
    with log.open("wb") as out:
        process = subprocess.Popen([*prefix, sys.executable, "-m", "inference_operator"], cwd=ROOT, env=environment, stderr=out)
    return Operator(process, log)
