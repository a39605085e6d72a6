"""Arithmetic on instants that users choose, which ends at the calendar's ends instead of raising there; and on pauses."""

from datetime import UTC, datetime, timedelta

EARLIEST = datetime.min.replace(tzinfo=UTC)
LATEST = datetime.max.replace(tzinfo=UTC)


def shift(instant: datetime, seconds: float) -> datetime:
    """The instant so many seconds later (or earlier), or the end of the calendar that lies before it."""
    try:
        return instant + timedelta(seconds=seconds)
    except OverflowError:
        return LATEST if seconds > 0 else EARLIEST


def whole_second(instant: datetime) -> datetime:
    """The next whole second, as the API keeps them: a deadline that is rounded down might be one that can't be met."""
    return shift(instant, 1 - instant.microsecond / 1e6) if instant.microsecond else instant


def doubled(first: float, times: int, limit: float) -> float:
    """Return the pause after so many failures in a row, at least one: `first`, doubled with each other one, up to the limit."""
    return min(first * 2.0 ** min(times - 1, 30), limit)
