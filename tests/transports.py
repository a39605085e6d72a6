"""A transport without a network whose bytes go to whichever protocol reads at that time, as a loop's transport does it."""

from __future__ import annotations

import asyncio
from typing import cast


class ReadTransport(asyncio.Transport):
    """Hands what is delivered to a protocol, or puts it into its buffer."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__()
        self.protocol = protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self.protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self.protocol

    def deliver(self, data: bytes) -> None:
        """Bytes that came in one read of the socket; those of one who changes in between are read again."""
        rest = memoryview(data)
        while rest and not self.is_closing():
            if not isinstance(self.protocol, asyncio.BufferedProtocol):
                cast(asyncio.Protocol, self.protocol).data_received(bytes(rest))
                return
            room = memoryview(self.protocol.get_buffer(-1))
            size = min(len(room), len(rest))
            room[:size] = rest[:size]
            rest = rest[size:]
            self.protocol.buffer_updated(size)
