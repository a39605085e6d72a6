"""Answers that hold for some seconds."""

import asyncio

import pytest

from inference_operator.autoscaling.metricsapi.cache import TimedCache


class Times:
    """A clock that is set, and a source that counts."""

    def __init__(self) -> None:
        self.now = 0.0
        self.asked = 0
        self.fault: Exception | None = None

    def clock(self) -> float:
        return self.now

    async def ask(self) -> int:
        self.asked += 1
        await asyncio.sleep(0)
        if self.fault is not None:
            raise self.fault
        return self.asked


async def test_an_answer_holds_for_its_time_and_no_longer() -> None:
    times = Times()
    cache: TimedCache[str, int] = TimedCache(times.clock, seconds=10)

    assert [await cache.get("a", times.ask), await cache.get("a", times.ask)] == [1, 1]
    times.now = 10.0
    assert await cache.get("a", times.ask) == 1
    times.now = 10.1
    assert await cache.get("a", times.ask) == 2


async def test_equal_questions_at_one_time_are_asked_once() -> None:
    times = Times()
    cache: TimedCache[str, int] = TimedCache(times.clock, seconds=10)

    assert await asyncio.gather(*(cache.get("a", times.ask) for _ in range(5))) == [1] * 5


async def test_a_failure_is_not_kept() -> None:
    times = Times()
    cache: TimedCache[str, int] = TimedCache(times.clock, seconds=10)
    times.fault = ValueError("away")
    for _ in range(2):
        with pytest.raises(ValueError, match="away"):
            await cache.get("a", times.ask)
    times.fault = None

    assert await cache.get("a", times.ask) == 3


async def test_who_leaves_takes_nothing_from_the_others() -> None:
    times = Times()
    cache: TimedCache[str, int] = TimedCache(times.clock, seconds=10)
    impatient = asyncio.create_task(cache.get("a", times.ask))
    patient = asyncio.create_task(cache.get("a", times.ask))
    await asyncio.sleep(0)
    impatient.cancel()

    assert await patient == 1


async def test_only_so_many_are_kept() -> None:
    times = Times()
    cache: TimedCache[int, int] = TimedCache(times.clock, seconds=10, most=3)
    for key in range(5):
        await cache.get(key, times.ask)

    assert await cache.get(4, times.ask) == 5
    assert await cache.get(0, times.ask) == 6


async def test_an_answer_that_was_found_otherwise_holds_as_long() -> None:
    times = Times()
    cache: TimedCache[str, int] = TimedCache(times.clock, seconds=10)
    cache.keep("a", 7)

    assert await cache.get("a", times.ask) == 7
    times.now = 10.1
    assert await cache.get("a", times.ask) == 1
