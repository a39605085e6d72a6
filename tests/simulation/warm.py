"""A stand-in for warm workers: tasks one after the other in virtual time, and a watch over what must never happen.

It takes the place of HTTP too: whoever comes with a wrong token, or to a worker that can't be reached, is refused as there.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

from inference_operator.errors import WorkerUnreachableError
from inference_protocol.messages import ModelSource, Progress, TaskOrder, TaskQuery, TaskState, TerminationReport
from inference_protocol.reasons import WorkerReason

Id = tuple[str, int]
COLOCATED_LOAD_SECONDS = 3.0


class Work(Protocol):
    """How a job's work goes."""

    @property
    def work(self) -> float:
        """Seconds, all in all."""
        ...

    @property
    def items(self) -> int:
        """Items, all in all."""
        ...

    @property
    def stop(self) -> float:
        """Seconds from being told to stop to the end."""
        ...

    def outcome(self, attempt: int) -> str:
        """How an attempt ends."""
        ...


@dataclass
class Ledger:
    """What was done where. `committed` items by job outlive workers, as they do on a volume."""

    committed: dict[str, int] = field(default_factory=dict)
    begun: Counter[str] = field(default_factory=Counter)
    done: Counter[str] = field(default_factory=Counter)
    # The place that works on a job now.
    places: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def begin(self, job: str, place: str) -> None:
        """A place begins to work on a job."""
        if job in self.places:
            self.faults.append(f"{job} is begun at {place} while {self.places[job]} works on it")
        self.places[job] = place
        self.begun[job] += 1

    def end(self, job: str, place: str) -> None:
        """It is over there."""
        if self.places.get(job) == place:
            del self.places[job]


class WarmWorker:
    """One worker: `say` tells the trace of a job's work."""

    def __init__(
        self,
        name: str,
        model: ModelSource,
        ledger: Ledger,
        script: Callable[[str], Work],
        say: Callable[[str, str], None],
        pace: Callable[[], float] = lambda: 1.0,
    ) -> None:
        self._name = name
        self._model = model
        self.colocated: list[str] = []
        self._ledger = ledger
        self._script = script
        self._say = say
        # The share of its time that a task gets, looked at when one begins.
        self._pace_now, self._pace = pace, 1.0
        self._orders: dict[Id, TaskOrder] = {}
        self._states: dict[Id, TaskState] = {}
        self._ended: dict[Id, asyncio.Event] = {}
        self._queue: list[Id] = []
        self._current: Id | None = None
        self._stopping: set[Id] = set()
        self._since = self._idle_since = asyncio.get_running_loop().time()
        self._timer: asyncio.TimerHandle | None = None
        self.reachable = True

    @property
    def open(self) -> tuple[TaskState, ...]:
        """The tasks that have not ended."""
        return tuple(self._told(id_) for id_ in (self._current, *self._queue) if id_ is not None)

    @property
    def idle_seconds(self) -> float:
        """How long there has been nothing to do."""
        return 0.0 if self.open else asyncio.get_running_loop().time() - self._idle_since

    def order(self, order: TaskOrder) -> TaskState:
        """Take an order; the same again changes nothing."""
        id_ = (order.uid, order.attempt)
        if id_ not in self._orders:
            self._orders[id_], self._ended[id_] = order, asyncio.Event()
            self._states[id_] = TaskState(order.uid, order.attempt, order.revision, "Queued")
            self._queue.append(id_)
            self._next()
        return self._told(id_)

    async def wait(self, query: TaskQuery) -> TaskState | None:
        """See WorkerClient."""
        id_ = (query.uid, query.attempt)
        if id_ not in self._orders:
            return None
        try:
            await asyncio.wait_for(self._ended[id_].wait(), query.seconds)
        except TimeoutError:
            pass
        if not self.reachable:
            raise WorkerUnreachableError(f"{self._name} is gone")
        return self._told(id_)

    def stop(self, query: TaskQuery) -> TaskState | None:
        """See WorkerClient. What runs is committed, which takes a moment."""
        id_ = (query.uid, query.attempt)
        if id_ not in self._orders:
            return None
        if id_ in self._queue:
            self._queue.remove(id_)
            self._end(id_, "Drained")
        elif id_ == self._current and id_ not in self._stopping:
            self._stopping.add(id_)
            self._restart_timer(self._script(self._orders[id_].job).stop, "Drained")
        return self._told(id_)

    def vanish(self) -> None:
        """Its pod is gone: what it has done so far is committed, and nobody hears of it any more."""
        self.reachable = False
        if self._timer is not None:
            self._timer.cancel()
        if self._current is not None:
            job = self._orders[self._current].job
            self._ledger.committed[job] = self._done(self._current)
            self._ledger.end(job, self._name)
        for event in self._ended.values():
            event.set()

    def _next(self) -> None:
        if self._current is not None or not self._queue:
            return
        id_ = self._current = self._queue.pop(0)
        self._since = asyncio.get_running_loop().time()
        order = self._orders[id_]
        script = self._script(order.job)
        self._ledger.begin(order.job, self._name)
        self._say(order.job, f"task {order.attempt} begins on {self._name}")
        left = script.work * (1 - self._ledger.committed.get(order.job, 0) / script.items)
        if (digest := order.model.digest) is not None and digest not in (self._model.digest, *self.colocated):
            assert order.memory_bytes, "a co-located model whose size nobody knows"
            self._say(order.job, f"its model is loaded on {self._name}")
            self.colocated.append(digest)
            left += COLOCATED_LOAD_SECONDS
        self._pace = max(self._pace_now(), 1e-3)
        self._restart_timer(left / self._pace, script.outcome(order.attempt))

    def _restart_timer(self, seconds: float, outcome: str) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_later(seconds, self._finish, outcome)

    def _finish(self, outcome: str) -> None:
        id_ = self._current
        assert id_ is not None
        job = self._orders[id_].job
        self._ledger.committed[job] = self._script(job).items if outcome == "Succeeded" else self._done(id_)
        self._ledger.end(job, self._name)
        self._ledger.done[job] += outcome == "Succeeded"
        self._end(id_, outcome)
        self._current = None
        self._idle_since = asyncio.get_running_loop().time()
        self._next()

    def _end(self, id_: Id, outcome: str) -> None:
        job, told = self._orders[id_].job, outcome in ("Succeeded", "Drained")
        report = TerminationReport(
            outcome=outcome if told else "Failed",  # type: ignore[arg-type]
            message=outcome,
            reason=None if told else WorkerReason(outcome),
            progress=Progress(total=self._script(job).items, completed=self._ledger.committed.get(job, 0)),
        )
        order = self._orders[id_]
        self._say(job, f"task {order.attempt} ends on {self._name}: {outcome}")
        self._states[id_] = TaskState(order.uid, order.attempt, order.revision, "Ended", report.progress, report)
        self._ended[id_].set()

    def _done(self, id_: Id) -> int:
        job = self._orders[id_].job
        script, before = self._script(job), self._ledger.committed.get(job, 0)
        ran = asyncio.get_running_loop().time() - self._since
        return min(script.items, before + int(script.items * ran * self._pace / script.work))

    def _told(self, id_: Id) -> TaskState:
        if id_ != self._current:
            return self._states[id_]
        order = self._orders[id_]
        progress = Progress(total=self._script(order.job).items, completed=self._done(id_))
        ran = (asyncio.get_running_loop().time() - self._since) * self._pace if self._pace < 1 else 0.0
        return TaskState(
            order.uid,
            order.attempt,
            order.revision,
            "Running",
            progress,
            stopping=id_ in self._stopping,
            runs=progress.completed if ran else 0,
            computed_seconds=ran,
        )
