"""The client of warm workers against a real HTTP server that answers badly."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from aiohttp import web
from msgspec.structs import replace

from inference_operator.controllers import worker_client
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.errors import WorkerUnreachableError
from inference_operator.kube.leaderelection import Leadership
from inference_operator.kube.ports import WorkerAddress
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_protocol.messages import TASK_WAIT_PATH, TASKS_PATH, TaskQuery, TaskState, encode
from tests.clock import Clock
from tests.unit.warmpools.test_tasks import ORDER

STATE = TaskState(ORDER.uid, 1, "r", "Running")
HERE = WorkerAddress("127.0.0.1", "team", "uid-1")
QUERY = TaskQuery(uid=ORDER.uid, attempt=1)
EPOCH = (1_700_000_000, 3)
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def leading(clock: Clock | None = None) -> Leadership:
    made = Leadership((clock or Clock()).boottime)
    made.extend(0.0, 15, EPOCH)
    return made


async def asked(handler: Handler, patch: pytest.MonkeyPatch, ask: Callable[[WorkerHttpClient], Awaitable[object]]) -> object:
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    patch.setattr(worker_client, "HTTP_PORT", runner.addresses[0][1])
    try:
        async with BoundedHttp() as http:
            return await ask(WorkerHttpClient(http, leading()))
    finally:
        await runner.cleanup()


def says(status: int, body: bytes = b"") -> Handler:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(status=status, body=body)

    return answer


def test_an_order_carries_the_token_and_is_answered_with_the_state(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.Response:
        right = (request.path, request.headers["Authorization"]) == (TASKS_PATH, "Bearer secret")
        return (
            web.Response(body=encode(STATE))
            if right and await request.read() == encode(replace(ORDER, epoch=EPOCH))
            else web.Response(status=400)
        )

    assert asyncio.run(asked(answer, monkeypatch, lambda w: w.order(HERE, "secret", ORDER))) == STATE


def test_a_stop_carries_the_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    async def answer(request: web.Request) -> web.Response:
        right = await request.read() == encode(replace(QUERY, epoch=EPOCH))
        return web.Response(body=encode(STATE)) if right else web.Response(status=400)

    assert asyncio.run(asked(answer, monkeypatch, lambda w: w.stop(HERE, "secret", QUERY))) == STATE


@pytest.mark.parametrize("what", ["order", "stop"])
def test_an_operator_that_was_suspended_past_its_lease_orders_nothing(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    clock, heard = Clock(), list[str]()

    async def answer(request: web.Request) -> web.Response:
        heard.append(request.path)
        return web.Response(body=encode(STATE))

    async def ask(_: WorkerHttpClient) -> None:
        async with BoundedHttp() as http:
            client = WorkerHttpClient(http, leading(clock))
            clock.seconds = 12.0
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.order(HERE, "t", ORDER) if what == "order" else client.stop(HERE, "t", QUERY), 0.05)

    asyncio.run(asked(answer, monkeypatch, ask))
    assert heard == []


def test_a_task_that_is_not_known_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    assert asyncio.run(asked(says(404), monkeypatch, lambda w: w.wait(HERE, "t", QUERY))) is None
    assert asyncio.run(asked(says(404), monkeypatch, lambda w: w.stop(HERE, "t", QUERY))) is None


BAD = {
    "another token": (says(401, b"no"), "answered 401: no"),
    "loading": (says(503, b"the model is still loading"), "still loading"),
    "no JSON": (says(200, b"<html>"), "DecodeError"),
    "another shape": (says(200, b"{}"), "ValidationError"),
    "not UTF-8": (says(500, b"\xff\xfe"), "answered 500"),
}


@pytest.mark.parametrize("how", BAD)
def test_what_is_no_answer_is_unreachable_and_says_why(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    handler, words = BAD[how]
    for ask in (
        lambda w: w.order(HERE, "t", ORDER),
        lambda w: w.wait(HERE, "t", QUERY),
        lambda w: w.stop(HERE, "t", QUERY),
    ):
        with pytest.raises(WorkerUnreachableError, match=words):
            asyncio.run(asked(handler, monkeypatch, ask))


def test_a_worker_that_takes_no_tasks_is_unreachable_for_orders(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(WorkerUnreachableError, match="takes no tasks"):
        asyncio.run(asked(says(404), monkeypatch, lambda w: w.order(HERE, "t", ORDER)))


def test_a_worker_that_never_answers_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    async def never(request: web.Request) -> web.Response:
        assert request.path == TASK_WAIT_PATH
        await asyncio.Event().wait()
        raise AssertionError

    monkeypatch.setattr(worker_client, "_ORDER_SECONDS", 0.05)
    with pytest.raises(WorkerUnreachableError, match="TimeoutError"):
        asyncio.run(asked(never, monkeypatch, lambda w: w.wait(HERE, "t", QUERY)))


@pytest.mark.parametrize("address", ["", "127.0.0.1", "::1"])
def test_nobody_there_is_unreachable(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with BoundedHttp() as http:
            await WorkerHttpClient(http, leading()).order(HERE._replace(address=address), "t", ORDER)

    monkeypatch.setattr(worker_client, "HTTP_PORT", 1)
    with pytest.raises(WorkerUnreachableError):
        asyncio.run(ask())
