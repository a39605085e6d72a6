"""A service that nobody asks has no worker: real workers go, and come back for the first request that a real Envoy holds."""

from __future__ import annotations

import asyncio
import hashlib
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
import tritonclient.grpc.aio as over_grpc
import tritonclient.http.aio as over_http
from tritonclient.utils import InferenceServerException

from tests.component import envoys
from tests.component.objects import a_model, a_node, a_server, condition
from tests.component.operators import Ward, until
from tests.component.test_gateway import Door, grpc_input, http_input
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.component.api_server import ApiServer

MODEL = models.slow(width=8, steps=2)
BODY = {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [0.5] * 8}]}
PATH = "/default/v2/models/digits/infer"


@pytest.fixture
async def door(server: ApiServer, ward: Ward, tmp_path: Path) -> AsyncIterator[Door]:
    """A service whose worker has gone."""
    node = WarmNode(server, tmp_path / "node", runs_jobs=True)
    (node.claim / "model.onnx").write_bytes(MODEL)
    model = a_model()
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(MODEL).hexdigest()}"}
    model["spec"] = {"versions": [version]}
    serve = {"minReplicas": 0, "gateway": {"idleSeconds": 2}}
    for obj in (a_node(), model, a_server("served", serve=serve, replicas=1)):
        server.create(obj)
    control, listener = free_ports(2)
    settings = {
        "telemetrySeconds": 0.1,
        "gateway": {"enabled": True, "port": control, "listenerPort": listener, "heldRequests": 600},
    }
    operator = await ward.lead(server, settings=settings)
    await all_ready(node, 1)
    envoy = envoys.start(tmp_path, control=control, door=listener)
    made = Door(server, node, operator, envoy, settings)
    try:
        await sleeps(made)
        yield made
    finally:
        envoy.end()
        await node.end()


async def sleeps(door: Door) -> None:
    """Wait until the service has no worker."""
    await until(lambda: door.server.get("inferencejobs", "served").get("status", {}).get("phase") == "ScaledToZero", "sleep")
    await until(lambda: not door.node.running, "the worker's end")


async def infer(door: Door, **headers: str) -> tuple[int, Any]:
    """Status and answer of a request."""
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session,
        session.post(f"http://{door.url}{PATH}", json=BODY, headers=given) as answer,
    ):
        return answer.status, await answer.json(content_type=None)


async def test_the_first_request_waits_for_a_worker_and_is_answered_by_it(door: Door) -> None:
    assert condition(door.server.get("inferencejobs", "served"), "Ready")["reason"] == "ScaledToZero"  # type: ignore[index]
    async with over_http.InferenceServerClient(f"{door.url}/default") as client:
        assert (await client.infer("digits", http_input())).as_numpy("y").shape == (1, 8)
    await sleeps(door)
    async with over_grpc.InferenceServerClient(door.url) as client:
        answer = await client.infer("digits", grpc_input(), headers={"inference-namespace": "default"})
        assert np.isfinite(answer.as_numpy("y")).all()
    # spec.replicas is the user's, and was never written.
    assert door.server.get("inferencejobs", "served")["spec"]["replicas"] == 1


async def test_of_a_burst_none_is_lost_and_one_worker_is_started_for_all(door: Door) -> None:
    before = len(door.node.workers)
    burst = [asyncio.create_task(infer(door)) for _ in range(500)]
    (worker,) = await all_ready(door.node, 1)
    answers = await asyncio.gather(*burst)

    assert {status for status, _ in answers} == {200}, [a for a in answers if a[0] != 200][:3]
    assert door.node.workers[before:] == [worker]


async def test_whose_deadline_is_before_the_start_is_told_at_once_and_the_service_wakes_for_the_next(door: Door) -> None:
    assert (await infer(door))[0] == 200
    await sleeps(door)
    status, answer = await infer(door, Inference_Timeout_Ms="200")
    # Whoever is held until its deadline is told so in other words.
    assert status == 504 and "one is expected in" in answer["error"], (status, answer)
    await all_ready(door.node, 1)
    status, answer = await infer(door, Inference_Timeout_Ms="60000")
    assert status == 200, (status, answer)


async def test_who_waits_longer_than_its_deadline_is_told_so(door: Door) -> None:
    door.server.update("nodes", "node-1", lambda node: node["spec"].update(unschedulable=True))
    async with over_grpc.InferenceServerClient(door.url) as client:
        with pytest.raises(InferenceServerException) as caught:
            await client.infer("digits", grpc_input(), headers={"inference-namespace": "default"}, client_timeout=1.0)
    assert caught.value.status() in ("StatusCode.DEADLINE_EXCEEDED", "StatusCode.UNAVAILABLE")
    status, answer = await infer(door)
    assert status == 503 and "node" in answer["error"], (status, answer)
