"""One trace a request, from its caller through a real Envoy to a real worker's run. The collector is a stand-in: `make test-traces`
asks a real Jaeger."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING

import pytest

from tests.collectors import receiver
from tests.component.envoys import ROOT
from tests.component.operators import until
from tests.component.traced import ENVOY, WIDTH, WORKER, check, stage, whole
from tests.loopback import free_ports

if TYPE_CHECKING:
    from pathlib import Path

ROWS = {"inputs": [{"name": "x", "shape": [1, WIDTH], "datatype": "FP32", "data": [0.5] * WIDTH}]}


@pytest.mark.parametrize("frontends", [0, 1])
async def test_each_sampled_request_is_one_trace_and_others_are_none(tmp_path: Path, frontends: int) -> None:
    with receiver() as received:
        async with stage(tmp_path, received.url, frontends=frontends) as found:
            await found.ask(20, sampled=False)
            asked = await found.ask(40, sampled=True)
            await until(lambda: all(whole(received.of(one.trace)) for one in asked), "all spans")
            for one in asked:
                check(received.of(one.trace), one)
            assert {span.trace for span in received.spans} == {one.trace for one in asked}


async def test_a_caller_without_a_trace_gets_one_that_begins_at_the_door(tmp_path: Path) -> None:
    with receiver() as received:

        def inferences() -> list[str]:
            return [span.trace for span in received.spans if span.name == "inference"]

        async with stage(tmp_path, received.url, percent=100) as found:
            url = f"http://{found.door}/default/v2/models/net/infer"
            # What names no trace is handed on as it is, and no reason to trace or to refuse.
            for headers in ({}, {"traceparent": "garbage"}):
                async with found.plane.session.post(url, json=ROWS, headers=headers) as answer:
                    assert answer.status == 200
            await until(lambda: inferences() and whole(received.of(inferences()[0])), "a whole trace")

    (trace,) = inferences()
    spans = received.of(trace)
    (first,) = (span for span in spans if not span.parent)
    assert first.service == ENVOY and {span.service for span in spans} == {ENVOY, WORKER}


async def test_requests_are_answered_and_the_worker_ends_in_time_while_no_collector_is_there(tmp_path: Path) -> None:
    (nobody,) = free_ports(1)
    async with stage(tmp_path, f"http://127.0.0.1:{nobody}") as found:
        await found.ask(1000, sampled=True)
        async with found.plane.session.get(f"http://127.0.0.1:{found.plane.envoy.admin}/stats?filter=opentelemetry") as answer:
            told = await answer.text()
        found.worker.stop()
        assert found.worker.ended().code == 0
    assert "tracing.opentelemetry.spans_sent" in told


async def test_requests_are_answered_while_a_collector_takes_spans_and_never_answers(tmp_path: Path) -> None:
    taken: list[asyncio.StreamWriter] = []
    server = await asyncio.start_server(lambda _, writer: taken.append(writer), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with stage(tmp_path, f"http://127.0.0.1:{port}") as found:
        await found.ask(3000, sampled=True)
        url = f"http://127.0.0.1:{found.plane.envoy.admin}/stats?filter=cluster.collector.upstream_cx_active"
        async with found.plane.session.get(url) as answer:
            connections = int((await answer.text()).split(":")[1])
        found.worker.stop()
        assert found.worker.ended().code == 0
    server.close()
    assert taken and connections <= 4


async def test_an_envoy_shows_the_series_that_the_page_names_and_nothing_else_of_its_administration(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "tasks" / "traces.md").read_text()
    named = set(re.findall(r"`(envoy_[a-z0-9_]+)`", page)) - {"envoy_cluster_name", "envoy_http_conn_manager_prefix"}
    with receiver() as received:
        async with stage(tmp_path, received.url) as found:
            await found.ask(4, sampled=True)
            session, url = found.plane.session, f"http://127.0.0.1:{found.plane.envoy.metrics}"
            async with session.get(f"{url}/metrics") as answer:
                text = await answer.text()
            for path in ("/", "/stats", "/config_dump", "/certs", "/metrics/../config_dump", "/metrics/", "/metricsx"):
                async with session.get(url + path) as answer:
                    assert answer.status == 404, path
            for path in ("/metrics", "/quitquitquit"):
                async with session.post(url + path) as answer:
                    assert answer.status == 404, path

    (kept,) = re.findall(r"regex: (envoy_.*)", page)
    assert all(re.fullmatch(kept, name) for name in named)
    shown = {re.split(r"[{ ]", line, maxsplit=1)[0] for line in text.splitlines() if not line.startswith("#")}
    assert len(named) > 15 and named <= shown, named - shown
    assert 'envoy_cluster_name="http_default/net@1"' in text and 'envoy_http_conn_manager_prefix="door"' in text
