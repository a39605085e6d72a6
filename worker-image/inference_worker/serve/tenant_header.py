"""The header, or metadata key, by which a gateway tells whom a request is for: `NAME;weight=3;rows=500;device=0.25;concurrent=8`.

Whoever reaches the worker past the gateway can say anything here, as with priorities. It decides whose turn it is, nothing else.
"""

from collections.abc import Mapping
from functools import lru_cache

from inference_worker.batching.tenants import MOST_WEIGHT, NOBODY, Tenant
from inference_worker.errors import RequestError
from inference_worker.serve.ask import bad

TENANT = "inference-tenant"

_LONGEST = 256
_MOST = 1e9


def tenant_in(headers: Mapping[str, str]) -> Tenant:
    """Whom a request is for, by its headers. Raises RequestError(400)."""
    text = headers.get(TENANT)
    return NOBODY if text is None else tenant_of(text)


@lru_cache(maxsize=256)
def tenant_of(text: str) -> Tenant:
    """The tenant that a header names. Raises RequestError(400)."""
    if len(text) > _LONGEST:
        raise bad(f"{TENANT} has more than {_LONGEST} characters")
    name, *words = (part.strip() for part in text.split(";"))
    if not name or not name.isprintable() or not name.isascii():
        raise bad(f"{TENANT} must begin with a name of visible ASCII characters")
    given = {}
    for word in words:
        key, _, value = word.partition("=")
        if key not in _LIMITS or key in given:
            raise bad(f"{TENANT}: there is no {key[:32]!r}; it has {', '.join(_LIMITS)}, each at most once")
        given[key] = _number(key, value)
    weight, concurrent = given.get("weight", 1.0), given.get("concurrent")
    most = None if concurrent is None else int(concurrent)
    return Tenant(name, int(weight), given.get("rows"), given.get("device"), most, int(given.get("priority", 100.0)))


# The least and the most of each, and whether it must be whole.
_LIMITS: dict[str, tuple[float, float, bool]] = {
    "weight": (1, MOST_WEIGHT, True),
    "rows": (1e-6, _MOST, False),
    "device": (1e-6, _MOST, False),
    "concurrent": (1, _MOST, True),
    "priority": (1, _MOST, True),
}


def _number(key: str, text: str) -> float:
    least, most, whole = _LIMITS[key]
    try:
        value = float(text) if text.replace(".", "", 1).isdecimal() else -1.0
    except ValueError:
        value = -1.0
    if not least <= value <= most or (whole and not value.is_integer()):
        raise _unfit(key, text, least, most)
    return value


def _unfit(key: str, text: str, least: float, most: float) -> RequestError:
    return bad(f"{TENANT}: {key} must be a number from {least:g} to {most:g}, not {text[:32]!r}")
