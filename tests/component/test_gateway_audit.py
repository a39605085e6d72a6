"""The log of a real Envoy: a line for each request, whatever became of it, and nothing in it that callers could write or must hide."""

from __future__ import annotations

import asyncio
import datetime as dt
import json
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from inference_operator.gateway.snapshot import Service
from inference_operator.tenants import Tenant, Tenants
from tests import loopback
from tests.component.doors import Counting, Plane, plane
from tests.component.operators import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

INFER = "/default/v2/models/m/infer"
KEY, LIMITED = "secret-0123456789abcdef", "secret-fedcba9876543210"
DIGEST = "sha256:" + "a" * 64


@pytest.fixture
async def door(tmp_path: Path) -> AsyncIterator[Plane]:
    workers = Counting()
    backend = replace(await workers.start("worker", 1), digest=DIGEST)
    (tmp_path / "keys").write_text(f"a {KEY}\nb {LIMITED}\n")
    tenants = Tenants(
        enabled=True,
        key_file=str(tmp_path / "keys"),
        list=(Tenant("a", namespaces=("default",)), Tenant("b", requests_per_second=0.001)),
    )
    services = Service("default", "m", "1", True, (backend,)), Service("other", "m", "1", True, (backend,))
    async with plane(tmp_path, *services, tenants=tenants, audit=True) as made:
        await made.until(INFER, "worker", {"x-api-key": KEY})
        yield made
    await workers.end()


async def lines(door: Plane, count: int) -> list[dict[str, Any]]:
    """So many lines, and no more."""
    before = 0

    def settled() -> bool:
        nonlocal before
        now = len(door.envoy.audit)
        same, before = now == before, now
        return same and now >= count

    await until(settled, "lines")
    return [json.loads(line) for line in door.envoy.audit]


async def test_a_line_says_who_what_when_and_how_it_ended(door: Plane) -> None:
    begun, clock = len(await lines(door, 1)), time.time()
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await door.ask(f"{INFER}?token=hidden", {"x-api-key": KEY, "traceparent": trace})
    await door.ask(INFER, {"x-api-key": "wrong", "inference-route": "http:default/m"})
    await door.ask("/other/v2/models/m/infer", {"x-api-key": KEY})
    await door.ask("/default/v2/models/none/infer", {"x-api-key": KEY})
    for _ in range(2):
        await door.ask("/other/v2/models/m/infer", {"x-api-key": LIMITED})
    answered, unknown, forbidden, absent, _, over = (await lines(door, begun + 6))[begun:]

    # Envoy's clock may be a turn of its loop behind.
    assert clock - 1 <= dt.datetime.fromisoformat(answered["time"]).timestamp() <= time.time()
    times = {answered.pop("time"), answered.pop("milliseconds"), answered.pop("requestId")}
    assert len(times) == 3
    assert answered == {
        "tenant": "a",
        "knownBy": "key",
        "identity": None,
        "from": "127.0.0.1",
        "traceparent": trace,
        "namespace": "default",
        "model": "m",
        "version": "1",
        "digest": DIGEST,
        "asked": "http:default/m",
        "worker": f"{loopback.address(1)}:8000",
        "attempts": 1,
        "method": "POST",
        "path": "/v2/models/m/infer",
        "protocol": "HTTP/1.1",
        "status": 200,
        "grpcStatus": None,
        "flags": "-",
        "details": "via_upstream",
        "bytesReceived": 2,
        "bytesSent": 6,
    }
    assert (unknown["status"], unknown["tenant"], unknown["path"], unknown["asked"]) == (401, None, INFER, None)
    assert (forbidden["status"], forbidden["tenant"], forbidden["namespace"], forbidden["worker"]) == (403, "a", "other", None)
    assert (absent["status"], absent["asked"], absent["model"]) == (404, "http:default/none", None)
    assert (over["status"], over["tenant"], over["flags"], over["worker"]) == (429, "b", "RL", None)
    assert not any(secret in line for line in door.envoy.audit for secret in (KEY, LIMITED, "hidden", "wrong"))


async def test_a_grpc_call_has_its_status(door: Plane) -> None:
    begun = len(await lines(door, 1))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{door.port}") as channel:
        call = channel.unary_unary("/inference.GRPCInferenceService/ModelReady")
        for headers in ((), (("x-api-key", KEY), ("inference-namespace", "other"), ("inference-model", "m"))):
            with pytest.raises(grpc.aio.AioRpcError):
                await call(b"", metadata=headers, wait_for_ready=True)
    unknown, forbidden = (await lines(door, begun + 2))[begun:]
    assert (unknown["grpcStatus"], unknown["protocol"], unknown["tenant"]) == (16, "HTTP/2", None)
    assert (forbidden["grpcStatus"], forbidden["asked"], forbidden["tenant"]) == (7, "grpc:other/m", "a")


async def test_what_callers_write_makes_no_line_of_its_own(door: Plane) -> None:
    begun = len(await lines(door, 1))
    hostile = [
        b'","tenant":"b","x":"',
        b"\\",
        b"\\u0022\\n",
        b"%TENANT% %REQ(X-API-KEY)%",
        b"\xff\xfe\xc3\x28",
        "\u2028\u2029\u00e9\x7f".encode(),
        b"\t{}[]<script>",
        b"a" * 5000,
    ]
    for text in hostile:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        head = b"GET /default/v2/models/m/%s HTTP/1.1\r\nHost: door\r\nConnection: close\r\n" % text.replace(b" ", b"").replace(
            b"\t", b""
        )
        writer.write(head + b"x-request-id: %s\r\ntraceparent: %s\r\nx-api-key: %s\r\n\r\n" % (text, text, KEY.encode()))
        await reader.read()
        writer.close()
    found = (await lines(door, begun + len(hostile)))[begun:]
    assert len(found) == len(hostile)
    assert all(line.keys() == found[0].keys() and line["tenant"] in ("a", None) for line in found)
    assert not any(KEY in line for line in door.envoy.audit)
    assert max(map(len, door.envoy.audit)) < 2500


async def test_no_line_is_missing_under_load_also_of_those_who_are_refused(door: Plane) -> None:
    begun = len(await lines(door, 1))
    kinds = [
        (INFER, {"x-api-key": KEY}, 200),
        (INFER, {"x-api-key": "wrong"}, 401),
        ("/other/v2/models/m/infer", {"x-api-key": KEY}, 403),
        ("/default/v2/models/none/infer", {"x-api-key": KEY}, 404),
        ("/metrics", {"x-api-key": KEY}, 404),
    ]

    async def call(number: int) -> None:
        for turn in range(100):
            path, headers, wanted = kinds[(number + turn) % len(kinds)]
            assert (await door.ask(path, headers))[0] == wanted

    await asyncio.gather(*(call(number) for number in range(40)))
    found = (await lines(door, begun + 4000))[begun:]
    assert len(found) == len({line["requestId"] for line in found}) == 4000
    assert Counter(line["status"] for line in found) == {200: 800, 401: 800, 403: 800, 404: 1600}


async def test_without_the_log_envoy_writes_nothing(tmp_path: Path) -> None:
    workers = Counting()
    service = Service("default", "m", "1", True, (await workers.start("worker", 1),))
    async with plane(tmp_path, service) as door:
        await door.until(INFER, "worker")
        door.envoy.process.terminate()
        await asyncio.to_thread(door.envoy.process.wait)
        assert door.envoy.audit == []
    await workers.end()
