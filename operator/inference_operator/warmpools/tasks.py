"""Follows the tasks on warm workers: waits beside each for its end, and has its job looked at then.

What a worker has said is kept in the store and nowhere else. A follower that is lost with its operator is no loss: the next one
orders the task again, and the worker answers how it stands.
"""

import asyncio
from collections.abc import Callable

from inference_operator.errors import WorkerUnreachableError
from inference_operator.kube.ports import WorkerAddress, WorkerClient
from inference_operator.runtime.clock import Clock
from inference_operator.state.objects import Key, TaskId
from inference_operator.state.request import Kind, Request, job_request
from inference_operator.state.store import Store
from inference_operator.warmpools.credentials import Tokens
from inference_protocol.messages import TaskOrder, TaskQuery, TaskState, TerminationReport

_WAIT_SECONDS = 20.0
_PAUSE_SECONDS = 0.5
# A worker that does not know a task has nothing to stop: for the job, that is the end of it.
_UNKNOWN = TerminationReport("Drained", "the worker does not know the task")


class Tasks:
    """Orders, waits and stops. One follower for each task that has not ended."""

    def __init__(self, store: Store, workers: WorkerClient, clock: Clock, tokens: Tokens, wake: Callable[[Request], None]) -> None:
        self._store = store
        self._workers = workers
        self._clock = clock
        self._tokens = tokens
        self._wake = wake
        # By task, with the address that is asked: a worker that comes after another under its name has one of its own.
        self._followers: dict[TaskId, tuple[str, asyncio.Task[None]]] = {}

    async def start(self, job: Key, warm_worker: Key, address: str, order: TaskOrder) -> None:
        """Order a task, and follow it. Raises WorkerUnreachableError."""
        state = await self._workers.order(self._at(warm_worker, address), self._tokens.token(warm_worker), order)
        self._heard(job, state)
        if state.report is None:
            self._have_followed(job, warm_worker, address, (order.uid, order.attempt))

    async def stop(self, owner: Request, warm_worker: Key, address: str, uid: str, attempt: int) -> None:
        """Have a task end early; its end is heard as any other, if its job still is there. Raises WorkerUnreachableError."""
        job = owner.key
        state = await self._workers.stop(
            self._at(warm_worker, address), self._tokens.token(warm_worker), TaskQuery(uid=uid, attempt=attempt)
        )
        if owner.kind is not Kind.JOB or self._store.job_key(uid) != job:
            self._store.task_index.forget_orphan(warm_worker, (uid, attempt))
            return
        self._store.task_index.mark_stopping(uid, attempt)
        self._heard(job, state or TaskState(uid, attempt, "", "Ended", report=_UNKNOWN))
        if state is not None and state.report is None:
            self._have_followed(job, warm_worker, address, (uid, attempt))

    def _at(self, warm_worker: Key, address: str) -> WorkerAddress:
        """The worker that has this name now: should it be another than the one at this address, that one is not spoken with."""
        pod = self._store.pods.get(warm_worker)
        return WorkerAddress(address, warm_worker.namespace, pod.uid if pod is not None else "")

    def _have_followed(self, job: Key, warm_worker: Key, address: str, id_: TaskId) -> None:
        before, follower = self._followers.get(id_, ("", None))
        if before == address:
            return
        if follower is not None:
            follower.cancel()
        self._followers[id_] = (address, asyncio.get_running_loop().create_task(self._follow(job, warm_worker, address, id_)))

    def _heard(self, job: Key, state: TaskState) -> None:
        if self._store.task_index.put_task(state, self._clock.now()):
            self._wake(job_request(job))

    async def _follow(self, job: Key, warm_worker: Key, address: str, id_: TaskId) -> None:
        try:
            await self._until_ended(job, warm_worker, address, id_)
        finally:
            if self._followers.get(id_, ("", None))[1] is asyncio.current_task():
                del self._followers[id_]

    async def _until_ended(self, job: Key, warm_worker: Key, address: str, id_: TaskId) -> None:
        query = TaskQuery(uid=id_[0], attempt=id_[1], seconds=_WAIT_SECONDS)
        token = self._tokens.token(warm_worker)
        pod = self._store.pods.get(warm_worker)
        while pod is not None and (now := self._store.pods.get(warm_worker)) is not None and now.uid == pod.uid:
            if self._store.job_key(id_[0]) is None:
                # Nobody waits for it any more; its worker's pool has it stopped.
                return
            try:
                state = await self._workers.wait(self._at(warm_worker, address), token, query)
            except WorkerUnreachableError:
                # The pod tells, soon, whether its worker is gone for good.
                await asyncio.sleep(_PAUSE_SECONDS)
                continue
            if state is None:
                # It does not know the task: a look at the job orders it anew.
                self._store.task_index.drop_task(*id_)
                self._wake(job_request(job))
                return
            self._heard(job, state)
            if state.report is not None:
                return
