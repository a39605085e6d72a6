"""kopf's settings."""

from itertools import islice

from inference_operator.controllers.handlers import watch_settings


def test_watches_outlive_any_outage_and_are_back_soon_after() -> None:
    """After half a minute without API server the process ended: no standby was warm when it was back."""
    backoffs = watch_settings().networking.error_backoffs
    assert not isinstance(backoffs, float)

    assert set(islice(backoffs, 10, 1000)) == {4.0}


def test_a_watch_is_silent_for_little_longer_than_an_api_server_that_lives() -> None:
    bookmarks_seconds = 60.0

    assert bookmarks_seconds < watch_settings().watching.inactivity_timeout <= 1.5 * bookmarks_seconds
