"""The worker's HTTP/2 under h2spec, the conformance suite of the protocol; built once, into the cache that the cluster's programs are in.

The suite asks for a page, so the worker's service would refuse its requests before it has broken them. What is tested is the layer
below: the same connections, with a handler that reads a request to its end and answers.
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from dev import tools
from inference_worker.serve import http2
from inference_worker.serve.connections import Connections
from inference_worker.serve.http2 import Http2Protocol, Stream
from inference_worker.serve.http2_frames import block

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).resolve().parent
# What the suite finds and the worker is known for, as (section, description).
KNOWN = {
    # The window is widened, and what it lets through sent, before the settings are acknowledged.
    ("http2/6.9.2", "Changes SETTINGS_INITIAL_WINDOW_SIZE after sending HEADERS frame"),
}

pytestmark = [pytest.mark.slow, pytest.mark.skipif(shutil.which("go") is None, reason="h2spec is built with Go")]


class Page:
    """Implements Receiver: answers once the request is whole."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def data(self, chunk: bytes) -> None:
        pass

    def end(self) -> None:
        self._stream.start(block(200, [("content-type", "text/plain")]))
        self._stream.write(b"a page of some length")
        self._stream.finish(b"\x00\x0bgrpc-status\x010")

    def abandoned(self) -> None:
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
            program, "-p", str(port), "-o", "2", "-S", "-j", report, stdout=asyncio.subprocess.DEVNULL
        )
        await asyncio.wait_for(suite.wait(), 120)
    finally:
        server.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(server.wait_closed(), 1)


async def test_the_conformance_suite_of_http2_finds_nothing_new(
    h2spec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The suite takes the protocol's default frame size for what no server exceeds.
    monkeypatch.setattr(http2, "FRAME_LIMIT_BYTES", 16384)
    await run(h2spec, tmp_path / "report.xml")

    cases = ET.parse(tmp_path / "report.xml").getroot().findall(".//testcase")
    failed = {(case.get("package"), case.get("classname")) for case in cases if case.find("failure") is not None}
    failed |= {(case.get("package"), case.get("classname")) for case in cases if case.find("error") is not None}
    assert len(cases) > 140
    assert failed == KNOWN
