"""Rounds of questions: at a steady pace whoever is slow, each worker once, and the answers handed on."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import cast

from msgspec import structs

from inference_operator.controllers.telemetry import Telemetry
from inference_operator.kube.ports import WorkerClient
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
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

    async def telemetry(self, address: str) -> Record | None:
        self.asked.append((asyncio.get_running_loop().time(), address))
        await asyncio.sleep(self.seconds)
        return None if address == self.away else structs.replace(READY, problem=self.words.get(len(self.asked)))


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


def test_a_round_that_takes_longer_than_the_pace_is_followed_at_once() -> None:
    handed, _ = rounds(Workers(1.5), seconds=16.1)

    assert len(handed) == 10


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

    async def telemetry(self, address: str) -> Record | None:
        self.asked.append((asyncio.get_running_loop().time(), address))
        return None if address == self.away else structs.replace(READY, busy_seconds=0.5 * asyncio.get_running_loop().time())


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
