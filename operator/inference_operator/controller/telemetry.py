"""Asks running workers how they stand, at a steady pace, and wakes the jobs that have news."""

import asyncio
from collections.abc import Callable, Iterable

from inference_operator.controller.store import Store
from inference_operator.domain.cluster import Key, Pod, PodPhase, Reading
from inference_operator.effects.ports import WorkerClient
from inference_operator.runtime.clock import Clock

_AT_ONCE = 64


class Telemetry:
    """Readings of all workers, kept in the store."""

    def __init__(self, store: Store, workers: WorkerClient, clock: Clock, wake: Callable[[Key], None], *, seconds: float) -> None:
        self._store = store
        self._workers = workers
        self._clock = clock
        self._wake = wake
        self._seconds = seconds
        self._gate = asyncio.Semaphore(_AT_ONCE)

    async def run(self) -> None:
        """Ask for ever."""
        while True:
            await asyncio.sleep(self._seconds)
            running = [pod for pod in self._store.pods.values() if _answers(pod)]
            news = await asyncio.gather(*(self._read(pod) for pod in running))
            for pod, changed in zip(running, news, strict=True):
                key = self._store.job_key(pod.worker.job_uid) if changed and pod.worker is not None else None
                if key is not None:
                    self._wake(key)
                for lodger in self._store.lodgers(pod.key) if changed else ():
                    self._wake(lodger)

    async def fill(self, pods: Iterable[Pod]) -> bool:
        """Ask workers that are ready and were never asked, so that the first status already tells their provider."""
        unread = [pod for pod in pods if _answers(pod) and pod.ready and pod.uid not in self._store.readings]
        if not unread:
            return False
        return any(await asyncio.gather(*(self._read(pod) for pod in unread)))

    async def _read(self, pod: Pod) -> bool:
        """Whether the answer differs from the last."""
        assert pod.address is not None
        async with self._gate:
            answer = await self._workers.telemetry(pod.address)
        if answer is None or pod.key not in self._store.pods:
            return False
        before = self._store.readings.get(pod.uid)
        self._store.readings[pod.uid] = Reading(answer, self._clock.now())
        return before is None or before.telemetry != answer


def _answers(pod: Pod) -> bool:
    return pod.worker is not None and pod.phase is PodPhase.RUNNING and pod.address is not None and not pod.deleting
