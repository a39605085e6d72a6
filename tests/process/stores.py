"""Real stores on loopback: rclone's server of S3, a server of Cloud Storage's API, the registry of the Distribution project, and a line between that can be cut."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import shutil
import socket
import ssl
import subprocess
import threading
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING
from urllib.parse import quote

import pytest

from dev import tools
from dev.console import DevError
from inference_protocol.uris import GsUri, S3Uri
from tests.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tests.authority import Authority

KEY, SECRET = "tester", "a secret that nobody else has"
USER, PASSWORD = "puller", "letters and: signs"
# Of PASSWORD, by bcrypt: the registry reads no other kind.
_PASSWORD_HASH = "$2b$04$BMNe.3mPSZDVCte7bWeBQOjBHSiXJjOchwkNRt.A8moC2USaELEe2"
_START_SECONDS = 30.0
LOOPBACK = "127.0.0.1"


def tool(name: str) -> Path:
    """A built program; skips the test where neither a build nor what builds it can be had."""
    try:
        return tools.ensure(name) / name
    except (DevError, OSError, subprocess.SubprocessError) as error:
        pytest.skip(f"{name} can't be built here: {str(error)[-300:]}")


@dataclass
class S3Server:
    """Buckets are the directories of `folder`; `requests` is how often the log names a GET."""

    folder: Path
    port: int
    written_to: bool = False

    def uri(self, key: str) -> S3Uri:
        """An object of the bucket that is there."""
        return S3Uri("models", key)

    def get(self, bucket: str, key: str) -> bytes:
        return (self.folder / bucket / key).read_bytes()

    def names(self, bucket: str, folder: str) -> set[str]:
        """What is directly in a folder, and the folders in it."""
        return {path.name for path in (self.folder / bucket / folder).iterdir()}

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Lay an object onto the server's disk."""
        assert not self.written_to, "it remembers its folders, and wouldn't see what comes onto its disk"
        path = self.folder / bucket / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)


@contextlib.contextmanager
def s3_server(
    folder: Path,
    authority: Authority | None = None,
    *,
    written_to: bool = False,
    open_to_all: bool = False,
    host: str = LOOPBACK,
    names: tuple[str, ...] = ("localhost",),
) -> Iterator[S3Server]:
    """A server of S3 that takes requests signed by KEY and SECRET alone, with TLS where there is an authority.

    One that is `written_to` by S3 doesn't look for what comes onto its disk otherwise. One that is `open_to_all` checks no signature.
    """
    (port,) = free_ports(1)
    buckets = folder / "buckets"
    (buckets / "models").mkdir(parents=True)
    command = [tool("rclone"), "serve", "s3", "--addr", f"{host}:{port}", "--config", folder / "none.conf"]
    if not open_to_all:
        command += ["--auth-key", f"{KEY},{SECRET}"]
    if not written_to:
        # What a test replaces is to be seen at once. Timers without end then fill the process, and a writer would wait for them.
        command += ["--dir-cache-time", "0s", "--poll-interval", "0s"]
    if authority is not None:
        authority.server(*names).put(folder / "tls")
        command += ["--cert", folder / "tls" / "tls.crt", "--key", folder / "tls" / "tls.key"]
    with _running([*map(str, command), str(buckets)], folder / "s3.log", port, host):
        yield S3Server(buckets, port, written_to)


@dataclass
class GcsServer:
    """A server that answers as Cloud Storage does; it lets everybody in."""

    port: int

    def uri(self, key: str) -> GsUri:
        """An object of the bucket that is there."""
        return GsUri("models", key)

    def put(self, bucket: str, key: str, data: bytes) -> None:
        self._ask("POST", f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key, safe='')}", data)

    def get(self, bucket: str, key: str) -> bytes:
        return self._ask("GET", f"/{bucket}/{quote(key)}")

    def found(self, bucket: str, key: str) -> bytes:
        """An object that somebody writes to; empty while it isn't there, as in the moment in which it is replaced."""
        try:
            return self.get(bucket, key)
        except urllib.error.HTTPError as error:
            if error.code != HTTPStatus.NOT_FOUND:
                raise
            return b""

    def names(self, bucket: str, folder: str) -> set[str]:
        """What is directly in a folder, and the folders in it."""
        found = json.loads(self._ask("GET", f"/storage/v1/b/{bucket}/o?prefix={quote(folder, safe='')}/&delimiter=/"))
        paths = (*(each["name"] for each in found.get("items", ())), *found.get("prefixes", ()))
        return {path.removeprefix(f"{folder}/").rstrip("/") for path in paths}

    def _ask(self, method: str, target: str, body: bytes | None = None) -> bytes:
        request = urllib.request.Request(f"http://localhost:{self.port}{target}", body, method=method)
        with urllib.request.urlopen(request, timeout=30) as answer:
            return bytes(answer.read())


@contextlib.contextmanager
def gcs_server(folder: Path) -> Iterator[GcsServer]:
    """A server of Cloud Storage's API with one bucket."""
    program = tool("fake-gcs-server")
    (port,) = free_ports(1)
    (folder / "buckets" / "models").mkdir(parents=True)
    command = [program, "-scheme", "http", "-host", "127.0.0.1", "-port", port, "-public-host", "localhost"]
    command += ["-filesystem-root", folder / "buckets"]
    with _running([*map(str, command)], folder / "gcs.log", port):
        yield GcsServer(port)


@dataclass
class Registry:
    """A registry over TLS that lets USER in by PASSWORD."""

    port: int
    authority: Authority

    @property
    def name(self) -> str:
        return f"localhost:{self.port}"

    @property
    def docker_config(self) -> str:
        """What `kubectl create secret docker-registry` writes."""
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        return json.dumps({"auths": {self.name: {"auth": login}}})

    def push(self, repository: str, tag: str, files: Mapping[str, bytes]) -> str:
        """Push files as ORAS does: an empty config, a layer for each, its name as title. Returns the manifest's digest."""
        layers = [
            {
                "mediaType": "application/octet-stream",
                "digest": self._blob(repository, data),
                "size": len(data),
                "annotations": {"org.opencontainers.image.title": name},
            }
            for name, data in files.items()
        ]
        empty = "application/vnd.oci.empty.v1+json"
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "artifactType": "application/vnd.example.model",
            "config": {"mediaType": empty, "digest": self._blob(repository, b"{}"), "size": 2},
            "layers": layers,
        }
        body = json.dumps(manifest).encode()
        self._ask("PUT", f"/v2/{repository}/manifests/{tag}", body, str(manifest["mediaType"]))
        return f"sha256:{hashlib.sha256(body).hexdigest()}"

    def _blob(self, repository: str, data: bytes) -> str:
        digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
        place = self._ask("POST", f"/v2/{repository}/blobs/uploads/", b"")
        self._ask("PUT", f"{place}{'&' if '?' in place else '?'}digest={digest}", data)
        return digest

    def _ask(self, method: str, target: str, body: bytes, kind: str = "application/octet-stream") -> str:
        url = target if target.startswith("https://") else f"https://{self.name}{target}"
        login = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        headers = {"Authorization": f"Basic {login}", "Content-Type": kind}
        request = urllib.request.Request(url, body, headers, method=method)
        context = ssl.create_default_context(cadata=self.authority.pem)
        with urllib.request.urlopen(request, timeout=30, context=context) as answer:
            return answer.headers.get("Location") or ""


@contextlib.contextmanager
def registry(
    folder: Path, authority: Authority, *, host: str = LOOPBACK, names: tuple[str, ...] = ("localhost",)
) -> Iterator[Registry]:
    """A registry whose files are below `folder`."""
    program = tool("registry")
    (port,) = free_ports(1)
    authority.server(*names).put(folder / "tls")
    (folder / "htpasswd").write_text(f"{USER}:{_PASSWORD_HASH}\n")
    config = {
        "version": 0.1,
        "storage": {"filesystem": {"rootdirectory": str(folder / "registry")}},
        "http": {
            "addr": f"{host}:{port}",
            "tls": {"certificate": str(folder / "tls" / "tls.crt"), "key": str(folder / "tls" / "tls.key")},
        },
        "auth": {"htpasswd": {"realm": "tests", "path": str(folder / "htpasswd")}},
    }
    # JSON is YAML.
    (folder / "config.yml").write_text(json.dumps(config))
    with _running([str(program), "serve", str(folder / "config.yml")], folder / "registry.log", port, host):
        yield Registry(port, authority)


@contextlib.contextmanager
def _running(command: list[str], log: Path, port: int, host: str = LOOPBACK) -> Iterator[None]:
    with log.open("wb") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, cwd=log.parent)
    try:
        until = time.monotonic() + _START_SECONDS
        while True:
            with contextlib.suppress(OSError), socket.create_connection((host, port), 1):
                break
            assert process.poll() is None and time.monotonic() < until, log.read_text(errors="replace")[-2000:]
            time.sleep(0.05)
        yield
    finally:
        process.terminate()
        process.wait(10)
        shutil.rmtree(log.parent / "buckets", ignore_errors=True)


@dataclass
class Line:
    """A TCP line to a server. After `cut_after` bytes to the caller it breaks, and `then` is called; once, or each time.

    After `cut_sent_after` bytes from a caller it breaks once. So many answers as `lost` says never come, and so many callers as
    `busy` says are told to slow down. `change` is applied to what callers send. `sent` counts the bytes that callers took,
    `connections` how often they came.
    """

    target: int
    cut_after: int | None = None
    always: bool = False
    then: Callable[[], None] = lambda: None
    pause_seconds: float = 0.0
    cut_sent_after: int | None = None
    lost: int = 0
    busy: int = 0
    change: Callable[[bytes], bytes] = lambda block: block
    sent: int = 0
    connections: int = 0
    requests: list[bytes] = field(default_factory=list)
    port: int = 0

    def carry(self, caller: socket.socket) -> None:
        self.connections += 1
        if self.busy:
            self.busy -= 1
            with caller:
                caller.recv(65536)
                caller.sendall(b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
            return
        with caller, socket.create_connection(("127.0.0.1", self.target)) as server:
            threading.Thread(target=self._forward, args=(caller, server), daemon=True).start()
            here = 0
            with contextlib.suppress(OSError):
                while block := server.recv(1024 if self.pause_seconds else 65536):
                    time.sleep(self.pause_seconds)
                    if self.lost:
                        self.lost -= 1
                        caller.shutdown(socket.SHUT_RDWR)
                        return
                    caller.sendall(block)
                    self.sent += len(block)
                    here += len(block)
                    if self.cut_after is not None and here >= self.cut_after:
                        if not self.always:
                            self.cut_after = None
                        self.then()
                        # The other thread reads from it: closing it alone would end nothing.
                        caller.shutdown(socket.SHUT_RDWR)
                        return

    def _forward(self, caller: socket.socket, server: socket.socket) -> None:
        here = 0
        with contextlib.suppress(OSError):
            while block := caller.recv(65536):
                self.requests.append(block)
                server.sendall(self.change(block))
                here += len(block)
                if self.cut_sent_after is not None and here >= self.cut_sent_after:
                    self.cut_sent_after = None
                    for end in (caller, server):
                        end.shutdown(socket.SHUT_RDWR)
                    return


@contextlib.contextmanager
def line(target: int, **given: object) -> Iterator[Line]:
    """A line to a port of loopback."""
    made = Line(target, **given)  # type: ignore[arg-type]
    with answering(made.carry) as port:
        made.port = port
        yield made


@contextlib.contextmanager
def answering(serve: Callable[[socket.socket], None]) -> Iterator[int]:
    """A listener on loopback whose connections `serve` gets, each in a thread; yields its port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                threading.Thread(target=serve, args=(connection,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)
