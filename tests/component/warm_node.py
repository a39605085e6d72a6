"""Plays scheduler and kubelet of warm workers, which are real processes: each has an address of its own on loopback.

The worker is started with the configuration that the operator wrote into its pod; its pod tells what the process does.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import aiohttp
import msgspec
import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from inference_operator.api import names
from inference_protocol.messages import (
    CONFIG_VARIABLE,
    HEALTH_PORT,
    HTTP_PORT,
    READY_PATH,
    TELEMETRY_PATH,
    TOKEN_FILE,
    TRUST_FILE,
    Telemetry,
    WorkerConfig,
    encode,
)
from tests import loopback
from tests.component.kubelet import node_of, now
from tests.component.objects import a_model, a_node, a_server
from tests.component.operators import PATIENCE_SECONDS, until
from tests.outputs import committed_chunks
from tests.process.harness import QUICK_COMMITS, QUICK_DRAIN, REPOSITORY
from tests.process.patched import PATCHES_VARIABLE
from tests.process.tritons import Triton

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.kinds import Raw

CLAIM = "data"
_POLL_SECONDS = 0.02
# In the place of the cluster's DNS.
_NAMES = """
import socket
real = socket.getaddrinfo
socket.getaddrinfo = lambda host, *more, **named: real("127.0.0.1" if str(host).endswith(".svc") else host, *more, **named)
"""


@dataclass
class Warm:
    """One warm worker: its process, and its pod's name."""

    pod: str
    address: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def kill(self) -> None:
        """As the kernel would for lack of memory."""
        self.process.kill()


@dataclass
class WarmNode:
    """Runs every warm worker that the operator makes, and the tritonserver beside it. `workers` are all that ever were, oldest first."""

    server: ApiServer
    folder: Path
    # Constants of the workers that are other than users have them.
    patches: dict[str, float] = field(default_factory=lambda: QUICK_COMMITS | QUICK_DRAIN)
    workers: list[Warm] = field(default_factory=list)
    beside: list[Triton] = field(default_factory=list)
    # Whether it runs the workers of jobs, too.
    runs_jobs: bool = False

    def __post_init__(self) -> None:
        self._lives: list[asyncio.Task[None]] = []
        self.claim.mkdir(parents=True)
        self.server.on_created.append(self._see)

    @property
    def claim(self) -> Path:
        """The volume's folder."""
        return self.folder / "volumes" / CLAIM

    @property
    def running(self) -> list[Warm]:
        return [worker for worker in self.workers if worker.running]

    def put_rows(self, name: str, rows: int, width: int) -> str:
        """An input of so many rows; returns its location."""
        np.save(self.claim / name, np.full((rows, width), 0.5, np.float32))
        return f"pvc://{CLAIM}/{name}.npy"

    def committed(self, job: str) -> list[tuple[int, int]]:
        """The spans of items that a job's manifest holds."""
        return [(part["start"], part["end"]) for part in committed_chunks(self.claim / "out" / job)]

    async def until_idle(self) -> None:
        """Wait until no worker has a task; the limit is only there so that a broken operator fails a test."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while any([(await self._telemetry(worker)).tasks for worker in self.running]):
                await asyncio.sleep(_POLL_SECONDS)

    async def items_done(self) -> int:
        """Items that the workers which still run have computed and committed, all together."""
        total = 0.0
        for worker in self.running:
            families = text_string_to_metric_families((await self._get(worker, "/metrics")).decode())
            total += sum(s.value for f in families for s in f.samples if s.name == "inference_batch_items_total")
        return int(total)

    async def _telemetry(self, worker: Warm) -> Telemetry:
        return msgspec.json.decode(await self._get(worker, TELEMETRY_PATH), type=Telemetry)

    async def end(self) -> None:
        """Kill what runs. An operator that lives on makes successors, which nobody would end."""
        self.server.on_created.remove(self._see)
        for worker in self.workers:
            worker.kill()
            worker.process.wait()
        for triton in self.beside:
            triton.end()
        await asyncio.gather(*self._lives, return_exceptions=True)

    def _see(self, obj: Raw) -> None:
        labels = obj["metadata"].get("labels", {})
        ours = names.LABEL_MODEL_UID in labels or (self.runs_jobs and names.LABEL_JOB_UID in labels)
        if obj["kind"] != "Pod" or not ours:
            return
        worker = self._start(obj)
        self.workers.append(worker)
        self._lives.append(asyncio.get_running_loop().create_task(self._live(worker, obj)))

    def _start(self, pod: Raw) -> Warm:
        number, name = len(self.workers) + 1, pod["metadata"]["name"]
        (config,) = [e["value"] for e in pod["spec"]["containers"][0]["env"] if e["name"] == CONFIG_VARIABLE]
        address, log = loopback.address(number), self.folder / f"{name}.log"
        told = msgspec.json.decode(config, type=WorkerConfig)
        if told.triton is not None:
            beside = Triton(self.folder / name)
            self.beside.append(beside)
            config = encode(msgspec.structs.replace(told, triton=beside.told)).decode()
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("protocol", "worker-image", "")),
            "INFERENCE_ADDRESS": address,
            "INFERENCE_VOLUME_ROOT": str(self.folder / "volumes"),
            "INFERENCE_TERMINATION_PATH": str(self.folder / f"{name}.report"),
            CONFIG_VARIABLE: config,
            PATCHES_VARIABLE: json.dumps(self.patches),
        }
        if told.identity is not None:
            environment |= self._identity(pod)
        with log.open("wb") as target:
            process = subprocess.Popen(
                [sys.executable, "-m", "tests.process.patched"], env=environment, stdout=target, stderr=target, cwd=self.folder
            )
        return Warm(name, address, process, log)

    def _identity(self, pod: Raw) -> dict[str, str]:
        """What the kubelet mounts for a worker of mutual TLS; names of Services lead to loopback, where the operator is."""
        root = self.folder / f"{pod['metadata']['name']}-identity"
        (root / "identity").mkdir(parents=True)
        (root / TRUST_FILE).write_text(pod["metadata"]["annotations"][names.ANNOTATION_TRUST])
        (token,) = [
            source["serviceAccountToken"]
            for volume in pod["spec"]["volumes"]
            for source in volume.get("projected", {}).get("sources", ())
            if "serviceAccountToken" in source
        ]
        bound = {"namespace": pod["metadata"]["namespace"], "pod": {key: pod["metadata"][key] for key in ("name", "uid")}}
        claims = json.dumps({"aud": [token["audience"]], "kubernetes.io": bound}).encode()
        (root / TOKEN_FILE).write_text(f"e30.{base64.urlsafe_b64encode(claims).decode().rstrip('=')}.c2ln")
        (root / "sitecustomize.py").write_text(_NAMES)
        path = os.pathsep.join([str(root), *(str(REPOSITORY / part) for part in ("protocol", "worker-image", ""))])
        return {"INFERENCE_IDENTITY_ROOT": str(root), "PYTHONPATH": path}

    async def _live(self, worker: Warm, pod: Raw) -> None:
        """The pod follows its process, from bound to ended; a pod that is deleted has its process told to stop."""
        where = ("pods", worker.pod, pod["metadata"]["namespace"])
        told = False
        while worker.running:
            found = self.server.get(*where) if self.server.has(*where) else None
            if (found is None or found["metadata"].get("deletionTimestamp")) and not told:
                worker.process.send_signal(signal.SIGTERM)
                told = True
            elif found is not None and "podIP" not in found["status"] and await self._is_ready(worker):
                self.server.update(*where[:2], lambda obj: _run(obj, worker.address), where[2])
            await asyncio.sleep(_POLL_SECONDS)
        if not self.server.has(*where):
            return
        if self.server.get(*where)["metadata"].get("deletionTimestamp"):
            self.server.delete(*where)
            return
        report = self.folder / f"{worker.pod}.report"
        words = report.read_text() if report.exists() else ""
        self.server.update(*where[:2], lambda obj: _end(obj, worker.process.returncode, words), where[2])

    async def _is_ready(self, worker: Warm) -> bool:
        try:
            await self._get(worker, READY_PATH, HEALTH_PORT)
        except aiohttp.ClientError:
            return False
        return True

    async def _get(self, worker: Warm, path: str, port: int = HTTP_PORT) -> bytes:
        url = f"http://{worker.address}:{port}{path}"
        async with aiohttp.ClientSession(raise_for_status=True) as session, session.get(url) as answer:
            return await answer.read()


def served_by_two(server: ApiServer, folder: Path, data: bytes) -> WarmNode:
    """A node, and a service `served` of two workers that have this model."""
    node = WarmNode(server, folder / "node", runs_jobs=True, patches={})
    (node.claim / "model.onnx").write_bytes(data)
    model = a_model()
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(data).hexdigest()}"}
    model["spec"] = {"versions": [version]}
    for obj in (a_node(), model, a_server("served", replicas=2, serve={"minReplicas": 2})):
        server.create(obj)
    return node


async def all_ready(node: WarmNode, count: int) -> list[Warm]:
    """Wait until so many workers run and are said to be ready."""

    def ready() -> list[Warm]:
        found = [w for w in node.running if node.server.has("pods", w.pod) and "podIP" in node.server.get("pods", w.pod)["status"]]
        return found if len(found) == count else []

    return await until(ready, f"{count} warm workers: {[w.log.read_text()[-500:] for w in node.workers]}")


def _run(obj: Raw, address: str) -> None:
    obj["spec"]["nodeName"] = node_of(obj)
    obj["status"] = {
        "phase": "Running",
        "podIP": address,
        "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        "containerStatuses": [{"name": names.CONTAINER, "state": {"running": {"startedAt": now()}}}],
    }


def _end(obj: Raw, code: int, words: str) -> None:
    # A process that a signal ended has a negative code here, and 128 more than the signal in Kubernetes.
    ended = {"exitCode": code if code >= 0 else 128 - code, "startedAt": now(), "finishedAt": now(), "message": words}
    obj["status"] = {
        "phase": "Succeeded" if code == 0 else "Failed",
        "containerStatuses": [{"name": names.CONTAINER, "state": {"terminated": ended}}],
    }
