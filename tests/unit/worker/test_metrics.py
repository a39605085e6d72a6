"""What is counted of many requests at once is what is counted of one after another."""

from __future__ import annotations

from bisect import bisect_left

from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.sketch import LatencySketch
from inference_worker.batching.ticket import Timing
from inference_worker.metrics import BUCKETS_ROWS, BUCKETS_SECONDS, Distribution, ModelMetrics

SECONDS = st.floats(1e-7, 4000.0)
ASKED = st.lists(st.tuples(SECONDS, SECONDS, SECONDS, st.integers(1, 2000)), max_size=60)


def counted(bounds: tuple[float, ...], values: list[float]) -> list[int]:
    counts = [0] * (len(bounds) + 1)
    for value in values:
        counts[bisect_left(bounds, value)] += 1
    return counts


@given(ASKED, ASKED)
def test_folding_counts_each_request_once(
    first: list[tuple[float, float, float, int]], then: list[tuple[float, float, float, int]]
) -> None:
    metrics = ModelMetrics(("ns", "job", "net", "1"), ready=lambda: True)
    expected = LatencySketch()
    for asked in (first, then):
        for seconds, queue, compute, rows in asked:
            metrics.ran(Timing(queue, compute, rows), seconds)
            expected.record(seconds)
        assert metrics.sketch.counts == expected.counts and metrics.sketch.total == expected.total
    both = [*first, *then]
    told: list[tuple[Distribution, tuple[float, ...], list[float]]] = [
        (metrics.latency, BUCKETS_SECONDS, [seconds for seconds, *_ in both]),
        (metrics.queue, BUCKETS_SECONDS, [queue for _, queue, _, _ in both]),
        (metrics.compute, BUCKETS_SECONDS, [compute for _, _, compute, _ in both]),
        (metrics.rows, BUCKETS_ROWS, [float(rows) for *_, rows in both]),
    ]
    for distribution, bounds, values in told:
        assert distribution.counts == counted(bounds, values)


def test_latencies_have_the_buckets_of_opentelemetry_and_finer_ones_below() -> None:
    """open-telemetry/semantic-conventions, docs/http/http-metrics.md: what dashboards for other servers are made for."""
    usual = {0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10}

    assert usual <= set(BUCKETS_SECONDS) and list(BUCKETS_SECONDS) == sorted(set(BUCKETS_SECONDS))
    assert len([bound for bound in BUCKETS_SECONDS if bound < 0.005]) == 4
