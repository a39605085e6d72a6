"""Whom the operator shakes hands with: the pod that is meant, and nobody who only has its address."""

import asyncio
import ssl

import pytest
from yarl import URL

from inference_operator.identity.checks import ExpectedWorker, worker_context
from inference_operator.runtime.bounded_http import BoundedHttp, HttpFaultError, Secured
from inference_operator.runtime.pki import Pair, load_chain
from tests.authority import Authority, Signed

CA, OTHER = Authority(), Authority("other")
OPERATOR = CA.client(uri="spiffe://example.org/ns/ops/sa/op")
MEANT = ExpectedWorker("team", "uid-1")


def uri(namespace: str = "team", uid: str = "uid-1", domain: str = "example.org") -> str:
    return f"spiffe://{domain}/ns/{namespace}/sa/default/pod/{uid}"


class Answering(asyncio.Protocol):
    """Counts what it is told, and answers a question."""

    told = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        type(self).told += data
        self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")  # type: ignore[attr-defined]


async def asked(shown: Signed) -> bytes:
    """The answer of whoever shows this; raises HttpFaultError where the operator says nothing to it."""
    Answering.told = b""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    load_chain(context, Pair(shown.chain, shown.key))
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, ssl=context)
    port = server.sockets[0].getsockname()[1]
    secured = Secured(worker_context(Pair(OPERATOR.chain, OPERATOR.key), CA.pem, "example.org"), MEANT.server_name)
    try:
        async with BoundedHttp() as http:
            return (await http.get(URL(f"https://127.0.0.1:{port}/"), seconds=5, most_bytes=100, secured=secured)).body
    finally:
        server.close()


async def test_the_worker_that_is_meant_is_asked() -> None:
    assert await asked(CA.server(uri=uri())) == b"hi"


@pytest.mark.parametrize(
    "shown",
    [
        OTHER.server(uri=uri()),
        CA.server(uri=uri(), seconds=-1),
        CA.server(uri=uri(uid="uid-2")),
        CA.server(uri=uri(namespace="other")),
        CA.server(uri=uri(domain="example.com")),
        CA.server(uri="spiffe://example.org/ns/ops/sa/op"),
        CA.server(MEANT.server_name),
        CA.client(uri=uri()),
    ],
    ids=[
        "another authority",
        "expired",
        "another pod",
        "another namespace",
        "another domain",
        "the operator",
        "a host's name",
        "a client",
    ],
)
async def test_nothing_is_said_to_anybody_else(shown: Signed) -> None:
    with pytest.raises(HttpFaultError):
        await asked(shown)
    assert Answering.told == b""
