"""What a model's batcher counts of its requests."""

from __future__ import annotations

from dataclasses import asdict

from inference_worker.batching.ticket import Counts


def test_nothing_is_counted_before_the_first_request() -> None:
    counts = asdict(Counts())

    assert counts.pop("by_rows") == {} and not Counts().tenants.usage
    assert counts.pop("tenants") and set(counts.values()) == {0}
