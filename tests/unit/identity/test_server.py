"""The authority's server under attack: real sockets on loopback."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus

import pytest

from inference_operator.identity import server as servers
from inference_operator.identity.issuer import IssueError
from inference_operator.identity.server import Server
from inference_operator.runtime.pki import Pair, load_chain
from inference_protocol.messages import CERTIFICATES_PATH, IssuedCertificate
from tests.authority import Authority

CA = Authority()
# Long enough for a busy machine; a test waits this long only when it is about to fail.
PATIENCE_SECONDS = 60.0
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def issue(address: str, token: str, request: str) -> IssuedCertificate:
    assert address == "127.0.0.1"
    if token != "good":
        raise IssueError(HTTPStatus.UNAUTHORIZED, "this is no token")
    return IssuedCertificate(f"chain of {request}", "trust")


@asynccontextmanager
async def serving() -> AsyncIterator[int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    signed = CA.server("localhost")
    load_chain(context, Pair(signed.chain, signed.key))
    server = Server(issue, context, port=0, address="127.0.0.1")
    task = asyncio.create_task(server.serve())
    try:
        yield server.port
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def connect(port: int) -> Connection:
    return await asyncio.open_connection(
        "127.0.0.1", port, ssl=ssl.create_default_context(cadata=CA.pem), server_hostname="localhost"
    )


async def post(port: int, body: bytes, token: str = "good", path: str = CERTIFICATES_PATH) -> bytes:
    reader, writer = await connect(port)
    head = f"POST {path} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    writer.write(head.encode() + body)
    answer = await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
    writer.transport.abort()
    return answer


async def test_a_worker_is_answered() -> None:
    async with serving() as port:
        assert b"chain of csr" in await post(port, b'{"request": "csr"}')


@pytest.mark.parametrize(
    ("body", "token", "path", "status"),
    [
        (b'{"request": "csr"}', "bad", CERTIFICATES_PATH, 401),
        (b'{"request": "csr"}', "", CERTIFICATES_PATH, 401),
        (b"{}", "good", CERTIFICATES_PATH, 400),
        (b"[" * 5000, "good", CERTIFICATES_PATH, 400),
        (b'{"request": "' + b"a" * 5000 + b'"}', "good", CERTIFICATES_PATH, 400),
        (b'{"request": "' + b"a" * 100_000 + b'"}', "good", CERTIFICATES_PATH, 413),
        (b'{"request": "csr"}', "good" * 10_000, CERTIFICATES_PATH, 400),
        (b'{"request": "csr"}', "good", "/", 404),
    ],
)
async def test_what_is_no_request_of_a_worker_is_refused(
    body: bytes, token: str, path: str, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as port:
        assert (await post(port, body, token, path)).split()[1] == str(status).encode()
    assert "goodgood" not in caplog.text


async def test_a_connection_ends_in_time_whatever_is_said_on_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_CONNECTION_SECONDS", 0.5)
    async with serving() as port:
        silent, begun, dripping = await connect(port), await connect(port), await connect(port)
        begun[1].write(f"POST {CERTIFICATES_PATH} HTTP/1.1\r\nContent-Length: 1000\r\n\r\n".encode())

        async def drip() -> None:
            while not dripping[0].at_eof():
                dripping[1].write(b"G")
                await asyncio.sleep(0.05)

        task = asyncio.create_task(drip())
        for reader, _ in (silent, begun, dripping):
            with suppress(ConnectionError):
                await asyncio.wait_for(reader.read(), PATIENCE_SECONDS)
        task.cancel()


async def test_whoever_holds_all_connections_keeps_no_worker_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_CONNECTIONS", 20)
    async with serving() as port:
        held = [await connect(port) for _ in range(60)]
        assert b"chain of csr" in await post(port, b'{"request": "csr"}')
        for _, writer in held:
            writer.transport.abort()


async def test_plain_text_and_half_a_handshake_get_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_HANDSHAKE_SECONDS", 0.3)
    async with serving() as port:
        for said in (b"POST / HTTP/1.1\r\n\r\n", b"\x16\x03\x01", b""):
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.write(said)
            assert await asyncio.wait_for(reader.read(), PATIENCE_SECONDS) in (b"", b"\x15\x03\x01\x00\x02\x02F")
            writer.close()
