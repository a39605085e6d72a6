"""A control plane of our own on loopback, with nodes that are only objects, and an operator process to measure."""

import asyncio
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp
import yaml

from bench.report import ROOT
from dev.cluster import Layout, api_only_control_plane, start_api_only, stop_api_only
from inference_operator.effects.connection import from_kubeconfig
from inference_operator.effects.kube import Kube
from inference_operator.manifests.crd import inference_job_crd, inference_model_crd
from inference_operator.runtime.bucket import TokenBucket

_TICK = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Plane:
    """A running control plane."""

    kubeconfig: Path
    audit_log: Path


@contextmanager
def control_plane(port: int = 17443) -> Iterator[Plane]:
    """Start one, and end it with everything in it."""
    with tempfile.TemporaryDirectory(prefix="inference-bench-") as folder:
        plane = api_only_control_plane(Layout(Path(folder) / "state"), port_base=port)
        kubeconfig = start_api_only(plane)
        try:
            yield Plane(kubeconfig, plane.layout.audit_log)
        finally:
            stop_api_only(plane)


@asynccontextmanager
async def client(plane: Plane) -> AsyncIterator[Kube]:
    """A client without a rate limit worth the name."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=32)) as session:
        yield Kube(from_kubeconfig(plane.kubeconfig), session, TokenBucket(1e6, 1_000_000, time.monotonic))


async def install(kube: Kube, nodes: int, *, cpus: int = 8) -> None:
    """CRDs and nodes."""
    for crd in (inference_job_crd(), inference_model_crd()):
        await kube.create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", crd)
    for number in range(nodes):
        body: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": f"n{number}"}}
        await kube.create("/api/v1/nodes", body)
        body["status"] = {
            "allocatable": {"cpu": str(cpus), "memory": "64Gi", "pods": "110"},
            "capacity": {"cpu": str(cpus), "memory": "64Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True", "reason": "Bench", "message": "an object only"}],
        }
        await kube.apply(f"/api/v1/nodes/n{number}/status", body)
        # Admission taints every new node; the controller that would take the taint off does not run here.
        node = await kube.get(f"/api/v1/nodes/n{number}")
        node["spec"].pop("taints", None)
        await kube.replace(f"/api/v1/nodes/n{number}", node)
    while True:
        try:
            await kube.get("/apis/inference.myorg/v1/namespaces/default/inferencejobs")
            return
        except Exception:  # noqa: BLE001 -- the CRD takes a moment to be served, under several errors
            await asyncio.sleep(0.2)


@dataclass(frozen=True, slots=True)
class Operator:
    """A running operator process."""

    process: subprocess.Popen[bytes]
    log: Path

    @property
    def cpu_seconds(self) -> float:
        """User and system time so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / _TICK

    @property
    def memory_mib(self) -> tuple[float, float]:
        """Resident now, and at its peak."""
        lines = Path(f"/proc/{self.process.pid}/status").read_text().splitlines()
        table = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith("Vm")}
        return int(table["VmRSS"]) / 1024, int(table["VmHWM"]) / 1024


@contextmanager
def operator(plane: Plane, folder: Path, **settings: Any) -> Iterator[Operator]:
    """Run the operator against the plane, and end it."""
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump({"httpPort": 18080, **settings}))
    log = folder / "operator.log"
    environment = {**os.environ, "KUBECONFIG": str(plane.kubeconfig), "INFERENCE_OPERATOR_CONFIG": str(config)}
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-m", "inference_operator"], cwd=ROOT, env=environment, stderr=out)
        try:
            yield Operator(process, log)
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
