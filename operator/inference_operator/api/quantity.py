"""Kubernetes quantities: their text, and their value as a whole number (CPU in millicores, everything else in units)."""

import re
from decimal import ROUND_CEILING, Decimal, localcontext
from functools import lru_cache

# The grammar of resource.Quantity (k8s.io/apimachinery): a number, then a suffix or an exponent. ASCII digits only.
_NUMBER = r"(?:[0-9]+\.?[0-9]*|\.[0-9]+)"
_SUFFIX = r"n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei"
_EXPONENT = r"[eE][+-]?[0-9]{1,4}"
_QUANTITY = re.compile(rf"([+-]?{_NUMBER})(?:({_SUFFIX})|({_EXPONENT}))?")
# What a Pod takes: no amount is below zero.
PATTERN = rf"^[+]?{_NUMBER}({_SUFFIX}|{_EXPONENT})?$"
# Longer texts say nothing that shorter ones can't, and cost time to read.
MAX_LENGTH = 64
# The largest value that a Quantity holds: the API server takes what is larger for this.
_LARGEST = 2**63 - 1
_SUFFIXES = {
    "n": Decimal("1e-9"),
    "u": Decimal("1e-6"),
    "m": Decimal("1e-3"),
    "": Decimal(1),
    "k": Decimal(10**3),
    "M": Decimal(10**6),
    "G": Decimal(10**9),
    "T": Decimal(10**12),
    "P": Decimal(10**15),
    "E": Decimal(10**18),
    "Ki": Decimal(2**10),
    "Mi": Decimal(2**20),
    "Gi": Decimal(2**30),
    "Ti": Decimal(2**40),
    "Pi": Decimal(2**50),
    "Ei": Decimal(2**60),
}


# A cluster uses few different texts, over and over, and parsing decimals is what costs in a recount of ten thousand pods.
@lru_cache(maxsize=4096)
def parse_quantity(text: str, *, milli: bool = False) -> int:
    """Return the quantity in whole units, or thousandths of them, rounded up. Raises ValueError."""
    found = _QUANTITY.fullmatch(text) if len(text) <= MAX_LENGTH else None
    if found is None:
        raise ValueError(f"{text[:MAX_LENGTH]!r} is no quantity; write it as for a Pod: 2, 0.5, 500m, 1Gi or 1e9")
    with localcontext() as context:
        # Enough digits that nothing is rounded on the way: only the end rounds, and up.
        context.prec = 200
        value = Decimal(found[1]) * _SUFFIXES[found[2] or ""]
        if found[3]:
            value = value.scaleb(int(found[3][1:]))
        value = max(min(value, Decimal(_LARGEST)), Decimal(-_LARGEST)) * (1000 if milli else 1)
        return int(value.to_integral_value(ROUND_CEILING))


def quantity_text(value: object) -> object:
    """Return a number as the text of a quantity, and everything else as it is: Pods take `cpu: 2` and `cpu: 0.5` unquoted."""
    return str(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def format_quantity(number: int) -> str:
    """A whole number as the API server would write it, so that what comes back equals what was sent: 1000 is 1k to it."""
    for suffix in ("", "k", "M", "G", "T", "P"):
        if number == 0 or number % 1000:
            return f"{number}{suffix}"
        number //= 1000
    return f"{number}E"
