"""A batch in the slack of a service with real workers: requests are answered beside it, and it outlives the worker."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from inference_operator.api.schema import rfc3339
from inference_protocol.messages import HTTP_PORT
from tests.component.objects import a_batch, a_model, a_node, a_server, succeeded
from tests.component.operators import Ward, until
from tests.component.test_warm_pools import items, whole
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.kinds import Raw

WIDTH = 128
MODEL = models.slow(width=WIDTH, steps=100)
ROWS = 20_000
SETTINGS = {"telemetrySeconds": 0.1}
# More than a busy machine makes requests wait: a service that misses it takes its worker back.
SERVE = {"latencyTargetMilliseconds": 60_000, "slack": {"claims": [CLAIM]}}
BODY = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, WIDTH], "data": [0.5] * WIDTH}]}).encode()


@pytest.fixture
async def node(server: ApiServer, tmp_path: Path) -> AsyncIterator[WarmNode]:
    """A node, a model, and a service on it that lends its slack."""
    made = WarmNode(server, tmp_path / "node", runs_jobs=True)
    (made.claim / "model.onnx").write_bytes(MODEL)
    version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(MODEL).hexdigest()}"}
    model = a_model()
    model["spec"] = {"versions": [version]}
    for obj in (a_node(), model, a_server("web", batchSize=8, serve=SERVE)):
        server.create(obj)
    yield made
    await made.end()


async def test_a_batch_runs_behind_requests_and_goes_on_once_its_services_worker_is_gone(
    server: ApiServer, ward: Ward, node: WarmNode
) -> None:
    ward.start(server.url, settings=SETTINGS)
    (worker,) = await all_ready(node, 1)
    # A window of load is known after ten seconds.
    await asyncio.sleep(11)
    given = node.put_rows("rows", ROWS, WIDTH)
    # Far away: by its first seconds on a busy machine the batch would take an hour in slack, and it would give that up.
    due = rfc3339((datetime.now(UTC) + timedelta(days=7)).replace(microsecond=0))
    spec: dict[str, Any] = {
        "input": {"uri": given, "items": ROWS},
        "output": {"uri": f"pvc://{CLAIM}/out/job"},
        "batchSize": 8,
        "deadline": due,
    }
    server.create(a_batch("job", **spec))
    await until(lambda: items(node, "job") > 50, "a batch in slack")

    status = server.get("inferencejobs", "job")["status"]
    assert (status["placement"]["pod"], status["placement"]["slack"]["service"]) == (worker.pod, "web")
    assert await answers(worker.address, 20) == [200] * 20
    told = await until(lambda: background(server), "the service says whom it lends its worker")
    assert (told["job"], told["pod"]) == ("job", worker.pod)

    server.update("pods", worker.pod, lambda pod: pod["metadata"].update(deletionTimestamp="2026-04-02T12:00:00Z"))
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the success of the batch", seconds=300)

    status = server.get("inferencejobs", "job")["status"]
    assert (status["attempts"], status["failedAttempts"]) == (2, 0)
    assert whole(node, "job", rows=ROWS)
    await until(lambda: background(server) is None, "the service has its worker for itself")


def background(server: ApiServer) -> Raw | None:
    """The batch that the service says is on its worker."""
    told = server.get("inferencejobs", "web").get("status", {}).get("backgroundTasks")
    return told[0] if told else None


async def answers(address: str, count: int) -> list[int]:
    """The statuses of so many requests, one after the other."""
    url = f"http://{address}:{HTTP_PORT}/v2/models/digits/infer"
    async with aiohttp.ClientSession() as session:
        return [(await session.post(url, data=BODY, headers={"Content-Type": "application/json"})).status for _ in range(count)]
