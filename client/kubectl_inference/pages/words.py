"""Numbers as people read them."""

from datetime import UTC, datetime
from math import floor, log10

_UNITS = (("y", 31_536_000), ("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))
# Below how many seconds: in which unit, and what of the next smaller one. The older it is, the less kubectl tells.
_AGES = (
    (120, 1, "s", 0, ""),
    (600, 60, "m", 1, "s"),
    (10_800, 60, "m", 0, ""),
    (28_800, 3_600, "h", 60, "m"),
    (172_800, 3_600, "h", 0, ""),
    (691_200, 86_400, "d", 3_600, "h"),
    (63_072_000, 86_400, "d", 0, ""),
    (252_288_000, 31_536_000, "y", 86_400, "d"),
)


def duration(seconds: float) -> str:
    """How long, in the two largest units: `3 d 4 h`, `5 min 10 s`."""
    left, parts = round(abs(seconds)), list[str]()
    for unit, size in _UNITS:
        if left >= size and len(parts) < 2:
            parts.append(f"{left // size} {unit}")
            left %= size
        elif parts:
            # `3 d 4 s` would say that the hours were looked at.
            break
    return " ".join(parts) or "0 s"


def age(since: datetime | None, now: datetime) -> str:
    """How old, as kubectl writes it (k8s.io/apimachinery/pkg/util/duration); `<unknown>` where nothing tells."""
    if since is None:
        return "<unknown>"
    seconds = max(0, int((now - since).total_seconds()))
    for below, size, unit, lower, smaller in _AGES:
        if seconds < below:
            rest = seconds % size // lower if lower else 0
            return f"{seconds // size}{unit}" + (f"{rest}{smaller}" if rest else "")
    return f"{seconds // 31_536_000}y"


def when(instant: datetime, now: datetime) -> str:
    """An instant by its distance: `in 5 min`, `5 min ago`, `now`."""
    seconds = (instant - now).total_seconds()
    if abs(seconds) < 0.5:
        return "now"
    return f"in {duration(seconds)}" if seconds > 0 else f"{duration(seconds)} ago"


def instant(at: datetime) -> str:
    """An instant as the API writes it, in UTC; in its own zone where UTC has no year for it."""
    try:
        return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    except OverflowError:
        return at.isoformat()


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
