"""Models that are changed while they are asked: nobody loses an answer, and a bad new one does not cost the good old one."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.batching.profile import LatencyProfile
from inference_worker.errors import WorkerError
from inference_worker.repository import State
from inference_worker.warmup import Warm
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.scripted_engines import ALONE, Formula, Scripted
from tests.unit.worker.states import Asking, a_worker_state, an_unloaded_worker_state, ask, infer, inferring, loading, routes_of

if TYPE_CHECKING:
    from inference_worker.engines.engine import Engine
    from inference_worker.worker_state import WorkerState

ONE_BY_ONE = Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1)
ONE = infer_json([[1, 2]])
NO_MODEL = WorkerError(WorkerReason.MODEL_NOT_FOUND, "it is gone; check the claim")


def failing() -> Engine:
    raise NO_MODEL


def state_of_net(state: WorkerState) -> State:
    return state.repository.entries["net"].state


async def ended(state: WorkerState) -> None:
    """Wait until no old model is left."""
    async with asyncio.timeout(20):
        while state.repository._retiring:
            await asyncio.sleep(0.001)


async def first_value(asking: Asking) -> float:
    return float(json.loads((await asking.reply()).body)["outputs"][0]["data"][0])


def thrice(x: object) -> object:
    return x * 3  # type: ignore[operator]


async def test_a_new_model_answers_what_comes_and_the_old_one_what_it_has_taken() -> None:
    old = Scripted(held=True)
    state = await a_worker_state(old, ONE_BY_ONE)
    routes = routes_of(state)
    taken = [inferring(routes, ONE) for _ in range(3)]
    await old.begun()
    loading(state, Formula(thrice), ONE_BY_ONE)  # type: ignore[arg-type]

    await state.repository.load("net")
    fresh = inferring(routes, ONE)

    assert await first_value(fresh) == 3 and not any(one.answered for one in taken)
    assert not old.closed
    old.let()
    assert [await first_value(one) for one in taken] == [2, 2, 2]
    await ended(state)
    assert old.closed


async def test_while_the_new_one_loads_the_old_one_answers() -> None:
    state = await a_worker_state(models.identity())
    routes = routes_of(state)
    go = asyncio.Event()
    inner = state.repository._load

    async def slowly(source: object) -> object:
        await go.wait()
        return await inner(source)  # type: ignore[arg-type]

    state.repository._load = slowly  # type: ignore[assignment]
    changing = asyncio.create_task(state.repository.load("net"))
    await asyncio.sleep(0)

    assert state_of_net(state) is State.LOADING and state.ready
    assert (await infer(routes, ONE)).status == 200
    go.set()
    await changing
    assert state_of_net(state) is State.READY


async def test_a_new_one_that_fails_leaves_the_old_one_as_it_was() -> None:
    state = await a_worker_state(models.identity())
    before = state.model
    loading(state, failing)

    with pytest.raises(WorkerError):
        await state.repository.load("net")

    entry = state.repository.entries["net"]
    assert state.model is before and state.ready and entry.state is State.READY
    assert "check the claim" in entry.reason
    assert (await infer(routes_of(state), ONE)).status == 200


async def test_a_first_load_that_fails_says_why_nothing_answers() -> None:
    state = an_unloaded_worker_state()
    loading(state, failing)

    with pytest.raises(WorkerError):
        await state.repository.load("net")

    reply = await infer(routes_of(state), ONE)
    assert reply.status == 503 and "check the claim" in json.loads(reply.body)["error"]
    assert state_of_net(state) is State.UNAVAILABLE and not state.ready


async def test_loads_of_one_model_wait_for_each_other() -> None:
    state = an_unloaded_worker_state()
    under_way = 0

    def engine() -> Engine:
        nonlocal under_way
        under_way += 1
        return Formula(thrice)  # type: ignore[arg-type]

    loading(state, engine, ONE_BY_ONE)
    await asyncio.gather(*(state.repository.load("net") for _ in range(3)))
    await ended(state)

    assert under_way == 3 and state.ready and state_of_net(state) is State.READY


async def test_unloading_answers_what_was_taken_and_refuses_what_comes() -> None:
    engine = Scripted(held=True)
    state = await a_worker_state(engine, ONE_BY_ONE)
    routes = routes_of(state)
    taken = [inferring(routes, ONE) for _ in range(2)]
    await engine.begun()
    going = asyncio.create_task(state.repository.unload("net"))
    await asyncio.sleep(0)

    assert state_of_net(state) is State.UNLOADING and not state.ready
    assert (await infer(routes, ONE)).status == 503
    engine.let()
    assert [await first_value(one) for one in taken] == [2, 2]
    await going
    assert engine.closed and state_of_net(state) is State.UNAVAILABLE
    assert "unloaded" in json.loads((await infer(routes, ONE)).body)["error"]


async def test_while_it_unloads_callers_are_not_told_that_it_loads() -> None:
    engine = Scripted(held=True)
    state = await a_worker_state(engine, ONE_BY_ONE)
    routes = routes_of(state)
    inferring(routes, ONE)
    await engine.begun()
    going = asyncio.create_task(state.repository.unload("net"))
    await asyncio.sleep(0)

    error = json.loads((await infer(routes, ONE)).body)["error"]
    engine.let()
    await going

    assert "still loading" not in error


async def test_what_was_unloaded_is_loaded_again() -> None:
    state = await a_worker_state(models.identity())

    await state.repository.unload("net")
    await state.repository.unload("net")
    await state.repository.load("net")

    assert state.ready and (await infer(routes_of(state), ONE)).status == 200


async def test_closing_refuses_who_waits() -> None:
    engine = Scripted(held=True)
    state = await a_worker_state(engine, ONE_BY_ONE)
    routes = routes_of(state)
    running, waiting = inferring(routes, ONE), inferring(routes, ONE)

    state.repository.close()

    assert (await waiting.reply()).status == 503
    engine.let()
    assert (await running.reply()).status == 200


# over the protocol

LOAD, UNLOAD = "/v2/repository/models/net/load", "/v2/repository/models/net/unload"


async def post(state: WorkerState, path: str, body: bytes = b"") -> tuple[int, str]:
    reply = await ask(routes_of(state), path, body, method="POST")
    return reply.status, reply.body.decode()


@pytest.mark.parametrize("path", [LOAD, UNLOAD])
async def test_callers_change_models_only_where_the_job_allows_it(path: str) -> None:
    state = await a_worker_state(models.identity())

    status, text = await post(state, path)

    assert status == 403 and "job" in text and state.ready


async def test_a_model_is_unloaded_and_loaded_and_listed_by_callers() -> None:
    state = await a_worker_state(models.identity(), model_control="explicit")

    async def listed(body: bytes = b"") -> list[tuple[str, str]]:
        return [(entry["name"], entry["state"]) for entry in json.loads((await post(state, "/v2/repository/index", body))[1])]

    assert await listed() == [("net", "READY")]
    assert await post(state, UNLOAD) == (200, "") and not state.ready
    assert await listed() == [("net", "UNAVAILABLE")] and await listed(b'{"ready": true}') == []
    assert await post(state, LOAD, b'{"parameters": {"unload_dependents": true}}') == (200, "")
    assert state.ready and await listed(b'{"ready": true}') == [("net", "READY")]


async def test_a_load_that_fails_is_told_to_its_caller() -> None:
    state = await a_worker_state(models.identity(), model_control="explicit")
    loading(state, failing)

    status, text = await post(state, LOAD)

    assert status == 400 and "check the claim" in text and state.ready


@pytest.mark.parametrize(
    "body",
    [
        b"{",
        b"[]",
        b'{"parameters": ["config"]}',
        b'{"parameters": {"config": "{}"}}',
        b'{"parameters": {"file:1/model.onnx": "AAAA"}}',
    ],
)
async def test_a_model_comes_from_where_its_job_says_and_nowhere_else(body: bytes) -> None:
    state = await a_worker_state(models.identity(), model_control="explicit")
    before = state.model

    status, _ = await post(state, LOAD, body)

    assert status == 400 and state.model is before


async def test_another_configuration_is_refused_with_where_it_comes_from_and_never_passed_over() -> None:
    """triton-inference-server/client sends `config` with load_model(config=...), beside files or alone."""
    state = await a_worker_state(models.identity(), model_control="explicit")

    replies = [
        await post(state, LOAD, json.dumps({"parameters": {"config": '{"max_batch_size": 4}', **more}}).encode())
        for more in ({}, {"file:1/model.onnx": "AAAA"}, {"unload_dependents": True})
    ]

    assert {status for status, _ in replies} == {400}
    assert all("'config'" in text and "batchSize" in text for _, text in replies)


async def test_a_load_that_fails_in_a_way_nobody_thought_of_is_answered_and_leaves_the_old_model() -> None:
    state = await a_worker_state(models.identity(), model_control="explicit")

    def out_of_memory() -> Engine:
        raise MemoryError("no room for a second model")

    loading(state, out_of_memory)
    asking = Asking(routes_of(state), LOAD, method="POST")
    # Nothing here waits for anything but the loop.
    for _ in range(100):
        await asyncio.sleep(0)

    assert asking.answered and (await asking.reply()).status >= 400
    assert state_of_net(state) is State.READY
