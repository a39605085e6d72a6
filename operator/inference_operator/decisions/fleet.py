"""What the fleet-wide decision looks at, and what it answers."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from inference_operator.decisions.profile import Estimate
from inference_operator.domain.cluster import Key, Node, Pod
from inference_operator.domain.conditions import Reason
from inference_operator.domain.job import Alternative, CostTerms


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A toleration, hashable."""

    key: str | None
    operator: str
    value: str | None
    effect: str | None


@dataclass(frozen=True, slots=True)
class Shape:
    """What a worker takes and where it may go. Needs of one shape fit the same nodes, so each shape is looked at once."""

    amounts: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Tolerance, ...] = ()
    # A pass looks shapes up ten thousand times; hashing the tuples anew each time was half of its cost.
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_hash", hash((self.amounts, self.node_selector, self.tolerations)))

    def __hash__(self) -> int:
        return self._hash


@dataclass(frozen=True, slots=True)
class Option:
    """One accelerator class that a need may be met on."""

    accelerator: str
    shape: Shape
    estimate: Estimate
    watts: float


@dataclass(frozen=True, slots=True)
class Need:
    """Workers that one job wants placed. `slots` are alike; `options` is never empty."""

    key: Key
    uid: str
    revision: str
    slots: int
    options: tuple[Option, ...]
    created: datetime
    priority: int = 0
    deadline: datetime | None = None
    firm: bool = False


@dataclass(frozen=True, slots=True)
class Fleet:
    """The snapshot: nodes, the pods that hold something on them, and all needs."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    needs: tuple[Need, ...]


@dataclass(frozen=True, slots=True)
class Assignment:
    """A place for one worker, and why this one."""

    accelerator: str
    node: str
    cost: CostTerms
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Obstacle:
    """Why a need is not met, or not wholly. `final` means that it never can be."""

    reason: Reason
    message: str
    final: bool = False
    possible: datetime | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """What one need gets. `revision` is the need's, so that an answer to an old question is not taken for a new one."""

    uid: str
    revision: str
    assignments: tuple[Assignment, ...] = ()
    obstacle: Obstacle | None = None


Answers = Mapping[Key, Answer]
