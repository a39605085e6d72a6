"""Who may wait for a model, and what those are told who may not.

A request that would wait in vain is refused at once: the model fails, its engine is away, a run hangs, too many wait already, or
the answer would come too late. The refusal says when to ask again.
"""

from http import HTTPStatus

from inference_worker.batching.breaker import Breaker
from inference_worker.batching.forecast import Forecast
from inference_worker.batching.in_flight import InFlight
from inference_worker.batching.queue import NEVER, DeadlineQueue
from inference_worker.batching.rows import Bucket, Layout
from inference_worker.batching.tenants import NOBODY, Tenant
from inference_worker.batching.ticket import Counts, Ticket
from inference_worker.engines.engine import Engine, Tensors
from inference_worker.errors import RequestError

QUEUE_LIMIT = 1024
"""Requests that may wait for one model."""

_LARGEST_REQUEST_RUNS = 1024
"""Runs that one request may cause: it holds the model for that long, whoever else waits."""

_RETURN_SECONDS = 1.0
"""When to ask again while the engine is away: a process that the kubelet starts anew is back in about that time."""


class Admission:
    """Lets requests in to one model's queue. Counts those that it sheds."""

    def __init__(
        self,
        engine: Engine,
        layout: Layout,
        forecast: Forecast,
        breaker: Breaker,
        queue: DeadlineQueue[Ticket],
        in_flight: InFlight,
        counts: Counts,
    ) -> None:
        self._engine = engine
        self._layout = layout
        self._forecast = forecast
        self._breaker = breaker
        self._queue = queue
        self._in_flight = in_flight
        self._counts = counts

    def rows(self, feeds: Tensors) -> int:
        """Rows of a request. Raises RequestError 400 when its inputs disagree, or when they are too many."""
        try:
            rows = self._layout.rows(feeds)
        except ValueError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        if rows > self._forecast.most(rows) * _LARGEST_REQUEST_RUNS:
            most = self._forecast.max_rows
            text = f"{rows} rows in one request are too many for runs of {most}; split the request, or raise batchSize"
            raise RequestError(HTTPStatus.BAD_REQUEST, text)
        return rows

    def admit(
        self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float, tenant: Tenant = NOBODY
    ) -> Ticket | None:
        """Let a request in; return the one whose place in a full queue it takes. Raises RequestError for one that is shed.

        The status is 503 while the model does not answer, and 429 where the request would wait in vain, or its tenant has had all
        that it may have.
        """
        self._queue.meet(tenant, now)
        if (seconds := self._breaker.refuses(now)) is not None:
            self._counts.shed += 1
            text = "the model or its device fails; callers are let in again one by one"
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after_seconds=seconds)
        try:
            if tenant is not NOBODY:
                self._counts.tenants.admit(tenant, now)
            return self._room(rows, bucket, deadline, priority, now, tenant)
        except RequestError:
            self._counts.shed += 1
            if tenant is not NOBODY:
                self._counts.tenants.refused(tenant)
            # The breaker may have let it in as the canary, which it can't be now.
            self._breaker.undecided(self._breaker.epoch)
            raise

    def _room(self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float, tenant: Tenant) -> Ticket | None:
        if (problem := self._engine.problem) is not None:
            raise engine_away(problem)
        if self._in_flight.hung(now) is not None:
            text = "the model has stopped answering; the worker will be replaced"
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, text)
        full = self._queue.length >= QUEUE_LIMIT
        surplus = self._queue.surplus(tenant) if full else None
        if full and surplus is None:
            text = f"{QUEUE_LIMIT} requests wait already; try again later"
            seconds = self._wait(self._queue.rows, now)
            raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=seconds)
        if deadline < NEVER:
            self._require_in_time(rows, bucket, deadline, priority, now, tenant)
        return None if surplus is None else surplus.item

    def answered_in(self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float, tenant: Tenant = NOBODY) -> float:
        """Seconds until a request would be answered: what runs, what is more urgent, and its own run."""
        ahead = self._queue.ahead(self._queue.order(priority, deadline, now, tenant))
        return self._wait(ahead, now) + self._forecast.seconds(rows, bucket)

    def _wait(self, ahead: int, now: float) -> float:
        """Seconds until a runner is free and so many rows have been run."""
        return self._forecast.wait(self._in_flight.free_in(now), ahead, self._queue.rows)

    def _require_in_time(self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float, tenant: Tenant) -> None:
        """Refuse a deadline that can't be met: what runs, what is more urgent, and the run itself take longer."""
        needed = self.answered_in(rows, bucket, deadline, priority, now, tenant) + self._forecast.wait_error.margin
        if now + needed <= deadline:
            return
        run = self._forecast.seconds(rows, bucket)
        text = (
            f"the deadline in {max(0.0, deadline - now) * 1e3:.0f} ms can't be met: the answer takes {needed * 1e3:.0f} ms, "
            f"{run * 1e3:.0f} of them the run"
        )
        raise RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=max(0.0, needed - run))


def engine_away(problem: str) -> RequestError:
    """What a caller is told while the engine can't compute."""
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, problem, retry_after_seconds=_RETURN_SECONDS)


def displaced() -> RequestError:
    """What a caller is told whose place in a full queue goes to a tenant with fewer."""
    text = f"{QUEUE_LIMIT} requests wait, most of them of this tenant; its last one makes room for others: try again later"
    return RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=_RETURN_SECONDS)


def going_away() -> RequestError:
    """What a caller is told once the worker takes no more requests."""
    return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the worker is going away; ask again")
