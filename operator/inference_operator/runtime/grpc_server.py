"""grpclib's server within bounds that it has no setting for: of the connections, and of what each makes it keep."""

import logging
import socket
from asyncio import BaseTransport
from collections.abc import Callable
from typing import Any, ClassVar

from google.protobuf.message import DecodeError
from grpclib.const import Status
from grpclib.exceptions import GRPCError
from grpclib.protocol import AbstractHandler, H2Protocol
from grpclib.server import Server, Stream
from h2.events import DataReceived
from h2.settings import SettingCodes
from hpack import Encoder

log = logging.getLogger(__name__)

TABLE_BYTES = 4096
"""HPACK's default. What answers say comes from callers in part, so a caller that allowed more could fill it."""


async def received(stream: Stream[Any, Any]) -> Any:
    """The next message; None at the stream's end. Raises GRPCError for bytes that are none."""
    try:
        return await stream.recv_message()
    except (DecodeError, NotImplementedError, AssertionError) as error:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request can't be read") from error


class BoundedEncoder(Encoder):
    """Remembers `TABLE_BYTES` of headers at most; tells of changed sizes the least and the last, as RFC 7541 4.2 has it."""

    @property
    def header_table_size(self) -> int:
        """The dynamic table's bound, in bytes."""
        return int(self.header_table.maxsize)

    @header_table_size.setter
    def header_table_size(self, announced: int) -> None:
        size = min(announced, TABLE_BYTES)
        if size == self.header_table.maxsize:
            # hpack would take this for the end of a change that the caller has not been told yet.
            return
        self.header_table.maxsize = size
        self.table_size_changes = list(dict.fromkeys((min([*self.table_size_changes, size]), size)))


class BoundedProtocol(H2Protocol):
    """One connection. `open_` are all of its server's, the longest silent first."""

    caller: ClassVar[str]
    connections: ClassVar[int]
    streams: ClassVar[int]

    def __init__(self, made: H2Protocol, open_: dict["BoundedProtocol", None]) -> None:
        super().__init__(_Careful(made.handler), made.config, made.h2_config)
        self._open = open_

    def excess(self) -> str:
        """What the caller takes too much of, in words; empty where it does not."""
        raise NotImplementedError

    @property
    def held_bytes(self) -> int:
        """Bytes of messages that are not complete. What has been read of a stream is let go of."""
        return sum(stream.buffer._acked_size for stream in self.processor.streams.values())  # noqa: SLF001

    def connection_made(self, transport: BaseTransport) -> None:
        """See asyncio.Protocol."""
        super().connection_made(transport)
        if (accepted := transport.get_extra_info("socket")) is not None:
            # asyncio sees to it only for sockets that name their protocol, which those of socket.create_server don't. Without it
            # a second frame waits for the caller's acknowledgement of the first: 40 ms.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection = self.connection._connection  # noqa: SLF001
        connection.encoder = BoundedEncoder()
        connection.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: self.streams})
        self.connection.flush()
        # An empty frame of data says nothing; grpclib takes it for the end of the request.
        take = self.processor.process_data_received
        self.processor.processors[DataReceived] = lambda event: take(event) if event.flow_controlled_length else None
        self._open[self] = None
        if len(self._open) > self.connections:
            # Who asks nothing goes before who does; streams that stay, stay.
            goes = next((one for one in self._open if not one.processor.streams), self)
            goes.end(f"more than {self.connections} connections are open; one that asks nothing is ended")

    def connection_lost(self, exc: BaseException | None) -> None:
        """See asyncio.Protocol."""
        self._open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """See asyncio.Protocol."""
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 -- h2 raises what it likes at a header that is not ASCII
            self.end(f"it sent what can't be read ({type(error).__name__}); its connection is ended")
            return
        if self in self._open:
            # To the end of the line.
            del self._open[self]
            self._open[self] = None
            if excess := self.excess():
                self.end(f"{excess}; its connection is ended")

    def end(self, why: str) -> None:
        """End the connection, and say why."""
        log.warning("%s: %s", self.caller, why)
        self._open.pop(self, None)
        self.processor.close(why)


class _Careful(AbstractHandler):
    """Spares grpclib the headers that would leave a call without an answer, a traceback in its place.

    Those are binary metadata that is no base64, which nobody here asks for, and a head without a method or path.
    """

    def __init__(self, handler: AbstractHandler) -> None:
        self._handler = handler

    def accept(self, stream: Any, headers: Any, release_stream: Callable[[], Any]) -> None:
        """See AbstractHandler."""
        kept = [(name, value) for name, value in headers if not name.endswith("-bin")]
        self._handler.accept(stream, [(":method", ""), (":path", ""), *kept], release_stream)

    def cancel(self, stream: Any) -> None:
        """See AbstractHandler."""
        self._handler.cancel(stream)

    def close(self) -> None:
        """See AbstractHandler."""
        self._handler.close()


class BoundedServer(Server):
    """Serves one service, each connection by `protocol`."""

    def __init__(self, service: Any, protocol: type[BoundedProtocol]) -> None:
        super().__init__([service])
        self._protocol = protocol
        self._open: dict[BoundedProtocol, None] = {}

    def close(self) -> None:
        """End all: a client that keeps its connection asks no other replica."""
        super().close()
        for one in tuple(self._open):
            one.end("this replica stops; its connection is ended")

    def _protocol_factory(self) -> H2Protocol:
        return self._protocol(super()._protocol_factory(), self._open)
