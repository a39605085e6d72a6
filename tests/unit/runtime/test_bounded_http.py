"""Peers that mean harm, over real sockets: what they answer costs little, leads nowhere and ends in time."""

import ast
import asyncio
import gzip
import json
import tracemalloc
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from yarl import URL

import inference_operator
from inference_operator.controllers import worker_client
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.errors import ExporterError, WorkerUnreachableError
from inference_operator.metering.exporters import Exporters
from inference_operator.runtime.bounded_http import BoundedHttp, HttpFaultError
from inference_protocol.messages import TaskQuery
from tests.unit.controllers.test_worker_client import HERE, leading
from tests.unit.warmpools.test_tasks import ORDER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Asks = Callable[[BoundedHttp, int], Awaitable[object]]
QUERY = TaskQuery(uid=ORDER.uid, attempt=1)
MEGABYTE = 1 << 20


@asynccontextmanager
async def serving(handler: Handler) -> AsyncIterator[int]:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


async def _telemetry(http: BoundedHttp, port: int) -> object:
    assert await WorkerHttpClient(http, leading()).telemetry(HERE) is None
    return None


async def _order(http: BoundedHttp, port: int) -> object:
    with pytest.raises(WorkerUnreachableError):
        await WorkerHttpClient(http, leading()).order(HERE, "secret", ORDER)
    return None


async def _wait(http: BoundedHttp, port: int) -> object:
    with pytest.raises(WorkerUnreachableError):
        await WorkerHttpClient(http, leading()).wait(HERE, "secret", QUERY)
    return None


async def _devices(http: BoundedHttp, port: int) -> object:
    with pytest.raises(ExporterError):
        await Exporters(http, port).devices("127.0.0.1")
    return None


EVERYBODY = [_telemetry, _order, _wait, _devices]


async def attacked(handler: Handler, ask: Asks, patch: pytest.MonkeyPatch) -> None:
    async with serving(handler) as port, BoundedHttp() as http:
        patch.setattr(worker_client, "HTTP_PORT", port)
        await ask(http, port)


@pytest.mark.parametrize("ask", EVERYBODY)
async def test_a_gzip_bomb_is_not_inflated(ask: Asks, monkeypatch: pytest.MonkeyPatch) -> None:
    bomb = gzip.compress(bytes(64 * MEGABYTE))

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=bomb, headers={"Content-Encoding": "gzip"})

    tracemalloc.start()
    try:
        await attacked(answer, ask, monkeypatch)
        assert tracemalloc.get_traced_memory()[1] < 8 * MEGABYTE
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "br", "zstd", "gzip, identity", "x" * 2000])
async def test_an_encoding_that_was_not_asked_for_is_refused(encoding: str) -> None:
    async def answer(request: web.Request) -> web.Response:
        assert request.headers["Accept-Encoding"] == "identity"
        return web.Response(body=b"{}", headers={"Content-Encoding": encoding})

    async with serving(answer) as port, BoundedHttp() as http:
        with pytest.raises(HttpFaultError, match="encoded"):
            await http.get(URL(f"http://127.0.0.1:{port}/"), seconds=5, most_bytes=100)


@pytest.mark.parametrize("ask", EVERYBODY)
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_leads_nowhere(ask: Asks, status: int, monkeypatch: pytest.MonkeyPatch) -> None:
    led = []

    async def elsewhere(request: web.Request) -> web.Response:
        led.append((request.method, await request.read()))
        return web.Response(body=b"{}")

    async with serving(elsewhere) as port:

        async def answer(_: web.Request) -> web.Response:
            return web.Response(status=status, headers={"Location": f"http://127.0.0.1:{port}/elsewhere"})

        await attacked(answer, ask, monkeypatch)
    assert led == []


@pytest.mark.parametrize("ask", EVERYBODY)
@pytest.mark.parametrize("head", [{"Content-Length": str(1 << 30)}, {}], ids=["length told", "chunked"])
async def test_a_flood_ends_at_the_cap(ask: Asks, head: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0

    async def answer(request: web.Request) -> web.StreamResponse:
        nonlocal sent
        response = web.StreamResponse(headers=head)
        await response.prepare(request)
        for _ in range(1024):
            await response.write(bytes(MEGABYTE))
            sent += 1
        return response

    # Nothing but the cap ends it.
    monkeypatch.setattr(worker_client, "_TELEMETRY_SECONDS", 60.0)
    monkeypatch.setattr(worker_client, "_ORDER_SECONDS", 60.0)
    monkeypatch.setattr("inference_operator.metering.exporters._SECONDS", 60.0)
    tracemalloc.start()
    try:
        await attacked(answer, ask, monkeypatch)
        assert tracemalloc.get_traced_memory()[1] < 16 * MEGABYTE
    finally:
        tracemalloc.stop()
    # What the sockets' buffers hold is on its way.
    assert sent < 64


async def test_who_dribbles_is_cut_off_by_the_deadline() -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        while True:
            await response.write(b" ")
            await asyncio.sleep(0.01)

    async with serving(answer) as port, BoundedHttp() as http:
        with pytest.raises(HttpFaultError, match="TimeoutError"):
            await http.get(URL(f"http://127.0.0.1:{port}/"), seconds=0.2, most_bytes=MEGABYTE)


@pytest.mark.parametrize(
    "head",
    [{f"X-{number}": "x" for number in range(100)}, {"X": "x" * 8000}],
    ids=["many", "long"],
)
async def test_a_head_has_bounds(head: dict[str, str]) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=b"{}", headers=head)

    async with serving(answer) as port, BoundedHttp() as http:
        with pytest.raises(HttpFaultError):
            await http.get(URL(f"http://127.0.0.1:{port}/"), seconds=5, most_bytes=100)


async def test_cookies_are_not_kept() -> None:
    brought = []

    async def answer(request: web.Request) -> web.Response:
        brought.append(request.headers.get("Cookie"))
        return web.Response(body=b"{}", headers={"Set-Cookie": "a=b; Domain=localhost; Path=/"})

    async with serving(answer) as port, BoundedHttp() as http:
        for _ in range(2):
            await http.get(URL(f"http://localhost:{port}/"), seconds=5, most_bytes=100)
    assert brought == [None, None]


@pytest.mark.parametrize("ask", [_telemetry, _order, _wait])
async def test_an_answer_that_is_nested_without_end_is_one_fault(ask: Asks, monkeypatch: pytest.MonkeyPatch) -> None:
    body = b'{"ready":true,"draining":false,"x":' + b"[" * 20_000 + b"]" * 20_000 + b"}"

    async def answer(_: web.Request) -> web.Response:
        return web.Response(body=body)

    await attacked(answer, ask, monkeypatch)


async def test_an_answer_within_its_bounds_is_read_whole() -> None:
    async def answer(request: web.Request) -> web.Response:
        return web.Response(status=201, body=json.dumps([request.method, (await request.read()).decode()]).encode())

    async with serving(answer) as port, BoundedHttp() as http:
        url = URL(f"http://127.0.0.1:{port}/")
        told = await http.post(url, b"body", headers={}, seconds=5, most_bytes=16)
        assert (told.status, json.loads(told.body)) == (201, ["POST", "body"])
        with pytest.raises(HttpFaultError, match="longer than 15 bytes"):
            await http.post(url, b"body", headers={}, seconds=5, most_bytes=15)


def _imported(path: Path) -> set[str]:
    nodes = list(ast.walk(ast.parse(path.read_text())))
    plain = {name.name for node in nodes if isinstance(node, ast.Import) for name in node.names}
    of = {f"{node.module}.{name.name}" for node in nodes if isinstance(node, ast.ImportFrom) for name in node.names}
    return plain | of


def test_pods_are_asked_by_no_other_client() -> None:
    root = Path(inference_operator.__file__).parent
    clients = ("aiohttp", "http.client", "urllib.request", "urllib3", "requests", "httpx", "grpclib.client")

    found = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        # An exception asks nobody.
        for names in [_imported(path) - {"aiohttp.http_exceptions.HttpProcessingError"}]
        if any(name == client or name.startswith(f"{client}.") for name in names for client in clients)
        # Answering is another matter.
        and _imported(path) & {"aiohttp.web"} == set()
    }

    assert found == {"kube/client.py", "runtime/bounded_http.py"}
