"""A service, a warm pool and batches of all fates under a real operator, and what a real Prometheus has scraped of them."""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp

from dev.dashboards import BOARDS
from tests.component import prometheus
from tests.component.api_server import ApiServer
from tests.component.objects import a_batch, a_model, a_node, a_server, condition, succeeded
from tests.component.operators import PATIENCE_SECONDS, REPOSITORY, Ward, until
from tests.component.warm_node import CLAIM, WarmNode, all_ready
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.component.kinds import Raw
    from tests.component.operators import Nursery
    from tests.component.prometheus import Line, Prometheus

WIDTH = 64
MODEL = models.slow(width=WIDTH, steps=100)
LONG_ROWS = 200_000
CHOICES = {"$namespace": ".*", "$job": ".*", "$instance": ".*", "$__rate_interval": "10s"}
_PAGE = (REPOSITORY / "docs" / "tasks" / "autoscaling.md").read_text()


def _scalers() -> dict[str, str]:
    """What KEDA and the Prometheus adapter ask by the examples of the page on autoscaling, for the scene's service."""
    (keda,) = re.findall(r"query: (max.*)", _PAGE)
    (adapter,) = re.findall(r"metricsQuery: (.*)", _PAGE)
    (series,) = re.findall(r"seriesQuery: '(\w+)", _PAGE)
    of_service = 'namespace="default",inference_job="served"'
    filled = (
        adapter.replace("<<.Series>>", series).replace("<<.LabelMatchers>>", of_service).replace("<<.GroupBy>>", "inference_job")
    )
    return {"keda": keda.replace("demo", "default").replace("magika", "served"), "adapter": filled}


SCALERS = _scalers()
_PANELS = [panel for board in BOARDS for row in board.rows for panel in row.panels]
EXPRS = sorted({query.expr for panel in _PANELS for query in panel.queries} | set(SCALERS.values()))


@dataclass
class Scraped:
    """What Prometheus answered to each query, and the texts that it scraped."""

    lines: dict[str, list[Line]] = field(default_factory=dict)
    texts: dict[str, str] = field(default_factory=dict)

    def values(self, expr: str) -> list[float]:
        """All numbers of a query, whatever the series and the time."""
        return [value for line in self.lines[expr] for _, value in line.points]


@dataclass(frozen=True)
class Scene:
    """A service with a cache, a warm pool, and batches of all fates, under one operator."""

    server: ApiServer
    ward: Ward
    node: WarmNode
    monitor: Prometheus
    session: aiohttp.ClientSession

    async def play(self, more: int = 0) -> Scraped:
        """Have everything happen while Prometheus scrapes, with so many batches more, and ask it all queries."""
        began, (port,) = time.time(), free_ports(1)
        operator = f"127.0.0.1:{port}"
        await self.ward.lead(self.server, settings={"httpPort": port, "telemetrySeconds": 0.1})
        self.monitor.scrape(operator=[operator])
        await self._shows("inference_time_to_place_seconds_count")
        self._create(*self._objects())
        workers = [f"{worker.address}:8000" for worker in await all_ready(self.node, 2)]
        self.monitor.scrape(operator=[operator], worker=workers)
        # Deadlines are counted from zero, which has to be seen.
        await self._shows("count(inference_ready == 1) == 2", "inference_deadlines_total")
        self._create(*self._batches())
        async with asyncio.TaskGroup() as group:
            calls = group.create_task(self._call())
            await self._fates()
            for number in range(more):
                await self._one_more(number)
            self._create(self._long())
            await self._shows(
                "inference_job_slack_seconds", "inference_attempts_total{outcome='Failed'}", "inference_model_load_seconds"
            )
            calls.cancel()
        # Rates need two scrapes of what came last.
        await asyncio.sleep(3 * prometheus.SCRAPE_SECONDS)
        lines = {expr: await self.monitor.lines(self.session, _chosen(expr), since=began, until=time.time()) for expr in EXPRS}
        texts = {"operator": await self._text(operator), "worker": await self._text(workers[-1])}
        return Scraped(lines, texts)

    def _objects(self) -> list[Raw]:
        (self.node.claim / "model.onnx").write_bytes(MODEL)
        model = a_model()
        version = {"name": "1", "uri": f"pvc://{CLAIM}/model.onnx", "digest": f"sha256:{hashlib.sha256(MODEL).hexdigest()}"}
        model["spec"] = {"versions": [version], "warmPool": {"min": 1, "max": 1, "batchSize": 8, "claims": [CLAIM]}}
        serve = {"latencyTargetMilliseconds": 100, "maxReplicas": 1, "cache": {}}
        stuck = a_batch("stuck", accelerator="gpu", deadline=_instant(hours=1))
        return [a_node(), model, a_server("served", serve=serve), stuck]

    def _batches(self) -> list[Raw]:
        row = json.dumps({"x": [0.5] * WIDTH})
        return [
            a_batch("met", input={"data": row}, deadline=_instant(hours=1)),
            a_batch("late", input={"data": row}, deadline=_instant(hours=-1)),
            a_batch("wrong", input={"data": json.dumps({"y": [1]})}),
        ]

    def _long(self) -> Raw:
        given = {"uri": self.node.put_rows("long", LONG_ROWS, WIDTH)}
        return a_batch("long", input=given, output={"uri": f"pvc://{CLAIM}/out/long"}, deadline=_instant(hours=1))

    async def _one_more(self, number: int) -> None:
        name, rows = f"batch-{number}", 500 * (1 + number % 4)
        given = {"uri": self.node.put_rows(name, rows, WIDTH)}
        self._create(a_batch(name, input=given, output={"uri": f"pvc://{CLAIM}/out/{name}"}, deadline=_instant(hours=1)))
        await self._until(name, succeeded)

    def _create(self, *objects: Raw) -> None:
        for obj in objects:
            self.server.create(obj)

    async def _fates(self) -> None:
        for name in ("met", "late"):
            await self._until(name, succeeded)
        await self._until("wrong", lambda job: condition(job, "Stalled"))
        await self._until("stuck", lambda job: condition(job, "Placed"))

    async def _until(self, job: str, says: Callable[[Raw], Any]) -> None:
        await until(lambda: says(self.server.get("inferencejobs", job)), f"the fate of {job}")

    async def _call(self) -> None:
        """Call the service for ever, half of it for what was asked before."""
        (worker,) = (worker for worker in self.node.workers if "served" in worker.pod)
        for number in range(10**9):
            data = [float(number // 2)] * WIDTH
            body = {"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": data}]}
            async with self.session.post(f"http://{worker.address}:8000/v2/models/digits/infer", json=body) as answer:
                assert answer.status == 200, await answer.text()

    async def _shows(self, *exprs: str) -> None:
        async with asyncio.timeout(60):
            for expr in exprs:
                while not await self.monitor.has(self.session, expr):
                    await asyncio.sleep(0.1)

    async def _text(self, address: str) -> str:
        async with self.session.get(f"http://{address}/metrics") as answer:
            return await answer.text()


async def scraped(nursery: Nursery, folder: Path, more: int = 0) -> Scraped:
    """Play the scene with everything real, and end it."""
    server, ward, monitor = ApiServer(), Ward(nursery, folder), prometheus.start(folder / "prometheus")
    await server.start()
    node = WarmNode(server, folder / "node", runs_jobs=True)
    try:
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=PATIENCE_SECONDS)) as session:
            return await Scene(server, ward, node, monitor, session).play(more)
    finally:
        monitor.end()
        ward.end()
        await node.end()
        await server.stop()


def _instant(*, hours: int) -> str:
    return (datetime.now(UTC) + timedelta(hours=hours)).strftime("%Y-%m-%dT%H:%M:%SZ")


def _chosen(expr: str) -> str:
    for variable, value in CHOICES.items():
        expr = expr.replace(variable, value)
    assert "$" not in expr, expr
    return expr
