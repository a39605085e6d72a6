"""Asks running workers how they stand, at a steady pace, and wakes the jobs that have news."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence

from inference_operator.kube.ports import WorkerClient
from inference_operator.metering.usage import busy_share
from inference_operator.runtime.clock import Clock
from inference_operator.state.objects import Pod, PodPhase, Reading
from inference_operator.state.request import Request, job_request, pool_request
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry as TelemetryRecord

_AT_ONCE = 64


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
        """Each of `after_round` is told what each running worker answered, by its pod's uid."""
        self._store = store
        self._workers = workers
        self._clock = clock
        self._wake = wake
        self._seconds = seconds
        self._after_round = after_round
        self._gate = asyncio.Semaphore(_AT_ONCE)
        # The share of the time in which each worker computed between its last two answers, by its pod's uid.
        self._shares: dict[str, float] = {}

    async def run(self) -> None:
        """Ask for ever."""
        due = self._clock.monotonic()
        while True:
            # A round that waits for a slow worker must not put the next one off as well: windows count on a steady pace.
            due = max(due + self._seconds, self._clock.monotonic())
            await asyncio.sleep(due - self._clock.monotonic())
            await self.round()

    async def round(self) -> None:
        """Ask every running worker once."""
        running = [pod for pod in self._store.pods.values() if _answers(pod)]
        answers = await asyncio.gather(*(self._ask(pod) for pod in running))
        self._shares = {}
        for pod, answer in zip(running, answers, strict=True):
            news = self._keep(pod, answer)
            if pod.worker is None:
                continue
            if (
                self._store.task_index.orphaned_tasks(pod, self._clock.now())
                and (model := self._store.model_key(pod.worker.job_uid)) is not None
            ):
                self._wake(pool_request(model))
            if not news:
                continue
            if (key := self._store.job_key(pod.worker.job_uid)) is not None:
                self._wake(job_request(key))
            for hosted in self._store.task_index.on(pod.key):
                self._wake(job_request(hosted))
        busy: dict[str, float] = {}
        for pod in running:
            if pod.node is not None:
                busy[pod.node] = busy.get(pod.node, 0.0) + self._shares.get(pod.uid, 0.0)
        self._store.busy = busy
        told = {pod.uid: answer for pod, answer in zip(running, answers, strict=True)}
        for listener in self._after_round:
            listener(told)

    async def fill(self, pods: Iterable[Pod]) -> bool:
        """Ask workers that are ready and were never asked, so that the first status already tells their provider."""
        unread = [pod for pod in pods if _answers(pod) and pod.ready and pod.uid not in self._store.readings]
        if not unread:
            return False
        answers = await asyncio.gather(*(self._ask(pod) for pod in unread))
        news = [self._keep(pod, answer) for pod, answer in zip(unread, answers, strict=True)]
        return any(news)

    async def _ask(self, pod: Pod) -> TelemetryRecord | None:
        assert pod.address is not None
        async with self._gate:
            return await self._workers.telemetry(pod.address)

    def _keep(self, pod: Pod, answer: TelemetryRecord | None) -> bool:
        """Whether the answer says something that the last did not."""
        if answer is None or pod.key not in self._store.pods:
            return False
        before = self._store.readings.get(pod.uid)
        after = Reading(answer, self._clock.now())
        self._shares[pod.uid] = busy_share(before, after)
        self._store.put_reading(pod, after)
        return before is None or _substance(before.telemetry) != _substance(answer)


def _answers(pod: Pod) -> bool:
    return pod.worker is not None and pod.phase is PodPhase.RUNNING and pod.address is not None and not (pod.deleting or pod.over)


def _substance(answer: TelemetryRecord) -> object:
    """What a job's status could tell of it. What a service's counts tell, its window does (`autoscaling/controller.py`)."""
    batch = (answer.progress, answer.sketch) if answer.progress is not None else None
    return answer.ready, answer.draining, answer.model, answer.tasks, answer.problem, batch
