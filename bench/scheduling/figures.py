"""Means with their standard errors, and paired differences: the same workloads under both policies."""

import statistics
from collections.abc import Sequence


def summary(values: Sequence[float], digits: int = 4) -> dict[str, float]:
    """Mean and standard error."""
    return {"mean": round(statistics.mean(values), digits), "standardError": round(standard_error(values), digits)}


def paired(ours: Sequence[float], theirs: Sequence[float], digits: int = 4) -> dict[str, float]:
    """The mean difference over pairs, and its standard error."""
    return summary([a - b for a, b in zip(ours, theirs, strict=True)], digits)


def standard_error(values: Sequence[float]) -> float:
    """Of the mean; nothing can be said with one value."""
    return statistics.stdev(values) / len(values) ** 0.5 if len(values) > 1 else 0.0
