"""The rest of a large body, which the event loop reads from the socket into the memory where it stays.

Bytes that go through a parser are copied three times before they are one body: from the loop's buffer, out of what the
loop hands over, and together. The parser has nothing to say about a body whose length its head gave.
"""

import asyncio
from collections.abc import Callable

import numpy as np

LARGE_BYTES = 64 << 10
"""What has to be missing of a body for another reader to pay."""


class LargeBody(asyncio.BufferedProtocol):
    """Takes the place of a connection's own protocol until the body is whole."""

    def __init__(self, owner: asyncio.Protocol, begun: list[bytes], length: int, on_whole: Callable[[memoryview], None]) -> None:
        """Of a body of `length` bytes the `begun` are there. `on_whole` puts the owner in its place again."""
        self._owner = owner
        self._on_whole = on_whole
        # Not touched before it is written: an announced length costs its caller bytes, and us none.
        self._memory = np.empty(length, np.uint8).data
        self._filled = 0
        for part in begun:
            self._memory[self._filled : self._filled + len(part)] = part
            self._filled += len(part)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002
        """Return what is still empty, and nothing behind it: the next request is the parser's."""
        return self._memory[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        """So many bytes have come."""
        self._filled += nbytes
        if self._filled == len(self._memory):
            self._on_whole(self._memory.toreadonly())

    def eof_received(self) -> bool | None:
        """See asyncio.Protocol."""
        return self._owner.eof_received()

    def connection_lost(self, exc: Exception | None) -> None:
        """See asyncio.Protocol."""
        self._owner.connection_lost(exc)

    def pause_writing(self) -> None:
        """See asyncio.Protocol."""
        self._owner.pause_writing()

    def resume_writing(self) -> None:
        """See asyncio.Protocol."""
        self._owner.resume_writing()
