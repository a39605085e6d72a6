"""Amounts of node resources: a small vector arithmetic over names."""

from collections.abc import Iterable, Mapping

from inference_operator.api.quantity import parse_quantity

# Whole numbers: cpu in millicores, the rest in units.
Amounts = Mapping[str, int]
Pairs = Iterable[tuple[str, int]]

CPU = "cpu"
MEMORY = "memory"
PODS = "pods"


def amounts(quantities: Mapping[str, str]) -> dict[str, int]:
    """Parse a resource list. Raises ValueError."""
    return {name: parse_quantity(text, milli=name == CPU) for name, text in quantities.items()}


def shortage(need: Pairs, free: Amounts) -> str | None:
    """The first resource that is short; None when the need fits."""
    for name, amount in need:
        if amount > free.get(name, 0):
            return name
    return None


def subtract(target: dict[str, int], amount: Pairs) -> None:
    """Take an amount off, in place. What is not counted on the node is left out."""
    for name, value in amount:
        if name in target:
            target[name] -= value


def add(target: dict[str, int], amount: Amounts) -> None:
    """Add an amount, in place."""
    for name, value in amount.items():
        target[name] = target.get(name, 0) + value


def format_amount(name: str, amount: int) -> str:
    """For people: 1500 cpu is '1.5', bytes in Mi."""
    if name == CPU:
        return f"{amount / 1000:g}"
    if name in (MEMORY, "ephemeral-storage"):
        return f"{amount / 2**20:.0f}Mi"
    return str(amount)
