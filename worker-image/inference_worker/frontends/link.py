"""The socket between a frontend and its worker: what either tells in one round of its event loop goes in one piece.

A piece is a MessagePack array of messages behind its length in eight bytes. At a thousand requests a second and more, a piece
carries many, so that neither side pays a system call for each.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from typing import Generic, TypeVar, cast

import msgspec

log = logging.getLogger(__name__)

_PREFIX = 8
_TURN = 16
"""Messages that are taken before others have their turn: those of a full piece would hold up the end of a run for milliseconds."""

_MOST_WAITING, _FEW_WAITING = 1024, 256

Told = TypeVar("Told", bound=msgspec.Struct)
Heard = TypeVar("Heard", bound=msgspec.Struct)


class Link(asyncio.Protocol, Generic[Told, Heard]):
    """One end of it."""

    def __init__(
        self, decoder: "msgspec.msgpack.Decoder[list[Heard]]", take: Callable[[Heard], None], lost: Callable[[], None]
    ) -> None:
        """`take` is called with each message of the other side, `lost` once that is gone."""
        self._loop = asyncio.get_running_loop()
        self._decoder = decoder
        self._encoder = msgspec.msgpack.Encoder()
        self._take = take
        self._lost = lost
        self._transport: asyncio.Transport | None = None
        self._chunks: list[bytes] = []
        self._size = self._wanted = 0
        self._taken: deque[Heard] = deque()
        self._paused = False
        self.told: list[Told] = []
        """What goes with the next piece."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """See asyncio.Protocol."""
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002
        """See asyncio.Protocol."""
        self._transport = None
        self.told.clear()
        self._lost()

    def close(self) -> None:
        """Send what is told, and end."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def tell(self, message: Told) -> None:
        """Send a message, with all others of this round."""
        if not self.told:
            self._loop.call_soon(self._flush)
        self.told.append(message)

    def _flush(self) -> None:
        if not self.told:
            return
        piece = self._encoder.encode(self.told)
        self.told.clear()
        if self._transport is not None:
            self._transport.write(len(piece).to_bytes(_PREFIX, "big") + piece)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        self._chunks.append(data)
        self._size += len(data)
        if self._size < self._wanted:
            return
        whole = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        idle = not self._taken
        position = self._pieces(whole)
        rest = whole[position:]
        self._chunks, self._size = ([rest], len(rest)) if rest else ([], 0)
        if idle:
            self._turn()

    def _pieces(self, data: bytes) -> int:
        """Take the messages of all pieces that are whole; returns where the first begins that is not."""
        position, self._wanted = 0, _PREFIX
        while len(data) - position >= _PREFIX:
            end = position + _PREFIX + int.from_bytes(data[position : position + _PREFIX], "big")
            if end > len(data):
                self._wanted = end - position
                break
            self._taken.extend(self._decoder.decode(memoryview(data)[position + _PREFIX : end]))
            position = end
        return position

    def _turn(self) -> None:
        taken = self._taken
        for _ in range(min(_TURN, len(taken))):
            try:
                self._take(taken.popleft())
            except Exception:
                # A fault of our own costs the message that met it, and not all that follow.
                log.exception("a message could not be taken")
        if taken:
            self._loop.call_soon(self._turn)
        paused = len(taken) > (_FEW_WAITING if self._paused else _MOST_WAITING)
        if paused != self._paused and self._transport is not None:
            self._paused = paused
            (self._transport.pause_reading if paused else self._transport.resume_reading)()
