"""Types of the API that nobody can change, and instants as Kubernetes spells them."""

from dataclasses import FrozenInstanceError
from datetime import UTC, datetime, timedelta, timezone

import pytest

from inference_operator.api.schema import api_type, rfc3339

WEST = timezone(timedelta(hours=-5))


@pytest.mark.parametrize(
    ("instant", "said"),
    [
        (datetime(2026, 4, 2, 12, 0, 0, 999_999, UTC), "2026-04-02T12:00:00Z"),
        (datetime(2026, 4, 2, 7, tzinfo=WEST), "2026-04-02T12:00:00Z"),
        (datetime(1, 1, 1, tzinfo=UTC), "0001-01-01T00:00:00Z"),
        # It has no UTC.
        (datetime.max.replace(tzinfo=WEST), "9999-12-31T23:59:59-05:00"),
    ],
    ids=["whole seconds", "another zone", "the first year", "the last hours"],
)
def test_an_instant_is_told_in_utc_and_whole_seconds(instant: datetime, said: str) -> None:
    assert rfc3339(instant) == said


def test_what_a_user_has_written_can_not_change_under_a_decision() -> None:
    @api_type()
    class Spec:
        name: str = ""

    with pytest.raises(FrozenInstanceError):
        Spec().name = "another"  # type: ignore[misc]
