"""Tasks that a warm worker is handed while it runs: one after the other, each with its own end.

What is here only changes hands on the event loop; a task itself runs in its own thread. Ends are kept for a while, since whoever
waits for one may come back for it; a task's committed answers stand on its volume in any case.
"""

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import msgspec

from inference_protocol.messages import (
    MESSAGE_LENGTH,
    Epoch,
    ModelFacts,
    Rival,
    TaskOrder,
    TaskState,
    TerminationReport,
    WorkerConfig,
    cut,
)
from inference_protocol.reasons import WorkerReason
from inference_worker.batch.running import LOOK_SECONDS, facts_of, report_of, run_to_end
from inference_worker.batch.task import Task
from inference_worker.errors import WorkerError

log = logging.getLogger(__name__)

QUEUE_LIMIT = 64
_ENDS_KEPT = 1024

Id = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Begun:
    """A task that is ready to run, and what was measured of its model."""

    task: Task
    facts: ModelFacts


class Errand:
    """One ordered task, from queued to ended."""

    def __init__(self, order: TaskOrder) -> None:
        self.order = order
        self.begun: Begun | None = None
        self.report: TerminationReport | None = None
        self.ended = asyncio.Event()
        self.stopped = False
        self._turn: float | None = None
        self._over: float | None = None
        # Runs, and the seconds that they took of the device, once it has ended.
        self._used = (0, 0.0)

    @property
    def task(self) -> Task | None:
        """The task once it is ready to run."""
        return self.begun.task if self.begun is not None else None

    @property
    def facts(self) -> ModelFacts | None:
        """What was measured of its model, with the task's own throughput."""
        return facts_of(self.begun.task, self.begun.facts) if self.begun is not None else None

    @property
    def state(self) -> TaskState:
        """As it is told."""
        order, task = self.order, self.task
        runs, computed = (task.runs, task.compute_seconds) if task is not None else self._used
        return TaskState(
            uid=order.uid,
            attempt=order.attempt,
            revision=order.revision,
            state="Ended" if self.report is not None else "Running" if task is not None else "Queued",
            progress=task.progress if task is not None else None,
            report=self.report,
            stopping=self.stopped and self.report is None,
            ran_seconds=self._over - (self._turn or self._over) if self._over is not None else None,
            ended_seconds=time.monotonic() - self._over if self._over is not None else None,
            runs=runs,
            computed_seconds=round(computed, 3),
        )

    def start(self) -> None:
        """Its turn has come."""
        self._turn = time.monotonic()

    def stop(self) -> None:
        """Have it commit what it has, and end."""
        self.stopped = True
        if self.begun is not None:
            self.begun.task.stop()

    def end(self, report: TerminationReport) -> None:
        """It is over."""
        self.report = msgspec.structs.replace(report, message=cut(report.message, MESSAGE_LENGTH))
        self._over = time.monotonic()
        if self.begun is not None:
            self._used = (self.begun.task.runs, self.begun.task.compute_seconds)
        self.ended.set()


class Tasks:
    """A warm worker's tasks. `begin` makes a task that is ready to run, its model loaded; it raises WorkerError."""

    def __init__(
        self,
        begin: Callable[[TaskOrder], Awaitable[Begun]],
        traced: Callable[[TaskOrder], Callable[[TerminationReport], None]] = lambda _: lambda _: None,
    ) -> None:
        """`traced` is told when a task's turn has come, and returns what is told its end."""
        self._begin = begin
        self._traced = traced
        self._errands: dict[Id, Errand] = {}
        self._queue: deque[Errand] = deque()
        self._ends: deque[Id] = deque()
        self._ordered = asyncio.Event()
        self._current: Errand | None = None
        # The task of an errand that is given up, whose run has not come back.
        self._left: Task | None = None
        self._closed = False
        self._idle_since = time.monotonic()
        self._epoch: Epoch = (0, 0)

    def admits(self, epoch: Epoch | None) -> bool:
        """Whether an operator of this epoch may give orders: none of a later one has. Without an epoch it always may."""
        if epoch is None:
            return True
        self._epoch = max(self._epoch, epoch)
        return epoch == self._epoch

    @property
    def idle_seconds(self) -> float:
        """How long there has been nothing to do."""
        return 0.0 if self._current is not None or self._queue else time.monotonic() - self._idle_since

    @property
    def hung(self) -> str | None:
        """That a task's run will not end by itself, in words; None while all is well."""
        task = self._left or (self._current.task if self._current is not None else None)
        return task.hung if task is not None else None

    @property
    def open(self) -> tuple[TaskState, ...]:
        """The tasks that have not ended."""
        return tuple(errand.state for errand in (self._current, *self._queue) if errand is not None)

    @property
    def full(self) -> bool:
        """Whether no further order is taken now."""
        return self._closed or len(self._queue) >= QUEUE_LIMIT

    def order(self, order: TaskOrder) -> TaskState:
        """Take an order; one that is known already stays as it is."""
        id_ = (order.uid, order.attempt)
        known = self._errands.get(id_)
        if known is None:
            known = self._errands[id_] = Errand(order)
            self._queue.append(known)
            self._ordered.set()
        return known.state

    async def wait(self, id_: Id, seconds: float) -> TaskState | None:
        """How a task stands once it has ended, or the time is over; None for one that was never ordered here."""
        errand = self._errands.get(id_)
        if errand is None:
            return None
        try:
            await asyncio.wait_for(errand.ended.wait(), seconds)
        except TimeoutError:
            pass
        return errand.state

    def stop(self, id_: Id) -> TaskState | None:
        """Stop one task; None for one that was never ordered here."""
        errand = self._errands.get(id_)
        if errand is None:
            return None
        errand.stop()
        if errand in self._queue:
            self._queue.remove(errand)
            self._finish(errand, _never_begun())
        return errand.state

    async def run(self) -> None:
        """Do what is ordered, for ever."""
        while True:
            while not self._queue:
                self._ordered.clear()
                await self._ordered.wait()
            errand = self._current = self._queue.popleft()
            errand.start()
            ended = self._traced(errand.order)
            try:
                report = await self._do(errand)
            finally:
                self._current = None
                self._idle_since = time.monotonic()
            ended(report)
            self._left = errand.task
            self._finish(errand, report)
            # What computes is still taken. Whoever waits goes elsewhere once this worker is ended for it.
            while self.hung is not None:  # noqa: ASYNC110 -- nothing but a look tells
                await asyncio.sleep(LOOK_SECONDS)
            self._left = None

    async def close(self) -> None:
        """Take nothing more, stop what runs, and wait until it has committed."""
        self._closed = True
        for errand in list(self._queue):
            self.stop((errand.order.uid, errand.order.attempt))
        current = self._current
        if current is not None:
            current.stop()
            await current.ended.wait()

    async def _do(self, errand: Errand) -> TerminationReport:
        rival: Rival | None = None
        try:
            begun = errand.begun = await self._begin(errand.order)
            if errand.stopped:
                return _never_begun()
            inline = await run_to_end(begun.task)
            return report_of(begun.task, inline, errand.facts)
        except WorkerError as error:
            reason, message, rival = error.reason, error.message, error.rival
        except Exception as error:
            log.exception("a task failed")
            reason, message = WorkerReason.INTERNAL, f"{type(error).__name__}: {error}"
        progress = errand.task.progress if errand.task is not None else None
        return TerminationReport("Failed", message, reason=reason, model=errand.facts, progress=progress, rival=rival)

    def _finish(self, errand: Errand, report: TerminationReport) -> None:
        errand.end(report)
        # The answers are committed; the arrays that they came from need not stay.
        errand.begun = None
        self._ends.append((errand.order.uid, errand.order.attempt))
        while len(self._ends) > _ENDS_KEPT:
            self._errands.pop(self._ends.popleft(), None)


def config_of(config: WorkerConfig, order: TaskOrder) -> WorkerConfig:
    """The worker's configuration as if it had been started for this order."""
    return msgspec.structs.replace(
        config,
        namespace=order.namespace,
        job=order.job,
        uid=order.uid,
        attempt=order.attempt,
        created=order.created,
        model=order.model,
        batch_size=order.batch_size,
        task=order.task,
        fetch_from=order.fetch_from,
    )


def _never_begun() -> TerminationReport:
    return TerminationReport("Drained", "told to stop before it began")
