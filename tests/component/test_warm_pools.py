"""Warm pools with real workers: whatever is killed and whenever, each task is done once, and the pool keeps its size."""

from __future__ import annotations

import hashlib
import signal
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from inference_operator.api.names import LABEL_JOB
from inference_operator.app import BEGIN_ANEW
from tests.component.api_server import ConnectionCutError
from tests.component.objects import a_batch, a_model, a_node, succeeded
from tests.component.operators import Ward, until
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.component.api_server import ApiServer, Call, Carry
    from tests.component.kinds import Raw
    from tests.component.operators import Operator

WIDTH = 128
MODEL = models.slow(width=WIDTH, steps=100)
SHORT, LONG = 200, 8000
SETTINGS = {"telemetrySeconds": 0.1}
LEASE = ("leases", "inference-operator", "operator-system")


@pytest.fixture
async def node(server: ApiServer, tmp_path: Path) -> AsyncIterator[WarmNode]:
    """A node, and a model with two warm workers."""
    made = WarmNode(server, tmp_path / "node")
    (made.claim / "model.onnx").write_bytes(MODEL)
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(MODEL).hexdigest()}"}
    model = a_model()
    model["spec"] = {"versions": [version], "warmPool": {"min": 2, "max": 2, "batchSize": 8, "claims": [CLAIM]}}
    for obj in (a_node(), model):
        server.create(obj)
    yield made
    await made.end()


@dataclass
class Reign:
    """One operator after the other."""

    server: ApiServer
    ward: Ward
    operator: Operator

    def change(self) -> None:
        """Kill who reigns, and have another take over at once."""
        self.end()
        self.operator = self.ward.start(self.server.url, who=f"operator-{len(self.ward.operators)}", settings=SETTINGS)

    def end(self) -> None:
        """Kill who reigns; the Lease is as good as expired."""
        self.operator.kill()
        if self.server.has(*LEASE):
            self.server.delete(*LEASE)


@pytest.fixture
def reign(server: ApiServer, ward: Ward, node: WarmNode) -> Reign:
    return Reign(server, ward, ward.start(server.url, settings=SETTINGS))


async def test_no_kill_between_two_writes_loses_a_task_or_does_it_twice(server: ApiServer, node: WarmNode, reign: Reign) -> None:
    await all_ready(node, 2)
    kills = 0

    async def act(call: Call, carry: Carry) -> Raw:
        nonlocal kills
        kills += 1
        if kills % 2:
            carry()
        reign.change()
        raise ConnectionCutError

    def matches(call: Call) -> bool:
        # Two of each three writes that say where a task runs, or how it ended, are heard.
        return call.path.endswith("/status") and "/inferencejobs/" in call.path and len(server.calls("PATCH", _STATUS)) % 3 == 0

    server.script_when(matches, act)
    jobs = a_few(server, node, 12, rows=SHORT)

    await all_succeed(server, jobs)
    assert kills > 3
    await check_all_done_once(server, node, jobs, rows=SHORT)


async def test_tasks_run_on_while_one_operator_after_the_other_is_killed(server: ApiServer, node: WarmNode, reign: Reign) -> None:
    await all_ready(node, 2)
    jobs = a_few(server, node, 2, rows=LONG)
    for share in (0.0, 0.2, 0.4):
        await _all_beyond(node, jobs, share)
        reign.change()

    await all_succeed(server, jobs)
    await check_all_done_once(server, node, jobs, rows=LONG)


async def test_a_worker_that_died_while_nobody_reigned_is_replaced_and_its_task_goes_on(
    server: ApiServer, node: WarmNode, reign: Reign
) -> None:
    lost, kept = await all_ready(node, 2)
    jobs = a_few(server, node, 2, rows=LONG)
    await until(lambda: all(items(node, job) > 0 for job in jobs), "the first items")
    reign.end()
    moved = next(job for job in jobs if server.get("inferencejobs", job)["status"]["placement"]["pod"] == lost.pod)
    lost.kill()
    await until(lambda: server.get("pods", lost.pod)["status"]["phase"] == "Failed", "the worker's end")
    kept_items = items(node, moved)
    reign.change()

    await all_succeed(server, jobs)
    workers = await all_ready(node, 2)
    assert kept in workers
    assert len(node.workers) == 3
    assert {job: server.get("inferencejobs", job)["status"]["attempts"] for job in jobs} == {j: 1 + (j == moved) for j in jobs}
    assert whole(node, moved, rows=LONG)
    assert await node.items_done() == 2 * LONG - kept_items


async def test_the_task_of_a_worker_that_falls_silent_goes_on_beside_and_is_done_once(
    server: ApiServer, ward: Ward, node: WarmNode
) -> None:
    """As when a node dies: nobody says so for 40 s, and it may wake and go on."""
    operator = ward.start(server.url, settings=SETTINGS, constants={})
    workers = {worker.pod: worker for worker in await all_ready(node, 2)}
    (job,) = a_few(server, node, 1, rows=LONG)
    await until(lambda: items(node, job) > 0, "the first items")
    silent = workers.pop(server.get("inferencejobs", job)["status"]["placement"]["pod"])
    await operator.says(f"{silent.pod} on node-1 answers")
    silent.process.send_signal(signal.SIGSTOP)
    committed = items(node, job)
    (other,) = workers

    await until(lambda: server.get("inferencejobs", job)["status"]["placement"]["pod"] == other, "the next attempt")
    await until(lambda: items(node, job) > committed, "the first items there")
    silent.process.send_signal(signal.SIGCONT)

    await all_succeed(server, [job])
    status = server.get("inferencejobs", job)["status"]
    assert (status["attempts"], status.get("failedAttempts", 0)) == (2, 0)
    assert whole(node, job, rows=LONG)
    await node.until_idle()
    assert len(node.workers) == 2


@pytest.mark.usefixtures("reign")
async def test_the_task_of_a_deleted_job_is_stopped(server: ApiServer, node: WarmNode) -> None:
    await all_ready(node, 2)
    (job,) = a_few(server, node, 1, rows=10 * LONG)
    await until(lambda: items(node, job) > 0, "the first items")
    server.delete("inferencejobs", job)

    await node.until_idle()
    assert items(node, job) < 10 * LONG


@pytest.mark.parametrize("fate", [signal.SIGKILL, signal.SIGSTOP], ids=["dies", "sleeps"])
async def test_a_standby_takes_the_tasks_over_from_a_leader(
    server: ApiServer, ward: Ward, node: WarmNode, fate: signal.Signals
) -> None:
    brief = {**SETTINGS, "leaseSeconds": 2}
    first = ward.start(server.url, who="first", settings=brief)
    await all_ready(node, 2)
    second = ward.start(server.url, who="second", settings=brief)
    await second.says("synced")
    jobs = a_few(server, node, 4, rows=LONG // 2)
    await until(lambda: all(items(node, job) > 0 for job in jobs[:2]), "the first items")

    first.send(fate)
    await second.says("leading as")
    first.send(signal.SIGCONT)

    await all_succeed(server, jobs)
    assert await first.ended() in (BEGIN_ANEW, -signal.SIGKILL)
    await check_all_done_once(server, node, jobs, rows=LONG // 2)


async def test_a_pool_on_triton_grows_from_zero_does_what_asks_for_triton_and_goes_again(
    server: ApiServer, ward: Ward, node: WarmNode
) -> None:
    pool = {"min": 0, "max": 1, "batchSize": 8, "claims": [CLAIM], "backend": "triton", "idleSeconds": 0}
    server.update("inferencemodels", "digits", lambda model: model["spec"].update(warmPool=pool))
    ward.start(server.url, settings={**SETTINGS, "backends": {"triton": {"image": "triton", "platform": "python"}}})
    jobs = a_few(server, node, 3, rows=SHORT, backend="triton")
    server.create(a_batch("of-onnx"))

    await all_succeed(server, jobs)
    await until(
        lambda: server.all("pods") and all(job_of(pod) == "of-onnx" for pod in server.all("pods")), "the pool is given back"
    )

    for job in jobs:
        status = server.get("inferencejobs", job)["status"]
        assert whole(node, job, rows=SHORT)
        assert status["placement"]["pod"] in {worker.pod for worker in node.workers}
        assert status["placement"]["executionProvider"].startswith("TritonServer ")
        assert status["model"]["backend"] == "triton"
    (profile,) = server.get("inferencemodels", "digits")["status"]["profiles"]
    assert profile["backend"] == "triton"


_STATUS = "/inferencejobs/[^/]+/status$"


def job_of(pod: Raw) -> str | None:
    """The job that has a pod for itself; None for a warm worker's."""
    return pod["metadata"]["labels"].get(LABEL_JOB)


def a_few(server: ApiServer, node: WarmNode, count: int, *, rows: int, **spec: str) -> list[str]:
    """Create batches; returns their names."""
    given = node.put_rows("rows", rows, WIDTH)
    names = [f"job-{number:02}" for number in range(count)]
    for name in names:
        server.create(a_batch(name, batchSize=8, input={"uri": given}, output={"uri": f"pvc://{CLAIM}/out/{name}"}, **spec))
    return names


def items(node: WarmNode, job: str) -> int:
    """Items that are committed so far."""
    return max((end for _, end in node.committed(job)), default=0)


def whole(node: WarmNode, job: str, *, rows: int) -> bool:
    """Whether the output has every item once."""
    spans = node.committed(job)
    return spans[0][0] == 0 and spans[-1][1] == rows and all(left[1] == right[0] for left, right in pairwise(spans))


async def _all_beyond(node: WarmNode, jobs: list[str], share: float) -> None:
    await until(lambda: all(items(node, job) > share * LONG for job in jobs), f"{share:.0%} of all")


async def all_succeed(server: ApiServer, jobs: list[str]) -> None:
    await until(lambda: all(succeeded(server.get("inferencejobs", job)) for job in jobs), "all successes", seconds=300)


async def check_all_done_once(server: ApiServer, node: WarmNode, jobs: list[str], *, rows: int) -> None:
    """Each task was begun once and is whole; the two workers of the start are all there ever were, and nothing is left on them."""
    for job in jobs:
        status = server.get("inferencejobs", job)["status"]
        assert (status["attempts"], status["failedAttempts"], status["lastAttempt"]["outcome"]) == (1, 0, "Succeeded"), job
        assert whole(node, job, rows=rows), job
    assert await node.items_done() == rows * len(jobs)
    await node.until_idle()
    assert sorted(pod["metadata"]["name"] for pod in server.all("pods")) == sorted(worker.pod for worker in node.running)
    assert len(node.workers) == 2
    told = server.get("inferencemodels", "digits")["status"]["warmPool"]
    assert (told["workers"], told["ready"]) == (2, 2)
