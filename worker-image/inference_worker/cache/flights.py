"""One run for requests that ask the same at the same time.

A request that comes while another of the same key runs waits for that run, where it is not more urgent. If the run gives no
answer, those who wait for it go on by themselves: one of them runs where the first met its own deadline or its tenant's bounds,
each where the run failed. So nobody fails by another's fault, and nobody waits beyond its own deadline.
"""

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Protocol

from inference_worker.batching.execute import Answer
from inference_worker.batching.ticket import Timing
from inference_worker.cache.keys import Key
from inference_worker.cache.waiting import Waiting
from inference_worker.engines.engine import Tensors
from inference_worker.errors import RequestError

_EXPIRED = "the deadline passed while the request waited for another with the same inputs"

_OF_ITS_OWN = (HTTPStatus.GATEWAY_TIMEOUT, HTTPStatus.TOO_MANY_REQUESTS)
"""What a request meets by its own deadline or its tenant's place: it says nothing of the others, so one of them runs for all."""


class Listener(Protocol):
    """Who is told what comes of runs."""

    def began(self, waiting: Waiting) -> None:
        """A request runs by itself."""
        ...

    def answered(self, key: Key, waiting: Waiting, answer: Tensors, timing: Timing) -> None:
        """A run has given the first answer to its key. Its callers are told after this."""
        ...

    def share(self, waiting: Waiting, answer: Tensors, timing: Timing) -> None:
        """Tell one its answer that has waited for another's run."""
        ...


class _Flight:
    """Runs under way for one key, and those who wait for any of them. `answer` is there once one has ended well."""

    __slots__ = ("answer", "followers", "key", "runners")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.runners: list[Waiting] = []
        self.followers: list[Waiting] = []
        self.answer: tuple[Tensors, Timing] | None = None

    def serves(self, waiting: Waiting) -> bool:
        return any(runner.serves(waiting) for runner in self.runners)


class Flights:
    """All runs under way that others may wait for. Used on the event loop alone."""

    def __init__(self, listener: Listener, clock: Callable[[], float]) -> None:
        self._flights: dict[Key, _Flight] = {}
        self._listener = listener
        self._clock = clock

    def __len__(self) -> int:
        return len(self._flights)

    def join(self, key: Key, waiting: Waiting) -> None:
        """Wait for a run of this key, or run. Raises RequestError where the batcher refuses it at once."""
        flight = self._flights.setdefault(key, _Flight(key))
        if flight.serves(waiting):
            self._follow(flight, waiting)
        else:
            self._run(flight, waiting)

    def _follow(self, flight: _Flight, waiting: Waiting) -> None:
        flight.followers.append(waiting)
        waiting.on_left = lambda: self._follower_left(flight, waiting)
        if waiting.expires and waiting.timer is None:
            left = max(0.0, waiting.deadline - self._clock())
            waiting.timer = asyncio.get_running_loop().call_later(left, self._expire, flight, waiting)

    def _run(self, flight: _Flight, waiting: Waiting) -> None:
        self._listener.began(waiting)
        flight.runners.append(waiting)
        # Its run goes on for the others, who let it be theirs.
        waiting.on_left = lambda: self._cancel_if_unwanted(flight)
        try:
            waiting.submit(lambda answer, timing: self._ended(flight, waiting, answer, timing))
        except RequestError:
            flight.runners.remove(waiting)
            self._forget_if_idle(flight)
            raise

    def _ended(self, flight: _Flight, waiting: Waiting, answer: Answer, timing: Timing) -> None:
        flight.runners.remove(waiting)
        if isinstance(answer, Exception):
            self._forget_if_idle(flight)
            waiting.tell(answer, timing)
            self._go_on(flight, answer)
            return
        self._forget(flight)
        first, flight.answer = flight.answer is None, (answer, timing)
        if first:
            self._listener.answered(flight.key, waiting, answer, timing)
        waiting.tell(answer, timing)
        followers, flight.followers = flight.followers, []
        for follower in followers:
            self._listener.share(follower, answer, timing)

    def _go_on(self, flight: _Flight, error: Exception) -> None:
        """Let those go on by themselves who have waited for a run that gave no answer, the most urgent first."""
        alone = isinstance(error, RequestError) and error.status in _OF_ITS_OWN
        followers, flight.followers = sorted(flight.followers, key=lambda follower: follower.urgency), []
        for follower in followers:
            if follower.over:
                continue
            if flight.answer is not None:
                self._listener.share(follower, *flight.answer)
            elif alone and flight.serves(follower):
                self._follow(flight, follower)
            else:
                self._run_again(flight, follower)

    def _run_again(self, flight: _Flight, waiting: Waiting) -> None:
        self._flights.setdefault(flight.key, flight)
        try:
            self._run(flight, waiting)
        except RequestError as error:
            waiting.tell_late(error, 0, self._clock())

    # the ends of those who wait

    def _expire(self, flight: _Flight, waiting: Waiting) -> None:
        waiting.timer = None
        flight.followers.remove(waiting)
        waiting.model.batcher.counts.expired += 1
        waiting.tell_late(RequestError(HTTPStatus.GATEWAY_TIMEOUT, _EXPIRED), 0, self._clock())
        self._cancel_if_unwanted(flight)

    def _follower_left(self, flight: _Flight, waiting: Waiting) -> None:
        if waiting in flight.followers:
            flight.followers.remove(waiting)
            waiting.model.batcher.counts.cancelled += 1
            self._cancel_if_unwanted(flight)

    def _cancel_if_unwanted(self, flight: _Flight) -> None:
        """End the runs of those who have left, once nobody waits for them."""
        if flight.followers:
            return
        for runner in [runner for runner in flight.runners if runner.over]:
            flight.runners.remove(runner)
            runner.cancel()
        self._forget_if_idle(flight)

    def _forget_if_idle(self, flight: _Flight) -> None:
        if not flight.runners:
            self._forget(flight)

    def _forget(self, flight: _Flight) -> None:
        if self._flights.get(flight.key) is flight:
            del self._flights[flight.key]
