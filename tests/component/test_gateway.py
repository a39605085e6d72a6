"""The door with a real Envoy, told by real operators, in front of real workers: whom requests reach, and what no end may lose."""

from __future__ import annotations

import asyncio
import contextlib
import signal
from dataclasses import dataclass, field
from itertools import product
from typing import TYPE_CHECKING, Any

import aiohttp
import numpy as np
import pytest
import tritonclient.grpc.aio as over_grpc
import tritonclient.http.aio as over_http
from tritonclient.utils import InferenceServerException

from tests.component import envoys
from tests.component.objects import a_pod
from tests.component.operators import PATIENCE_SECONDS, Ward, until
from tests.component.warm_node import WarmNode, all_ready, served_by_two
from tests.loopback import free_ports
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from tests.component.api_server import ApiServer
    from tests.component.envoys import Envoy
    from tests.component.operators import Operator

MODEL = models.slow(width=8, steps=2)
ROWS = np.full((1, 8), 0.5, np.float32)


@dataclass
class Door:
    """What a test has: callers go to `envoy`."""

    server: ApiServer
    node: WarmNode
    operator: Operator
    envoy: Envoy
    settings: dict[str, Any]

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.envoy.door}"

    async def http(self, path: str, **options: Any) -> tuple[int, Any]:
        """Status and JSON of an answer."""
        async with aiohttp.ClientSession() as session, session.get(f"http://{self.url}{path}", **options) as answer:
            return answer.status, await answer.json(content_type=None)

    async def leads(self) -> None:
        """Wait until the door leads to the model."""
        loop = asyncio.get_running_loop()
        give_up = loop.time() + PATIENCE_SECONDS
        while True:
            try:
                if (await self.http("/default/v2/models/digits/ready"))[0] == 200:
                    return
            except (aiohttp.ClientError, ValueError):
                pass
            if loop.time() > give_up:
                raise TimeoutError(f"{self.envoy.log[-2000:]} {self.operator.log[-2000:]}")
            await asyncio.sleep(0.05)


@pytest.fixture
async def door(server: ApiServer, ward: Ward, tmp_path: Path) -> AsyncIterator[Door]:
    # A worker that is told to go stays as long as users see it stay: that is the time which the door has to hear of it.
    node = served_by_two(server, tmp_path, MODEL)
    control, listener = free_ports(2)
    settings = {"telemetrySeconds": 0.1, "gateway": {"enabled": True, "port": control, "listenerPort": listener}}
    operator = await ward.lead(server, settings=settings)
    await all_ready(node, 2)
    envoy = envoys.start(tmp_path, control=control, door=listener)
    made = Door(server, node, operator, envoy, settings)
    try:
        await made.leads()
        yield made
    finally:
        envoy.end()
        await node.end()


def http_input() -> list[Any]:
    given = over_http.InferInput("x", ROWS.shape, "FP32")
    given.set_data_from_numpy(ROWS)
    return [given]


def grpc_input() -> list[Any]:
    given = over_grpc.InferInput("x", ROWS.shape, "FP32")
    given.set_data_from_numpy(ROWS)
    return [given]


async def test_unchanged_clients_reach_a_model_by_path_host_authority_and_metadata(door: Door) -> None:
    async with over_http.InferenceServerClient(f"{door.url}/default") as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert await client.is_model_ready("digits") and await client.is_model_ready("digits", "1")
        assert (await client.infer("digits", http_input())).as_numpy("y").shape == (1, 8)
        assert (await client.infer("digits", http_input(), model_version="1")).as_numpy("y").shape == (1, 8)
    assert (await door.http("/v2/models/digits/ready", headers={"Host": "default.gateway.example.com"}))[0] == 200

    async with over_grpc.InferenceServerClient(door.url) as client:
        headers = {"inference-namespace": "default"}
        assert (await client.infer("digits", grpc_input(), headers=headers)).as_numpy("y").shape == (1, 8)
        assert (await client.infer("digits", grpc_input(), model_version="1", headers=headers)).as_numpy("y").shape == (1, 8)
        assert await client.is_model_ready("digits", headers=headers)
        assert (await client.get_model_metadata("digits", headers=headers)).name == "digits"
    authority = [("grpc.default_authority", "default.gateway.example.com")]
    async with over_grpc.InferenceServerClient(door.url, channel_args=authority) as client:
        assert (await client.infer("digits", grpc_input())).as_numpy("y").shape == (1, 8)


async def test_what_is_not_served_is_told_in_the_protocols_words(door: Door) -> None:
    for path in ("/default/v2/models/absent/infer", "/other/v2/models/digits/infer", "/default/v2/models/digits/versions/9/infer"):
        status, answer = await door.http(path)
        assert status == 404 and "no model is served as http:" in answer["error"], answer
    forged = {"inference-route": "http:default/digits"}
    assert (await door.http("/other/v2/models/digits/ready", headers=forged))[0] == 404

    async with over_grpc.InferenceServerClient(door.url) as client:
        for name, namespace in (("absent", "default"), ("digits", "other")):
            with pytest.raises(InferenceServerException) as caught:
                await client.infer(name, grpc_input(), headers={"inference-namespace": namespace})
            assert caught.value.status() == "StatusCode.NOT_FOUND" and name in caught.value.message()
        # Naming the model in the metadata leads no further: the worker would take the call.
        for headers in ({}, {"inference-namespace": "default", "inference-model": "digits"}):
            for call in (client.unload_model, client.load_model):
                with pytest.raises(InferenceServerException) as caught:
                    await call("digits", headers=headers)
                assert caught.value.status() == "StatusCode.UNIMPLEMENTED"
        assert await client.is_model_ready("digits", headers={"inference-namespace": "default", "inference-model": "digits"})


async def test_server_and_index_calls_answer_for_all_models_of_a_namespace_with_the_operator_away(door: Door) -> None:
    door.operator.send(signal.SIGSTOP)
    index = [{"name": "digits", "version": "1", "state": "READY", "reason": ""}]
    async with over_http.InferenceServerClient(f"{door.url}/default") as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert (await client.get_server_metadata())["name"] == "inference-gateway"
        assert await client.get_model_repository_index() == index
    async with over_http.InferenceServerClient(f"{door.url}/other") as client:
        assert await client.get_model_repository_index() == []

    async with over_grpc.InferenceServerClient(door.url) as client:
        assert await client.is_server_live() and await client.is_server_ready()
        assert (await client.get_server_metadata()).name == "inference-gateway"
        found = await client.get_model_repository_index(headers={"inference-namespace": "default"}, as_json=True)
        assert found["models"] == [{"name": "digits", "version": "1", "state": "READY"}]
        assert await client.get_model_repository_index(headers={"inference-namespace": "other"}, as_json=True) == {}
        with pytest.raises(InferenceServerException) as caught:
            await client.get_model_repository_index()
        assert caught.value.status() == "StatusCode.NOT_FOUND"


async def test_nothing_of_a_worker_but_its_models_is_reached(door: Door) -> None:
    paths = (
        *("/telemetry", "/metrics", "/tasks", "/default/telemetry", "/v2/repository/models/digits/unload"),
        *("/default/v2/models/digits/../../../metrics", "/default/v2/models/..%2F../metrics"),
        *("/default/v2/models/digits/%2E%2E/%2E%2E/%2E%2E/metrics", "/default/v2/models/digits/..%5C..%5C..%5Cmetrics"),
    )
    for path, host in product(paths, ("127.0.0.1", "default.gateway.example.com")):
        # As it stands: clients put paths in order before they send them.
        reader, writer = await asyncio.open_connection("127.0.0.1", door.envoy.door)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        assert answer.split()[1] in (b"400", b"404"), (path, answer)


async def test_a_request_as_large_as_a_worker_takes_passes_whole(door: Door) -> None:
    rows = np.full((200_000, 8), 0.5, np.float32)
    given = [over_grpc.InferInput("x", rows.shape, "FP32")]
    given[0].set_data_from_numpy(rows)
    async with over_grpc.InferenceServerClient(door.url) as client:
        answer = await client.infer("digits", given, headers={"inference-namespace": "default"})
    assert answer.as_numpy("y").shape == rows.shape


@dataclass
class Callers:
    """Callers without a pause, over both protocols, and what became of their requests."""

    door: Door
    answered: int = 0
    lost: list[str] = field(default_factory=list)
    stop: bool = False

    async def during(self, act: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Call while `act` happens."""
        tasks = [asyncio.create_task(call()) for call in (self._http, self._http, self._grpc, self._grpc)]
        try:
            await self.more(100)
            await act()
            await self.more(100)
        finally:
            self.stop = True
            await asyncio.gather(*tasks)

    async def more(self, count: int) -> None:
        """Wait until so many more were answered."""
        wanted = self.answered + count
        await until(lambda: self.answered >= wanted or self.lost, "answers")

    async def _http(self) -> None:
        async with over_http.InferenceServerClient(f"{self.door.url}/default") as client:
            while not self.stop:
                await self._once(client.infer("digits", http_input()))

    async def _grpc(self) -> None:
        async with over_grpc.InferenceServerClient(self.door.url) as client:
            while not self.stop:
                await self._once(client.infer("digits", grpc_input(), headers={"inference-namespace": "default"}))

    async def _once(self, call: Coroutine[Any, Any, Any]) -> None:
        try:
            await call
            self.answered += 1
        except InferenceServerException as error:
            self.lost.append(f"{error.status()} {error.message()}")


async def test_a_worker_that_drains_loses_no_request(door: Door) -> None:
    callers, leaving = Callers(door), door.node.workers[0]

    async def drain() -> None:
        door.server.update("pods", leaving.pod, _deleted, "default")
        await until(lambda: not leaving.running, "the worker's end")

    await callers.during(drain)
    assert not callers.lost, callers.lost[:3]


async def test_envoy_serves_on_when_the_operator_is_killed_and_hears_the_next(door: Door, ward: Ward) -> None:
    callers = Callers(door)

    async def kill() -> None:
        door.operator.kill()
        await callers.more(200)
        following = ward.start(door.server.url, who="second", settings=door.settings)
        await following.says("control plane listens")
        await callers.more(200)

    await callers.during(kill)
    assert not callers.lost, callers.lost[:3]
    assert "refuses" not in "".join(operator.log for operator in ward.operators)


async def test_an_envoy_whose_pod_is_to_go_sends_its_callers_away_with_their_answers(door: Door) -> None:
    door.server.create(a_pod("envoy-1", namespace="operator-system"))
    reader, writer = await asyncio.open_connection("127.0.0.1", door.envoy.door)
    ask = b"GET /default/v2/models/digits/ready HTTP/1.1\r\nHost: door\r\n\r\n"
    writer.write(ask)
    assert b"connection: close" not in (await reader.readuntil(b"\r\n\r\n")).lower()

    door.server.update("pods", "envoy-1", _deleted, "operator-system")

    async def nobody_new() -> None:
        with contextlib.suppress(ConnectionRefusedError):
            while True:
                _, new = await asyncio.open_connection("127.0.0.1", door.envoy.door)
                new.close()
                await asyncio.sleep(0.02)

    await asyncio.wait_for(nobody_new(), PATIENCE_SECONDS)
    writer.write(ask)
    answer = (await reader.readuntil(b"\r\n\r\n")).lower()
    writer.close()
    assert b"http/1.1 200" in answer and b"connection: close" in answer


async def test_a_worker_that_dies_is_left_out_though_no_operator_says_so(door: Door) -> None:
    """What was under way in it is lost; what was not begun is tried on the other."""
    door.operator.send(signal.SIGSTOP)
    lost = door.node.workers[0]
    lost.kill()
    await until(lambda: not lost.running, "the worker's end")
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await connections(door, lost.address):
            await asyncio.sleep(0.02)
    for _ in range(100):
        assert (await door.http("/default/v2/models/digits/ready"))[0] == 200


async def connections(door: Door, address: str) -> int:
    """How many Envoy has to a worker, by its own word."""
    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{door.envoy.admin}/clusters") as answer:
        told = [line.split("::") for line in (await answer.text()).splitlines()]
    found = [
        int(value) for _, host, name, value in (one for one in told if len(one) == 4) if name == "cx_active" and address in host
    ]
    assert found, address
    return sum(found)


def _deleted(obj: Any) -> None:
    obj["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
