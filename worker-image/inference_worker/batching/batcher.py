"""One model's queue and runs, as the rest of the worker sees them.

`forecast` knows how long runs take, `admission` decides who may wait, `dispatch` makes runs of what waits, and `feedback` learns
from what came of them. Here a request is passed from one to the next; a model whose runs are quicker than the way to a thread
is run on the spot. Everything happens on the event loop but the runs that a thread is worth.
"""

import time
from collections.abc import Callable

from inference_worker.batching.admission import Admission, going_away
from inference_worker.batching.breaker import Breaker, BreakerState
from inference_worker.batching.dispatch import Dispatcher
from inference_worker.batching.execute import Answer, Execution
from inference_worker.batching.feedback import Feedback
from inference_worker.batching.forecast import Forecast
from inference_worker.batching.in_flight import hanging
from inference_worker.batching.memory import MemoryCeilings
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.queue import DEFAULT_PRIORITY, NEVER
from inference_worker.batching.replies import hand_over
from inference_worker.batching.rows import Bucket, Layout
from inference_worker.batching.slack import Slack
from inference_worker.batching.tenants import NOBODY, Tenant
from inference_worker.batching.ticket import Counts, Done, Ticket, Timing
from inference_worker.engines.engine import Cancellation, Engine, Tensors, on_cpu
from inference_worker.errors import WorkerError

_ANY = 1 << 40
"""The most rows of a run where every request is a run of its own: its caller decides."""


class Batcher:
    """Takes requests for one model, and tells each caller its answer."""

    def __init__(
        self,
        engine: Engine,
        layout: Layout,
        profile: LatencyProfile,
        *,
        max_rows: int,
        warm: Bucket | None = None,
        inline: bool = False,
        prepares: bool = False,
        threads: int = 1,
        target_seconds: float = NEVER,
        pad: Callable[[int], int] = lambda rows: rows,
        clock: Callable[[], float] = time.monotonic,
        on_hopeless: Callable[[WorkerError], None] = lambda _: None,
        counts: Counts | None = None,
    ) -> None:
        """`warm` is the shape (a bucket without the outputs wanted) that `profile` was measured with.

        `inline` says that its runs are too quick to be worth a thread, `prepares` that one is prepared while another computes.
        `target_seconds` is within which a request without a deadline should be answered, as far as background runs go.
        """
        self.layout = layout
        self.profile = profile
        self.breaker = Breaker()
        self.ceilings = MemoryCeilings()
        self.counts = counts or Counts()
        self._engine = engine
        self._clock = clock
        self._closed = False
        self._threads = threads
        self._inline = warm if inline else None
        self._largest = max_rows if layout.joins else 1
        self._max_rows = max_rows if layout.joins else _ANY
        self._forecast = Forecast(profile, max_rows=self._max_rows, runners=threads, warm=warm)
        self._feedback = Feedback(
            self._forecast, self.breaker, self.ceilings, self.counts, on_hopeless, warm, on_cpu=on_cpu(engine)
        )
        self._execution = Execution(engine, layout, pad=pad, prepares=prepares)
        self._dispatcher = Dispatcher(
            self._execution, self._feedback, threads=threads, clock=clock, prepared=warm if prepares else None
        )
        self._queue, self._in_flight = self._dispatcher.queue, self._dispatcher.in_flight
        self._target = target_seconds
        spare = max(0.0, target_seconds - profile.seconds(1))
        self.slack = Slack(lambda: bool(self._queue.length or len(self._in_flight)), clock, most=spare)
        self._dispatcher.on_idle = self.slack.freed
        self._admission = Admission(engine, layout, self._forecast, self.breaker, self._queue, self._in_flight, self.counts)

    @property
    def waiting(self) -> int:
        """Requests in the queue."""
        return self._queue.length

    @property
    def in_flight(self) -> int:
        """Requests in runs under way."""
        return self._in_flight.requests

    @property
    def row_seconds(self) -> float | None:
        """Seconds of all runners that a row takes when there is always enough to do; None where nothing was measured."""
        return self.profile.per_row(self._largest) / self._threads or None

    @property
    def busy_seconds(self) -> float:
        """Seconds computed since the start, as a share of all runners; runs under way count as far as they are."""
        return (self.counts.seconds + self._in_flight.seconds(self._clock())) / self._threads

    @property
    def stuck(self) -> str | None:
        """Why this model will not answer any more, in words; None while all is well."""
        if not self._dispatcher.alive:
            return "a runner thread has died"
        now = self._clock()
        if (batch := self._in_flight.hung(now)) is not None:
            return hanging(batch.rows, now - batch.begun)
        return None

    def submit(
        self,
        feeds: Tensors,
        wanted: tuple[str, ...],
        done: Done,
        *,
        deadline: float = NEVER,
        priority: int = DEFAULT_PRIORITY,
        tenant: Tenant = NOBODY,
        trace: object = None,
    ) -> Ticket | None:
        """Run a request, at once or in its turn, and tell `done`; None when `done` was called already.

        `deadline` is an instant of time.monotonic. `trace` is the caller's own, and tells it which requests shared a run. Raises
        RequestError for one that is refused: 400 for rows that disagree, 429 when the queue is full, the deadline can't be met or
        the tenant's quota is used up, 503 when the breaker is open or the worker goes away.
        """
        now = self._clock()
        if self._closed:
            raise going_away()
        rows = self._admission.rows(feeds)
        bucket = self.layout.bucket(feeds, wanted)
        surplus = self._admission.admit(rows, bucket, deadline, priority, now, tenant)
        if surplus is not None:
            self._dispatcher.displace(surplus)
        if self._inline is not None and bucket[1:] == self._inline and rows <= self._max_rows and not self._queue.length:
            self._run_inline(feeds, wanted, rows, bucket, now, done, tenant)
            return None
        expected = now + self._admission.answered_in(rows, bucket, deadline, priority, now, tenant)
        due = min(deadline, now + self._target)
        if due < NEVER:
            self.slack.spare(due - expected)
        ticket = Ticket(feeds, wanted, rows, bucket, deadline, now, done, priority, tenant, expected, trace=trace)
        if self.breaker.state is BreakerState.HALF_OPEN:
            ticket.canary_epoch = self.breaker.epoch
        self._dispatcher.add(ticket, now)
        return None if ticket.over else ticket

    def _run_inline(
        self, feeds: Tensors, wanted: tuple[str, ...], rows: int, bucket: Bucket, now: float, done: Done, tenant: Tenant
    ) -> None:
        """Run at once, here: nothing that waits or can be cancelled is needed for that."""
        epoch = self.breaker.epoch
        answer: Answer
        try:
            answer = self._engine.run(feeds, wanted)
            seconds = self._clock() - now
            self.breaker.succeeded(epoch)
            self.ceilings.succeeded()
            self.counts.ran(rows, seconds)
        except Exception:  # noqa: BLE001 -- the long way finds out what to make of it, and does not fail
            limit = self.ceilings.limit(bucket, self._max_rows, now)
            report = self._execution.run([feeds], [rows], wanted, limit, Cancellation())
            self._feedback.observe(report, bucket, epoch, self._clock())
            (answer,) = report.answers
            seconds = self._clock() - now
        if tenant is not NOBODY:
            self.counts.tenants.begin(tenant, rows)
            self.counts.tenants.ran(tenant, rows, seconds)
            self.counts.tenants.end(tenant)
        hand_over(answer, Timing(0.0, seconds, rows), done)

    def cancel(self, ticket: Ticket) -> None:
        """Drop a request that nobody waits for: its place is free at once, and its run ends if it ran for no one else."""
        self._dispatcher.cancel(ticket)

    def close(self) -> None:
        """Refuse everything that waits; what runs may end."""
        self._closed = True
        self._dispatcher.close()

    async def emptied(self) -> None:
        """Wait until nothing waits or runs."""
        await self._dispatcher.emptied()
