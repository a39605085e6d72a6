"""CPU of one round of telemetry: a hundred and a thousand serving workers, whose latencies change from round to round.

The operator's own client, store, windows and control law, against workers that answer with what was encoded beforehand: what they
would need for it is theirs, and in a process of its own.
"""

import asyncio
import gc
import multiprocessing
import random
import time
from dataclasses import replace
from typing import Any

from bench.report import Result, Target, at_most
from inference_operator.api.job import Serve
from inference_operator.app import GC_THRESHOLDS
from inference_operator.autoscaling.controller import Autoscale
from inference_operator.controllers.telemetry import Telemetry
from inference_operator.controllers.worker_client import WorkerHttpClient
from inference_operator.kube.leaderelection import Leadership
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_operator.runtime.clock import SystemClock
from inference_operator.settings import AutoscalingSettings
from inference_operator.state.store import Store
from inference_protocol import messages
from inference_protocol.sketch import LatencySketch
from tests.builders import a_job, a_pod

_PODS_A_JOB = 10
_ROUNDS = 10
# Latencies of a hundred thousand requests from tenths to hundreds of milliseconds, and twenty more a second.
_BEFORE, _EACH_SECOND = 100_000, 20
BOUND_SECONDS = 0.25


def run(rounds: int) -> Result:
    """Both sizes, so many times."""
    gc.set_threshold(*GC_THRESHOLDS)
    workers = multiprocessing.get_context("spawn").Process(target=answer_all, daemon=True)
    workers.start()
    try:
        found = [asyncio.run(_measure(size)) for _ in range(rounds or 3) for size in (100, 1000)]
    finally:
        workers.kill()
        workers.join()
    return Result(found, [_target(found)])


def _target(found: list[dict[str, Any]]) -> Target:
    best = min(r["cpuSeconds"] for r in found if r["workers"] == 1000)
    return at_most("thousand", "seconds of CPU of a round of 1,000 workers, best", best, BOUND_SECONDS)


async def _measure(size: int) -> dict[str, Any]:
    store, clock = Store(), SystemClock()
    for number in range(size // _PODS_A_JOB):
        job = a_job(f"job-{number}", serve=Serve(latency_target_milliseconds=100, max_replicas=20), replicas=_PODS_A_JOB)
        store.put_job(job)
        for pod in range(_PODS_A_JOB):
            place = number * _PODS_A_JOB + pod
            store.put_pod(replace(a_pod(job, pod + 1), address=f"127.0.{1 + place // 250}.{1 + place % 250}"))
    autoscale = Autoscale(store, clock, lambda _: None, AutoscalingSettings(), telemetry_seconds=1.0)
    async with BoundedHttp() as http:
        client = WorkerHttpClient(http, Leadership(clock.boottime))
        telemetry = Telemetry(store, client, clock, lambda _: None, seconds=1.0, after_round=(autoscale.round,))
        while not (store.scaling_metrics and all(m.workers.measured == _PODS_A_JOB for m in store.scaling_metrics.values())):
            await telemetry.round()
        cpu, wall = time.process_time(), time.monotonic()
        for _ in range(_ROUNDS):
            await telemetry.round()
        cpu, wall = time.process_time() - cpu, time.monotonic() - wall
    return {"workers": size, "cpuSeconds": round(cpu / _ROUNDS, 3), "wallSeconds": round(wall / _ROUNDS, 3)}


def answer_all() -> None:
    """Be every worker: each connection is told the next second's counts at each question."""
    answers = list(_answers())

    class Worker(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            assert isinstance(transport, asyncio.Transport)
            self._transport, self._asked = transport, 0

        def data_received(self, data: bytes) -> None:  # noqa: ARG002 -- whatever is asked
            self._transport.write(answers[min(self._asked, len(answers) - 1)])
            self._asked += 1

    async def serve() -> None:
        server = await asyncio.get_running_loop().create_server(Worker, "0.0.0.0", messages.HTTP_PORT, backlog=4096)
        await server.serve_forever()

    asyncio.run(serve())


def _answers() -> list[bytes]:
    dice, sketch, found = random.Random(1), LatencySketch(), []
    for _ in range(_BEFORE):
        sketch.record(dice.lognormvariate(-4, 0.8))
    for second in range(4 * _ROUNDS):
        for _ in range(_EACH_SECOND):
            sketch.record(dice.lognormvariate(-4, 0.8))
        told = messages.Telemetry(
            ready=True,
            draining=False,
            model=messages.ModelFacts(
                digest="sha256:" + "a" * 64,
                provider="CPUExecutionProvider",
                load_seconds=1.0,
                warmup_seconds=1.0,
                batch_size=1,
                memory_bytes=1,
            ),
            sketch=sketch.counts,
            requests_total=sketch.total,
            busy_seconds=100.0 + second / 2,
        )
        body = messages.encode(told)
        found.append(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
    return found
