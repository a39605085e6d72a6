"""What the benchmark of a new user's way is held to."""

from __future__ import annotations

from bench.new_user.run import _targets

SECONDS = {"sign": 5.0, "bucket": 30.0, "registry": 20.0, "hub": 301.0}


def test_each_way_has_a_bound_and_no_answer_may_be_wrong() -> None:
    found = {target.id: target.holds for target in _targets([{"seconds": SECONDS, "wrong": 1}])}

    assert found == {"bucket": True, "registry": True, "hub": False, "right": False}
