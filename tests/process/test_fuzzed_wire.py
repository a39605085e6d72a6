"""A sample of `make fuzz-wire`: thousands of requests that are nearly right, each answered or ended, and right ones answered right."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz.wire.targets import TARGETS

REQUESTS = 1_000


@pytest.mark.parametrize("target", ["http1", "http2-frontends", "repository", "operator"])
def test_requests_that_are_nearly_right_are_answered_or_end_their_connection(tmp_path: Path, target: str) -> None:
    found = TARGETS[target](folder=tmp_path, requests=REQUESTS, seed=1, callers=2)

    assert found.requests >= REQUESTS and found.right > 10
    assert found.outcomes.get("500", 0) == found.outcomes.get("grpc 13", 0) == 0, found
