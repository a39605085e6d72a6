"""A caller that sends as fast as it is read must not keep all others from being read, run and answered."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from inference_worker.serve.connections import Connections
from inference_worker.serve.http2 import Http2Protocol
from inference_worker.serve.http2_frames import PREFACE, frame, settings_frame

if TYPE_CHECKING:
    from inference_worker.serve.http2_stream import Stream

_DATA = 0
_CHUNK = 16384


class Sink:
    """Takes the body of a stream."""

    def data(self, chunk: bytes) -> None:
        pass

    def end(self) -> None:
        pass

    def abandoned(self) -> None:
        pass


class Watched(asyncio.Transport):
    """Notes whether it is read."""

    def __init__(self) -> None:
        super().__init__()
        self.read = True

    def write(self, data: object) -> None:
        pass

    def is_closing(self) -> bool:
        return False

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.read = False

    def resume_reading(self) -> None:
        self.read = True


@pytest.mark.parametrize(("frames", "goes_on"), [(1, True), (4, False)])
async def test_after_a_large_read_others_have_their_turn(frames: int, *, goes_on: bool) -> None:
    def handle(stream: Stream) -> None:
        stream.receiver = Sink()  # type: ignore[assignment]

    protocol, transport = Http2Protocol(handle, Connections()), Watched()
    protocol.connection_made(transport)
    protocol.data_received(PREFACE + settings_frame({}) + frame(1, 4, 1, b"\x83\x86\x84\x41\x01a"))

    protocol.data_received(b"".join(frame(_DATA, 0, 1, bytes(_CHUNK)) for _ in range(frames)))
    assert transport.read is goes_on

    await asyncio.sleep(0)
    assert transport.read
    protocol.connection_lost(None)
