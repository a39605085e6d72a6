"""Numbers as people read them."""

from datetime import datetime
from math import floor, log10

_UNITS = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
_KUBECTL_UNITS = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("m", 60), ("s", 1))


def duration(seconds: float) -> str:
    """How long, in the two largest units: `3 d 4 h`, `5 min 10 s`."""
    return _in_units(seconds, _UNITS, " ", " ") or "0 s"


def age(since: datetime | None, now: datetime) -> str:
    """How old, as kubectl writes it: `3d4h`, `5m10s`; `<unknown>` where nothing tells."""
    if since is None:
        return "<unknown>"
    return _in_units(max(0.0, (now - since).total_seconds()), _KUBECTL_UNITS, "", "") or "0s"


def _in_units(seconds: float, units: tuple[tuple[str, int], ...], before: str, between: str) -> str:
    left, parts = round(abs(seconds)), list[str]()
    for unit, size in units:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size}{before}{unit}")
            left %= size
        elif parts:
            # `3 d 4 s` would say that the hours were looked at.
            break
    return between.join(parts)


def when(instant: datetime, now: datetime) -> str:
    """An instant by its distance: `in 5 min`, `5 min ago`, `now`."""
    seconds = (instant - now).total_seconds()
    if abs(seconds) < 0.5:
        return "now"
    return f"in {duration(seconds)}" if seconds > 0 else f"{duration(seconds)} ago"


def instant(at: datetime) -> str:
    """An instant as the API writes it."""
    return at.strftime("%Y-%m-%dT%H:%M:%SZ")


def number(value: float) -> str:
    """Three significant digits, never in powers of ten."""
    if value == 0:
        return "0"
    digits = max(0, 2 - floor(log10(abs(value))))
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def count(number_: int, noun: str) -> str:
    """`1 pod`, `2 pods`."""
    return f"{number_} {noun}" if number_ == 1 else f"{number_} {noun}s"
