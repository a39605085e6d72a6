"""Callers can't fill an Envoy: what they leave unfinished is ended, the largest first, before its memory is."""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING

import h2.config
import h2.connection
import h2.events

from inference_operator.gateway.snapshot import Service
from tests.component import envoys
from tests.component.doors import Counting, plane

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

MEBI = 1 << 20
LIMIT = 320 * MEBI
STREAMS, EACH = 60, 12 * MEBI
PATH = "/default/v2/models/m/infer"
CGROUP = "envoy.resource_monitors.cgroup_memory"
_TYPE = "type.googleapis.com/envoy.extensions.resource_monitors"


def bounded(real: str) -> str:
    """The chart's file with a bound on the heap in place of that on the container, which has none here."""
    ours = f'"@type": {_TYPE}.cgroup_memory.v3.CgroupMemoryConfig'
    assert ours in real
    heap = f'"@type": {_TYPE}.fixed_heap.v3.FixedHeapConfig\n        max_heap_size_bytes: {LIMIT}'
    return real.replace(ours, heap).replace(CGROUP, "envoy.resource_monitors.fixed_heap")


async def test_requests_that_are_never_whole_are_ended_before_an_envoys_memory_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = envoys.bootstrap
    monkeypatch.setattr(envoys, "bootstrap", lambda *ports: bounded(real(*ports)))
    workers = Counting()
    backend = await workers.start("worker", 1)
    try:
        async with plane(tmp_path, Service("default", "m", "1", True, (backend,))) as door:
            await door.until(PATH, "worker", {})
            ended = await asyncio.wait_for(flood(door.port), 180)
            assert ended > STREAMS / 4
            await door.until(PATH, "worker", {})
    finally:
        await workers.end()


async def flood(port: int) -> int:
    """Send large requests that don't end, and return how many of them were ended."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    link = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
    link.initiate_connection()
    ended: set[int] = set()

    async def pump(seconds: float) -> None:
        writer.write(link.data_to_send())
        await writer.drain()
        try:
            heard = link.receive_data(await asyncio.wait_for(reader.read(MEBI), seconds))
        except TimeoutError:
            return
        ended.update(event.stream_id for event in heard if isinstance(event, h2.events.StreamReset))

    await pump(0.5)
    head = [(":method", "POST"), (":scheme", "http"), (":authority", "x"), ("content-type", "application/grpc"), ("te", "trailers")]
    for _ in range(STREAMS):
        stream, left = link.get_next_available_stream_id(), EACH
        link.send_headers(stream, [*head[:3], (":path", "/inference.GRPCInferenceService/ModelInfer"), *head[3:]])
        link.send_data(stream, b"\0" + struct.pack(">I", 2 * EACH) + b"\x0a\x01m")
        while left > 0 and stream not in ended:
            room = min(link.local_flow_control_window(stream), link.max_outbound_frame_size, left)
            if room <= 0:
                await pump(1.0)
                continue
            link.send_data(stream, bytes(room))
            left -= room
            if left % MEBI < room:
                await pump(0.001)
    for _ in range(20):
        await pump(0.1)
    writer.close()
    return len(ended)
