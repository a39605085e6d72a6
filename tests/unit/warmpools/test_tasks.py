"""Tasks on warm workers, from the operator's side: ordered, followed to their end, stopped; in virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from inference_operator.errors import WorkerUnreachableError
from inference_operator.state.objects import Reading
from inference_operator.state.request import Request, job_request, pool_request
from inference_operator.warmpools.eligibility import task_order as order_of
from inference_operator.warmpools.tasks import Tasks
from inference_protocol.messages import TaskOrder, TaskQuery, TaskState, Telemetry
from tests.builders import NOW, SETTINGS, TOKENS, a_report, observed, resolved_of
from tests.simulation.virtual_time import VirtualClock, run
from tests.unit.warmpools.pool_support import a_hosted_job, a_pooled_model, a_store, a_task, a_worker

MODEL = a_pooled_model()
HOST = a_worker(MODEL)
JOB = a_hosted_job(MODEL, HOST)
RUNS = a_task(JOB, MODEL)
ENDED = a_task(JOB, MODEL, report=a_report())
ORDER = order_of(resolved_of(observed(JOB, model=MODEL)), 1, "cpu", settings=SETTINGS)
UNREACHABLE = WorkerUnreachableError("no answer")
Decision = TaskState | WorkerUnreachableError | None


@dataclass
class Worker:
    """Answers as it is told; a call beyond the last answer waits for ever."""

    waits: list[Decision] = field(default_factory=list)
    ordered: Decision = RUNS
    stopped: Decision = RUNS
    calls: list[str] = field(default_factory=list)

    async def telemetry(self, address: str) -> Telemetry | None:
        raise NotImplementedError

    async def order(self, address: str, token: str, order: TaskOrder) -> TaskState:
        found = self._given("order", address, token, self.ordered)
        assert found is not None
        return found

    async def wait(self, address: str, token: str, query: TaskQuery) -> TaskState | None:
        await asyncio.sleep(1)
        if not self.waits:
            await asyncio.Event().wait()
        return self._given("wait", address, token, self.waits.pop(0))

    async def stop(self, address: str, token: str, query: TaskQuery) -> TaskState | None:
        return self._given("stop", address, token, self.stopped)

    def _given(self, verb: str, address: str, token: str, answer: Decision) -> TaskState | None:
        assert token == TOKENS.token(HOST.key)
        self.calls.append(f"{verb} {address}")
        if isinstance(answer, WorkerUnreachableError):
            raise answer
        return answer


class Scene:
    """A store with a job on a warm worker, and the hands under test."""

    def __init__(self, worker: Worker) -> None:
        self.worker = worker
        self.store = a_store(MODEL, HOST)
        self.store.put_job(JOB)
        self.woken: list[Request] = []
        self.tasks = Tasks(self.store, worker, VirtualClock(), TOKENS, self.woken.append)

    async def start(self, address: str = "10.0.0.1") -> None:
        await self.tasks.start(JOB.key, HOST.key, address, ORDER)

    async def stop(self) -> None:
        await self.tasks.stop(job_request(JOB.key), HOST.key, "10.0.0.1", JOB.uid, 1)

    @property
    def known(self) -> TaskState | None:
        found = self.store.task_index.tasks.get((JOB.uid, 1))
        return found[0] if found is not None else None


def play(worker: Worker, main: Callable[[Scene], Coroutine[Any, Any, None]]) -> Scene:
    async def whole() -> Scene:
        scene = Scene(worker)
        await main(scene)
        await asyncio.sleep(100)
        return scene

    return run(whole())


def test_a_task_is_followed_to_its_end_and_its_job_is_woken() -> None:
    scene = play(Worker(waits=[RUNS, RUNS, ENDED]), Scene.start)

    assert scene.known == ENDED
    assert scene.worker.calls == ["order 10.0.0.1"] + ["wait 10.0.0.1"] * 3
    assert scene.woken == [job_request(JOB.key)] * 2


def test_a_task_that_has_ended_already_is_not_followed() -> None:
    assert play(Worker(ordered=ENDED), Scene.start).worker.calls == ["order 10.0.0.1"]


def test_a_worker_that_takes_no_order_is_tried_again_by_whoever_ordered() -> None:
    async def main(scene: Scene) -> None:
        with pytest.raises(WorkerUnreachableError):
            await scene.start()

    assert play(Worker(ordered=UNREACHABLE), main).known is None


def test_a_task_is_followed_once_however_often_it_is_ordered() -> None:
    async def main(scene: Scene) -> None:
        await scene.start()
        await scene.start()

    assert play(Worker(waits=[ENDED, ENDED]), main).worker.calls.count("wait 10.0.0.1") == 1


def test_a_worker_that_does_not_answer_is_asked_again() -> None:
    assert play(Worker(waits=[UNREACHABLE, UNREACHABLE, ENDED]), Scene.start).known == ENDED


def test_a_task_that_the_worker_does_not_know_is_forgotten_and_ordered_anew() -> None:
    scene = play(Worker(waits=[None]), Scene.start)

    assert scene.known is None
    assert scene.woken[-1] == job_request(JOB.key)


def test_nobody_follows_on_a_host_that_is_gone() -> None:
    async def main(scene: Scene) -> None:
        await scene.start()
        await asyncio.sleep(0.5)
        scene.store.drop_pod(HOST.key, HOST.uid)

    scene = play(Worker(waits=[RUNS, ENDED]), main)

    assert scene.worker.calls.count("wait 10.0.0.1") == 1


def test_a_worker_that_comes_after_another_under_its_name_is_asked_itself() -> None:
    async def main(scene: Scene) -> None:
        await scene.start()
        scene.store.put_pod(replace(HOST, uid="next", address="10.0.0.2"))
        assert scene.known is None
        await scene.start("10.0.0.2")

    scene = play(Worker(waits=[ENDED]), main)

    assert scene.known == ENDED
    assert scene.worker.calls == ["order 10.0.0.1", "order 10.0.0.2", "wait 10.0.0.2"]


def test_nobody_follows_the_task_of_a_deleted_job() -> None:
    async def main(scene: Scene) -> None:
        await scene.start()
        await asyncio.sleep(0.5)
        scene.store.drop_job(JOB.key, JOB.uid)

    scene = play(Worker(waits=[RUNS, RUNS]), main)

    assert scene.worker.calls == ["order 10.0.0.1", "wait 10.0.0.1"]


def test_a_orphaned_task_is_stopped_and_nobody_waits_for_its_end() -> None:
    async def main(scene: Scene) -> None:
        scene.store.drop_job(JOB.key, JOB.uid)
        scene.store.put_reading(HOST, Reading(Telemetry(ready=True, draining=False, tasks=(RUNS,)), NOW))
        assert scene.store.task_index.orphaned_tasks(HOST, NOW) == ((JOB.uid, 1),)
        await scene.tasks.stop(pool_request(MODEL.key), HOST.key, "10.0.0.1", JOB.uid, 1)

    scene = play(Worker(), main)

    assert scene.worker.calls == ["stop 10.0.0.1"]
    assert (scene.store.task_index.orphaned_tasks(HOST, NOW), scene.store.task_index.tasks, scene.woken) == ((), {}, [])


def test_a_stopped_task_is_followed_to_its_end() -> None:
    scene = play(Worker(waits=[ENDED]), Scene.stop)

    assert scene.known == ENDED
    assert scene.worker.calls == ["stop 10.0.0.1", "wait 10.0.0.1"]


def test_a_task_that_can_not_be_stopped_because_nobody_knows_it_has_ended() -> None:
    scene = play(Worker(stopped=None), Scene.stop)

    assert scene.known is not None
    assert scene.known.report is not None
    assert scene.known.report.outcome == "Drained"
