"""From the queue to runs and their answers. Only `Execution.run` happens in a thread; all else is on the event loop.

It is work-conserving: an idle runner runs what is there, and requests gather while all are busy, for no longer than that. Where an
engine prepares runs beside others, the next one is prepared shortly before the device is free. A full one is at once where nothing
could join it any more; where some requests are more urgent than others, one that comes may still take a place in it. A request's
state is where it is: in the queue, in a run under way, or answered.
"""

import asyncio
import logging
from collections.abc import Callable
from http import HTTPStatus

from inference_worker.batching.admission import displaced, going_away
from inference_worker.batching.execute import Answer, Execution, Report
from inference_worker.batching.feedback import Feedback
from inference_worker.batching.in_flight import InFlight
from inference_worker.batching.queue import DEFAULT_PRIORITY, NEVER, DeadlineQueue, QueueEntry
from inference_worker.batching.replies import hand_over, told
from inference_worker.batching.rows import Bucket
from inference_worker.batching.runners import Runners
from inference_worker.batching.tenants import NOBODY
from inference_worker.batching.ticket import Batch, Ticket, Timing
from inference_worker.errors import RequestError, let_go

log = logging.getLogger(__name__)

_LEAD_SECONDS = 1e-3
"""How long a busy event loop and its threads take to turn to a run that is to be prepared."""

_UNORDERED_SECONDS = 1.0
"""After so long without a deadline or a priority, requests are taken to be served in the order in which they come."""

_LOOK_SECONDS = 2e-4
_FOLLOW = 0.1
"""Weight of what the last run's rows took to the device."""

_LARGE = 0.25
"""The share of the largest run from which on copies, and not what each run costs, tell what a row takes."""


class Dispatcher:
    """Gathers what waits into runs, starts them, and tells callers what came of them."""

    def __init__(
        self, execution: Execution, feedback: Feedback, *, threads: int, clock: Callable[[], float], prepared: Bucket | None = None
    ) -> None:
        """`prepared` is the shape (a bucket without the outputs wanted) of whose runs one is prepared while others compute."""
        self.queue: DeadlineQueue[Ticket] = DeadlineQueue(feedback.forecast.max_rows if execution.joins else 1)
        self.in_flight = InFlight(threads)
        self._execution = execution
        self._feedback = feedback
        self._forecast = feedback.forecast
        self._ceilings = feedback.ceilings
        self._breaker = feedback.breaker
        self._counts = feedback.counts
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._threads = threads
        self._prepared = prepared
        # To the device; it follows what the last runs took.
        self._seconds_a_row = 0.0
        # When the last request came that has a place of its own in the order.
        self._ordered_at = -_UNORDERED_SECONDS
        self._look: asyncio.TimerHandle | None = None
        self._look_at = 0.0
        self._runners: Runners[Report] = Runners(threads + (prepared is not None), self._loop)
        self._progress = asyncio.Event()
        self.on_idle: Callable[[], None] = lambda: None

    @property
    def alive(self) -> bool:
        """Whether all runners are there, as long as they should be."""
        return self._runners.alive

    def add(self, ticket: Ticket, now: float) -> None:
        """Run a request, at once where a runner is idle, else in its turn."""
        tenant = ticket.tenant
        if ticket.deadline < NEVER or ticket.priority != DEFAULT_PRIORITY or tenant is not NOBODY:
            self._ordered_at = now
        order = self.queue.order(ticket.priority, ticket.deadline, now, tenant)
        ticket.place = QueueEntry(ticket, ticket.rows, ticket.bucket, order, tenant)
        self.queue.add(ticket.place)
        if tenant is not NOBODY:
            self._counts.tenants.begin(tenant, ticket.rows)
        if ticket.deadline < NEVER:
            ticket.timer = self._loop.call_later(max(0.0, ticket.deadline - now), self._expire, ticket)
        self._dispatch()

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request that nobody waits for: its place is free at once, and its run ends if it ran for no one else."""
        if not ticket.over:
            self._counts.cancelled += 1
            self._end(ticket)
            if ticket.batch is not None:
                ticket.batch.cancel_if_abandoned()

    def displace(self, ticket: Ticket) -> None:
        """Refuse one that waits, so that a tenant with fewer has its place."""
        self._fail(ticket, displaced())

    def close(self) -> None:
        """Refuse everything that waits; what runs may end."""
        for waiting in self.queue.clear():
            self._fail(waiting.item, going_away())
        self._runners.close()

    async def emptied(self) -> None:
        """Wait until nothing waits or runs."""
        while self.queue.length or self.in_flight:
            await self._progress.wait()
            self._progress.clear()

    # the ends of a request

    def _expire(self, ticket: Ticket) -> None:
        """Tell a caller that its deadline has passed: now, not when the run that holds the model ends."""
        if ticket.over:
            return
        if ticket.batch is None:
            self._counts.expired += 1
            text = "the deadline passed while the request waited for the model"
        else:
            self._counts.late += 1
            text = "the deadline passed while the model ran"
        self._fail(ticket, RequestError(HTTPStatus.GATEWAY_TIMEOUT, text))
        if ticket.batch is not None:
            ticket.batch.cancel_if_abandoned()

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        self._end(ticket)
        hand_over(error, self._timing(ticket, 0), ticket.done)

    def _answer(self, ticket: Ticket, answer: Answer, rows: int) -> None:
        self._end(ticket)
        hand_over(answer, self._timing(ticket, rows), ticket.done)

    def _timing(self, ticket: Ticket, rows: int) -> Timing:
        now = self._clock()
        begun = ticket.batch.begun if ticket.batch is not None else now
        return Timing(begun - ticket.arrived, now - begun, rows, ticket.batch)

    def _end(self, ticket: Ticket) -> None:
        ticket.over = True
        self._progress.set()
        if ticket.tenant is not NOBODY:
            self._counts.tenants.end(ticket.tenant)
        if ticket.batch is None:
            # If this was the canary, it decides nothing any more, and another may try.
            self._breaker.undecided(ticket.canary_epoch)
        if ticket.timer is not None:
            ticket.timer.cancel()
            ticket.timer = None
        if ticket.place is not None:
            self.queue.remove(ticket.place)
            ticket.place = None

    # runs

    def _dispatch(self) -> None:
        """Give idle runners what waits. A fault of our own costs the most urgent its answer, and nobody else."""
        while self._may_start():
            tickets: list[Ticket] = []
            head: QueueEntry[Ticket] | None = None
            try:
                now = self._clock()
                head = self.queue.head()
                if head is None:
                    return
                tickets = self._gather(head.bucket, now)
                if in_time := [ticket for ticket in tickets if self._is_in_time(ticket, now)]:
                    self._start(in_time, head.bucket, now)
            except Exception as error:
                log.exception("a batch could not be made")
                victims = tickets or ([head.item] if head is not None else [waiting.item for waiting in self.queue.clear()])
                for ticket in victims:
                    if not ticket.over:
                        self._fail(ticket, told(let_go(error)))

    def _may_start(self) -> bool:
        """Whether a runner is free for what waits: to compute it, or to prepare it for the device that soon is."""
        if not self.queue.length or not self._runners.idle:
            return False
        if len(self.in_flight) < self._threads:
            return True
        head = self.queue.head()
        if head is None or head.bucket[1:] != self._prepared:
            return False
        now = self._clock()
        limit = self._ceilings.limit(head.bucket, self._forecast.max_rows, now)
        rows = self.queue.rows_in(head.bucket)
        if rows >= limit and now - self._ordered_at > _UNORDERED_SECONDS:
            return True
        left = self.in_flight.free_in(now) - self._lead(min(rows, limit))
        if left > 0:
            self._look_again(now + left)
        return left <= 0

    def _look_again(self, at: float) -> None:
        """Look for what can be started then; the more comes, the sooner that is."""
        if self._look is not None and self._look_at <= at + _LOOK_SECONDS:
            return
        if self._look is not None:
            self._look.cancel()
        self._look_at = at
        self._look = self._loop.call_later(max(0.0, at - self._clock()), self._looked)

    def _looked(self) -> None:
        self._look = None
        self._dispatch()

    def _lead(self, rows: int) -> float:
        """How long before a run is expected to end the next one is prepared, of so many rows.

        Earlier, what comes meanwhile would wait for another run; later, the device would (docs/measurements.md).
        """
        return _LEAD_SECONDS + rows * self._seconds_a_row

    def _gather(self, bucket: Bucket, now: float) -> list[Ticket]:
        """The most urgent of a bucket, as many as pay and as all of them have time for."""
        limit = self._ceilings.limit(bucket, self._forecast.max_rows, now)
        count = rows = 0
        tightest = NEVER
        for waiting in self.queue.line(bucket):
            if count and (rows + waiting.rows > limit or not self._execution.joins):
                break
            count, rows, tightest = count + 1, rows + waiting.rows, min(tightest, waiting.item.deadline)
        if count > 1:
            count = self._fitting(bucket, self._forecast.best(rows, bucket, within=tightest - now))
        return [waiting.item for waiting in self.queue.pop(bucket, count)]

    def _fitting(self, bucket: Bucket, limit: int) -> int:
        """How many of the most urgent have at most `limit` rows together; at least one."""
        count = rows = 0
        for waiting in self.queue.line(bucket):
            rows += waiting.rows
            if count and rows > limit:
                break
            count += 1
        return count

    def _is_in_time(self, ticket: Ticket, now: float) -> bool:
        """Whether a ticket that was taken from the queue can still be in time. Tells its caller if not."""
        ticket.place = None
        if ticket.deadline == NEVER:
            return True
        if now + self._forecast.seconds(ticket.rows, ticket.bucket) + self._forecast.run_error.margin <= ticket.deadline:
            return True
        self._counts.expired += 1
        self._fail(ticket, RequestError(HTTPStatus.GATEWAY_TIMEOUT, "the deadline can't be met any more"))
        return False

    def _start(self, tickets: list[Ticket], bucket: Bucket, now: float) -> None:
        rows = [ticket.rows for ticket in tickets]
        total = sum(rows)
        batch = Batch(tickets, total, now, self._forecast.seconds(total, bucket), self._breaker.epoch)
        members, wanted = [ticket.feeds for ticket in tickets], tickets[0].wanted
        limit = self._ceilings.limit(bucket, self._forecast.most(total), now)
        self._runners.start(
            lambda: self._execution.run(members, rows, wanted, limit, batch.cancellation),
            lambda result: self._finish(batch, bucket, result),
        )
        self.in_flight.add(batch)
        for ticket in tickets:
            ticket.batch = batch

    def _finish(self, batch: Batch, bucket: Bucket, result: Report | BaseException) -> None:
        ended = self._clock()
        self.in_flight.discard(batch, ended)
        self._progress.set()
        if isinstance(result, BaseException):
            log.error("a run ended with its runner", exc_info=result)
            fault = RuntimeError(f"the runner failed: {type(result).__name__}")
            result = Report(0, answers=[fault] * len(batch.tickets))
        try:
            self._feedback.observe(result, bucket, batch.epoch, ended)
            if result.prepared and batch.rows >= self._forecast.max_rows * _LARGE:
                self._seconds_a_row += _FOLLOW * (result.prepared / batch.rows - self._seconds_a_row)
        except Exception:
            # What is learned from a run is no reason to keep its answers back.
            log.exception("a run could not be taken into account")
        members = ((ticket.tenant, ticket.rows) for ticket in batch.tickets)
        self._counts.tenants.share(members, batch.rows, sum(seconds for _, seconds in result.runs))
        self._counts.wasted_rows += sum(ticket.rows for ticket in batch.tickets if ticket.over)
        self._forecast.observe_batch(ended - batch.begun, batch.expected)
        # First the next run: it computes while these callers are told.
        self._dispatch()
        for ticket, answer in zip(batch.tickets, result.answers, strict=True):
            self._forecast.observe_wait(ended - ticket.expected, batch.expected)
            if not ticket.over:
                self._answer(ticket, answer, batch.rows)
        # They know each other, and the collector should have nothing to do with what each request leaves behind.
        batch.tickets.clear()
        if not self.queue.length and not len(self.in_flight):
            self.on_idle()
