"""What fails is tried again: how late, by its kind, and whatever the API server asks for."""

from __future__ import annotations

import asyncio

import pytest

from inference_operator.controllers.queue_workers import Workers
from inference_operator.errors import RetryableError
from inference_operator.runtime.queue import WorkQueue
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, endpoints_request, job_request
from tests.simulation.virtual_time import VirtualClock, run

KEY = Key("default", "a")


class Away:
    """An API server that is away until a time, and asks whoever comes to wait; `tries` are the times of who came."""

    def __init__(self, *, until: float, wait: float | None = None) -> None:
        self._until = until
        self._wait = wait
        self.tries: list[float] = []

    async def reconcile(self, key: Key) -> None:
        """See Reconciler."""
        now = asyncio.get_running_loop().time()
        self.tries.append(now)
        if now < self._until:
            raise RetryableError("away", after_seconds=self._wait)


def tries_of(request: Request, away: Away, *, seconds: float = 4000.0) -> list[float]:
    async def main() -> None:
        queue: WorkQueue[Request] = WorkQueue(VirtualClock().monotonic)
        queue.add(request)
        work = asyncio.create_task(Workers(queue, {request.kind: away}).work())
        await asyncio.sleep(seconds)
        work.cancel()

    run(main())
    return away.tries


@pytest.mark.parametrize("request_", [job_request(KEY), endpoints_request(KEY)], ids=["job", "endpoints"])
def test_an_api_server_that_asks_for_an_hour_is_asked_again_within_a_minute(request_: Request) -> None:
    """A proxy's 429 with Retry-After: 3600 left a job alone for an hour, and a dead worker in its endpoints."""
    tries = tries_of(request_, Away(until=1.0, wait=3600.0))

    assert tries[-1] <= 61.0 and len(tries) == 2


def test_endpoints_are_right_soon_after_an_outage() -> None:
    """What a minute without API server had put off came up to a minute after it: callers were sent to dead workers."""
    tries = tries_of(endpoints_request(KEY), Away(until=60.0))

    assert 60.0 <= tries[-1] <= 65.0 and len(tries) < 25
