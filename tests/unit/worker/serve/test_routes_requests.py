"""Infer requests through the routes: whom they answer, what goes wrong, who leaves, and who comes too late."""

from __future__ import annotations

import asyncio
import json
from http import HTTPStatus

import numpy as np
import pytest

from inference_worker.batching import admission
from inference_worker.batching.profile import LatencyProfile
from inference_worker.warmup import Warm
from inference_worker.worker_state import WorkerState
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.scripted_engines import ALONE, ROWS, Formula, Scripted, spec
from tests.unit.worker.states import a_worker_state, ask, infer, inferring, routes_of

ONE_BY_ONE = Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1)
ONE = infer_json([[1, 2]])


async def scripted_state(engine: Scripted) -> WorkerState:
    return await a_worker_state(engine, ONE_BY_ONE)


async def test_sixty_four_callers_at_once_each_get_their_own_answer() -> None:
    routes = routes_of(await a_worker_state(models.two_outputs(), batch_size=16))

    async def one(number: int) -> None:
        rows: list[list[float]] = [[number, i] for i in range(number % 5 + 1)]
        wanted = [["same"], ["negated"], ["negated", "same"], []][number % 4]
        document = json.loads(
            (await infer(routes, infer_json(rows, id=f"caller-{number}", outputs=[{"name": n} for n in wanted]))).body
        )
        sign = {"same": 1, "negated": -1}
        assert document["id"] == f"caller-{number}"
        assert [o["name"] for o in document["outputs"]] == (wanted or ["same", "negated"])
        for output in document["outputs"]:
            assert output["data"] == [sign[output["name"]] * v for row in rows for v in row]

    await asyncio.gather(*map(one, range(64)))


async def test_one_bad_request_among_many_fails_alone() -> None:
    routes = routes_of(await a_worker_state(models.gather(), batch_size=8))
    bodies = [infer_json([[i]], name="i", datatype="INT64").replace(b"[1, 1]", b"[1]") for i in (0, 1, 99, 3, 4)]

    replies = await asyncio.gather(*(infer(routes, body) for body in bodies))

    assert [reply.status.value // 100 for reply in replies] == [2, 2, 4, 2, 2]
    assert json.loads(replies[3].body)["outputs"][0]["data"] == [3.0]


async def test_answers_that_are_not_finite_are_a_400_that_names_the_binary_form() -> None:
    routes = routes_of(await a_worker_state(models.square_root()))

    reply = await infer(routes, infer_json([[-1, 4]]))
    binary = await infer(routes, infer_json([[-1, 4]], parameters={"binary_data_output": True}))

    assert reply.status == 400 and "binary" in json.loads(reply.body)["error"]
    size = int(dict(binary.headers)["Inference-Header-Content-Length"])
    assert np.array_equal(np.frombuffer(binary.body[size:], np.float32), [np.nan, 2], equal_nan=True)
    assert (await infer(routes, infer_json([[9, 4]]))).status == 200


@pytest.mark.parametrize("name", ["grand_total", "column_sums", "identity"])
async def test_scalar_and_rowless_outputs_and_empty_tensors_are_served(name: str) -> None:
    routes = routes_of(await a_worker_state(getattr(models, name)()))
    empty = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [0, 2], "data": []}]}).encode()

    assert (await infer(routes, infer_json([[1, 2], [3, 4]]))).status == 200
    assert (await infer(routes, empty)).status == 200


async def test_an_output_over_all_rows_is_over_those_of_one_request_only() -> None:
    engine = Formula(lambda x: x.sum(axis=0))
    routes = routes_of(await a_worker_state(engine, batch_size=8))

    replies = await asyncio.gather(*(infer(routes, infer_json([[i, 1], [i, 1]])) for i in range(8)))

    assert [json.loads(reply.body)["outputs"][0]["data"] for reply in replies] == [[2 * i, 2] for i in range(8)]


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (ValueError("no"), 400),
        (MemoryError("no room"), 503),
        (RuntimeError("broken"), 500),
        *((fault, 500) for fault in (KeyError("k"), TypeError("t"), OSError("o"))),
    ],
)
async def test_whatever_goes_wrong_in_the_model_is_an_answer_and_counted(fault: Exception, status: int) -> None:
    engine = Scripted(faults=lambda _: fault)
    state = await scripted_state(engine)
    routes = routes_of(state)

    reply = await infer(routes, ONE)

    assert reply.status == status and json.loads(reply.body)["error"]
    metrics = state.metrics["net"]
    assert (metrics.requests, metrics.failed) == (1, 1)
    engine.faults = lambda _: None
    assert (await infer(routes, ONE)).status == 200


async def test_an_answer_that_can_not_be_written_is_a_500_and_not_silence() -> None:
    engine = Formula(lambda x: x.astype(np.complex64), outputs=(spec("y"),))
    routes = routes_of(await a_worker_state(engine, Warm(ROWS, LatencyProfile({}), None, inline=True, threads=1)))

    asking = inferring(routes, ONE)
    life_goes_on = await infer(routes, b"{")
    async with asyncio.timeout(20):
        while routes._state.model is not None and routes._state.model.batcher.in_flight:
            await asyncio.sleep(0.001)

    assert life_goes_on.status == 400
    assert asking.answered and (await asking.reply()).status == 500


async def test_a_full_queue_refuses_the_next_and_the_waiting_are_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "QUEUE_LIMIT", 2)
    engine = Scripted(held=True)
    routes = routes_of(await scripted_state(engine))
    # One runs, two wait.
    waiting = [inferring(routes, infer_json([[i, i]], id=str(i))) for i in range(3)]

    refused = await infer(routes, infer_json([[9, 9]]))

    assert refused.status is HTTPStatus.TOO_MANY_REQUESTS and ("Retry-After", "1") in refused.headers
    assert (await ask(routes, "/v2/health/ready")).status == 200
    engine.let()
    assert [json.loads((await one.reply()).body)["id"] for one in waiting] == ["0", "1", "2"]


async def test_callers_that_leave_free_their_places_and_their_work_is_not_done() -> None:
    engine = Scripted(held=True)
    state = await scripted_state(engine)
    assert state.model is not None
    routes = routes_of(state)
    callers = [inferring(routes, infer_json([[i, i]])) for i in range(10)]
    await engine.begun()

    for caller in callers[1:7]:
        caller.leave()

    assert (state.model.batcher.waiting, state.metrics["net"].codes) == (3, {499: 6})
    engine.let()
    assert [(await caller.reply()).status for caller in (callers[0], *callers[7:])] == [200] * 4
    assert engine.firsts == [[0], [7], [8], [9]]
    assert not any(caller.answered for caller in callers[1:7])


async def test_a_drain_does_not_wait_for_callers_that_left() -> None:
    engine = Scripted(held=True)
    state = await scripted_state(engine)
    assert state.model is not None
    caller = inferring(routes_of(state), ONE)
    await engine.begun()

    caller.leave()

    await asyncio.wait_for(state.model.batcher.emptied(), 20)


@pytest.mark.parametrize(
    ("headers", "parameters", "words"),
    [
        ({}, {"timeout": 30}, "0.03 ms (parameter timeout, in microseconds)"),
        ({"inference-timeout-ms": "0"}, {}, "0 ms (header inference-timeout-ms, in milliseconds)"),
        (
            {"inference-timeout-ms": "9", "x-envoy-expected-rq-timeout-ms": "1e-5"},
            {"timeout": 60_000_000},
            "1e-05 ms (header x-envoy-expected-rq-timeout-ms, in milliseconds)",
        ),
    ],
    ids=["triton's", "ours", "envoy's"],
)
async def test_a_deadline_that_has_passed_is_named_with_its_unit(
    headers: dict[str, str], parameters: dict[str, int], words: str
) -> None:
    """A client sent 30 and meant seconds; nothing in the refusal said that it had asked for microseconds."""
    routes = routes_of(await a_worker_state(models.identity()))

    late = await infer(routes, infer_json([[3, 4]], parameters=parameters), **headers)

    assert late.status is HTTPStatus.GATEWAY_TIMEOUT
    assert json.loads(late.body)["error"] == f"the deadline of {words} passed before the request was whole"


@pytest.mark.parametrize(
    ("headers", "parameters"),
    [
        ({"inference-timeout-ms": "20"}, {}),
        ({"x-envoy-expected-rq-timeout-ms": "20"}, {}),
        ({}, {"timeout": 20_000}),
        ({"inference-timeout-ms": "20"}, {"timeout": 3_600_000_000}),
    ],
    ids=["ours", "envoy's", "triton's", "the shortest"],
)
async def test_a_deadline_is_kept_while_another_holds_the_model(headers: dict[str, str], parameters: dict[str, int]) -> None:
    engine = Scripted(held=True)
    routes = routes_of(await scripted_state(engine))
    first = inferring(routes, ONE)

    late = await infer(routes, infer_json([[3, 4]], parameters=parameters), **headers)

    assert late.status is HTTPStatus.GATEWAY_TIMEOUT and not first.answered
    assert "; the request allows 20 ms (" in json.loads(late.body)["error"]
    engine.let()
    assert (await first.reply()).status == 200
    assert engine.firsts == [[1]]


@pytest.mark.parametrize("text", ["", "soon", "-1", "nan", "1e99", "0x10"])
async def test_a_timeout_that_is_none_is_refused(text: str) -> None:
    routes = routes_of(await a_worker_state(models.identity()))

    reply = await infer(routes, ONE, **{"inference-timeout-ms": text})

    assert reply.status == 400 and "inference-timeout-ms" in json.loads(reply.body)["error"]


async def test_a_deadline_that_has_passed_on_the_way_is_told_at_once() -> None:
    assert (await infer(routes_of(await a_worker_state(models.identity())), ONE, **{"inference-timeout-ms": "0"})).status == 504


async def test_the_more_urgent_overtake_those_who_wait() -> None:
    engine = Scripted(held=True)
    routes = routes_of(await scripted_state(engine))
    callers = [inferring(routes, infer_json([[i, i]], parameters={"priority": p})) for i, p in enumerate((0, 0, 3, 1))]

    engine.let()
    for caller in callers:
        await caller.reply()

    assert engine.firsts == [[0], [3], [2], [1]]


async def test_large_json_is_read_beside_the_loop_and_answered_like_any_other() -> None:
    engine = Scripted()
    routes = routes_of(await scripted_state(engine))
    large = infer_json([[i, i] for i in range(20_000)])

    asking = inferring(routes, large)
    assert not asking.answered and engine.seen == []
    broken = inferring(routes, large[:-1])

    assert (await asking.reply()).status == 200 and (await broken.reply()).status == 400
    assert len(engine.seen[0]) == 20_000


async def test_a_caller_who_leaves_while_its_json_is_read_is_not_run() -> None:
    engine = Scripted()
    state = await scripted_state(engine)
    asking = inferring(routes_of(state), infer_json([[i, i] for i in range(20_000)]))

    asking.leave()

    async with asyncio.timeout(20):
        while not state.metrics["net"].codes:
            await asyncio.sleep(0.001)
    assert (engine.seen, state.metrics["net"].codes) == ([], {499: 1})


async def test_a_thousand_malformed_requests_hurt_nobody() -> None:
    routes = routes_of(await a_worker_state(models.identity()))

    statuses = {(await infer(routes, body)).status.value for body in [b"{", b"[]", infer_json([["x", "y"]])] * 333}  # type: ignore[list-item]

    assert statuses == {400}
    assert (await infer(routes, ONE)).status == 200
    assert (await ask(routes, "/v2/health/ready")).status == 200
