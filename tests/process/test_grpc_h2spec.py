"""The worker's HTTP/2 under h2spec, the conformance suite of the protocol; built once, into the cache that the cluster's programs are in.

The suite asks for a page, so the worker's service would refuse its requests before it has broken them. What is tested is the layer
below: the same connections, with a handler that reads a request to its end and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from dev import tools
from inference_worker.serve import http2
from inference_worker.serve.connections import Connections
from inference_worker.serve.http2 import Http2Protocol
from inference_worker.serve.http2_frames import block
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import Payload

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("go") is None, reason="h2spec is built with Go")]


class Page:
    """Implements Receiver: answers once the request is whole."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def data(self, chunk: Payload) -> None:
        pass

    def end(self) -> None:
        self._stream.start(block(200, [("content-type", "text/plain")]))
        self._stream.write(b"a page of some length")
        self._stream.finish(b"\x00\x0bgrpc-status\x010")

    def abandoned(self) -> None:
        pass

    def drain(self) -> None:
        pass

    def resume(self) -> None:
        pass


def handle(stream: Stream) -> None:
    stream.receiver = Page(stream)


@pytest.fixture(scope="module")
def h2spec() -> Iterator[Path]:
    tools.TOOL_SETS["h2spec"] = tools.ToolSet(
        module=str(HERE / "h2spec"), programs={"h2spec": "github.com/summerwind/h2spec/cmd/h2spec"}
    )
    try:
        yield tools.ensure("h2spec") / "h2spec"
    finally:
        del tools.TOOL_SETS["h2spec"]


async def run(program: Path, report: Path) -> None:
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Http2Protocol(handle, Connections()), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        suite = await asyncio.create_subprocess_exec(
            program, "-p", str(port), "-o", "10", "-S", "-j", report, stdout=asyncio.subprocess.DEVNULL
        )
        await asyncio.wait_for(suite.wait(), 300)
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1)


def failures(report: Path) -> tuple[int, set[tuple[str | None, str | None]]]:
    """How many cases there were, and those that failed. The suite writes a peer's bytes into its XML as they come."""
    text = re.sub(r"[^\t\n\r -~]|&#x?[0-9A-Fa-f]+;", "?", report.read_text(errors="replace"))
    cases = ET.fromstring(text).findall(".//testcase")
    bad = [case for case in cases if case.find("failure") is not None or case.find("error") is not None]
    return len(cases), {(case.get("package"), case.get("classname")) for case in bad}


async def test_the_conformance_suite_of_http2_finds_nothing(h2spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # The suite takes the protocol's default frame size for what no server exceeds.
    monkeypatch.setattr(http2, "FRAME_LIMIT_BYTES", 16384)
    failed: set[tuple[str | None, str | None]] | None = None
    # The suite waits two seconds for each answer: on a busy machine a case may miss that once, but not again and again.
    for attempt in range(3):
        await run(h2spec, tmp_path / f"{attempt}.xml")
        count, found = failures(tmp_path / f"{attempt}.xml")
        assert count > 140
        failed = found if failed is None else failed & found
        if not failed:
            return
    assert failed == set()
