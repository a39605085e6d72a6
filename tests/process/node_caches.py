"""A node's cache as a real process on loopback, and a caller that asks it in raw bytes."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
import subprocess
import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from inference_protocol.messages import ModelSource, encode
from inference_protocol.node_cache import (
    CONFIG_VARIABLE,
    GRANT_VARIABLE,
    HEAD_BYTES,
    MODELS_PATH,
    SIGNATURE_HEADER,
    WANTED_PATH,
    BundledFile,
    CacheConfig,
    Grant,
    Head,
    Wanted,
    WantedModel,
    WantedState,
    signature,
    token,
)
from tests.loopback import free_ports
from tests.process.harness import REPOSITORY, until
from tests.process.wire import PATIENCE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

KEY = b"k" * 32
# The cache with loopback allowed, as workers have it in tests: there is no other network.
_START = """
import importlib, json, os, sys
from tests.process.patched import allow_loopback
allow_loopback()
for target, value in json.loads(os.environ["PATCHES"]).items():
    module, attribute = target.split(":")
    assert hasattr(importlib.import_module(module), attribute), target
    setattr(importlib.import_module(module), attribute, value)
from inference_worker.node_cache.__main__ import main
code = main()
os._exit(code)
"""


def digest_of(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def bundle(files: Mapping[str, bytes]) -> bytes:
    """What travels."""
    head = Head(tuple(BundledFile(name, len(data)) for name, data in files.items()))
    return msgspec.json.encode(head).ljust(HEAD_BYTES) + b"".join(files.values())


@dataclass
class NodeCache:
    """One process. `folder` outlives it."""

    root: Path
    limit: int = 64 << 20
    shared: bool = False
    hosts: tuple[str, ...] = ("localhost",)
    patches: Mapping[str, Any] = field(default_factory=dict)
    command: tuple[str, ...] = (sys.executable, "-c", _START)

    def __post_init__(self) -> None:
        self.folder = self.root / "cache"
        key_file = self.root / "node-cache-key"
        key_file.write_bytes(KEY)
        self.port, self.metrics_port = free_ports(2)
        config = CacheConfig(str(self.folder), self.limit, str(key_file), self.shared, self.hosts)
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(str(REPOSITORY / part) for part in ("protocol", "worker-image", "")),
            "INFERENCE_NODE_CACHE_PORT": str(self.port),
            "INFERENCE_NODE_CACHE_METRICS_PORT": str(self.metrics_port),
            CONFIG_VARIABLE: msgspec.json.encode(config).decode(),
            "PATCHES": json.dumps(dict(self.patches)),
        }
        self.start()

    def start(self) -> None:
        with (self.root / "cache.log").open("ab") as log:
            self.process = subprocess.Popen(self.command, env=self.environment, stdout=log, stderr=log, cwd=self.root)
        until(lambda: self.process.poll() is not None or self.metrics("") is not None, "the cache")
        assert self.process.poll() is None, self.log

    @property
    def log(self) -> str:
        return (self.root / "cache.log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def variables(self, digest: str, *, namespace: str = "team") -> dict[str, str]:
        """What the operator adds to a worker's environment."""
        grant = Grant(f"http://127.0.0.1:{self.port}", token(KEY, namespace, digest))
        return {GRANT_VARIABLE: encode(grant).decode()}

    def connection(self, *, seconds: float = PATIENCE_SECONDS) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds)

    def get(self, digest: str, *, namespace: str = "team", bearer: str | None = None) -> tuple[int, bytes]:
        connection = self.connection()
        try:
            connection.request("GET", path_of(namespace, digest), headers=headers_of(namespace, digest, bearer))
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def put(self, digest: str, body: bytes, *, namespace: str = "team") -> int:
        connection = self.connection()
        try:
            connection.request("PUT", path_of(namespace, digest), body=body, headers=headers_of(namespace, digest))
            return connection.getresponse().status
        finally:
            connection.close()

    def keep(self, files: Mapping[str, bytes], digest: str, *, namespace: str = "team") -> None:
        """Bring a model, and wait until it is there."""
        assert self.put(digest, bundle(files), namespace=namespace) == 201
        until(lambda: self.get(digest, namespace=namespace)[0] == 200, "the model on disk")

    def order(
        self, *models: tuple[str, ModelSource], sent: float | None = None, key: bytes = KEY
    ) -> tuple[int, WantedState | None]:
        """Order models as the operator does."""
        wanted = Wanted(time.time() if sent is None else sent, tuple(WantedModel(ns, source) for ns, source in models))
        body = encode(wanted)
        connection = self.connection()
        try:
            connection.request("POST", WANTED_PATH, body=body, headers={SIGNATURE_HEADER: signature(key, body)})
            response = connection.getresponse()
            data = response.read()
            return response.status, msgspec.json.decode(data, type=WantedState) if response.status == 200 else None
        finally:
            connection.close()

    def metrics(self, name: str) -> float | None:
        """The value of a metric; with an empty name, something as soon as there is an answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.metrics_port, timeout=PATIENCE_SECONDS)
        try:
            connection.request("GET", "/metrics")
            lines = connection.getresponse().read().decode().splitlines()
        except OSError:
            return None
        finally:
            connection.close()
        values = {line.split()[0]: float(line.split()[1]) for line in lines if line and not line.startswith("#")}
        return values.get(f"inference_node_{name}") if name else 1.0


def path_of(namespace: str, digest: str) -> str:
    return f"{MODELS_PATH}/{namespace}/{digest}"


def headers_of(namespace: str, digest: str, bearer: str | None = None) -> dict[str, str]:
    return {"Authorization": f"Bearer {token(KEY, namespace, digest) if bearer is None else bearer}"}
