"""Follows the tasks on warm workers: waits beside each for its end, and has its job looked at then.

What a worker has said is kept in the store and nowhere else. A follower that is lost with its operator is no loss: the next one
orders the task again, and the worker answers how it stands.
"""

import asyncio
from collections.abc import Callable

from inference_operator.controller.store import Store
from inference_operator.domain.cluster import Key
from inference_operator.domain.credentials import Tokens
from inference_operator.effects.ports import WorkerClient
from inference_operator.errors import WorkerUnreachableError
from inference_operator.runtime.clock import Clock
from inference_protocol.messages import TaskOrder, TaskQuery, TaskState

_WAIT_SECONDS = 20.0
_PAUSE_SECONDS = 0.5


class Tasks:
    """Orders, waits and stops. One follower for each task that has not ended."""

    def __init__(self, store: Store, workers: WorkerClient, clock: Clock, tokens: Tokens, wake: Callable[[Key], None]) -> None:
        self._store = store
        self._workers = workers
        self._clock = clock
        self._tokens = tokens
        self._wake = wake
        self._followers: dict[tuple[str, int], asyncio.Task[None]] = {}

    async def start(self, job: Key, host: Key, address: str, order: TaskOrder) -> None:
        """Order a task, and follow it. Raises WorkerUnreachableError."""
        state = await self._workers.order(address, self._tokens.token(host), order)
        self._heard(job, state)
        id_ = (order.uid, order.attempt)
        if state.report is None and id_ not in self._followers:
            follower = asyncio.get_running_loop().create_task(self._follow(job, host, address, id_))
            self._followers[id_] = follower
            follower.add_done_callback(lambda _: self._followers.pop(id_, None))

    async def stop(self, job: Key, host: Key, address: str, uid: str, attempt: int) -> None:
        """Have a task end early; its end is heard as any other. Raises WorkerUnreachableError."""
        state = await self._workers.stop(address, self._tokens.token(host), TaskQuery(uid=uid, attempt=attempt))
        if state is not None:
            self._heard(job, state)
        else:
            self._store.drop_task(uid, attempt)

    def _heard(self, job: Key, state: TaskState) -> None:
        if self._store.put_task(state, self._clock.now()):
            self._wake(job)

    async def _follow(self, job: Key, host: Key, address: str, id_: tuple[str, int]) -> None:
        query = TaskQuery(uid=id_[0], attempt=id_[1], seconds=_WAIT_SECONDS)
        token = self._tokens.token(host)
        while host in self._store.pods and self._store.job_key(id_[0]) is not None:
            try:
                state = await self._workers.wait(address, token, query)
            except WorkerUnreachableError:
                # The pod tells, soon, whether its worker is gone for good.
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if state is None:
                # It does not know the task: a look at the job orders it anew.
                self._store.drop_task(*id_)
                self._wake(job)
                return
            self._heard(job, state)
            if state.report is not None:
                return
