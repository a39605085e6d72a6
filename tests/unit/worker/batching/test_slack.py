"""Background runs in the slack of requests: behind them, never together with them, and not where one would be late."""

from __future__ import annotations

import asyncio
import threading
import time
from unittest.mock import Mock

import pytest

from inference_worker.batching import slack as slacks
from inference_worker.batching.slack import InSlack, Slack
from tests.unit.worker.scripted_engines import FLAT, Caller, Clock, Scripted, a_batcher, a_row

_PATIENCE_SECONDS = 20.0


def never() -> bool:
    return False


async def test_a_background_run_waits_until_no_request_waits_or_runs() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    behind = InSlack(engine, batcher.slack, never)
    callers = [Caller() for _ in range(2)]
    batcher.submit(a_row(1), (), callers[0])
    await engine.begun()
    running = asyncio.create_task(asyncio.to_thread(behind.run, a_row(9)))
    batcher.submit(a_row(2), (), callers[1])

    engine.let()
    for caller in callers:
        await caller.answer()
    answer = await asyncio.wait_for(running, _PATIENCE_SECONDS)

    assert engine.firsts == [[1], [2], [9]] and answer["y"][0, 0] == 18


async def test_a_request_that_comes_during_a_background_run_is_next() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    behind = InSlack(engine, batcher.slack, never)
    first = asyncio.create_task(asyncio.to_thread(behind.run, a_row(8)))
    await engine.begun()
    caller = Caller()
    batcher.submit(a_row(1), (), caller)
    second = asyncio.create_task(asyncio.to_thread(behind.run, a_row(9)))
    await engine.begun()

    engine.let()
    await asyncio.wait_for(asyncio.gather(first, second), _PATIENCE_SECONDS)

    assert engine.firsts == [[8], [1], [9]]


@pytest.mark.parametrize(("spare", "seconds", "may"), [(0.2, 0.1, True), (0.1, 0.2, False), (None, 99.0, True)])
def test_a_background_run_is_no_longer_than_what_the_tightest_deadline_leaves(
    spare: float | None, seconds: float, *, may: bool
) -> None:
    slack = Slack(never, Clock())
    for each in (5.0, spare) if spare is not None else ():
        slack.spare(each)
    asked = iter([False, True])

    assert slack.wait(seconds, lambda: next(asked)) is may


async def test_a_background_run_leaves_requests_without_a_deadline_the_latency_target() -> None:
    batcher = a_batcher(Scripted(), profile=FLAT, target_seconds=0.5)
    assert batcher.slack.budget == pytest.approx(0.5 - FLAT[1])

    callers = [Caller() for _ in range(2)]
    batcher.submit(a_row(1), (), callers[0], deadline=time.monotonic() + 0.2)
    assert batcher.slack.budget < 0.2
    batcher.submit(a_row(1), (), callers[1])
    assert batcher.slack.budget < 0.2
    for caller in callers:
        await caller.answer()


def test_waiting_behind_requests_is_no_use_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = iter([False, False, False])
    busy = iter([True, True, False])
    now = 0.0

    def look() -> bool:
        nonlocal now
        now += 1.0
        return next(busy)

    monkeypatch.setattr(slacks, "time", Mock(perf_counter=lambda: now))
    behind = InSlack(Scripted(), Slack(look, Clock()), lambda: next(asked))

    behind.run(a_row(1))

    assert (behind.ran, now) == (1, 3.0)
    assert behind.computed_seconds == 0


def test_the_first_run_of_its_kind_waits_for_as_long_a_spare_as_it_should_take() -> None:
    slack = Slack(never, most=0.1)
    for seconds, ran in ((0.05, 1), (0.2, 0)):
        engine, stop, expected = Scripted(), threading.Event(), Mock(return_value=seconds)
        behind = InSlack(engine, slack, stop.is_set, expected)
        running = threading.Thread(target=behind.run, args=(a_row(1),))
        running.start()
        running.join(0.3)
        assert len(engine.firsts) == ran

        stop.set()
        running.join(_PATIENCE_SECONDS)
        assert not running.is_alive()


def test_deadlines_are_forgotten_in_time() -> None:
    clock = Clock()
    slack = Slack(never, clock)
    slack.spare(0.1)
    clock.now += 11
    assert slack.budget == 0.1
    clock.now += 11

    assert slack.budget == float("inf")


def test_whoever_is_told_to_stop_waits_no_longer() -> None:
    stop = threading.Event()
    slack = Slack(lambda: True)
    waiting = threading.Thread(target=slack.wait, args=(1.0, stop.is_set))
    waiting.start()
    stop.set()
    waiting.join(_PATIENCE_SECONDS)

    assert not waiting.is_alive()
