"""Tasks on workers that run others too: which jobs run where, what workers have said, and which tasks nobody waits for."""

from collections.abc import Container, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from inference_operator.api.instants import shift
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus
from inference_operator.state.finished import is_finished
from inference_operator.state.index import discard
from inference_operator.state.objects import Job, Key, Pod, Reading, TaskId
from inference_operator.state.observed import BackgroundWork
from inference_operator.state.runner import Attempt, HostedTask, is_running
from inference_protocol.messages import TaskState

# What is unknown for longer than this is not merely news that are still under way.
NEWS_TAKE = timedelta(seconds=30)


class TaskIndex:
    """Looks at the store's jobs, their keys by uid, the uids of what is gone for good, pods and readings; keeps the rest itself."""

    def __init__(
        self,
        jobs: Mapping[Key, Job],
        keys: Mapping[str, Key],
        gone: Container[str],
        pods: Mapping[Key, Pod],
        readings: Mapping[str, Reading],
    ) -> None:
        self._jobs, self._keys, self._tombstones = jobs, keys, gone
        self._pods, self._readings = pods, readings
        # What warm workers have said of tasks, with the time it was heard, by job's uid and attempt.
        self.tasks: dict[TaskId, tuple[TaskState, datetime]] = {}
        # Tasks that a worker was told to stop, as pods are marked that we have deleted.
        self._stopping: set[TaskId] = set()
        # Tasks that a worker's last reading told of and no job owned then, with the time when that was first so, by the pod's uid.
        self._unowned: dict[str, dict[TaskId, datetime]] = {}
        # What a warm worker ran when it ended, as far as is known, by its pod's uid.
        self._last_run: dict[str, TaskId] = {}
        # Jobs whose newest attempt runs, by the pod that runs it.
        self._on: dict[Key, set[Key]] = {}
        # Jobs whose newest attempt was cut short, by the pod that ran it: the next one waits until that has ended.
        self._left: dict[Key, set[Key]] = {}

    # which job runs where

    def on(self, pod: Key) -> tuple[Key, ...]:
        """The jobs whose newest attempt a pod runs."""
        return tuple(self._on.get(pod, ()))

    def concerned(self, pod: Key) -> tuple[Key, ...]:
        """The jobs that a pod's news are news for: those whose newest attempt it runs, or ran until it was cut short."""
        return (*self.on(pod), *self._left.get(pod, ()))

    def link(self, job: Job) -> None:
        """A job is known as it is now."""
        if (pod := _at_work(job)) is not None:
            self._on.setdefault(pod, set()).add(job.key)
        if (pod := _was_at_work(job)) is not None:
            self._left.setdefault(pod, set()).add(job.key)

    def unlink(self, job: Job) -> None:
        """It is not, any more."""
        for index, pod in ((self._on, _at_work(job)), (self._left, _was_at_work(job))):
            if pod is not None:
                discard(index, pod, job.key)

    # what is said of tasks

    def put_task(self, state: TaskState, now: datetime) -> bool:
        """Take in what a worker says of a task; False when it is nothing new."""
        id_ = (state.uid, state.attempt)
        before = self.tasks.get(id_)
        if before is not None and (before[0] == state or before[0].report is not None):
            return False
        self.tasks[id_] = (state, now)
        return True

    def drop_task(self, uid: str, attempt: int) -> None:
        """A worker does not know the task."""
        self.tasks.pop((uid, attempt), None)
        self._stopping.discard((uid, attempt))

    def drop_tasks_of(self, job: Job) -> None:
        """The job is gone."""
        for id_ in [id_ for id_ in self.tasks if id_[0] == job.uid] if job.status.attempts else ():
            self.drop_task(*id_)

    def mark_stopping(self, uid: str, attempt: int) -> None:
        """A worker was told to stop the task: until it says that it has, nobody needs to tell it again."""
        self._stopping.add((uid, attempt))

    # the warm workers that run them

    def worker_seen(self, pod: Pod) -> None:
        """A worker that has ended: the task that it ran then is remembered."""
        if pod.worker is not None and pod.over and (running := self._at_its_turn(pod)) is not None:
            self._last_run.setdefault(pod.uid, running)

    def worker_replaced(self, warm_worker: Key) -> None:
        """What a worker has said of tasks that it has not ended says nothing of one that comes after it under its name."""
        for job in self.on(warm_worker):
            attempt = self._jobs[job].status.last_attempt
            id_ = (self._jobs[job].uid, attempt.number if attempt is not None else 0)
            known = self.tasks.get(id_)
            if known is not None and known[0].report is None:
                self.drop_task(*id_)

    def worker_gone(self, uid: str) -> None:
        """Nothing of this pod will be asked any more."""
        self._unowned.pop(uid, None)
        self._last_run.pop(uid, None)

    def _at_its_turn(self, warm_worker: Pod) -> TaskId | None:
        """The task that a worker runs, which takes one after the other as they come; None when nothing is known of any.

        First come those that its last reading told of, in their order, then those that were ordered since.
        """
        reading = self._readings.get(warm_worker.uid)
        told = [(t.uid, t.attempt) for t in reading.telemetry.tasks] if reading is not None else []
        newest = [(job.uid, job.status.attempts) for job in (self._jobs[key] for key in self.on(warm_worker.key))]
        ordered = sorted((id_ for id_ in newest if id_ in self.tasks), key=lambda id_: self.tasks[id_][1])
        known = ((id_, self.tasks.get(id_)) for id_ in (*told, *ordered))
        return next((id_ for id_, heard in known if heard is None or heard[0].report is None), None)

    # tasks that nobody waits for

    def heard(self, pod: Pod, reading: Reading) -> None:
        """Note which of a worker's tasks no job owns: looked for later, one that has ended would seem so."""
        before = self._unowned.pop(pod.uid, {})
        unowned = [(t.uid, t.attempt) for t in reading.telemetry.tasks if not (t.stopping or self._is_owned(t))]
        if unowned:
            self._unowned[pod.uid] = {id_: before.get(id_, reading.time) for id_ in unowned}

    def orphaned_tasks(self, pod: Pod, now: datetime) -> tuple[TaskId, ...]:
        """A worker's tasks that nobody waits for: their job has gone or gone on, or is unknown for longer than news take."""
        return tuple(id_ for id_, since in self._unowned.get(pod.uid, {}).items() if self._is_orphaned(id_, since, now))

    def forget_orphan(self, warm_worker: Key, id_: TaskId) -> None:
        """A worker was told to stop it: its next answer says whether it has heard."""
        if (pod := self._pods.get(warm_worker)) is not None:
            self._unowned.get(pod.uid, {}).pop(id_, None)

    def _is_owned(self, task: TaskState) -> bool:
        key = self._keys.get(task.uid)
        return key is not None and task.attempt >= self._jobs[key].status.attempts

    def _is_orphaned(self, id_: TaskId, since: datetime, now: datetime) -> bool:
        uid, attempt = id_
        if (key := self._keys.get(uid)) is not None:
            return attempt < self._jobs[key].status.attempts
        return uid in self._tombstones or now - since > NEWS_TAKE

    # views

    def attempt(self, job: Job) -> Attempt | None:
        """The job's newest attempt, where a warm worker runs it; None where none does."""
        told = job.status.last_attempt
        warm_worker = self._pods.get(Key(job.key.namespace, told.pod)) if told is not None else None
        if told is None or warm_worker is None or warm_worker.worker is None or warm_worker.worker.job_uid == job.uid:
            return None
        own = (job.uid, told.number)
        known = self.tasks.get(own)
        state, heard = known if known is not None else (None, None)
        if told.outcome is not AttemptOutcome.RUNNING and not _may_go_on(told, warm_worker, state):
            return None
        stopping = own in self._stopping or (state is not None and state.stopping)
        report = state.report if state is not None else None
        ordered, started, ended = _times(job, warm_worker, state, heard)
        leaving = warm_worker.deleting or stopping
        return Attempt(
            number=told.number,
            runner=HostedTask(warm_worker, state, waited=report is None and self._last_run.get(warm_worker.uid, own) != own),
            revision=state.revision if state is not None else None,
            accelerator=warm_worker.worker.accelerator,
            placement=job.status.placement,
            # An order that was heard is not yet work that goes on: that is what the worker's telemetry tells.
            running=report is None and not leaving and is_running(warm_worker) and self._works_on(warm_worker, *own),
            leaving=leaving,
            terminal=warm_worker.over or report is not None,
            report=report if report is not None else warm_worker.report if warm_worker.over else None,
            created=ordered,
            started=started,
            ended=ended if report is not None else warm_worker.ended,
        )

    def has_task(self, pod: Pod) -> bool:
        """Whether a worker has a task: one that a job waits for, or that its last reading tells of."""
        reading = self._readings.get(pod.uid)
        return bool(self._on_as_task(pod)) or (reading is not None and bool(reading.telemetry.tasks))

    def _on_as_task(self, pod: Pod) -> list[Key]:
        """The jobs whose newest attempt a worker runs among other things: not that which it was made for."""
        owner = pod.worker.job_uid if pod.worker is not None else ""
        return sorted(key for key in self.on(pod.key) if self._jobs[key].uid != owner)

    def background(self, pods: Iterable[Pod]) -> tuple[BackgroundWork, ...]:
        """The batches that run on a service's workers."""
        return tuple(self._background(job, pod) for pod in pods for job in self._on_as_task(pod))

    def _background(self, job: Key, pod: Pod) -> BackgroundWork:
        status, reading = self._jobs[job].status, self._readings.get(pod.uid)
        id_ = (self._jobs[job].uid, status.attempts)
        told = reading.telemetry.tasks if reading is not None else ()
        task = next((t for t in told if (t.uid, t.attempt) == id_), None)
        since = status.placement.decision_time if status.placement is not None else None
        if task is None:
            return BackgroundWork(job, pod.key, since)
        return BackgroundWork(job, pod.key, since, task.runs, task.computed_seconds)

    def orphans_on(self, pods: Iterable[Pod]) -> tuple[tuple[Key, TaskId], ...]:
        """The tasks on workers that nobody waits for, as of when the workers were last heard."""
        heard = ((pod, reading.time) for pod in pods if (reading := self._readings.get(pod.uid)) is not None)
        return tuple((pod.key, id_) for pod, time in heard for id_ in self.orphaned_tasks(pod, time))

    def reading(self, attempt: Attempt, job: Job, *, own: bool) -> Reading | None:
        """A warm worker's reading as a job's: its progress, nothing of the others', and the worker's model if that is its `own`."""
        reading = self._readings.get(attempt.pod.uid)
        if reading is None:
            return None
        id_ = (job.uid, attempt.number)
        progress = next((task.progress for task in reading.telemetry.tasks if (task.uid, task.attempt) == id_), None)
        model = reading.telemetry.model if own else None
        return replace(reading, telemetry=msgspec.structs.replace(reading.telemetry, progress=progress, model=model, sketch={}))

    def _works_on(self, warm_worker: Pod, uid: str, attempt: int) -> bool:
        reading = self._readings.get(warm_worker.uid)
        tasks = reading.telemetry.tasks if reading is not None else ()
        return any((task.uid, task.attempt) == (uid, attempt) and task.state == "Running" for task in tasks)


def _times(
    job: Job, warm_worker: Pod, state: TaskState | None, heard: datetime | None
) -> tuple[datetime | None, datetime | None, datetime | None]:
    """When a task was ordered, began to run, and ended. What its worker did and drew before and after that is others'."""
    placement = job.status.placement
    ordered = placement.decision_time if placement is not None else warm_worker.started
    if state is None or heard is None or state.ran_seconds is None:
        return ordered, ordered, heard
    ended = shift(heard, -(state.ended_seconds or 0.0))
    began = shift(ended, -state.ran_seconds)
    return ordered, began if ordered is None else max(ordered, began), ended


def _at_work(job: Job) -> Key | None:
    """The pod that runs a job's newest attempt; None too for a job that wants nothing any more, whatever its status remembers."""
    attempt = job.status.last_attempt
    if attempt is None or attempt.outcome is not AttemptOutcome.RUNNING or job.spec is None:
        return None
    if job.spec.suspend or is_finished(job):
        return None
    return Key(job.key.namespace, attempt.pod)


def _was_at_work(job: Job) -> Key | None:
    """The pod that ran a job's newest attempt until it was cut short; None for a job that wants no other."""
    attempt = job.status.last_attempt
    if attempt is None or attempt.outcome is not AttemptOutcome.DISRUPTED or is_finished(job):
        return None
    return Key(job.key.namespace, attempt.pod)


def _may_go_on(attempt: AttemptStatus, warm_worker: Pod, state: TaskState | None) -> bool:
    """Whether a warm worker may still have an attempt that was cut short: until it says that it has not."""
    if attempt.outcome is not AttemptOutcome.DISRUPTED or (state is not None and state.report is not None):
        return False
    # Another worker that came under the name of the one that is gone never had it.
    return warm_worker.created is None or attempt.end_time is None or warm_worker.created <= attempt.end_time
