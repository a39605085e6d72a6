"""From requests to runs: admission, order, batches, expiry, and what each caller is told.

Everything here happens on the event loop; only `Execution.run` happens in a thread. It is work-conserving: an idle model runs
what is there, and requests gather while it is busy, for no longer than that. A request's state is where it is: in the queue, in a
running batch, or answered.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from inference_protocol.reasons import WorkerReason
from inference_worker.batching.breaker import Breaker, BreakerState
from inference_worker.batching.execute import Answer, Execution, Report
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.profile import Error, LatencyProfile
from inference_worker.batching.queue import DEFAULT_PRIORITY, PATIENCE_SECONDS, DeadlineQueue, QueueEntry
from inference_worker.batching.rows import Bucket, Layout
from inference_worker.batching.runners import Runners
from inference_worker.engines.engine import Cancellation, Engine, EngineUnavailableError, RunCancelledError, Tensors
from inference_worker.errors import RequestError, WorkerError, unforeseen

log = logging.getLogger(__name__)

QUEUE_LIMIT = 1024
STUCK_SECONDS = 60.0
"""A run that takes this long, and a hundred times longer than the profile says, will not end by itself."""

_HOPELESS_RUNS = 5
_LARGEST_REQUEST_RUNS = 1024
"""Runs that one request may cause: it holds the model for that long, whoever else waits."""

_RETURN_SECONDS = 1.0
"""When to ask again while the engine is away: a process that the kubelet starts anew is back in about that time."""

_OUTLIER = 4.0
_SHAPES = 64
_SIZES = 1024
_NO_RUNS = (0, 0.0)
_ANY = 1 << 40
_NEVER = float("inf")


class Timing(msgspec.Struct, frozen=True):
    """Seconds that a request waited and computed, and the rows that ran with it (its own among them)."""

    queue: float
    compute: float
    rows: int


@dataclass(slots=True)
class Counts:
    """What happened to requests since the start; each is counted once. `by_rows` holds runs and their seconds by rows."""

    shed: int = 0
    expired: int = 0
    cancelled: int = 0
    late: int = 0
    runs: int = 0
    rows: int = 0
    wasted_rows: int = 0
    fullest: int = 0
    breaker_opened: int = 0
    halvings: int = 0
    by_rows: dict[int, tuple[int, float]] = field(default_factory=dict)


class Ticket(msgspec.Struct, eq=False):
    """One request on its way. `done` is called exactly once, unless the ticket is cancelled."""

    feeds: Tensors
    wanted: tuple[str, ...]
    rows: int
    bucket: Bucket
    deadline: float
    arrived: float
    done: Callable[[Answer, Timing], None]
    priority: int = DEFAULT_PRIORITY
    expected: float = 0.0
    canary_epoch: int = -1
    over: bool = False
    begun: float = 0.0
    place: QueueEntry["Ticket"] | None = None
    batch: "_Batch | None" = None
    timer: asyncio.TimerHandle | None = None


@dataclass(slots=True, eq=False)
class _Batch:
    """A run under way."""

    tickets: list[Ticket]
    rows: int
    begun: float
    expected: float
    epoch: int
    cancellation: Cancellation = field(default_factory=Cancellation)


class Batcher:
    """One model's queue and runs."""

    def __init__(
        self,
        engine: Engine,
        layout: Layout,
        profile: LatencyProfile,
        *,
        max_rows: int,
        warm: Bucket | None = None,
        inline: bool = False,
        threads: int = 1,
        pad: Callable[[int], int] = lambda rows: rows,
        clock: Callable[[], float] = time.monotonic,
        on_hopeless: Callable[[WorkerError], None] = lambda _: None,
        counts: Counts | None = None,
    ) -> None:
        """`warm` is the shape (a bucket without the outputs wanted) that `profile` was measured with.

        `inline` says that its runs are too quick to be worth a thread.
        """
        self._engine = engine
        self.layout = layout
        self.profile = profile
        self._profiles: dict[Bucket, LatencyProfile] = {}
        # What a run takes over the profile (the way to the thread, others on the core), and a whole wait over its forecast.
        self._run_error, self._wait_error = Error(), Error()
        self._max_rows = max_rows if layout.outputs is not None else _ANY
        self._warm = warm
        self._inline = warm if inline else None
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._execution = Execution(engine, layout, pad=pad)
        self._runners: Runners[Report] = Runners(threads, self._loop)
        self._queue: DeadlineQueue[Ticket] = DeadlineQueue()
        self._running: set[_Batch] = set()
        self._closed = False
        self._progress = asyncio.Event()
        self._on_hopeless = on_hopeless
        self.breaker = Breaker()
        self.ceilings = MemoryCeilings()
        self.counts = counts or Counts()

    # what others ask

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.length

    @property
    def in_flight(self) -> int:
        """Requests in runs under way."""
        return sum(len(batch.tickets) for batch in self._running)

    @property
    def busy_seconds(self) -> float:
        """Seconds computed since the start, as a share of all runners; runs under way count as far as they are."""
        now = self._clock()
        ended = sum(seconds for _, seconds in self.counts.by_rows.values())
        return (ended + sum(max(0.0, now - batch.begun) for batch in self._running)) / self._runners.count

    @property
    def stuck(self) -> str | None:
        """Why this model will not answer any more, in words; None while all is well."""
        if not self._runners.alive:
            return "a runner thread has died"
        now = self._clock()
        if (batch := self._hangs(now)) is not None:
            return f"a run of {batch.rows} rows has not ended for {now - batch.begun:.0f} s"
        return None

    def _hangs(self, now: float) -> _Batch | None:
        """A run that will not end by itself."""
        return next((batch for batch in self._running if now - batch.begun > max(STUCK_SECONDS, 100 * batch.expected)), None)

    # requests

    def submit(
        self,
        feeds: Tensors,
        wanted: tuple[str, ...],
        done: Callable[[Answer, Timing], None],
        *,
        deadline: float = _NEVER,
        priority: int = DEFAULT_PRIORITY,
    ) -> Ticket | None:
        """Run a request, at once or in its turn, and tell `done`; None when `done` was called already.

        `deadline` is an instant of time.monotonic. Raises RequestError for one that is refused: 400 for rows that disagree, 429
        when the queue is full or the deadline can't be met, 503 when the breaker is open or the worker goes away.
        """
        now = self._clock()
        if self._closed:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the worker is going away; ask again")
        try:
            rows = self.layout.rows(feeds)
        except ValueError as error:
            raise RequestError(HTTPStatus.BAD_REQUEST, str(error)) from error
        if rows > self._most(rows) * _LARGEST_REQUEST_RUNS:
            text = f"{rows} rows in one request are too many for runs of {self._max_rows}; split the request, or raise batchSize"
            raise RequestError(HTTPStatus.BAD_REQUEST, text)
        bucket = self.layout.bucket(feeds, wanted)
        self._admit(rows, bucket, deadline, priority, now)
        if self._inline is not None and bucket[1:] == self._inline and rows <= self._max_rows and not self._queue.length:
            self._run_inline(feeds, wanted, rows, bucket, now, done)
            return None
        expected = now + self._forecast(rows, bucket, deadline, priority, now)
        ticket = Ticket(feeds, wanted, rows, bucket, deadline, now, done, priority, expected)
        if self.breaker.state is BreakerState.HALF_OPEN:
            ticket.canary_epoch = self.breaker.epoch
        self._enqueue(ticket, now)
        self._dispatch()
        return None if ticket.over else ticket

    def cancel(self, ticket: Ticket) -> None:
        """Nobody waits for this one any more: its place is free at once, and its run ends if it ran for no one else."""
        if not ticket.over:
            self.counts.cancelled += 1
            self._end(ticket)
            self._abandon(ticket.batch)

    def close(self) -> None:
        """Refuse everything that waits; what runs may end."""
        self._closed = True
        for waiting in self._queue.clear():
            self._fail(waiting.item, RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the worker is going away; ask again"))
        self._runners.close()

    async def emptied(self) -> None:
        """Wait until nothing waits or runs."""
        while self._queue.length or self._running:
            await self._progress.wait()
            self._progress.clear()

    # admission

    def _admit(self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float) -> None:
        if (seconds := self.breaker.refuses(now)) is not None:
            self.counts.shed += 1
            text = "the model or its device fails; callers are let in again one by one"
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, text, retry_after_seconds=seconds)
        refusal = None
        if (problem := self._engine.problem) is not None:
            refusal = RequestError(HTTPStatus.SERVICE_UNAVAILABLE, problem, retry_after_seconds=_RETURN_SECONDS)
        elif self._hangs(now):
            refusal = RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the model has stopped answering; the worker will be replaced")
        elif self._queue.length >= QUEUE_LIMIT:
            text = f"{QUEUE_LIMIT} requests wait already; try again later"
            refusal = RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=self._wait(self._queue.rows, now))
        elif deadline < _NEVER:
            refusal = self._too_late(rows, bucket, deadline, priority, now)
        if refusal is not None:
            self.counts.shed += 1
            # It may have been let in as the canary, which it can't be now.
            self.breaker.undecided(self.breaker.epoch)
            raise refusal

    def _too_late(self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float) -> RequestError | None:
        """Why a deadline can't be met: what runs, what is more urgent, and the run itself take longer; None when it can."""
        needed = self._forecast(rows, bucket, deadline, priority, now) + self._wait_error.margin
        if now + needed <= deadline:
            return None
        run = self._seconds(rows, bucket)
        text = (
            f"the deadline in {max(0.0, deadline - now) * 1e3:.0f} ms can't be met: the answer takes {needed * 1e3:.0f} ms, "
            f"{run * 1e3:.0f} of them the run"
        )
        return RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=max(0.0, needed - run))

    def _forecast(self, rows: int, bucket: Bucket, deadline: float, priority: int, now: float) -> float:
        """Seconds until a request would be answered: what runs, what is more urgent, and its own run."""
        ahead = self._queue.ahead((priority, min(deadline, now + PATIENCE_SECONDS), 0))
        return self._wait(ahead, now) + self._seconds(rows, bucket)

    def _wait(self, ahead: int, now: float) -> float:
        """Seconds until a runner is free and so many rows have been run."""
        return max(0.0, self._free_at(now) - now) + ahead * self._row_seconds() / self._runners.count

    def _free_at(self, now: float) -> float:
        """When a runner is free for new work, by what the profile says of the runs under way."""
        if self._runners.idle:
            return now
        return min((batch.begun + batch.expected for batch in self._running), default=now)

    def _row_seconds(self) -> float:
        return self.profile.per_row(min(self._max_rows, max(1, self._queue.rows)))

    def _profile(self, bucket: Bucket) -> LatencyProfile:
        """What is known of requests of this shape; of a shape that was never run, what the warm-up found."""
        return self._profiles.get(bucket[1:], self.profile)

    def _seconds(self, rows: int, bucket: Bucket) -> float:
        most = self._most(rows)
        return self._profile(bucket).seconds(min(rows, most)) * max(1.0, rows / most)

    def _most(self, rows: int) -> int:
        """The most rows of a run. Where nothing is put together (a maximum of 1), a request's own `rows` are its caller's."""
        return rows if self._max_rows == 1 else self._max_rows

    # the queue

    def _enqueue(self, ticket: Ticket, now: float) -> None:
        order = self._queue.order(ticket.priority, ticket.deadline, now)
        ticket.place = QueueEntry(ticket, ticket.rows, ticket.bucket, order)
        self._queue.add(ticket.place)
        if ticket.deadline < _NEVER:
            ticket.timer = self._loop.call_later(max(0.0, ticket.deadline - now), self._expire, ticket)

    def _expire(self, ticket: Ticket) -> None:
        """The deadline passed: whoever waits is told now, not when the run that holds the model ends."""
        if ticket.over:
            return
        if ticket.batch is None:
            self.counts.expired += 1
            text = "the deadline passed while the request waited for the model"
        else:
            self.counts.late += 1
            text = "the deadline passed while the model ran"
        self._fail(ticket, RequestError(HTTPStatus.GATEWAY_TIMEOUT, text))
        self._abandon(ticket.batch)

    def _end(self, ticket: Ticket) -> None:
        ticket.over = True
        self._progress.set()
        if ticket.batch is None:
            # If this was the canary, it decides nothing any more, and another may try.
            self.breaker.undecided(ticket.canary_epoch)
        if ticket.timer is not None:
            ticket.timer.cancel()
            ticket.timer = None
        if ticket.place is not None:
            self._queue.remove(ticket.place)
            ticket.place = None

    def _fail(self, ticket: Ticket, error: Exception) -> None:
        self._end(ticket)
        now = self._clock()
        waited = (ticket.begun or now) - ticket.arrived
        self._tell(ticket.done, error, Timing(waited, now - ticket.arrived - waited, 0))

    @staticmethod
    def _tell(done: Callable[[Answer, Timing], None], answer: Answer, timing: Timing) -> None:
        try:
            done(told(answer) if isinstance(answer, Exception) else answer, timing)
        except Exception:
            # A caller's callback must not take the queue with it.
            log.exception("an answer could not be handed over")

    @staticmethod
    def _abandon(batch: _Batch | None) -> None:
        """One of a batch's callers is gone, or one that waited: the run goes on for the others only."""
        if batch is None:
            return
        if all(ticket.over for ticket in batch.tickets):
            batch.cancellation.cancel()

    # runs

    def _dispatch(self) -> None:
        """Give idle runners what waits. A fault of our own costs the most urgent its answer, and nobody else."""
        while self._runners.idle > 0 and self._queue.length:
            tickets: list[Ticket] = []
            head: QueueEntry[Ticket] | None = None
            try:
                now = self._clock()
                head = self._queue.head()
                if head is None:
                    return
                tickets = self._gather(head.bucket, now)
                if in_time := [ticket for ticket in tickets if self._in_time(ticket, now)]:
                    self._start(in_time, head.bucket, now)
            except Exception as error:
                log.exception("a batch could not be made")
                victims = tickets or ([head.item] if head is not None else [waiting.item for waiting in self._queue.clear()])
                for ticket in victims:
                    if not ticket.over:
                        self._fail(ticket, told(error))

    def _gather(self, bucket: Bucket, now: float) -> list[Ticket]:
        """The most urgent of a bucket, as many as pay and as all of them have time for."""
        limit = self.ceilings.limit(bucket, self._max_rows, now)
        count = rows = 0
        tightest = _NEVER
        for waiting in self._queue.line(bucket):
            if count and (rows + waiting.rows > limit or self.layout.outputs is None):
                break
            count, rows, tightest = count + 1, rows + waiting.rows, min(tightest, waiting.item.deadline)
        if count > 1:
            pays = self._profile(bucket).best(rows, within=tightest - now - self._run_error.margin)
            count = self._fitting(bucket, pays)
        return [waiting.item for waiting in self._queue.pop(bucket, count)]

    def _fitting(self, bucket: Bucket, limit: int) -> int:
        """How many of the most urgent have at most `limit` rows together; at least one."""
        count = rows = 0
        for waiting in self._queue.line(bucket):
            rows += waiting.rows
            if count and rows > limit:
                break
            count += 1
        return count

    def _in_time(self, ticket: Ticket, now: float) -> bool:
        """Whether a ticket that was taken from the queue can still be in time; if not, it is told so."""
        ticket.place = None
        if ticket.deadline == _NEVER or now + self._seconds(ticket.rows, ticket.bucket) + self._run_error.margin <= ticket.deadline:
            return True
        self.counts.expired += 1
        self._fail(ticket, RequestError(HTTPStatus.GATEWAY_TIMEOUT, "the deadline can't be met any more"))
        return False

    def _start(self, tickets: list[Ticket], bucket: Bucket, now: float) -> None:
        rows = [ticket.rows for ticket in tickets]
        batch = _Batch(tickets, sum(rows), now, self._seconds(sum(rows), bucket), self.breaker.epoch)
        members, wanted = [ticket.feeds for ticket in tickets], tickets[0].wanted
        limit = self.ceilings.limit(bucket, self._most(batch.rows), now)
        self._runners.start(
            lambda: self._execution.run(members, rows, wanted, limit, batch.cancellation),
            lambda result: self._finish(batch, bucket, result),
        )
        self._running.add(batch)
        for ticket in tickets:
            ticket.begun, ticket.batch = now, batch

    def _run_inline(
        self,
        feeds: Tensors,
        wanted: tuple[str, ...],
        rows: int,
        bucket: Bucket,
        now: float,
        done: Callable[[Answer, Timing], None],
    ) -> None:
        """Run at once, here: nothing that waits or can be cancelled is needed for that."""
        epoch = self.breaker.epoch
        answer: Answer
        try:
            answer = self._engine.run(feeds, wanted)
            seconds = self._clock() - now
            self.breaker.succeeded(epoch)
            self.ceilings.succeeded()
            self._count_run(rows, seconds)
        except Exception:  # noqa: BLE001 -- the long way finds out what to make of it, and does not fail
            limit = self.ceilings.limit(bucket, self._max_rows, now)
            report = self._execution.run([feeds], [rows], wanted, limit, Cancellation())
            self._learn(bucket, report, epoch)
            (answer,) = report.answers
            seconds = self._clock() - now
        self._tell(done, answer, Timing(0.0, seconds, rows))

    def _finish(self, batch: _Batch, bucket: Bucket, result: Report | BaseException) -> None:
        self._running.discard(batch)
        self._progress.set()
        if isinstance(result, BaseException):
            log.error("a run ended with its runner", exc_info=result)
            fault = RuntimeError(f"the runner failed: {type(result).__name__}")
            result = Report(0, answers=[fault] * len(batch.tickets))
        try:
            self._learn(bucket, result, batch.epoch)
        except Exception:
            # What is learned from a run is no reason to keep its answers back.
            log.exception("a run could not be taken into account")
        self.counts.wasted_rows += sum(ticket.rows for ticket in batch.tickets if ticket.over)
        now = self._clock()
        took = now - batch.begun
        # One run that hangs is no rule: what it adds is bounded, or nobody would be let in for long.
        self._run_error.observe(min(took - batch.expected, _OUTLIER * batch.expected))
        for ticket, answer in zip(batch.tickets, result.answers, strict=True):
            self._wait_error.observe(min(now - ticket.expected, _OUTLIER * batch.expected))
            if not ticket.over:
                self._end(ticket)
                self._answer(ticket, answer, batch.rows)
        self._dispatch()

    def _answer(self, ticket: Ticket, answer: Answer, rows: int) -> None:
        timing = Timing(ticket.begun - ticket.arrived, self._clock() - ticket.begun, rows)
        self._tell(ticket.done, answer, timing)

    def _learn(self, bucket: Bucket, report: Report, epoch: int) -> None:
        now = self._clock()
        # One moment without memory is one, however many members of the batch it took apart.
        for size in dict.fromkeys(report.overflows):
            self.ceilings.failed(bucket, size, now)
        self.counts.halvings += sum(size > 1 for size in report.overflows)
        self._measure(bucket, report)
        if report.runs:
            # One that went well clears the model: what failed beside it has its own input to blame.
            self.ceilings.succeeded()
            self.breaker.succeeded(epoch)
        elif (fault := report.fault) is not None:
            self.counts.breaker_opened += self.breaker.failed(epoch, now)
            if isinstance(fault, MemoryError) and self.ceilings.hopeless >= _HOPELESS_RUNS:
                text = f"{self.ceilings.hopeless} runs of a single row found no memory: {fault}; raise the memory limit"
                self._on_hopeless(WorkerError(WorkerReason.OUT_OF_MEMORY, text))
        else:
            self.breaker.undecided(epoch)

    def _measure(self, bucket: Bucket, report: Report) -> None:
        shape = bucket[1:]
        profile = self.profile if self._warm is None or shape == self._warm else self._profiles.get(shape)
        for size, seconds in report.runs:
            if profile is None:
                if len(self._profiles) >= _SHAPES:
                    self._profiles.pop(next(iter(self._profiles)))
                known = self.profile.seconds(size)
                profile = self._profiles[shape] = self.profile.scaled(seconds / known) if known else LatencyProfile({})
            profile.observe(size, seconds)
            self._count_run(size, seconds)

    def _count_run(self, rows: int, seconds: float) -> None:
        counts = self.counts
        counts.runs += 1
        counts.rows += rows
        runs, total = counts.by_rows.get(rows, _NO_RUNS)
        if runs or len(counts.by_rows) < _SIZES:
            counts.by_rows[rows] = (runs + 1, total + seconds)
        counts.fullest = max(counts.fullest, rows)


def told(error: Exception) -> RequestError:
    """What a caller is told of a fault."""
    match error:
        case RequestError():
            return error
        case EngineUnavailableError():
            return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, str(error), retry_after_seconds=_RETURN_SECONDS)
        case RunCancelledError():
            return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the run was cancelled")
        case MemoryError():
            return RequestError(HTTPStatus.SERVICE_UNAVAILABLE, f"no memory for this request: {error}")
        case ValueError():
            return RequestError(HTTPStatus.BAD_REQUEST, f"the model refused the request: {error}")
        case RuntimeError():
            return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, f"the model failed: {error}")
    log.error("a run failed", exc_info=error)
    return unforeseen()
