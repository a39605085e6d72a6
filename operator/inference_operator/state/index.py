"""Indexes of sets, in which a key without values is no key."""

from collections.abc import Hashable
from typing import TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V", bound=Hashable)


def discard(index: dict[K, set[V]], key: K, value: V) -> None:
    """Take a value out of an index, if it is there; a key without values goes."""
    values = index.get(key)
    if values is not None:
        values.discard(value)
        if not values:
            del index[key]
