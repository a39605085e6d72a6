"""Copies of payloads that a real Envoy makes: CloudEvents of what was asked and answered, for which nobody waits."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import grpc
from aiohttp import web
from tritonclient.grpc import service_pb2 as pb

from inference_operator.gateway.snapshot import Service
from inference_operator.payloads import Payloads
from inference_operator.tenants import Tenants
from tests import loopback
from tests.component.doors import Counting, by_grpc, plane
from tests.component.operators import PATIENCE_SECONDS, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

INFER = "/default/v2/models/m/infer"


@asynccontextmanager
async def sink(may_answer: asyncio.Event | None = None) -> AsyncIterator[tuple[str, list[tuple[dict[str, str], bytes]]]]:
    """Who gets copies: its URL, and what it got. It answers once it may."""
    got: list[tuple[dict[str, str], bytes]] = []

    async def take(request: web.Request) -> web.Response:
        got.append(({name.lower(): value for name, value in request.headers.items()}, await request.read()))
        if may_answer is not None:
            await may_answer.wait()
        return web.Response(status=202)

    app = web.Application()
    app.router.add_post("/events", take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    (port,) = loopback.free_ports(1)
    await web.TCPSite(runner, "127.0.0.1", port).start()
    try:
        yield f"http://127.0.0.1:{port}/events", got
    finally:
        await runner.cleanup()


async def test_requests_and_answers_are_copied_as_events_of_one_id(workers: Counting, tmp_path: Path) -> None:
    services = [
        Service(name, "m", "1", True, (await workers.start(name, number),)) for number, name in enumerate(("default", "b"), 1)
    ]
    async with sink() as (url, got):
        payloads = Payloads(url, percent=100, max_bytes=10, namespaces=("default",))
        async with plane(tmp_path, *services, tenants=Tenants(enabled=True, unknown="Anonymous"), payloads=payloads) as door:
            await door.until(INFER, "default")
            await door.until("/b/v2/models/m/infer", "b")
            await door.ask(INFER, {"x-api-key": "secret", "Content-Type": "application/json"}, body=b"0123456789ab")
            await door.ask("/b/v2/models/m/infer")
            await door.ask("/default/v2/models/none/infer")
            await door.ask("/default/v2/models/m/ready")
            # Copies of the others would have come before those of the last.
            await door.ask(INFER, body=b"last")
            for begin in (b"0123456789", b"last"):
                await until(lambda: len(events(got, begin)) == 2, "events")  # noqa: B023
    # Nothing of what asks for no inference, or in another namespace; of a model that is not there, at most the refusal.
    assert {headers["ce-source"] for headers, _ in got} <= {"/default/m", "/default/none"}
    found = events(got, b"0123456789")
    (request, asked), (response, answered) = (found[f"myorg.inference.{kind}"] for kind in ("request", "response"))
    assert asked == b"0123456789" and answered == b"default"
    assert (request["ce-specversion"], request["content-type"]) == ("1.0", "application/json")
    assert (request["ce-tenant"], request["ce-truncated"], response["ce-truncated"]) == ("anonymous", "true", "false")
    assert request["ce-id"] == f"{request['ce-requestid']}-request" and response["ce-id"] == f"{request['ce-requestid']}-response"
    assert "secret" not in str(got)


def events(got: list[tuple[dict[str, str], bytes]], asked: bytes) -> dict[str, tuple[dict[str, str], bytes]]:
    """The events of the request that had this body, by their types."""
    of = {headers["ce-requestid"] for headers, body in got if body == asked}
    return {headers["ce-type"]: (headers, body) for headers, body in got if headers["ce-requestid"] in of}


async def test_a_share_of_requests_is_copied(workers: Counting, tmp_path: Path) -> None:
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with sink() as (url, got), plane(tmp_path, service, payloads=Payloads(url, percent=20)) as door:
        await door.until(INFER, "worker")
        for _ in range(500):
            await door.ask(INFER, body=b"one of many")

        def copied() -> int:
            return sum(body == b"one of many" for _, body in got)

        await until(lambda: copied() >= 60, "a tenth of them and more")
        assert copied() <= 140


async def test_nobody_waits_for_who_takes_copies_slowly_or_not_at_all(workers: Counting, tmp_path: Path) -> None:
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    never = asyncio.Event()
    async with sink(never) as (url, got), plane(tmp_path, service, payloads=Payloads(url, percent=100)) as door:
        await door.until(INFER, "worker")
        for _ in range(300):
            assert (await door.ask(INFER))[:2] == (200, "worker")
        await until(lambda: got, "the first copy")
        assert len(got) < 100
        never.set()
    for gone in ("http://127.0.0.1:9/events", "http://nobody.invalid/events"):
        async with plane(tmp_path, service, payloads=Payloads(gone, percent=100)) as door:
            await door.until(INFER, "worker")
            assert [(await door.ask(INFER))[0] for _ in range(20)] == [200] * 20


async def test_a_stream_is_copied_while_it_passes(workers: Counting, tmp_path: Path) -> None:
    """A copy of the whole would hold the first piece back until the last."""
    more = asyncio.Event()

    async def stream(request: web.Request) -> web.StreamResponse:
        answer = web.StreamResponse()
        await answer.prepare(request)
        await answer.write(b"first")
        await more.wait()
        await answer.write(b"second")
        return answer

    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with sink() as (url, got), plane(tmp_path, service, payloads=Payloads(url, percent=100)) as door:
        await door.until(INFER, "worker")
        workers.acts["worker"] = stream
        async with asyncio.timeout(PATIENCE_SECONDS), door.session.post(f"http://127.0.0.1:{door.port}{INFER}") as answer:
            assert await answer.content.readany() == b"first"
            more.set()
            assert await answer.content.read() == b"second"
        await until(lambda: any(body == b"firstsecond" for _, body in got), "the copy")


async def test_grpc_messages_are_copied_as_they_are(workers: Counting, tmp_path: Path) -> None:
    backend = await workers.start("worker", 1)
    service = Service("default", "m", "1", True, (backend,))
    asked = pb.ModelInferRequest(model_name="m", id="an-id").SerializeToString()
    async with (
        by_grpc(backend.address),
        sink() as (url, got),
        plane(tmp_path, service, payloads=Payloads(url, percent=100)) as door,
    ):
        async with grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
            call = channel.unary_unary("/inference.GRPCInferenceService/ModelInfer")
            await door.until(INFER, "worker")
            answered = await call(asked, metadata=(("inference-namespace", "default"),), wait_for_ready=True)

        def found() -> dict[str, bytes]:
            of_grpc = [(headers, body) for headers, body in got if headers["content-type"] == "application/grpc"]
            return {headers["ce-type"].rpartition(".")[2]: body[5:] for headers, body in of_grpc}

        await until(lambda: len(found()) == 2, "events")
    assert found() == {"request": asked, "response": answered}
