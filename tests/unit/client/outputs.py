"""A volume and a bucket that are folders of this machine, and an API server that knows one job."""

from __future__ import annotations

import asyncio
import hashlib
import json
import subprocess
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import msgspec

from inference_client.aio import AsyncClient
from inference_client.calls import Call, Exec
from inference_client.client import Client
from inference_client.errors import ClientError, NotFoundError

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

    from inference_client.api import InferenceJob
    from inference_client.downloads import Download

Raw = dict[str, Any]
UID = "u-1"
CLAIM = hashlib.sha256(UID.encode()).hexdigest()[:8]
JOB = "demo/job"


def chunk(start: int, end: int, data: bytes, number: int = 1) -> Raw:
    """What a manifest says of a chunk."""
    name = f"chunk-{start:010d}-{CLAIM}-{number}.jsonl"
    return {"file": name, "start": start, "end": end, "sha256": hashlib.sha256(data).hexdigest(), "attempt": number}


def written(folder: Path, *texts: bytes, **changes: Any) -> list[Raw]:
    """A finished output of ten items a chunk; returns its chunks."""
    folder.mkdir(parents=True, exist_ok=True)
    chunks = [chunk(at * 10, at * 10 + 10, text) for at, text in enumerate(texts)]
    for one, text in zip(chunks, texts, strict=True):
        (folder / one["file"]).write_bytes(text)
    summary = {"job": JOB, "uid": UID, "modelDigest": "sha256:0", "total": 10 * len(texts), "chunks": chunks, **changes}
    (folder / "manifest.json").write_text(json.dumps(summary, indent=1) + "\n")
    return chunks


def begun(folder: Path, number: int, *texts: bytes, uid: str = UID, torn: bytes = b"") -> None:
    """An attempt's own list, and its chunks."""
    (folder / "attempts").mkdir(parents=True, exist_ok=True)
    chunks = [chunk(at * 10, at * 10 + 10, text, number) for at, text in enumerate(texts)]
    for one, text in zip(chunks, texts, strict=True):
        (folder / one["file"]).write_bytes(text)
    header = {"job": JOB, "uid": uid, "modelDigest": "sha256:0", "input": "x", "total": 100, "attempt": number}
    name = f"{hashlib.sha256(uid.encode()).hexdigest()[:8]}-{number}.jsonl"
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in (header, *chunks))
    (folder / "attempts" / name).write_bytes(lines + torn)


@dataclass
class Server:
    """Answers for a job, a claim and helper pods; programs in them find the claim's files in a folder."""

    job: InferenceJob
    volume: Path
    faults: dict[str, BaseException] = field(default_factory=dict)
    pods: dict[str, Raw] = field(default_factory=dict)
    made: list[Raw] = field(default_factory=list)
    programs: list[tuple[str, ...]] = field(default_factory=list)
    namespace: str = "demo"
    api: None = None

    def send(self, call: Call) -> Raw:
        """An answer of the API server."""
        kind, name = call.path.split("/")[-2:]
        if call.method == "POST":
            pod = cast("Raw", call.body)
            self.pods[pod["metadata"]["name"]] = {**pod, "status": {"conditions": [{"type": "Ready", "status": "True"}]}}
            self.made.append(pod)
            return pod
        if call.method == "DELETE":
            return self.pods.pop(name)
        if kind == "persistentvolumeclaims" and name != "data":
            raise NotFoundError(name)
        return self.pods[name] if kind == "pods" else cast("Raw", msgspec.to_builtins(self.job))

    def run(self, program: Exec) -> None:
        """A program in a pod that is there, and mounts the claim."""
        assert program.pod in self.pods
        self.programs.append(program.command)
        path = program.command[-1]
        for name, fault in self.faults.items():
            if path.endswith(name):
                program.sink(b"a part")
                raise fault
        here = [*program.command[:-1], f"{self.volume}/{path.removeprefix('/data/')}"]
        done = subprocess.run(here, capture_output=True, check=False)
        for at in range(0, len(done.stdout), 7):
            program.sink(done.stdout[at : at + 7])
        if done.returncode:
            raise ClientError(done.stderr.decode())


class AsyncServer:
    """The same for an event loop."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.namespace = server.namespace

    async def send(self, call: Call) -> Raw:
        """An answer."""
        return self.server.send(call)

    async def read(self, program: Exec) -> None:
        """A program in a pod."""
        self.server.run(program)


def fetch(server: Server, folder: Path, *, monkeypatch: pytest.MonkeyPatch, waits: bool = False, **wish: Any) -> Download:
    """A download by the client for ordinary code, or the one that `waits` in an event loop."""
    if waits:
        client = AsyncClient(cast("Any", AsyncServer(server)))
        return asyncio.run(client.jobs.download("job", folder, **wish))
    monkeypatch.setattr("inference_client.pod_exec.read", lambda _, program: server.run(program))
    return Client(cast("Any", server)).jobs.download("job", folder, **wish)
