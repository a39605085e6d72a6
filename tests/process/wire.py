"""HTTP/1.1 by hand: what a careful client never sends has to be sent too."""

from __future__ import annotations

import json
import select
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from collections.abc import Mapping

# Long enough for a busy machine; a test waits this long only when it is about to fail.
PATIENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Reply:
    """One answer as it came."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> str:
        return str(self.json["error"])


class Wire:
    """One connection. `read` takes exactly one answer from it, so that pipelines can be told apart."""

    def __init__(self, port: int, *, patience: float = PATIENCE_SECONDS) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=patience)
        self._reader = self.socket.makefile("rb")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._reader.close()
        self.socket.close()

    def send(self, data: bytes) -> Self:
        self.socket.sendall(data)
        return self

    def read(self, *, bodiless: bool = False) -> Reply:
        """The next answer; ConnectionError when the server closed instead."""
        first = self._reader.readline()
        if not first:
            raise ConnectionError("closed without an answer")
        headers: dict[str, str] = {}
        while (line := self._reader.readline()) not in (b"\r\n", b""):
            name, _, value = line.decode("latin-1").partition(":")
            headers[name.strip().lower()] = value.strip()
        status = int(first.split()[1])
        size = 0 if bodiless or status < 200 else int(headers.get("content-length", 0))
        body = self._reader.read(size)
        if len(body) != size:
            raise ConnectionError(f"{len(body)} of {size} bytes, then closed")
        return Reply(status, headers, body)

    def said(self) -> bool:
        """Whether the server has said something, or closed, since the last answer."""
        return bool(select.select([self.socket], [], [], 0)[0])

    def closed(self) -> bool:
        """Whether the server closes now, with nothing more to say."""
        try:
            return self._reader.read(1) == b""
        except ConnectionResetError:
            return True

    def get(self, path: str) -> Reply:
        return self.send(request("GET", path)).read()

    def post(self, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
        return self.send(request("POST", path, body, headers)).read()


def request(method: str, path: str, body: bytes | None = None, headers: Mapping[str, str] | None = None) -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: worker", *(f"{k}: {v}" for k, v in (headers or {}).items())]
    if body is not None:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join([*lines, "", ""]).encode() + (body or b"")


def get(port: int, path: str) -> Reply:
    with Wire(port) as wire:
        return wire.get(path)


def post(port: int, path: str, body: bytes, headers: Mapping[str, str] | None = None) -> Reply:
    with Wire(port) as wire:
        return wire.post(path, body, headers)


def infer_json(rows: list[list[float]], *, name: str = "x", datatype: str = "FP32", **more: Any) -> bytes:
    """An infer request with one input."""
    entry = {"name": name, "datatype": datatype, "shape": [len(rows), len(rows[0])], "data": rows}
    return json.dumps({"inputs": [entry], **more}).encode()
