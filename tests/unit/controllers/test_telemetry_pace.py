"""Rounds of questions: at a steady pace whoever is slow, each worker once, and the answers handed on."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from msgspec import structs

from inference_operator.controllers.telemetry import Telemetry
from inference_operator.kube.ports import WorkerAddress, WorkerClient
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_protocol.messages import Progress
from inference_protocol.messages import Telemetry as Record
from tests.builders import a_job, a_pod
from tests.simulation.virtual_time import VirtualClock, run

READY = Record(ready=True, draining=False)


class Workers:
    """See WorkerClient. Answers after a while; who is away takes the time-out and gives nothing."""

    def __init__(self, seconds: float, *, away: str = "") -> None:
        self.seconds = seconds
        self.away = away
        self.asked: list[tuple[float, str]] = []
        # The problem that it tells, by the number of the question.
        self.words: dict[int, str] = {}
        # The same of its batch.
        self.progress: dict[int, Progress] = {}
        # Who takes another time, who never answers, and whose question raises what nobody foresaw.
        self.slow: dict[str, float] = {}
        self.dead: set[str] = set()
        self.faults: set[str] = set()

    async def telemetry(self, worker: WorkerAddress) -> Record | None:
        self.asked.append((asyncio.get_running_loop().time(), worker.address))
        await asyncio.sleep(self.slow.get(worker.address, self.seconds))
        if worker.address in self.faults:
            raise RuntimeError
        return (
            None
            if worker.address == self.away or worker.address in self.dead
            else structs.replace(READY, problem=self.words.get(len(self.asked)), progress=self.progress.get(len(self.asked)))
        )


def rounds(workers: Workers, *, seconds: float, count: int = 2) -> tuple[list[Mapping[str, Record | None]], list[Request]]:
    """What was handed on, and who was woken."""
    store = Store()
    handed: list[Mapping[str, Record | None]] = []
    woken: list[Request] = []
    job = a_job(serve=True, replicas=count)
    store.put_job(job)
    for number in range(1, count + 1):
        store.put_pod(replace(a_pod(job, number), address=f"w{number}"))

    async def live() -> None:
        telemetry = Telemetry(
            store, cast("WorkerClient", workers), VirtualClock(), woken.append, seconds=1.0, after_round=(handed.append,)
        )
        task = asyncio.create_task(telemetry.run())
        await asyncio.sleep(seconds)
        task.cancel()

    run(live())
    return handed, woken


def test_a_slow_worker_does_not_put_the_next_round_off() -> None:
    workers = Workers(0.9)
    handed, _ = rounds(workers, seconds=20.95)

    assert len(handed) == 20
    assert [round(at, 3) for at, address in workers.asked if address == "w1"] == [float(second) for second in range(1, 21)]


def test_a_worker_that_takes_longer_than_the_pace_holds_no_round_up() -> None:
    workers = Workers(0.1)
    workers.slow["w2"] = 1.5
    handed, _ = rounds(workers, seconds=20.95)

    assert len(handed) == 20
    assert all(READY in answers.values() for answers in handed)
    # Its answers count in the rounds in which they come, and it is not asked again before.
    assert sum(None not in answers.values() for answers in handed) == 9
    assert [round(at, 3) for at, address in workers.asked if address == "w2"] == [float(second) for second in range(1, 21, 2)]


def test_a_silent_worker_is_asked_ever_more_rarely() -> None:
    workers = Workers(0.1)
    workers.away = "w2"
    rounds(workers, seconds=70.5)

    assert [round(at) for at, address in workers.asked if address == "w2"] == [1, 2, 4, 8, 16, 32, 48, 64]
    assert [round(at) for at, address in workers.asked if address == "w1"] == list(range(1, 71))


def test_a_silent_worker_that_becomes_ready_is_asked_at_once() -> None:
    store, workers = Store(), Workers(0.1, away="w1")
    job = a_job(serve=True)
    pod = replace(a_pod(job, 1, ready=False), address="w1")
    store.put_job(job)
    store.put_pod(pod)

    async def live() -> None:
        telemetry = Telemetry(store, cast("WorkerClient", workers), VirtualClock(), lambda _: None, seconds=1.0)
        task = asyncio.create_task(telemetry.run())
        await asyncio.sleep(40.5)
        workers.away = ""
        store.put_pod(replace(pod, ready=True))
        await asyncio.sleep(2)
        task.cancel()

    run(live())
    assert [round(at) for at, _ in workers.asked] == [1, 2, 4, 8, 16, 32, 41, 42]


def test_silent_workers_of_one_namespace_delay_no_sample_of_another() -> None:
    """320 that take the whole time-out; the job beside them is told of in each round, and each worker in its own."""
    store, handed = Store(), list[Mapping[str, Record | None]]()
    workers = Workers(0.01)
    silent = a_job("silent", namespace="bad", serve=True, replicas=320)
    answering = a_job("answering", namespace="good", serve=True, replicas=40)
    for job in (silent, answering):
        store.put_job(job)
        for number in range(1, (job.spec.replicas if job.spec else 0) + 1):
            store.put_pod(replace(a_pod(job, number), address=f"{job.key.name}-{number}"))
    workers.slow = {f"silent-{number}": 1.0 for number in range(1, 321)}
    workers.dead = set(workers.slow)
    good = {pod.uid for pod in store.pods.values() if pod.key.namespace == "good"}

    async def live() -> None:
        telemetry = Telemetry(
            store, cast("WorkerClient", workers), VirtualClock(), lambda _: None, seconds=1.0, after_round=(handed.append,)
        )
        task = asyncio.create_task(telemetry.run())
        await asyncio.sleep(30.5)
        task.cancel()

    run(live())
    assert len(handed) >= 28
    assert all(answers[uid] == READY for answers in handed for uid in good)
    # In turn, not behind each other: the others are asked at the beat.
    late = {round(at % 1, 1) for at, address in workers.asked if address.startswith("answering")}
    assert late <= {0.0, 1.0}


def test_a_question_that_fails_by_itself_ends_nothing() -> None:
    workers = Workers(0.1)
    workers.faults = {"w1"}
    handed, _ = rounds(workers, seconds=10.5)

    assert len(handed) == 10
    assert all(READY in answers.values() for answers in handed)


def test_a_reconcile_waits_for_no_silent_worker() -> None:
    store, workers = Store(), Workers(1.0, away="w1")
    job = a_job(serve=True)
    pod = replace(a_pod(job, 1), address="w1")
    store.put_job(job)
    store.put_pod(pod)
    took = []

    async def live() -> None:
        telemetry = Telemetry(store, cast("WorkerClient", workers), VirtualClock(), lambda _: None, seconds=1.0)
        for _ in range(3):
            before = asyncio.get_running_loop().time()
            assert not await telemetry.fill([pod])
            took.append(round(asyncio.get_running_loop().time() - before, 3))
            await asyncio.sleep(1)

    run(live())
    assert took == [0.25, 0.0, 0.0]


def test_who_does_not_answer_is_handed_on_as_such() -> None:
    handed, _ = rounds(Workers(0.1, away="w2"), seconds=1.5)

    assert sorted(handed[0].values(), key=lambda answer: answer is None) == [READY, None]


def test_equal_answers_wake_nobody() -> None:
    _, woken = rounds(Workers(0.1), seconds=10.5, count=1)

    assert woken == [job_request(Key("default", "job"))]


def test_what_keeps_a_worker_from_computing_wakes_its_job_when_it_begins_and_when_it_ends() -> None:
    workers = Workers(0.1)
    workers.words = {4: "Triton is away", 5: "Triton is away"}

    _, woken = rounds(workers, seconds=10.5, count=1)

    assert len(woken) == 3


class Counting(Workers):
    """Its workers compute half of the time."""

    async def telemetry(self, worker: WorkerAddress) -> Record | None:
        self.asked.append((asyncio.get_running_loop().time(), worker.address))
        return None if worker.address == self.away else structs.replace(READY, busy_seconds=0.5 * asyncio.get_running_loop().time())


def test_nodes_are_as_busy_as_the_workers_that_answer() -> None:
    store = Store()
    job = a_job(serve=True, replicas=3)
    for number, node in ((1, "a"), (2, "a"), (3, "b")):
        store.put_pod(replace(a_pod(job, number, node=node), address=f"w{number}"))

    workers = Counting(0.0, away="w3")

    async def live() -> None:
        telemetry = Telemetry(store, cast("WorkerClient", workers), VirtualClock(), lambda _: None, seconds=1.0)
        task = asyncio.create_task(telemetry.run())
        await asyncio.sleep(3.5)
        task.cancel()

    run(live())
    assert {node: round(busy, 6) for node, busy in store.busy.items()} == {"a": 1.0, "b": 0.0}


def test_a_batch_goes_forward_whatever_its_worker_says() -> None:
    """Each change of what is done may be a write of the status."""
    workers = Workers(0.1)
    said = [(100, 10), (100, 90), (100, 20), (7, 7), (100, 91), None, (100, 0)]
    workers.progress = {number: Progress(*counts) for number, counts in enumerate(said, 1) if counts is not None}
    handed, woken = rounds(workers, seconds=len(said) + 0.5, count=1)

    told = [
        record.progress.completed for answers in handed for record in answers.values() if record is not None and record.progress
    ]
    assert told == [10, 90, 90, 90, 91, 91, 91]
    assert len(woken) == 3
