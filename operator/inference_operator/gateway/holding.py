"""Requests that wait for a worker of a service at zero. Envoy keeps them, and asks here whether they may go on.

Nothing of a request but its headers comes here. Whoever may go on does so in the same Envoy, to the worker that it was told of.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field

from inference_operator.gateway.hold import Asked, Bounds, Refusal, asked, left, refusal
from inference_operator.gateway.lua import ROUTE_HEADER
from inference_operator.gateway.snapshot import Service
from inference_operator.observability import metrics

# Envoys that hear of a worker from another replica have so long to take it in before its first request.
_SETTLE_SECONDS = 0.15
# How often a held request looks whether there is still a worker to come.
_LOOK_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class Outlook:
    """When a worker of a service is expected, in seconds; None where nobody knows. `problem` is why none will come."""

    expected_seconds: float | None = None
    problem: str | None = None


@dataclass
class Holding:
    """`find` gives the service of a route, `outlook` what is to be expected of it, and `wake` sees to it that a worker comes.

    `taken` waits until Envoys have taken in what they were told.
    """

    find: Callable[[str], Service | None]
    outlook: Callable[[Service], Outlook]
    wake: Callable[[Service], Awaitable[None]]
    taken: Callable[[], Awaitable[None]]
    monotonic: Callable[[], float]
    most: Bounds
    most_seconds: float
    _requests: int = 0
    _size: int = 0
    _changed: asyncio.Event = field(default_factory=asyncio.Event)

    def look_again(self) -> None:
        """Envoys were told something else."""
        self._changed.set()
        self._changed = asyncio.Event()

    async def check(self, headers: Mapping[str, str]) -> Refusal | dict[str, str]:
        """Wait until the request may go on, and return the headers that it gets; or what it is told instead."""
        route = headers.get(ROUTE_HEADER, "")
        if not self._waits(route):
            # Envoy asks by what it was told before, so it may not know of the worker either.
            await self._settled()
            return {}
        request, begun = asked(headers), self.monotonic()
        if (refused := await self._refused(route, request, waiting=False)) is not None:
            return refused
        self._count(1, request.size)
        try:
            refused = await self._wait(route, request, begun)
        finally:
            self._count(-1, -request.size)
        return refused if refused is not None else left(headers, self.monotonic() - begun)

    async def _wait(self, route: str, request: Asked, begun: float) -> Refusal | None:
        """Wait for a worker; why there is none by the deadline."""
        most = min(request.seconds if request.seconds is not None else self.most_seconds, self.most_seconds)
        while self._waits(route):
            waited = self.monotonic() - begun
            if waited >= most:
                return Refusal(504, f"no worker came in {waited:.1f} s")
            changed = asyncio.ensure_future(self._changed.wait())
            await asyncio.wait((changed,), timeout=min(most - waited, _LOOK_SECONDS))
            changed.cancel()
            if self._waits(route) and (refused := await self._refused(route, request, waiting=True)) is not None:
                return refused
        await self._settled()
        return None

    async def _settled(self) -> None:
        await asyncio.gather(asyncio.sleep(_SETTLE_SECONDS), self.taken())

    def _waits(self, route: str) -> bool:
        service = self.find(route)
        return service is not None and service.holds

    async def _refused(self, route: str, request: Asked, *, waiting: bool) -> Refusal | None:
        service = self.find(route)
        if service is None:
            return None
        # Also for one that can't wait: whoever comes next may.
        await self.wake(service)
        outlook = self.outlook(service)
        if waiting:
            # It has its place. An expectation that was missed is no reason to give up: its deadline is.
            return Refusal(503, outlook.problem) if outlook.problem is not None else None
        return refusal(request, Bounds(self._requests, self._size), self.most, outlook.expected_seconds, outlook.problem)

    def _count(self, requests: int, size: int) -> None:
        self._requests += requests
        self._size += size
        metrics.gateway_held_requests.set(self._requests)
