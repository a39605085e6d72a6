"""Tenants and the log with everything real: operator, Envoy and workers, which read what they are told of tenants."""

from __future__ import annotations

import asyncio
import hashlib
import json
from typing import TYPE_CHECKING

import aiohttp

from tests.component import envoys
from tests.component.objects import a_model, a_node, a_server
from tests.component.operators import until
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.operators import Ward

KEY = "k-0123456789abcdef"
INFER = "/default/v2/models/digits/infer"
BODY = {"inputs": [{"name": "x", "shape": [1, 8], "datatype": "FP32", "data": [0.5] * 8}]}


async def test_a_tenants_request_is_counted_by_the_worker_and_logged_with_its_models_digest(
    server: ApiServer, ward: Ward, tmp_path: Path
) -> None:
    node = WarmNode(server, tmp_path / "node", runs_jobs=True)
    given = models.slow(width=8, steps=2)
    (node.claim / "model.onnx").write_bytes(given)
    digest = f"sha256:{hashlib.sha256(given).hexdigest()}"
    model = a_model()
    model["spec"] = {"versions": [{"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": digest}]}
    for obj in (a_node(), model, a_server("served")):
        server.create(obj)
    (tmp_path / "keys").write_text(f"search {KEY}\n")
    tenant = {"name": "search", "weight": 3, "rowsPerSecond": 500, "deviceSecondsPerSecond": 0.25, "concurrentRequests": 8}
    tenants = {"enabled": True, "keyFile": str(tmp_path / "keys"), "list": [tenant]}
    control, door = free_ports(2)
    gateway = {"enabled": True, "port": control, "listenerPort": door, "audit": True, "tenants": tenants}
    operator = await ward.lead(server, settings={"telemetrySeconds": 0.1, "gateway": gateway})
    envoy = None
    try:
        (worker,) = await all_ready(node, 1)
        envoy = envoys.start(tmp_path, control=control, door=door)
        async with aiohttp.ClientSession() as session, asyncio.timeout(30):

            async def ask(**headers: str) -> int:
                try:
                    async with session.post(f"http://127.0.0.1:{door}{INFER}", json=BODY, headers=headers) as answer:
                        return answer.status
                except aiohttp.ClientError:
                    return 0

            while await ask(**{"x-api-key": KEY}) != 200:
                await asyncio.sleep(0.1)
            assert await ask() == 401
            async with session.get(f"http://{worker.address}:8000/metrics") as answer:
                counted = [
                    line for line in (await answer.text()).splitlines() if line.startswith("inference_tenant_requests_total")
                ]
        assert len(counted) == 1 and 'tenant="search"' in counted[0] and float(counted[0].split()[-1]) >= 1
        log = envoy

        def lines() -> list[dict[str, object]]:
            return [json.loads(line) for line in log.audit]

        answered = {"status": 200, "tenant": "search", "namespace": "default", "model": "digits", "version": "1", "digest": digest}
        await until(lambda: any(answered.items() <= line.items() for line in lines()), "the line of the answer")
        await until(lambda: any(line["status"] == 401 for line in lines()), "the line of the refusal")
        assert "refuses" not in operator.log
    finally:
        if envoy is not None:
            envoy.end()
        await node.end()
