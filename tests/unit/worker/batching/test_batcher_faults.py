"""What becomes of a model that fails, hangs, or finds no memory: its callers, its breaker, its worker."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.batching.breaker import BreakerState
from inference_worker.batching.in_flight import STUCK_SECONDS
from inference_worker.batching.replies import told
from inference_worker.engines.engine import RunCancelledError
from inference_worker.errors import RequestError, WorkerError
from tests.unit.worker.scripted_engines import ALONE, FLAT, ROWS, Caller, Clock, Scripted, a_batcher, a_row

if TYPE_CHECKING:
    from numpy import ndarray

    from inference_worker.batching.batcher import Batcher
    from inference_worker.batching.rows import Layout

BAD = 666.0


async def ask(batcher: Batcher, *values: float) -> Any:
    caller = Caller()
    batcher.submit(a_row(*values), (), caller)
    return await caller.answer()


def refused(batcher: Batcher) -> RequestError:
    with pytest.raises(RequestError) as caught:
        batcher.submit(a_row(1), (), Caller())
    return caught.value


def broken(x: ndarray) -> Exception | None:
    return RuntimeError("broken") if BAD in x else None


async def an_open_breaker(**more: Any) -> tuple[Batcher, Scripted, Clock]:
    engine, clock = Scripted(faults=broken), Clock()
    batcher = a_batcher(engine, clock=clock, **more)
    for _ in range(5):
        assert (await ask(batcher, BAD)).status is HTTPStatus.INTERNAL_SERVER_ERROR
    assert batcher.breaker.state is BreakerState.OPEN and batcher.counts.breaker_opened == 1
    return batcher, engine, clock


async def test_after_faults_in_a_row_callers_are_refused_at_once_and_told_when_to_come_back() -> None:
    batcher, engine, _ = await an_open_breaker()

    error = refused(batcher)

    assert error.status is HTTPStatus.SERVICE_UNAVAILABLE and error.retry_after_seconds == 1.0
    assert len(engine.seen) == 5 and batcher.counts.shed == 1


async def test_one_canary_is_let_in_and_all_others_when_it_is_answered() -> None:
    batcher, engine, clock = await an_open_breaker()
    engine.hold()
    clock.now += 1.0
    canary = Caller()
    batcher.submit(a_row(1), (), canary)

    refused(batcher)
    engine.let()

    await canary.answer()
    assert batcher.breaker.state is BreakerState.CLOSED
    assert (await ask(batcher, 2))["y"][0, 0] == 4


@pytest.mark.parametrize("fate", ["left", "refused by the model", "too late"])
async def test_a_canary_that_says_nothing_of_the_model_makes_room_for_the_next(fate: str) -> None:
    batcher, engine, clock = await an_open_breaker(profile={1: 0.5})
    clock.now += 1.0
    if fate == "left":
        engine.hold()
        ticket = batcher.submit(a_row(1), (), Caller())
        assert ticket is not None
        batcher.cancel(ticket)
        engine.let()
        await asyncio.wait_for(batcher.emptied(), 20)
    elif fate == "refused by the model":
        engine.faults = lambda _: ValueError("no")
        assert (await ask(batcher, 1)).status is HTTPStatus.BAD_REQUEST
        engine.faults = broken
    else:
        with pytest.raises(RequestError, match="can't be met"):
            batcher.submit(a_row(1), (), Caller(), deadline=clock.now + 0.1)

    assert (await ask(batcher, 2))["y"][0, 0] == 4
    assert batcher.breaker.state is BreakerState.CLOSED


async def test_what_callers_send_wrong_never_opens_it() -> None:
    batcher = a_batcher(Scripted(faults=lambda x: ValueError("no") if BAD in x else None))

    for _ in range(20):
        assert (await ask(batcher, BAD)).status is HTTPStatus.BAD_REQUEST

    assert batcher.breaker.state is BreakerState.CLOSED


async def test_one_who_breaks_every_batch_it_is_in_does_not_shut_out_the_others() -> None:
    engine = Scripted(held=True, faults=broken)
    batcher = a_batcher(engine, profile=FLAT)
    batcher.submit(a_row(0), (), Caller())
    callers = [Caller() for _ in range(24)]
    for number, caller in enumerate(callers):
        batcher.submit(a_row(BAD if number % 8 == 3 else number), (), caller)
    engine.let()

    answers = [await caller.answer() for caller in callers]

    assert [number for number, answer in enumerate(answers) if isinstance(answer, Exception)] == [3, 11, 19]
    assert batcher.breaker.state is BreakerState.CLOSED


async def test_one_who_leaves_the_queue_does_not_let_a_second_canary_in() -> None:
    engine, clock = Scripted(held=True, faults=broken), Clock()
    batcher = a_batcher(engine, ALONE, clock=clock)
    for value in (BAD, BAD, BAD, BAD, BAD, 1):
        batcher.submit(a_row(value), (), Caller())
    old = batcher.submit(a_row(2), (), Caller())
    engine.let(5)
    await engine.begun(6)
    assert batcher.breaker.state is BreakerState.OPEN and old is not None
    clock.now += 1.0
    canary = Caller()
    batcher.submit(a_row(3), (), canary)
    assert refused(batcher).status is HTTPStatus.SERVICE_UNAVAILABLE

    batcher.cancel(old)

    try:
        assert refused(batcher).status is HTTPStatus.SERVICE_UNAVAILABLE
    finally:
        engine.let()


async def test_a_canary_that_leaves_while_it_waits_makes_room_for_the_next() -> None:
    engine, clock = Scripted(held=True, faults=broken), Clock()
    batcher = a_batcher(engine, ALONE, clock=clock)
    for value in (BAD, BAD, BAD, BAD, BAD, 1):
        batcher.submit(a_row(value), (), Caller())
    engine.let(5)
    await engine.begun(6)
    clock.now += 1.0
    canary = batcher.submit(a_row(2), (), Caller())
    assert canary is not None and batcher.breaker.state is BreakerState.HALF_OPEN

    batcher.cancel(canary)
    following = Caller()
    batcher.submit(a_row(3), (), following)
    engine.let()

    assert (await following.answer())["y"][0, 0] == 6


async def test_a_shortage_of_memory_halves_later_batches_from_the_start() -> None:
    engine = Scripted(held=True, faults=lambda x: MemoryError("no room") if len(x) > 2 else None)
    batcher = a_batcher(engine, profile=FLAT)
    batcher.submit(a_row(0), (), Caller())
    callers = [Caller() for _ in range(8)]
    for value, caller in enumerate(callers):
        batcher.submit(a_row(value), (), caller)
    engine.let()
    assert [(await caller.answer())["y"][0, 0] for caller in callers] == [2 * value for value in range(8)]
    before = len(engine.seen)
    assert batcher.counts.halvings > 0 and batcher.ceilings.lowest == 2

    engine.hold()
    again = [Caller() for _ in range(5)]
    for value, caller in enumerate(again):
        batcher.submit(a_row(value), (), caller)
    engine.let()
    for caller in again:
        await caller.answer()

    assert max(len(seen) for seen in engine.seen[before:]) == 2


async def hopeless(layout: Layout) -> list[WorkerError]:
    given_up: list[WorkerError] = []
    engine, clock = Scripted(faults=lambda _: MemoryError("no room")), Clock()
    batcher = a_batcher(engine, layout, clock=clock, on_hopeless=given_up.append)
    for _ in range(8):
        clock.now += 60.0
        assert (await ask(batcher, 1)).status is HTTPStatus.SERVICE_UNAVAILABLE
    return given_up


async def test_a_model_that_never_finds_memory_for_a_row_ends_its_worker() -> None:
    given_up = await hopeless(ROWS)

    assert given_up and {error.reason for error in given_up} == {WorkerReason.OUT_OF_MEMORY}
    assert "raise the memory limit" in given_up[0].message and "deviceMemory" not in given_up[0].message


async def test_a_device_that_never_has_room_for_a_row_is_told_by_what_cures_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scripted, "provider", "CUDAExecutionProvider")

    assert "raise deviceMemory of the accelerator class" in (await hopeless(ROWS))[0].message


async def test_a_model_that_runs_requests_one_by_one_and_never_finds_memory_ends_its_worker_too() -> None:
    assert await hopeless(ALONE)


async def test_memory_that_is_short_now_and_then_ends_nobody() -> None:
    given_up: list[WorkerError] = []
    engine = Scripted(faults=lambda x: MemoryError("no room") if BAD in x else None)
    batcher = a_batcher(engine, on_hopeless=given_up.append)
    for _ in range(5):
        for value in (BAD, BAD, BAD, 1):
            await ask(batcher, value)

    assert given_up == []


async def test_rows_that_find_no_memory_between_many_quick_runs_end_nobody() -> None:
    given_up: list[WorkerError] = []
    engine, clock = Scripted(faults=lambda x: MemoryError("its own size") if BAD in x else None), Clock()
    batcher = a_batcher(engine, clock=clock, warm=((2,),), inline=True, on_hopeless=given_up.append)
    for _ in range(10):
        await ask(batcher, BAD)
        await ask(batcher, 1)

    assert given_up == []


async def test_one_batch_in_a_moment_without_memory_does_not_end_the_worker() -> None:
    given_up: list[WorkerError] = []
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT, on_hopeless=given_up.append)
    callers = [Caller() for _ in range(9)]
    for value, caller in enumerate(callers):
        batcher.submit(a_row(value), (), caller)
    engine.faults = lambda x: MemoryError("not now") if 0 not in x[:, 0] else None
    engine.let()
    for caller in callers:
        await caller.answer()

    assert given_up == []


async def test_a_run_that_does_not_end_is_called_stuck_and_not_before_its_time() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, profile={1: 1.0}, clock=clock)
    caller = Caller()
    batcher.submit(a_row(1), (), caller)

    found = []
    for seconds in (0, 99, 2):
        clock.now += seconds
        found.append(batcher.stuck)

    assert found[:2] == [None, None] and "101 s" in str(found[2])
    engine.let()
    await caller.answer()
    assert batcher.stuck is None


async def test_a_run_of_a_model_that_nothing_is_known_of_has_a_minute() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, clock=clock)
    batcher.submit(a_row(1), (), Caller())

    clock.now += STUCK_SECONDS
    assert batcher.stuck is None
    clock.now += 1
    assert batcher.stuck is not None
    engine.let()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_a_thread_that_dies_is_noticed_and_its_callers_are_told() -> None:
    engine = Scripted(faults=lambda _: SystemExit())
    batcher = a_batcher(engine)
    caller = Caller()
    batcher.submit(a_row(1), (), caller)

    assert (await caller.answer()).status is HTTPStatus.INTERNAL_SERVER_ERROR
    async with asyncio.timeout(20):
        while batcher.stuck is None:
            await asyncio.sleep(0.001)

    assert "thread" in batcher.stuck


async def test_a_closed_batcher_is_not_stuck() -> None:
    batcher = a_batcher(Scripted())
    batcher.close()
    for thread in batcher._dispatcher._runners._threads:
        await asyncio.to_thread(thread.join, 20)

    assert batcher.stuck is None


@pytest.mark.parametrize(
    ("fault", "status"),
    [
        (RequestError(HTTPStatus.GATEWAY_TIMEOUT, "late"), 504),
        (RunCancelledError("gone"), 503),
        (MemoryError("no room"), 503),
        (ValueError("no"), 400),
        (RuntimeError("broken"), 500),
        (KeyError("k"), 500),
        (OSError("o"), 500),
    ],
)
def test_every_fault_has_its_status(fault: Exception, status: int) -> None:
    assert told(fault).status == status


def test_a_fault_that_nobody_thought_of_is_told_without_its_inner_words() -> None:
    assert "secret" not in told(KeyError("secret")).message


async def test_shapes_that_a_model_never_answered_open_no_breaker_for_others() -> None:
    """A caller chooses its shapes: five that don't fit each other must not end what fits."""

    def picky(x: ndarray) -> Exception | None:
        return RuntimeError("Attempting to broadcast an axis by a dimension other than 1") if x.shape[1] == 3 else None

    batcher = a_batcher(Scripted(faults=picky))
    assert not isinstance(await ask(batcher, 1.0), Exception)
    for _ in range(7):
        caller = Caller()
        batcher.submit({"x": np.ones((1, 3), np.float32)}, (), caller)
        assert (await caller.answer()).status is HTTPStatus.INTERNAL_SERVER_ERROR

    assert batcher.breaker.state is BreakerState.CLOSED
    assert not isinstance(await ask(batcher, 1.0), Exception)
