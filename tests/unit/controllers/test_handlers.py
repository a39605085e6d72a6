"""kopf's settings."""

from itertools import islice

from inference_operator.controllers.handlers import watch_settings


def test_watches_outlive_any_outage_and_are_back_soon_after() -> None:
    """After half a minute without API server the process ended: no standby was warm when it was back."""
    backoffs = watch_settings().networking.error_backoffs
    assert not isinstance(backoffs, float)

    assert set(islice(backoffs, 10, 1000)) == {4.0}
