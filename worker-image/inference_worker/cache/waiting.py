"""One request that the cache was asked about, from its arrival to its answer."""

from collections.abc import Callable

import msgspec

from inference_worker.batching.execute import Answer
from inference_worker.batching.queue import DEFAULT_PRIORITY, NEVER
from inference_worker.batching.replies import hand_over
from inference_worker.batching.tenants import Tenant
from inference_worker.batching.ticket import Done, Ticket, Timer, Timing
from inference_worker.model import Model
from inference_worker.serve.ask import Ask
from inference_worker.serve.inference import Arrival


class Waiting(msgspec.Struct, eq=False):
    """A request whose caller waits until it is `over`. It has a `ticket` while a run of its own does, and else perhaps a `timer`.

    `since` and `deadline` are instants of the batcher's clock. What is over knows nobody: the collector comes late here.
    """

    model: Model
    ask: Ask
    arrival: Arrival
    since: float
    deadline: float
    finish: Done
    tenant: Tenant
    over: bool = False
    ticket: Ticket | None = None
    timer: Timer | None = None
    on_left: Callable[[], None] | None = None

    @property
    def priority(self) -> int:
        """As the batcher takes it."""
        return max(self.ask.priority or DEFAULT_PRIORITY, self.tenant.priority)

    @property
    def urgency(self) -> tuple[int, float]:
        """The lower, the more urgent."""
        return (self.priority, self.deadline)

    @property
    def expires(self) -> bool:
        """Whether there is a deadline."""
        return self.deadline < NEVER

    def serves(self, other: "Waiting") -> bool:
        """Whether another that asks the same may wait for this one's run: it is as urgent, or runs, and should be in time."""
        ticket = self.ticket
        if ticket is None or ticket.over or ticket.expected > other.deadline:
            return False
        return ticket.batch is not None or (self.priority <= other.priority and self.deadline <= other.deadline)

    def submit(self, done: Done) -> None:
        """Run it by itself, and tell `done`. Raises RequestError for one that the batcher refuses at once."""
        ask, deadline, trace = self.ask, self.deadline, self.arrival.span
        self.stop_timer()
        self.ticket = self.model.batcher.submit(
            ask.feeds, ask.outputs, done, deadline=deadline, priority=self.priority, tenant=self.tenant, trace=trace
        )

    def run_alone(self, done: Done) -> None:
        """The same for a run that nobody else waits for: it ends when its caller leaves."""
        self.on_left = self.cancel
        self.submit(done)

    def cancel(self) -> None:
        """End its run."""
        if self.ticket is not None:
            self.model.batcher.cancel(self.ticket)
            self.ticket = None

    def tell(self, answer: Answer, timing: Timing) -> None:
        """Answer its caller, unless it is over."""
        self.ticket = None
        if not self.over:
            self._end()
            hand_over(answer, timing, self.finish)

    def tell_late(self, answer: Answer, rows: int, now: float) -> None:
        """The same for one that had no run, but waited until now."""
        self.tell(answer, Timing(now - self.since, 0.0, rows))

    def leave(self) -> bool:
        """Its caller waits no more; whether it did until now."""
        if self.over:
            return False
        left = self.on_left
        self._end()
        if left is not None:
            left()
        return True

    def stop_timer(self) -> None:
        """Let it wait for its run alone."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None

    def _end(self) -> None:
        self.over, self.on_left = True, None
        self.stop_timer()
