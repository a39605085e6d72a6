"""Which models give way to another one: the least recently used, but nobody's fair share."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Kept:
    """A file of the cache by its inode: `namespaces` may read it, and `used` is when one of them last did."""

    inode: int
    namespaces: frozenset[str]
    size: int
    used: float


def giving_way(kept: Iterable[Kept], namespace: str, *, coming: Mapping[str, int], more: int, limit: int) -> tuple[int, ...] | None:
    """Inodes to drop so that `more` bytes of a namespace fit beside all else; None where too little may be dropped.

    `coming` are the bytes of each namespace that still come, `limit` the most bytes of all. Who keeps to a fair share loses
    nothing to others: a share is the limit over the number of namespaces.
    """
    left = sorted(kept, key=lambda one: (one.used, one.inode))
    lacking = sum(coming.values()) + more + sum(one.size for one in left) - limit
    share = limit / len({namespace}.union(*(one.namespaces for one in left)))
    taken = Counter[str]()
    for one in left:
        taken.update(dict.fromkeys(one.namespaces, one.size))
    may_take = taken[namespace] + coming.get(namespace, 0) + more <= share
    dropped: list[int] = []
    while lacking > 0:
        above = {name for name, size in taken.items() if may_take and size > share} | {namespace}
        first = next((one for one in left if one.namespaces <= above), None)
        if first is None:
            return None
        left.remove(first)
        taken.subtract(dict.fromkeys(first.namespaces, first.size))
        dropped.append(first.inode)
        lacking -= first.size
    return tuple(dropped)
