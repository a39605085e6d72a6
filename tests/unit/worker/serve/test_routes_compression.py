"""Compressed requests and answers over the routes: read, bounded, and given back."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import threading
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inference_worker.serve import http_inference
from inference_worker.serve.budget import Budget
from inference_worker.serve.compression import deflate
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from inference_worker.serve.inference import Inference
from inference_worker.serve.routes import Routes
from inference_worker.tracing import Tracer
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.states import INFER, Asking, a_worker_state, ask, infer, inferring

if TYPE_CHECKING:
    from collections.abc import Callable

CODED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
PLAIN: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}
ONE = infer_json([[1, 2]])


async def routes_with(budget: Budget, model: bytes | None = None, **config: Any) -> Routes:
    return Routes(await a_worker_state(model or models.identity(), **config), Inference(Tracer({})), budget)


async def emptied(budget: Budget) -> None:
    """All that was inflated goes with its requests."""
    for _ in range(100):
        if not budget.taken:
            return
        gc.collect()
        await asyncio.sleep(0.01)
    raise AssertionError(f"{budget.taken} bytes are still in use")


def rows_of(body: bytes) -> list[float]:
    return json.loads(body)["outputs"][0]["data"]


@pytest.mark.parametrize("coding", CODED)
async def test_a_compressed_body_is_read(coding: str) -> None:
    """triton-inference-server/server#2021."""
    budget = Budget()
    routes = await routes_with(budget)

    reply = await infer(routes, CODED[coding](ONE), **{"content-encoding": coding})

    assert (reply.status, rows_of(reply.body)) == (200, [1, 2])
    await emptied(budget)


@pytest.mark.parametrize("coding", CODED)
async def test_a_large_compressed_body_is_inflated_beside_the_loop_and_answered_like_any_other(coding: str) -> None:
    budget = Budget()
    routes = await routes_with(budget, models.identity(shape=["N", "M"]), batch_size=4)
    x = np.arange(200_000, dtype=np.float32).reshape(2, -1)
    entry = {"name": "x", "datatype": "FP32", "shape": x.shape, "parameters": {"binary_data_size": x.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    headers = {"content-encoding": coding, "inference-header-content-length": str(len(head))}

    asked = inferring(routes, CODED[coding](head + x.tobytes()), **headers)
    assert not asked.answered
    reply = await asked.reply()

    size = int(dict(reply.headers)["Inference-Header-Content-Length"])
    assert reply.status == 200 and reply.body[size:] == x.tobytes()
    del asked
    await emptied(budget)


@pytest.mark.parametrize("coding", CODED)
@pytest.mark.parametrize("rows", [4096, 20_000], ids=["medium", "large"])
async def test_an_answer_is_compressed_when_its_caller_asks(coding: str, rows: int) -> None:
    """triton-inference-server/server#2021."""
    routes = await routes_with(Budget(), batch_size=4096)

    reply = await infer(routes, infer_json([[1, 2]] * rows), **{"accept-encoding": coding})

    assert dict(reply.headers)["Content-Encoding"] == coding
    assert rows_of(PLAIN[coding](reply.body)) == [1, 2] * rows


async def test_the_header_length_counts_the_plain_answer() -> None:
    routes = await routes_with(Budget(), batch_size=4096)
    body = infer_json([[1, 2]] * 4096, parameters={"binary_data_output": True})

    reply = await infer(routes, body, **{"accept-encoding": "gzip"})

    plain, size = gzip.decompress(reply.body), int(dict(reply.headers)["Inference-Header-Content-Length"])
    assert np.frombuffer(plain[size:], np.float32).tolist() == [1, 2] * 4096 and json.loads(plain[:size])


async def test_a_small_answer_is_not_compressed_for_clients_that_always_ask_for_it() -> None:
    """Python's requests and aiohttp send this header by default."""
    routes = await routes_with(Budget())

    asked = inferring(routes, ONE, **{"accept-encoding": "gzip, deflate"})

    assert asked.answered, "there is nothing to wait for"
    reply = await asked.reply()
    assert "Content-Encoding" not in dict(reply.headers) and rows_of(reply.body) == [1, 2]


async def test_no_answer_is_compressed_on_the_event_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = await routes_with(Budget(), batch_size=4096)
    threads: list[threading.Thread] = []

    def seen(payload: bytes, coding: str) -> bytes | None:
        threads.append(threading.current_thread())
        return deflate(payload, coding)

    monkeypatch.setattr(http_inference, "deflate", seen)

    for rows in (1, 1000, 4096, 20_000):
        await infer(routes, infer_json([[1, 2]] * rows), **{"accept-encoding": "gzip, deflate"})

    assert len(threads) == 2 and threading.main_thread() not in threads


async def test_nobody_gets_compressed_answers_unasked() -> None:
    routes = await routes_with(Budget())

    for headers in ({}, {"accept-encoding": "identity"}, {"accept-encoding": "br"}):
        assert "Content-Encoding" not in dict((await infer(routes, ONE, **headers)).headers)


@pytest.mark.parametrize("coding", ["br", "gzip, gzip", "compress"])
async def test_another_coding_is_a_415_that_names_what_is_taken(coding: str) -> None:
    reply = await infer(await routes_with(Budget()), ONE, **{"content-encoding": coding})

    assert reply.status == 415 and "gzip or deflate" in json.loads(reply.body)["error"]
    assert dict(reply.headers)["Accept-Encoding"] == "gzip, deflate"


async def test_a_header_that_lies_about_the_coding_is_a_400() -> None:
    budget = Budget()
    routes = await routes_with(budget)
    lies: list[tuple[Callable[[bytes], bytes], str]] = [
        (lambda body: body, "gzip"),
        (zlib.compress, "gzip"),
        (gzip.compress, "deflate"),
        (lambda body: gzip.compress(body)[:-9], "gzip"),
        (lambda _: b"", "gzip"),
    ]

    for lie, coding in lies:
        reply = await infer(routes, lie(ONE), **{"content-encoding": coding})
        assert reply.status == 400, (coding, reply)
    assert (await infer(routes, ONE)).status == 200
    await emptied(budget)


async def test_a_bomb_is_a_413_and_the_next_are_answered() -> None:
    budget = Budget()
    routes = await routes_with(budget)
    bomb = gzip.compress(bytes(BODY_LIMIT_BYTES + 1))

    replies = [await infer(routes, bomb, **{"content-encoding": "gzip"}) for _ in range(3)]

    assert [reply.status for reply in replies] == [413] * 3
    assert (await infer(routes, ONE)).status == 200
    await emptied(budget)


async def test_bombs_that_are_no_larger_than_they_may_be_share_a_bounded_room() -> None:
    budget = Budget(2 * BODY_LIMIT_BYTES)
    routes = await routes_with(budget, models.identity(shape=["N", "M"]))
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 15 << 20], "parameters": {"binary_data_size": 60 << 20}}
    head = json.dumps({"inputs": [entry], "outputs": [{"name": "y", "parameters": {"binary_data": True}}]}).encode()
    headers = {"content-encoding": "gzip", "inference-header-content-length": str(len(head))}
    bomb = gzip.compress(head + bytes(60 << 20), 9)

    calls = [inferring(routes, bomb, **headers) for _ in range(6)]
    replies = [await call.reply() for call in calls]

    assert {reply.status.value for reply in replies} == {200, 429}
    assert all("Retry-After" in dict(reply.headers) for reply in replies if reply.status == 429)
    del calls, replies
    await emptied(budget)


async def test_a_caller_who_leaves_while_its_body_is_inflated_is_counted_and_not_run() -> None:
    budget = Budget()
    state = await a_worker_state(models.identity(), job="left")
    routes = Routes(state, Inference(Tracer({})), budget)

    asked = inferring(routes, gzip.compress(infer_json([[1, 2]] * 3000), 0), **{"content-encoding": "gzip"})
    asked.leave()
    while state.metrics["net"].requests == 0:
        await asyncio.sleep(0.001)

    assert state.metrics["net"].counts.runs == 0
    del asked
    await emptied(budget)


async def test_other_bodies_may_be_compressed_too() -> None:
    routes = await routes_with(Budget())

    reply = await ask(
        routes, "/v2/repository/index", gzip.compress(b'{"ready": true}'), method="POST", **{"content-encoding": "gzip"}
    )

    assert (reply.status, [entry["name"] for entry in json.loads(reply.body)]) == (200, ["net"])


async def test_the_headers_of_a_head_that_comes_again_stay_as_they_are() -> None:
    """Heads that were parsed before share their headers: what one request loses, all later ones would."""
    routes = await routes_with(Budget())
    asked = Asking(routes, INFER, gzip.compress(ONE), method="POST", **{"content-encoding": "gzip"})
    before = asked.request.headers
    again = Asking.__new__(Asking)
    again._answered = asyncio.Event()
    shared = {"content-encoding": "gzip"}
    again.request = type(asked.request)("POST", INFER, shared, gzip.compress(ONE), keep_alive=True, connection=again)

    routes.handle(again.request)

    assert (await again.reply()).status == 200 and shared == {"content-encoding": "gzip"}
    assert "content-encoding" not in before
