"""What workers say of themselves reaches the status; a worker that hangs harms only its own job, and not for long."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import msgspec
import pytest
from aiohttp import web

from inference_protocol.messages import HTTP_PORT, TELEMETRY_PATH, Latency, ModelFacts, Progress, Telemetry
from tests import loopback
from tests.component.api_server import RefusalError
from tests.component.kubelet import SUCCESS
from tests.component.objects import DIGEST, a_batch, a_model, a_node, a_server, condition, reason, succeeded
from tests.component.operators import Operator, Ward, until, until_status

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from inference_protocol.messages import TerminationReport
    from tests.component.api_server import ApiServer, Call, Carry
    from tests.component.kinds import Raw
    from tests.component.kubelet import Kubelet

# Loopback has room for many pods: each its own address, since all workers have the same port.
ADDRESS = loopback.address(254)
FACTS = ModelFacts(
    digest=DIGEST,
    provider="CPUExecutionProvider",
    load_seconds=0.2,
    warmup_seconds=0.1,
    batch_size=1,
    memory_bytes=1 << 26,
    items_per_second=100.0,
)


class Worker:
    """Answers as a worker pod at ADDRESS; hangs while told to."""

    def __init__(self) -> None:
        self.telemetry = Telemetry(ready=True, draining=False, model=FACTS)
        self.hangs = False
        self.end = asyncio.Event()
        self.asked = 0

    async def answer(self, request: web.Request) -> web.Response:
        self.asked += 1
        if self.hangs:
            await self.end.wait()
        return web.Response(body=msgspec.json.encode(self.telemetry))


@pytest.fixture
async def worker() -> AsyncIterator[Worker]:
    made = Worker()
    app = web.Application()
    app.router.add_get(TELEMETRY_PATH, made.answer)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, HTTP_PORT).start()
    yield made
    made.end.set()
    await runner.cleanup()


@pytest.fixture
async def operator(server: ApiServer, ward: Ward) -> Operator:
    server.create(a_node())
    server.create(a_model())
    return await ward.lead(server, settings={"telemetrySeconds": 0.1})


async def test_the_provider_and_the_digest_that_a_worker_found_are_in_the_first_status_that_says_serving(
    server: ApiServer, operator: Operator, kubelet: Kubelet, worker: Worker
) -> None:
    server.create(a_server())
    kubelet.run(await kubelet.worker("job"), address=ADDRESS)
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Serving", "the service")

    first = next(c.body["status"] for c in server.calls("PATCH", "/job/status$") if c.body["status"]["reason"] == "Serving")
    assert first["placement"]["executionProvider"] == "CPUExecutionProvider"
    found = {"name": "digits", "version": "1", "digest": DIGEST, "verified": True}
    assert first["model"] == found | {"backend": "onnx", "backendReason": "auto: the model's format is onnx"}


async def test_a_serving_job_at_rest_is_not_written(
    server: ApiServer, operator: Operator, kubelet: Kubelet, worker: Worker
) -> None:
    server.create(a_server())
    kubelet.run(await kubelet.worker("job"), address=ADDRESS)
    await until(lambda: reason(server.get("inferencejobs", "job")) == "Serving", "the service")
    await until(lambda: "profiles" in server.get("inferencemodels", "digits").get("status", {}), "the profile")
    server.create(a_batch("marker", model="unknown"))
    await until(lambda: reason(server.get("inferencejobs", "marker")), "the marker")
    writes, asked = len(server.writes()), worker.asked

    await until(lambda: worker.asked >= asked + 10, "ten rounds of telemetry")

    assert len(server.writes()) == writes


async def test_a_worker_that_hangs_holds_nobody_up(server: ApiServer, operator: Operator, kubelet: Kubelet, worker: Worker) -> None:
    worker.hangs = True
    server.create(a_server("hung"))
    kubelet.run(await kubelet.worker("hung"), address=ADDRESS)
    await until(lambda: worker.asked, "the question")

    server.create(a_batch())
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    await until(lambda: reason(server.get("inferencejobs", "hung")) == "Serving", "the hung one's status")


async def test_two_measurements_that_meet_are_both_kept(server: ApiServer, operator: Operator, kubelet: Kubelet) -> None:
    sizes = {"small": 1, "large": 8}
    reports = {n: msgspec.structs.replace(SUCCESS, model=msgspec.structs.replace(FACTS, batch_size=s)) for n, s in sizes.items()}
    for name, size in sizes.items():
        server.create(a_batch(name, batchSize=size))
        kubelet.run(await kubelet.worker(name))
        await until_status(lambda job: reason(job) == "Running", server, name, f"{name} runs")

    async def together(call: Call, carry: Carry) -> Raw:
        """Both writes are under way before the first is carried out."""
        await until(lambda: meeting.used == 2, "the other write")
        return carry()

    meeting = server.script("PATCH", "/inferencemodels/digits/status$", together, times=2)
    for name, report in reports.items():
        kubelet.end(await kubelet.worker(name), report)
    for name in sizes:
        await until_status(succeeded, server, name, f"{name}'s success")

    assert [p["batchSize"] for p in server.get("inferencemodels", "digits")["status"]["profiles"]] == [1, 8]


async def test_a_model_that_is_gone_unseen_makes_no_hot_loop(
    server: ApiServer, operator: Operator, kubelet: Kubelet, worker: Worker
) -> None:
    async def gone(call: Call, carry: Carry) -> Raw:
        raise RefusalError(404, "NotFound", "not found")

    server.create(a_server())
    pod = await kubelet.worker("job")
    await until(lambda: "usage" in server.get("inferencemodels", "digits").get("status", {}), "what is said of the model")
    server.script("PATCH", "/inferencemodels/digits/status$", gone)
    before = len(server.calls("PATCH", "/inferencemodels/"))
    kubelet.run(pod, address=ADDRESS)
    await until(lambda: len(server.calls("PATCH", "/inferencemodels/")) > before, "the write")
    for number in range(10):
        server.create(a_batch(f"marker-{number}", model="unknown"))
        await until_status(reason, server, f"marker-{number}")

    assert len(server.calls("PATCH", "/inferencemodels/")) <= before + 12


@pytest.mark.parametrize(
    "report",
    [
        msgspec.structs.replace(SUCCESS, model=msgspec.structs.replace(FACTS, digest="a digest of mine")),
        msgspec.structs.replace(SUCCESS, model=msgspec.structs.replace(FACTS, provider="p" * 129)),
        msgspec.structs.replace(SUCCESS, progress=Progress(total=-1, completed=-1)),
        msgspec.structs.replace(SUCCESS, latency=Latency(p50=1.0, p95=2.0, p99=3.0, count=-1)),
    ],
    ids=["digest", "provider", "progress", "latency"],
)
async def test_a_worker_that_says_what_no_status_can_hold_still_ends_its_job(
    server: ApiServer, operator: Operator, kubelet: Kubelet, report: TerminationReport
) -> None:
    server.create(a_batch(maxAttempts=1))
    await kubelet.play("job", report)

    def ended() -> bool:
        found = condition(server.get("inferencejobs", "job"), "Succeeded")
        return found is not None and found["status"] != "Unknown"

    await until(lambda: ended() or "Traceback" in operator.log, "an end")
    assert ended(), operator.log
