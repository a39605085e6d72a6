"""One run for those who ask the same at the same time; and nobody who fails, is late or leaves takes others with it."""

from __future__ import annotations

import asyncio
import gc
import json
from typing import TYPE_CHECKING

import pytest

from inference_worker.cache.waiting import Waiting
from tests.process.wire import infer_json
from tests.unit.worker.cache.cached import Cached, a_cached, mark_of, values_of
from tests.unit.worker.scripted_engines import Scripted

if TYPE_CHECKING:
    from numpy import ndarray

ONE = infer_json([[1, 2]])
OTHER = infer_json([[9, 9]])
SOON = {"inference-timeout-ms": "150"}


def urgent(priority: int) -> bytes:
    return infer_json([[1, 2]], parameters={"priority": priority})


def depth(cached: Cached) -> int:
    assert cached.state.model is not None
    return cached.state.model.batcher.waiting


async def test_a_hundred_who_ask_the_same_have_one_run() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)

    asked = [cached.asking(ONE) for _ in range(100)]
    await engine.begun()
    engine.let()
    replies = [await asking.reply() for asking in asked]

    assert {tuple(values_of(reply)) for reply in replies} == {(2, 4)}
    assert len(engine.seen) == 1
    assert cached.results == {"coalesced": 99, "miss": 1}
    assert len(cached.cache._flights) == 0


async def test_a_leader_who_leaves_does_not_take_the_others_answer_with_it() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    leader, *others = [cached.asking(ONE) for _ in range(3)]
    await engine.begun()

    leader.leave()
    others[0].leave()
    engine.let()

    assert values_of(await others[1].reply()) == [2, 4]
    assert len(engine.seen) == 1
    assert mark_of(await cached.infer(ONE)) == "hit"


async def test_a_run_ends_once_the_last_who_waits_for_it_has_left() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    asked = [cached.asking(ONE) for _ in range(3)]
    await engine.begun()

    for asking in asked:
        asking.leave()
    after = cached.asking(OTHER)
    await engine.begun()
    engine.let()

    assert values_of(await after.reply()) == [18, 18]
    assert len(cached.cache._flights) == 0


async def test_the_deadline_of_the_leader_is_no_one_elses() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    leader, follower = cached.asking(ONE, **SOON), cached.asking(ONE)
    await engine.begun()

    late = await leader.reply()
    await engine.begun()
    engine.let()
    reply = await follower.reply()

    assert late.status == 504
    assert values_of(reply) == [2, 4] and mark_of(reply) == ""


async def test_of_those_who_go_on_after_a_deadline_one_runs_for_all() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    leader, *followers = [cached.asking(ONE, **SOON), *(cached.asking(ONE) for _ in range(5))]
    await engine.begun()

    assert (await leader.reply()).status == 504
    await engine.begun()
    engine.let()
    replies = [await follower.reply() for follower in followers]

    assert sorted(map(mark_of, replies)) == ["", *["coalesced"] * 4]
    assert len(engine.seen) == 2


async def test_a_follower_keeps_its_own_deadline() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    leader = cached.asking(ONE)
    await engine.begun()
    follower = cached.asking(ONE, **SOON)

    late = await follower.reply()
    assert late.status == 504 and "150 ms" in json.loads(late.body)["error"]
    engine.let()
    assert values_of(await leader.reply()) == [2, 4]
    assert len(engine.seen) == 1


async def test_a_leader_that_fails_fails_alone() -> None:
    once = [RuntimeError("broken")]
    engine = Scripted(held=True, faults=lambda _: once.pop() if once else None)
    cached = await a_cached(engine)
    leader, *followers = [cached.asking(ONE) for _ in range(3)]
    await engine.begun()

    engine.let()
    replies = [await asking.reply() for asking in (leader, *followers)]

    assert [reply.status for reply in replies] == [500, 200, 200]
    assert [values_of(reply) for reply in replies[1:]] == [[2, 4], [2, 4]]


async def test_a_model_that_always_fails_tells_each_by_a_run_of_its_own_and_nobody_waits_on() -> None:
    def broken(_: ndarray) -> Exception:
        return RuntimeError("broken")

    engine = Scripted(held=True, faults=broken)
    cached = await a_cached(engine)
    asked = [cached.asking(ONE) for _ in range(4)]
    await engine.begun()
    engine.let()

    assert [(await asking.reply()).status for asking in asked] == [500] * 4
    assert len(cached.cache._flights) == 0


async def test_a_more_urgent_request_does_not_wait_behind_a_patient_one() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    blocking = cached.asking(OTHER)
    await engine.begun()
    patient, equal, urgent_one = cached.asking(urgent(200)), cached.asking(urgent(200)), cached.asking(urgent(1))
    between = cached.asking(infer_json([[5, 5]], parameters={"priority": 50}))

    assert depth(cached) == 3
    engine.let()
    replies = [await asking.reply() for asking in (blocking, patient, equal, urgent_one, between)]

    assert engine.firsts[:3] == [[9], [1], [5]]
    assert [mark_of(reply) for reply in replies] == ["", "", "coalesced", "", ""]


async def test_an_earlier_deadline_does_not_wait_behind_a_later_one_in_the_queue() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    cached.asking(OTHER)
    await engine.begun()
    cached.asking(ONE)
    sooner = cached.asking(ONE, **{"inference-timeout-ms": "5000"})

    assert depth(cached) == 2
    engine.let()
    assert (await sooner.reply()).status == 200


async def test_a_follower_whose_model_goes_is_told_so() -> None:
    engine = Scripted(held=True)
    cached = await a_cached(engine)
    blocking = cached.asking(OTHER)
    await engine.begun()
    asked = [cached.asking(ONE) for _ in range(3)]

    cached.state.repository.close()
    replies = [await asking.reply() for asking in asked]
    engine.let()

    assert [reply.status for reply in replies] == [503, 503, 503]
    assert (await blocking.reply()).status == 200


@pytest.mark.parametrize("ends", ["answered", "failed", "left", "late", "past"])
async def test_what_is_over_leaves_nothing_to_the_collector(ends: str) -> None:
    failing: list[Exception] = []
    engine = Scripted(held=True, faults=lambda _: failing[0] if failing else None)
    cached = await a_cached(engine)
    gc.collect()
    gc.disable()
    try:
        body = infer_json([[1, 2]], parameters={"sequence_id": 1}) if ends == "past" else ONE
        asked = [cached.asking(body, **(SOON if ends == "late" else {})) for _ in range(3)]
        await engine.begun()
        if ends == "left":
            for asking in asked:
                asking.leave()
        if ends == "failed":
            failing.append(RuntimeError("broken"))
        if ends != "late":
            engine.let()
        if ends != "left":
            for asking in asked:
                await asking.reply()
        engine.let()
        await cached.infer(OTHER)
        asked.clear()
        # The engine's thread holds the last ones for a moment longer.
        async with asyncio.timeout(60):
            while [each for each in gc.get_objects() if isinstance(each, Waiting)]:
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
