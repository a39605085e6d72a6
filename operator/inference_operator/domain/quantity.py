"""Kubernetes quantities as whole numbers: CPU in millicores, everything else in units (bytes, devices)."""

from decimal import ROUND_CEILING, Decimal, InvalidOperation
from functools import lru_cache

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
    """The quantity in whole units, or thousandths of them, rounded up. Raises ValueError."""
    number = text.rstrip("numkKMGTPEi")
    suffix = text[len(number) :]
    try:
        value = Decimal(number) * _SUFFIXES[suffix]
    except (KeyError, InvalidOperation) as error:
        raise ValueError(f"{text!r} is no quantity") from error
    return int((value * (1000 if milli else 1)).to_integral_value(ROUND_CEILING))
