"""Asks running workers how they stand, each for itself, and wakes the jobs that have news.

A round starts what is due and hands on what has been told; it waits for nobody longer than its time. Who does not answer is asked
ever more rarely, and a namespace has its share of the questions that are under way: no number of workers puts others off.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from inference_operator.kube.ports import WorkerAddress, WorkerClient
from inference_operator.metering.usage import busy_share
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.fair_gate import FairGate
from inference_operator.state.objects import Pod, PodPhase, Reading
from inference_operator.state.request import Request, job_request, pool_request
from inference_operator.state.store import Store
from inference_protocol.messages import ModelFacts, Progress, TaskState
from inference_protocol.messages import Telemetry as TelemetryRecord

log = logging.getLogger(__name__)

_AT_ONCE = 128
# A silent worker is asked again after 1, 2, 4, 8, and then every 16 rounds.
_LONGEST_PAUSE_ROUNDS = 16
# What a worker says of its model is taken to have changed no more often: each change is a write of its job's status.
_FACTS_SECONDS = 60.0
# A reconcile waits so long for the first word of a worker; what comes later wakes the job.
_FILL_SECONDS = 0.25


@dataclass(frozen=True, slots=True)
class Silence:
    """How often in a row a worker gave no answer, the round in which it is asked again, and whether the kubelet found it ready."""

    times: int
    until: int
    ready: bool


def silent_again(before: Silence | None, pod: Pod, now: int) -> Silence:
    """The silence after one more question without answer. `now` is the number of the round."""
    times = before.times + 1 if before is not None else 1
    return Silence(times, now + min(2 ** min(times - 1, 10), _LONGEST_PAUSE_ROUNDS), pod.ready)


def is_due(silence: Silence | None, pod: Pod, now: int) -> bool:
    """Whether to ask in this round. Once the kubelet finds it ready, or no longer, the worker has changed and is asked at once."""
    return silence is None or silence.until <= now or silence.ready != pod.ready


class Telemetry:
    """Readings of all workers, kept in the store."""

    def __init__(
        self,
        store: Store,
        workers: WorkerClient,
        clock: Clock,
        wake: Callable[[Request], None],
        *,
        seconds: float,
        after_round: Sequence[Callable[[Mapping[str, TelemetryRecord | None]], None]] = (),
    ) -> None:
        """Each of `after_round` is told what each running worker has answered since the last round, by its pod's uid."""
        self._store = store
        self._workers = workers
        self._clock = clock
        self._wake = wake
        self._seconds = seconds
        self._after_round = after_round
        self._gate: FairGate[str] = FairGate(_AT_ONCE)
        self._round = 0
        # All by the pod's uid: what is under way, who is silent, and what was told since the last round.
        self._asking: dict[str, asyncio.Task[bool]] = {}
        self._silent: dict[str, Silence] = {}
        self._told: dict[str, TelemetryRecord] = {}
        # Whose answer had not come when the last round was handed on: nobody waits for them again.
        self._late: set[str] = set()
        # When what a worker says of its model was last taken to have changed, by its pod's uid.
        self._changed: dict[str, float] = {}
        # The share of the time in which each worker computed between its last two answers, by its pod's uid.
        self._shares: dict[str, float] = {}

    async def run(self) -> None:
        """Ask for ever."""
        due = self._clock.monotonic()
        try:
            while True:
                # A round that waits for a slow worker must not put the next one off: windows count on a steady pace.
                due = max(due + self._seconds, self._clock.monotonic())
                await asyncio.sleep(due - self._clock.monotonic())
                await self.round()
        finally:
            for task in self._asking.values():
                task.cancel()

    async def round(self) -> None:
        """Ask every running worker that is due, and hand on what was told once all have answered of whom it is to be expected."""
        self._round += 1
        running = self._running()
        self._forget(running.keys())
        due = [pod for uid, pod in running.items() if is_due(self._silent.get(uid), pod, self._round)]
        slow = self._late | self._silent.keys() | self._asking.keys()
        asked = {pod.uid: self._ask(pod) for pod in due}
        if expected := [task for uid, task in asked.items() if uid not in slow]:
            await asyncio.wait(expected, timeout=self._seconds)
        self._late = set(self._asking)
        self._hand_on(self._running())

    async def fill(self, pods: Iterable[Pod]) -> bool:
        """Ask workers that are ready and were never asked, so that the first status already tells their provider."""
        readings = self._store.readings
        unread = [pod for pod in pods if _answers(pod) and pod.ready and pod.uid not in readings]
        asked = [self._ask(pod) for pod in unread if is_due(self._silent.get(pod.uid), pod, self._round)]
        if not asked:
            return False
        done, _ = await asyncio.wait(asked, timeout=_FILL_SECONDS)
        return any(task.result() for task in done if not task.cancelled())

    def _running(self) -> dict[str, Pod]:
        return {pod.uid: pod for pod in self._store.pods.values() if _answers(pod)}

    def _forget(self, running: Iterable[str]) -> None:
        """What is kept of workers that run no more goes."""
        known = set(running)
        for kept in (self._silent, self._told, self._shares, self._changed):
            for uid in kept.keys() - known:
                del kept[uid]

    def _ask(self, pod: Pod) -> asyncio.Task[bool]:
        """The question that is under way, or a new one; its result is whether there is news."""
        task = self._asking.get(pod.uid)
        if task is None:
            task = self._asking[pod.uid] = asyncio.create_task(self._answer(pod))
            task.add_done_callback(lambda _: self._asking.pop(pod.uid, None))
        return task

    async def _answer(self, pod: Pod) -> bool:
        assert pod.address is not None
        try:
            async with self._gate.enter(pod.key.namespace):
                answer = await self._workers.telemetry(WorkerAddress(pod.address, pod.key.namespace, pod.uid))
            if answer is not None:
                return self._keep(pod, answer)
        except Exception:
            # Whatever a worker has said, the others are heard.
            log.exception("telemetry of %s failed", pod.key)
        self._silent[pod.uid] = silent_again(self._silent.get(pod.uid), pod, self._round)
        self._shares.pop(pod.uid, None)
        return False

    def _keep(self, pod: Pod, answer: TelemetryRecord) -> bool:
        """Whether the answer says something that the last did not; whoever it concerns is woken then."""
        self._silent.pop(pod.uid, None)
        if pod.key not in self._store.pods:
            return False
        before = self._store.readings.get(pod.uid)
        answer = self._steady(pod, before, answer)
        after = Reading(answer, self._clock.now())
        self._told[pod.uid] = answer
        self._shares[pod.uid] = busy_share(before, after)
        self._store.put_reading(pod, after)
        news = before is None or _substance(before.telemetry) != _substance(answer)
        if news and pod.worker is not None:
            if (key := self._store.job_key(pod.worker.job_uid)) is not None:
                self._wake(job_request(key))
            for hosted in self._store.task_index.on(pod.key):
                self._wake(job_request(hosted))
        return news

    def _steady(self, pod: Pod, before: Reading | None, answer: TelemetryRecord) -> TelemetryRecord:
        """The answer, with what was said before in the place of what can't be so, or changed a moment ago: a worker may lie."""
        if before is None:
            return answer
        answer = msgspec.structs.replace(
            answer,
            progress=_forward(before.telemetry.progress, answer.progress),
            tasks=_tasks_forward(before.telemetry.tasks, answer.tasks),
        )
        known = before.telemetry.model
        if known is None or _identity(known) == _identity(answer.model):
            return answer
        now = self._clock.monotonic()
        if now - self._changed.get(pod.uid, -_FACTS_SECONDS) < _FACTS_SECONDS:
            return msgspec.structs.replace(answer, model=known)
        self._changed[pod.uid] = now
        return answer

    def _hand_on(self, running: Mapping[str, Pod]) -> None:
        busy: dict[str, float] = {}
        for uid, pod in running.items():
            if pod.node is not None:
                busy[pod.node] = busy.get(pod.node, 0.0) + self._shares.get(uid, 0.0)
            if pod.worker is not None and self._store.task_index.orphaned_tasks(pod, self._clock.now()):
                if (model := self._store.model_key(pod.worker.job_uid)) is not None:
                    self._wake(pool_request(model))
                elif (job := self._store.job_key(pod.worker.job_uid)) is not None:
                    self._wake(job_request(job))
        self._store.busy = busy
        told, self._told = self._told, {}
        answers = {uid: told.get(uid) for uid in running}
        for listener in self._after_round:
            listener(answers)


def _answers(pod: Pod) -> bool:
    return pod.worker is not None and pod.phase is PodPhase.RUNNING and pod.address is not None and not (pod.deleting or pod.over)


def _identity(facts: ModelFacts | None) -> ModelFacts | None:
    """What is so from when a model is loaded until another is; its speed is measured anew all the time."""
    return msgspec.structs.replace(facts, items_per_second=None) if facts is not None else None


def _forward(before: Progress | None, told: Progress | None) -> Progress | None:
    """What is done of a batch: it never becomes less, and there are never more items."""
    if before is None or not before.total:
        return told
    return told if told is not None and told.total == before.total and told.completed >= before.completed else before


def _tasks_forward(before: tuple[TaskState, ...], told: tuple[TaskState, ...]) -> tuple[TaskState, ...]:
    known = {(task.uid, task.attempt): task.progress for task in before}
    return tuple(
        msgspec.structs.replace(task, progress=_forward(known.get((task.uid, task.attempt)), task.progress)) for task in told
    )


def _substance(answer: TelemetryRecord) -> object:
    """What a job's status could tell of it. What a service's counts tell, its window does (`autoscaling/controller.py`)."""
    batch = (answer.progress, answer.sketch) if answer.progress is not None else None
    return answer.ready, answer.draining, answer.model, answer.tasks, answer.problem, batch
