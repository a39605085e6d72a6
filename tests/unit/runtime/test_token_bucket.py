"""The token bucket: a burst at once, then a steady rate, in order. In virtual time."""

import asyncio

import pytest

from inference_operator.runtime.bucket import TokenBucket
from tests.simulation.virtual_time import VirtualClock, run


def a_bucket(rate: float = 10.0, burst: int = 5) -> TokenBucket:
    return TokenBucket(rate, burst, VirtualClock().monotonic)


def now() -> float:
    return round(asyncio.get_running_loop().time(), 3)


async def times(bucket: TokenBucket, count: int) -> list[float]:
    found = []
    for _ in range(count):
        await bucket.take()
        found.append(now())
    return found


def test_a_burst_goes_at_once_and_the_rest_at_the_rate() -> None:
    async def main() -> None:
        assert await times(a_bucket(), 8) == [0.0] * 5 + [0.1, 0.2, 0.3]

    run(main())


def test_tokens_are_saved_up_to_the_burst_and_no_further() -> None:
    async def main() -> None:
        bucket = a_bucket()
        await times(bucket, 5)
        await asyncio.sleep(3600)

        assert await times(bucket, 7) == [3600.0] * 5 + [3600.1, 3600.2]

    run(main())


@pytest.mark.parametrize("waiters", [3, 50])
def test_waiters_are_served_in_order(waiters: int) -> None:
    async def main() -> None:
        bucket, order = a_bucket(burst=1), list[int]()

        async def wait(number: int) -> None:
            await bucket.take()
            order.append(number)

        await asyncio.gather(*(wait(n) for n in range(waiters)))

        assert order == list(range(waiters))
        assert now() == pytest.approx((waiters - 1) / 10)

    run(main())


def test_one_who_gives_up_takes_no_token_and_stops_nobody() -> None:
    async def main() -> None:
        bucket = a_bucket(burst=1)
        await bucket.take()
        gives_up = asyncio.create_task(bucket.take())
        stays = asyncio.create_task(bucket.take())
        await asyncio.sleep(0.05)
        gives_up.cancel()
        await stays

        assert now() == pytest.approx(0.1)

    run(main())


def test_over_any_time_no_more_than_rate_and_burst_are_given() -> None:
    async def main() -> None:
        found = await times(a_bucket(rate=7.0, burst=3), 60)

        for start in found:
            for end in found:
                given = len([t for t in found if start <= t <= end])
                assert given <= 3 + 7.0 * max(0.0, end - start) + 0.05

    run(main())
