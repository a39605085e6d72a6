"""What one caller of a gRPC server of the operator can make it keep, by what its frames allow and hold."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any, ClassVar

import pytest
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import Event, RemoteSettingsChanged, ResponseReceived
from h2.settings import SettingCodes
from hpack import Decoder, Encoder

from inference_operator.gateway import messages
from inference_operator.runtime.grpc_server import TABLE_BYTES, BoundedEncoder, BoundedProtocol, BoundedServer, received
from tests.loopback import free_ports

CALLS = 60


class Refusing:
    """Answers each call by an error whose text comes from the caller, as errors' texts do in part."""

    def __mapping__(self) -> dict[str, Handler]:
        return {"/s/m": Handler(self.refuse, Cardinality.UNARY_UNARY, messages.DiscoveryRequest, messages.DiscoveryResponse)}

    async def refuse(self, stream: Any) -> None:
        raise GRPCError(Status.NOT_FOUND, (await received(stream)).response_nonce)


class Protocol(BoundedProtocol):
    caller, connections, streams = "a caller", 3, CALLS
    made: ClassVar[list[BoundedProtocol]] = []

    def excess(self) -> str:
        Protocol.made[:] = [self]
        return ""


@pytest.fixture
async def port() -> AsyncIterator[int]:
    (port,) = free_ports(1)
    server = BoundedServer(Refusing(), Protocol)
    await server.start("127.0.0.1", port)
    yield port
    server.close()


HEAD = [(":method", "POST"), (":scheme", "http"), (":authority", "o"), (":path", "/s/m"), ("content-type", "application/grpc")]


def call(client: H2Connection, stream: int, nonce: str, *more: tuple[str, str]) -> None:
    body = messages.DiscoveryRequest(response_nonce=nonce).SerializeToString()
    client.send_headers(stream, [*HEAD, ("te", "trailers"), *more])
    client.send_data(stream, b"\0" + len(body).to_bytes(4, "big") + body, end_stream=True)


async def spoken(port: int, client: H2Connection, say: Callable[[], None], want: Callable[[list[Event]], bool]) -> list[Event]:
    """The events, once they are what is waited for."""
    async with AsyncExitStack() as stack, asyncio.timeout(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        stack.callback(writer.close)
        say()
        found: list[Event] = []
        while not want(found):
            writer.write(client.data_to_send())
            got = await reader.read(1 << 16)
            assert got, "the connection ended"
            found += client.receive_data(got)
        return found


def answers(events: list[Event]) -> list[ResponseReceived]:
    """Each is all there is: a head with the error in it."""
    return [event for event in events if isinstance(event, ResponseReceived)]


async def test_a_caller_that_allows_a_table_of_a_gigabyte_fills_four_kibibytes(port: int) -> None:
    client = H2Connection()
    client.initiate_connection()
    client.update_settings({SettingCodes.HEADER_TABLE_SIZE: 1 << 30})

    def say() -> None:
        for number in range(CALLS):
            call(client, 2 * number + 1, f"{number} " + "x" * 1000)

    await spoken(port, client, say, lambda events: len(answers(events)) == CALLS)

    (protocol,) = Protocol.made
    encoder = protocol.connection._connection.encoder
    assert sum(32 + len(n) + len(v) for n, v in encoder.header_table.dynamic_entries) <= TABLE_BYTES == encoder.header_table_size


async def test_metadata_that_is_no_base64_is_answered(port: int) -> None:
    client = H2Connection()
    client.initiate_connection()

    found = await spoken(port, client, lambda: call(client, 1, "told", ("x-any-bin", "!!!")), lambda e: bool(answers(e)))

    assert dict(answers(found)[0].headers)[b"grpc-message"] == b"told"


@pytest.mark.parametrize(("missing", "status"), [(":method", b"405"), (":path", b"200")])
async def test_a_head_without_a_method_or_path_is_answered_in_a_word(
    port: int, missing: str, status: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    client = H2Connection(H2Configuration(validate_outbound_headers=False))
    client.initiate_connection()

    def say() -> None:
        client.send_headers(1, [*(each for each in HEAD if each[0] != missing), ("te", "trailers")], end_stream=True)

    found = await spoken(port, client, say, lambda e: bool(answers(e)))

    assert dict(answers(found)[0].headers)[b":status"] == status and "Traceback" not in caplog.text


async def test_a_server_says_how_many_streams_it_takes(port: int) -> None:
    client = H2Connection()
    client.initiate_connection()

    def said(events: list[Event]) -> bool:
        changes = [event.changed_settings for event in events if isinstance(event, RemoteSettingsChanged)]
        return any(c[SettingCodes.MAX_CONCURRENT_STREAMS].new_value == CALLS for c in changes if 3 in c)

    await spoken(port, client, lambda: None, said)


FIELDS = [("a", "b" * 100), ("c", "d" * 100)]


@pytest.mark.parametrize(
    "announced", [[0], [0, 1 << 24], [1 << 24], [0, 1 << 24, 1 << 16], [100, 0, 50], [0, 0], [4096], [200, 4096, 100, 1 << 30]]
)
def test_what_callers_announce_in_any_order_leaves_blocks_that_they_can_read(announced: list[int]) -> None:
    encoder, decoder = BoundedEncoder(), Decoder()
    decoder.decode(encoder.encode(FIELDS))
    for size in announced:
        encoder.header_table_size = size

    for _ in range(3):
        assert [(str(name), str(value)) for name, value in decoder.decode(encoder.encode(FIELDS))] == FIELDS
    assert decoder.header_table_size == min(announced[-1], TABLE_BYTES)


def test_a_caller_that_announces_sizes_without_end_is_told_two_of_them() -> None:
    def told(encoder: Encoder) -> int:
        for size in range(1, 4000):
            encoder.header_table_size = size
        return len(encoder.table_size_changes)

    assert (told(BoundedEncoder()), told(Encoder())) == (2, 3999)


async def test_an_answer_in_pieces_waits_for_no_acknowledgement_of_the_first() -> None:
    """grpclib/asyncio: a socket of socket.create_server names no protocol, so asyncio leaves Nagle's algorithm on: 40 ms a piece."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = BoundedServer(Refusing(), Protocol)
    await server.start(sock=listening)
    _, writer = await asyncio.open_connection(*listening.getsockname())
    (accepted,) = await _accepted(server)

    assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)

    writer.close()
    server.close()


async def _accepted(server: BoundedServer) -> list[Any]:
    async with asyncio.timeout(10):
        while not server._open:
            await asyncio.sleep(0.01)
    return [one.connection._transport.get_extra_info("socket") for one in server._open]
