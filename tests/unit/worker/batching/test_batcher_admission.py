"""Who is let in, who is told no and when to come back, and who is told that it is too late."""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest

from inference_worker.batching import admission
from inference_worker.batching.rows import Layout
from inference_worker.errors import RequestError
from tests.unit.worker.scripted_engines import ALONE, FLAT, LINEAR, Caller, Clock, Scripted, a_batcher, a_row

if TYPE_CHECKING:
    from inference_worker.batching.batcher import Batcher

NEVER = float("inf")


def refused(batcher: Batcher, *, deadline: float = NEVER, rows: int = 1) -> RequestError:
    with pytest.raises(RequestError) as caught:
        batcher.submit(a_row(*range(rows)), (), lambda *_: pytest.fail("it was told twice"), deadline=deadline)
    return caught.value


async def test_an_idle_model_runs_what_comes_at_once_and_says_what_it_took() -> None:
    caller = Caller()

    a_batcher(Scripted()).submit(a_row(1, 2), (), caller)

    timing = await caller.timing()
    assert (await caller.answer())["y"][:, 0].tolist() == [2, 4]
    assert timing.rows == 2 and timing.queue >= 0 and timing.compute > 0


async def test_the_queue_holds_just_so_many_and_refuses_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "QUEUE_LIMIT", 3)
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    callers = [Caller() for _ in range(4)]
    for caller in callers:
        batcher.submit(a_row(1), (), caller)
    assert (batcher.in_flight, batcher.waiting) == (1, 3)

    error = refused(batcher)

    assert error.status is HTTPStatus.TOO_MANY_REQUESTS and error.retry_after_seconds is not None
    assert (batcher.waiting, batcher.counts.shed) == (3, 1)
    engine.let()
    assert [(await caller.answer())["y"][0, 0] for caller in callers] == [2] * 4


async def test_a_full_queue_says_when_it_will_be_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "QUEUE_LIMIT", 4)
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, ALONE, {1: 2.0}, clock=clock)
    for _ in range(5):
        batcher.submit(a_row(1), (), Caller())
    clock.now += 0.5

    # What runs has 1.5 s to go, and four wait that take 2 s each.
    assert refused(batcher).retry_after_seconds == pytest.approx(1.5 + 4 * 2.0)
    engine.let()


async def test_a_deadline_that_can_not_be_met_is_refused_at_once_with_the_wait() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, ALONE, {1: 1.0}, clock=clock)
    batcher.submit(a_row(1), (), Caller())
    batcher.submit(a_row(2), (), Caller(), deadline=clock.now + 2.5)

    # One second of what runs, one of who waits, one of its own.
    error = refused(batcher, deadline=clock.now + 2.9)
    in_time = Caller()
    batcher.submit(a_row(3), (), in_time, deadline=clock.now + 3.0)

    assert error.status is HTTPStatus.TOO_MANY_REQUESTS and error.retry_after_seconds == pytest.approx(2.0, abs=0.2)
    assert "can't be met" in error.message and batcher.counts.shed == 1
    engine.let()
    assert (await in_time.answer())["y"][0, 0] == 6


async def test_a_deadline_shorter_than_the_run_itself_is_refused_though_nobody_waits() -> None:
    clock = Clock()
    batcher = a_batcher(Scripted(), profile={1: 1.0, 8: 4.0}, clock=clock)

    assert refused(batcher, deadline=clock.now + 3.0, rows=8).status is HTTPStatus.TOO_MANY_REQUESTS
    assert refused(batcher, deadline=clock.now + 7.0, rows=16).status is HTTPStatus.TOO_MANY_REQUESTS


async def test_the_more_urgent_is_let_in_where_others_would_wait_too_long() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, ALONE, {1: 1.0}, clock=clock)
    for value in range(5):
        batcher.submit(a_row(value), (), Caller(), deadline=clock.now + value + 1.2)

    refused(batcher, deadline=clock.now + 2.5)
    urgent = Caller()
    batcher.submit(a_row(9), (), urgent, deadline=clock.now + 2.5, priority=1)

    engine.let(2)
    assert (await urgent.answer())["y"][0, 0] == 18
    engine.let()


async def test_rows_that_disagree_are_the_callers_fault() -> None:
    layout = Layout({"x": 0, "z": 0}, {"y": 0})
    batcher = a_batcher(Scripted(), layout)

    with pytest.raises(RequestError) as caught:
        batcher.submit({**a_row(1, 2), "z": a_row(1)["x"]}, (), Caller())

    assert caught.value.status is HTTPStatus.BAD_REQUEST and batcher.waiting == 0


async def test_who_waits_is_told_when_its_deadline_passes_and_not_when_the_run_ends() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    first, late, other = Caller(), Caller(), Caller()
    batcher.submit(a_row(1), (), first)
    batcher.submit(a_row(2), (), late, deadline=time.monotonic() + 0.02)
    batcher.submit(a_row(3), (), other)

    answer = await late.answer()

    assert answer.status is HTTPStatus.GATEWAY_TIMEOUT and "waited" in answer.message
    assert not first.heard and (batcher.counts.expired, batcher.waiting) == (1, 1)
    engine.let()
    assert (await other.answer())["y"][0, 0] == 6
    assert engine.firsts == [[1], [3]]


async def test_who_is_being_run_is_told_too_and_the_run_goes_on_for_the_others() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    batcher.submit(a_row(0), (), Caller())
    late, other = Caller(), Caller()
    batcher.submit(a_row(1), (), late, deadline=time.monotonic() + 2.0)
    batcher.submit(a_row(2), (), other)
    engine.let(1)
    await engine.begun(2)

    answer = await late.answer()
    engine.let()

    assert answer.status is HTTPStatus.GATEWAY_TIMEOUT and "ran" in answer.message
    assert (await other.answer())["y"][0, 0] == 4
    assert (batcher.counts.late, batcher.counts.wasted_rows) == (1, 1)


async def test_a_run_that_has_outlived_all_its_deadlines_is_ended() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine)
    late = Caller()
    batcher.submit(a_row(1), (), late, deadline=time.monotonic() + 0.02)

    assert (await late.answer()).status is HTTPStatus.GATEWAY_TIMEOUT
    await asyncio.wait_for(batcher.emptied(), 20)

    assert batcher.in_flight == 0 and batcher.counts.late == 1


async def test_who_has_no_time_left_when_its_turn_comes_is_not_run() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, ALONE, {1: 1.0}, clock=clock)
    late, other = Caller(), Caller()
    batcher.submit(a_row(1), (), Caller())
    batcher.submit(a_row(2), (), late, deadline=clock.now + 60.0)
    batcher.submit(a_row(3), (), other)
    clock.now += 59.5
    engine.let()

    assert (await late.answer()).status is HTTPStatus.GATEWAY_TIMEOUT
    await other.answer()
    assert engine.firsts == [[1], [3]] and batcher.counts.expired == 1


async def test_a_shape_that_was_found_slower_is_refused_by_its_own_times() -> None:
    clock = Clock()
    batcher = a_batcher(Scripted(), profile=LINEAR, clock=clock, warm=((9,),))
    caller = Caller()
    batcher.submit(a_row(1), (), caller)
    await caller.answer()
    bucket = batcher.layout.bucket(a_row(1), ())
    batcher._forecast._profiles[bucket[1:]] = batcher.profile.scaled(1000.0)

    assert "can't be met" in refused(batcher, deadline=clock.now + 100.0).message


async def test_a_closed_batcher_refuses_who_waits_and_who_comes_and_lets_the_run_end() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    running, waiting = Caller(), Caller()
    batcher.submit(a_row(1), (), running)
    batcher.submit(a_row(2), (), waiting)

    batcher.close()

    assert (await waiting.answer()).status is HTTPStatus.SERVICE_UNAVAILABLE and not running.heard
    assert refused(batcher).status is HTTPStatus.SERVICE_UNAVAILABLE
    engine.let()
    assert (await running.answer())["y"][0, 0] == 2


async def test_emptied_waits_for_who_waits_and_who_runs() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    callers = [Caller() for _ in range(3)]
    for caller in callers:
        batcher.submit(a_row(1), (), caller)
    emptied = asyncio.create_task(batcher.emptied())

    for _ in range(3):
        await engine.begun()
        assert not emptied.done()
        engine.let(1)
    await asyncio.wait_for(emptied, 20)

    assert all(caller.heard for caller in callers)
