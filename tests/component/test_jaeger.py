"""Traces in a real Jaeger, from callers of both protocols through a real Envoy to a real worker's runs: `make test-traces`."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING

import pytest

from tests.component.jaegers import jaeger
from tests.component.operators import until
from tests.component.traced import ENVOY, WORKER, check, stage, whole

if TYPE_CHECKING:
    from pathlib import Path

    from tests.component.jaegers import Jaeger
    from tests.component.traced import Asked

pytestmark = pytest.mark.skipif(
    os.environ.get("INFERENCE_TRACES") != "all", reason="INFERENCE_TRACES=all builds Jaeger (ten minutes, once)"
)
REQUESTS = 500


async def arrived(kept: Jaeger, asked: list[Asked]) -> None:
    """Wait until Jaeger has all spans of all requests."""
    missing = list(asked)

    def nothing_missing() -> bool:
        missing[:] = [one for one in missing if not whole(kept.of(one.trace))]
        return not missing

    await until(nothing_missing, "all spans")


@pytest.mark.parametrize("frontends", [0, 1])
async def test_jaeger_has_one_whole_trace_of_each_sampled_request_and_none_of_others(tmp_path: Path, frontends: int) -> None:
    with jaeger(tmp_path) as kept:
        async with stage(tmp_path, kept.url, frontends=frontends) as found:
            asked: list[Asked] = []
            for start in range(0, REQUESTS, 100):
                await found.ask(100, sampled=False, start=start)
                asked += await found.ask(100, sampled=True, start=start)
            await arrived(kept, asked)
        wanted = {one.trace: 5 for one in asked}
        for service in (ENVOY, WORKER):
            assert kept.traces(service, limit=10 * REQUESTS) == wanted
        for one in asked:
            check(kept.of(one.trace), one)


async def test_jaeger_leads_from_each_member_of_a_run_to_the_others(tmp_path: Path) -> None:
    with jaeger(tmp_path) as kept:
        async with stage(tmp_path, kept.url, steps=2000) as found:
            asked = await found.ask(300, sampled=True, callers=32)
            await arrived(kept, asked)
        spans = {one.trace: {span.name: span for span in kept.of(one.trace)} for one in asked}
        of_request = {named["inference"].id: trace for trace, named in spans.items()}
        shared = {trace: n["run"] for trace, n in spans.items() if int(n["run"].attributes["inference.batch.requests"]) > 1}
        assert shared
        for trace, run in shared.items():
            # Whom it links to is another request, which ran with as many, and links back.
            for theirs, linked in run.links:
                assert of_request[linked] == theirs != trace
                back = [other for other, _ in shared[theirs].links]
                assert trace in back and shared[theirs].attributes == run.attributes
            assert len(run.links) in (1, int(run.attributes["inference.batch.requests"]) - 1)


async def test_jaeger_learns_of_untraced_callers_as_many_as_the_setting_says(tmp_path: Path) -> None:
    with jaeger(tmp_path) as kept:
        async with stage(tmp_path, kept.url, percent=50) as found:
            for _ in range(400):
                async with found.plane.session.get(f"http://{found.door}/default/v2/models/net") as answer:
                    assert answer.status == 200
            await asyncio.sleep(7)
        # 6 standard deviations of a fair draw.
        assert 140 <= len(kept.traces(ENVOY, limit=1000)) <= 260
