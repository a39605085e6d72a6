"""The work queue: no key twice, none at two workers at a time, none lost; delays in order. In virtual time."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.runtime.queue import WorkQueue
from tests.simulation.virtual_time import VirtualClock, run


def a_queue(**how: float) -> WorkQueue[str]:
    return WorkQueue(VirtualClock().monotonic, **how)


async def drain(queue: WorkQueue[str]) -> list[str]:
    """What can be had at once, in order."""
    found: list[str] = []
    while True:
        try:
            key = await asyncio.wait_for(queue.get(), 1e-6)
        except TimeoutError:
            return found
        found.append(key)
        queue.done(key)


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


# Adding.


def test_a_key_is_had_once_however_often_it_is_added() -> None:
    async def main() -> None:
        queue = a_queue()
        for key in "abab":
            queue.add(key)

        assert len(queue) == 2
        assert await drain(queue) == ["a", "b"]

    run(main())


def test_urgent_keys_go_before_all_others() -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add("slow")
        queue.add("first")
        queue.add("quick", urgent=True)
        queue.add("first", urgent=True)
        queue.add("quick")

        assert await drain(queue) == ["quick", "first", "slow"]
        assert len(queue) == 0

    run(main())


def test_a_waiting_worker_gets_what_is_added() -> None:
    async def main() -> None:
        queue = a_queue()
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(5)
        queue.add("a")

        assert await waiting == "a"
        assert now() == 5

    run(main())


# One worker a key.


def test_a_key_that_is_worked_on_is_not_had_again_before_it_is_done() -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add("a")
        assert await queue.get() == "a"
        queue.add("a")

        assert await drain(queue) == []
        queue.done("a")
        assert await drain(queue) == ["a"]

    run(main())


def test_a_key_that_was_added_meanwhile_is_had_once_more_and_only_once() -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add("a")
        await queue.get()
        for _ in range(3):
            queue.add("a", urgent=True)
            queue.add("a")
        queue.done("a")

        assert await drain(queue) == ["a"]

    run(main())


@given(st.integers(1, 5), st.integers(0, 1000))
def test_many_workers_never_hold_the_same_key_and_miss_no_change(workers: int, seed: int) -> None:
    async def main() -> None:
        dice = random.Random(seed)
        queue, held = a_queue(), set[str]()
        changed: dict[str, float] = {}
        seen: dict[str, float] = {}

        async def work() -> None:
            while True:
                key = await queue.get()
                assert key not in held
                held.add(key)
                seen[key] = now()
                await asyncio.sleep(dice.uniform(0, 2))
                held.discard(key)
                queue.done(key)

        tasks = [asyncio.create_task(work()) for _ in range(workers)]
        for _ in range(30):
            key = dice.choice("abcd")
            changed[key] = now()
            queue.add_after(key, dice.choice([0, 0, 0.5])) if dice.random() < 0.5 else queue.add(key, urgent=dice.random() < 0.3)
            await asyncio.sleep(dice.uniform(0, 0.5))
        await asyncio.sleep(200)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)

        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        assert all(seen[key] >= changed[key] for key in changed)
        assert len(queue) == queue.delayed == 0

    run(main())


# Later.


def test_delayed_keys_come_in_the_order_of_their_times() -> None:
    async def main() -> None:
        queue = a_queue()
        for key, seconds in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
            queue.add_after(key, seconds)
        times = []
        for _ in range(3):
            key = await queue.get()
            times.append((key, now()))
            queue.done(key)

        assert times == [("a", 1.0), ("b", 2.0), ("c", 3.0)]

    run(main())


@pytest.mark.parametrize("delays", [(5.0, 1.0), (1.0, 5.0), (5.0, 3.0, 1.0, 2.0)])
def test_of_several_delays_the_shortest_counts_and_only_once(delays: tuple[float, ...]) -> None:
    async def main() -> None:
        queue = a_queue()
        for seconds in delays:
            queue.add_after("a", seconds)
        assert queue.delayed == 1
        queue.done(await queue.get())
        assert now() == 1.0
        await asyncio.sleep(10)

        assert await drain(queue) == []
        assert queue.delayed == 0

    run(main())


def test_a_new_delay_after_the_old_one_was_had_counts() -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add_after("a", 5.0)
        queue.add_after("a", 1.0)
        queue.done(await queue.get())
        queue.add_after("a", 9.0)
        queue.done(await queue.get())

        assert now() == 10.0

    run(main())


@pytest.mark.parametrize("seconds", [0.0, -1.0])
def test_no_delay_is_at_once(seconds: float) -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add_after("a", seconds)

        assert await drain(queue) == ["a"]

    run(main())


def test_a_shorter_delay_wakes_a_worker_that_waits_for_a_longer_one() -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add_after("late", 100.0)
        waiting = asyncio.create_task(queue.get())
        await asyncio.sleep(1)
        queue.add_after("early", 1.0)

        assert await waiting == "early"
        assert now() == 2.0

    run(main())


def test_a_key_whose_time_comes_while_it_is_worked_on_is_had_afterwards() -> None:
    async def main() -> None:
        queue = a_queue()
        queue.add("a")
        queue.add_after("a", 1.0)
        await queue.get()
        await asyncio.sleep(2)
        assert await drain(queue) == []
        queue.done("a")

        assert await drain(queue) == ["a"]

    run(main())


# Backoff.


async def wait_of(queue: WorkQueue[str], key: str) -> float:
    before = now()
    queue.retry(key)
    queue.done(await queue.get())
    return round(now() - before, 3)


def test_backoff_doubles_by_key_up_to_its_limit() -> None:
    async def main() -> None:
        queue = a_queue(base_seconds=1.0, limit_seconds=5.0)

        assert [await wait_of(queue, "a") for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
        assert await wait_of(queue, "b") == 1.0

    run(main())


def test_what_went_well_starts_anew() -> None:
    async def main() -> None:
        queue = a_queue(base_seconds=1.0)
        for _ in range(3):
            await wait_of(queue, "a")
        queue.forget("a")

        assert await wait_of(queue, "a") == 1.0

    run(main())


def test_the_servers_own_wish_counts_when_it_is_longer() -> None:
    async def main() -> None:
        queue = a_queue(base_seconds=1.0)
        queue.retry("a", after_seconds=30.0)
        await queue.get()

        assert now() == 30.0

    run(main())


def test_thousands_of_failures_do_not_overflow() -> None:
    async def main() -> None:
        queue = a_queue(base_seconds=1.0, limit_seconds=60.0)
        for _ in range(5000):
            queue.retry("a")

        assert queue.delayed == 1

    run(main())
