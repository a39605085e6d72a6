"""Our routes, and the endpoint picker, behind Envoy Gateway's standalone mode (`make test-others`; ten minutes to build it once)."""

from __future__ import annotations

import asyncio
import os
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from inference_operator.api.gateway import ServeGateway
from inference_operator.gateway.gatewayapi.objects import Owner
from inference_operator.gateway.gatewayapi.routes import Doors, routes
from inference_operator.gateway.snapshot import Service
from inference_operator.state.objects import Key
from inference_protocol.messages import HTTP_PORT
from tests.component import envoy_gateway
from tests.component.doors import Counting
from tests.component.pools import Pool, two_workers

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.envoy_gateway import Standalone
    from tests.component.operators import Ward

pytestmark = pytest.mark.skipif(os.environ.get("INFERENCE_OTHERS") != "all", reason="make test-others")

PARENT = {"group": "gateway.networking.k8s.io", "kind": "Gateway", "namespace": "infra", "name": "public"}


@pytest.fixture
async def pool(server: ApiServer, ward: Ward, tmp_path: Path) -> AsyncIterator[Pool]:
    async with two_workers(server, ward, tmp_path) as made:
        yield made


@asynccontextmanager
async def standalone(folder: Path, objects: list[dict[str, Any]], ready: str) -> AsyncIterator[Standalone]:
    """One that answers a path."""
    made = envoy_gateway.start(folder, objects)
    try:
        async with aiohttp.ClientSession() as session, asyncio.timeout(60):
            while True:
                assert made.process.poll() is None, made.log[-3000:]
                try:
                    async with session.get(f"http://127.0.0.1:{made.port}{ready}") as answer:
                        if answer.status == 200:
                            break
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.1)
        yield made
    except TimeoutError as error:
        error.add_note(made.log[-6000:])
        raise
    finally:
        made.end()


async def test_our_routes_split_between_versions_there(tmp_path: Path) -> None:
    workers = Counting()
    stable = Service("team", "m", "1", True, (await workers.start("stable", 1),), jobs=(Key("team", "stable"),))
    other = await workers.start("canary", 2)
    canary = Service("team", "m", "2", False, (other,), ServeGateway(traffic_percent=10), jobs=(Key("team", "canary"),))
    owners = {service.jobs[0]: Owner(f"uid-{service.version}", 1) for service in (stable, canary)}
    made = routes((stable, canary), owners, Doors((PARENT,), (PARENT,)))
    http = [envoy_gateway.standing_in(one.manifest) for one in made if one.kind == "HTTPRoute"]
    backends = [
        envoy_gateway.backend("team", service.jobs[0].name, [(service.backends[0].address, HTTP_PORT)])
        for service in (stable, canary)
    ]
    async with standalone(tmp_path, [*backends, *http], "/team/v2/models/m/ready") as gateway, aiohttp.ClientSession() as session:
        workers.asked.clear()
        for _ in range(1000):
            async with session.post(f"http://127.0.0.1:{gateway.port}/team/v2/models/m/infer", data=b"{}") as answer:
                assert answer.status == 200
        share = workers.asked["canary"]
        async with session.get(f"http://127.0.0.1:{gateway.port}/team/v2/models/m/versions/2/ready") as answer:
            assert await answer.text() == "canary"
        async with session.get(f"http://127.0.0.1:{gateway.port}/v2/models/m", headers={"inference-namespace": "team"}) as answer:
            assert answer.status == 200
        async with session.get(f"http://127.0.0.1:{gateway.port}/metrics") as answer:
            assert answer.status == 404
    await workers.end()
    assert 50 < share < 150


async def test_the_picker_is_asked_and_followed_there(pool: Pool, tmp_path: Path) -> None:
    busy, idle = pool.node.workers
    route = {
        "apiVersion": "gateway.networking.k8s.io/v1",
        "kind": "HTTPRoute",
        "metadata": {"name": "digits", "namespace": "default"},
        "spec": {
            "parentRefs": [PARENT],
            "rules": [
                {
                    "matches": [{"path": {"type": "PathPrefix", "value": "/default/v2/models/digits"}}],
                    "filters": [
                        {
                            "type": "URLRewrite",
                            "urlRewrite": {"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/v2/models/digits"}},
                        }
                    ],
                    "backendRefs": [{"group": "gateway.envoyproxy.io", "kind": "Backend", "name": "workers"}],
                }
            ],
        },
    }
    objects = [
        route,
        envoy_gateway.backend("default", "workers", [(address, HTTP_PORT) for address in pool.addresses]),
        envoy_gateway.backend("default", "picker", [("127.0.0.1", pool.picker)], h2c=True),
        *envoy_gateway.policies("default", "digits", "picker"),
    ]
    async with standalone(tmp_path / "standalone", objects, "/default/v2/models/digits/ready") as gateway:
        url = f"127.0.0.1:{gateway.port}"
        async with pool.loaded(busy):
            await pool.prefers(url, idle)
            before = await pool.served(idle)
            for _ in range(20):
                assert (await pool.infer(url))[0] == 200
        assert await pool.served(idle) == before + 20
        pool.operator.kill()
        assert (await pool.infer(url))[0] >= 500
