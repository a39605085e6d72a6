"""Which faults come, when and upon whom: pure, from a seed; and the shortest story that still fails.

Source of the shrinking: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002 (ddmin).
"""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """What can go wrong, or be done by somebody."""

    WORKER_KILLED = "worker killed"
    WORKER_FROZEN = "worker frozen"
    POD_DELETED = "pod deleted"
    LEADER_KILLED = "leader killed"
    LEADER_FROZEN = "leader frozen"
    NODE_SILENT = "node silent"
    NODE_DEAD = "node dead"
    NODE_DRAINED = "node drained"
    API_AWAY = "API server and etcd away"
    API_FROZEN = "API server frozen"
    API_SLOW = "API server slow"
    OUTPUT_FULL = "volume full"
    OUTPUT_BARRED = "volume barred"
    OPERATOR_ROLLED = "operator rolled out"
    BATCH_SUSPENDED = "batch suspended"
    SERVICE_ROLLED = "service rolled out"


@dataclass(frozen=True, slots=True)
class Fault:
    """One of them: after so many seconds of calm, for so long, upon the one of this number among those that there are."""

    kind: Kind
    calm: float
    seconds: float
    number: int

    def __str__(self) -> str:
        """In a line, as a story is printed."""
        return f"after {self.calm:.1f} s: {self.kind}, number {self.number}, for {self.seconds:.1f} s"


Story = tuple[Fault, ...]

# How often each comes, beside the others, and for how long at least and at most.
_SHARES: dict[Kind, tuple[int, float, float]] = {
    Kind.WORKER_KILLED: (4, 0.0, 0.0),
    Kind.WORKER_FROZEN: (4, 0.3, 6.0),
    Kind.POD_DELETED: (3, 0.0, 0.0),
    Kind.LEADER_KILLED: (3, 0.0, 0.0),
    Kind.LEADER_FROZEN: (3, 0.5, 8.0),
    Kind.NODE_SILENT: (3, 0.3, 6.0),
    Kind.NODE_DEAD: (1, 2.0, 8.0),
    Kind.NODE_DRAINED: (1, 1.0, 4.0),
    Kind.API_AWAY: (1, 2.0, 15.0),
    Kind.API_FROZEN: (2, 0.3, 6.0),
    Kind.API_SLOW: (1, 6.0, 15.0),
    Kind.OUTPUT_FULL: (2, 0.5, 6.0),
    Kind.OUTPUT_BARRED: (2, 0.5, 6.0),
    Kind.OPERATOR_ROLLED: (1, 0.0, 0.0),
    Kind.BATCH_SUSPENDED: (2, 0.0, 3.0),
    Kind.SERVICE_ROLLED: (2, 0.0, 0.0),
}
_LONGEST_CALM = 2.0
# Those that are over in seconds, and need neither a node's restart nor a drain.
_SLOW = (Kind.NODE_DEAD, Kind.NODE_DRAINED, Kind.API_AWAY, Kind.API_SLOW, Kind.OPERATOR_ROLLED)
# What is sent then arrives once they are over.
HOLDS_PACKETS = frozenset({Kind.NODE_SILENT, Kind.API_FROZEN, Kind.API_SLOW})
QUICK = tuple(kind for kind in Kind if kind not in _SLOW)


def draw(seed: int, count: int, kinds: Sequence[Kind] = tuple(Kind)) -> Story:
    """So many faults; the same for the same seed, and each a prefix of a longer one."""
    dice = random.Random(seed)
    weights = [_SHARES[kind][0] for kind in kinds]
    faults = []
    for _ in range(count):
        (kind,) = dice.choices(kinds, weights)
        _, least, most = _SHARES[kind]
        faults.append(Fault(kind, dice.uniform(0.0, _LONGEST_CALM), dice.uniform(least, most), dice.randrange(1000)))
    return tuple(faults)


def shrunk(story: Story, fails: Callable[[Story], bool], *, tries: int) -> Story:
    """The shortest story found, in so many tries, that still fails. `story` is known to."""
    pieces, left = 2, tries
    while len(story) > 1 and left > 0:
        size = -(-len(story) // pieces)
        rests = [story[:at] + story[at + size :] for at in range(0, len(story), size)]
        for rest in rests:
            if left <= 0:
                return story
            left -= 1
            if fails(rest):
                story, pieces = rest, max(pieces - 1, 2)
                break
        else:
            if size == 1:
                break
            pieces = min(2 * pieces, len(story))
    return story
