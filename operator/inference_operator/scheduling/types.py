"""What the fleet-wide decision looks at, and what it answers."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from math import inf
from typing import NamedTuple

from inference_operator.api.conditions import Reason
from inference_operator.api.instants import EARLIEST, shift
from inference_operator.api.job_status import Alternative, CostTerms, SlackPlacement
from inference_operator.scheduling.estimate import Estimate
from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.slack_types import ServiceSlack, SlackTask
from inference_operator.state.objects import Key, Node, Pod
from inference_operator.state.request import Request


@dataclass(frozen=True, slots=True)
class Option:
    """One accelerator class that a request may be met on."""

    accelerator: str
    requirements: PodRequirements
    estimate: Estimate
    watts: float


class ModelMemory(NamedTuple):
    """Bytes of a worker's process, and of its device."""

    process: int
    device: int = 0

    def fits(self, room: "ModelMemory") -> bool:
        """Whether there is room for so much."""
        return self.process <= room.process and self.device <= room.device


@dataclass(frozen=True, slots=True)
class ColocatedModel:
    """What a batch asks of a warm worker of another model: `memory` by class, `claims` with whether it writes to them."""

    namespace: str
    digest: str
    batch_size: int
    claims: tuple[tuple[str, bool], ...]
    memory: tuple[tuple[str, ModelMemory], ...]


@dataclass(frozen=True, slots=True)
class Offer:
    """What warm workers have for co-located models: `memory` beside their own model, and mounts with whether they are writable."""

    namespace: str
    batch_size: int
    mounts: tuple[tuple[str, bool], ...]
    memory: ModelMemory

    def takes(self, colocated: ColocatedModel, accelerator: str) -> bool:
        """Whether a co-located model can stay on such a worker of this class."""
        needed = dict(colocated.memory).get(accelerator)
        return (
            needed is not None
            and needed.fits(self.memory)
            and colocated.namespace == self.namespace
            and colocated.batch_size <= self.batch_size
            and mounted(colocated.claims, dict(self.mounts))
        )


def mounted(claims: Iterable[tuple[str, bool]], mounts: Mapping[str, bool]) -> bool:
    """Whether all claims are mounted, and writable where they are written to."""
    return all(claim in mounts and mounts[claim] >= writes for claim, writes in claims)


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Workers that one job wants placed. `workers` are alike; `options` is never empty.

    What `holds` its places has no end (a service).
    """

    key: Request
    uid: str
    revision: str
    workers: int
    options: tuple[Option, ...]
    created: datetime
    priority: int = 0
    deadline: datetime | None = None
    firm: bool = False
    holds: bool = False
    # The model whose warm pool it can run in. Work without a deadline waits for that; other work may get a worker of its own.
    pool: Key | None = None
    # Set where it could also run on a warm worker of another model, which has to load its model first.
    colocated: ColocatedModel | None = None
    # What a batch asks of a service in whose slack it could run; None for services.
    slack: SlackTask | None = None
    # The nodes of the workers that it has: a service's next one goes elsewhere if it can, and to another zone first.
    beside: tuple[str, ...] = ()
    # The nodes where workers before it failed or could not start: the next one goes elsewhere if it can.
    failed_on: tuple[str, ...] = ()
    # It has all its workers, on one node. What it wants is another node's room that nobody else wants, or nothing.
    spreads: bool = False
    # The classes of which it may ask for new nodes now.
    grows: frozenset[str] = frozenset()
    # What it takes at least, wherever it goes; 0 as long as any of its classes is not measured.
    least_seconds: float = field(init=False, repr=False, compare=False)
    # When time alone may change its decision: at the deadline, and at the last moment to start for it on each class.
    turns: tuple[datetime, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        estimates = [option.estimate for option in self.options]
        least = min(e.total_seconds for e in estimates) if all(e.measured for e in estimates) else 0.0
        object.__setattr__(self, "least_seconds", least)
        starts = [] if self.deadline is None else [self.deadline, *[shift(self.deadline, -e.total_seconds) for e in estimates]]
        object.__setattr__(self, "turns", tuple(starts))


@dataclass(frozen=True, slots=True)
class PoolDemand:
    """Jobs that wait for a pool's workers: how many, and the priority of the most important."""

    count: int = 0
    priority: int = 0


@dataclass(frozen=True, slots=True)
class WarmWorker:
    """A warm worker as a place for tasks, free in `wait` seconds. Without a `pod` it is one that its pool could still add."""

    pool: Key
    pod: Key | None
    node: str
    accelerator: str
    wait: float
    tasks: int
    ready: bool
    # What it has for co-located models, if it takes any, and the files of those that it has loaded.
    offer: Offer | None = None
    colocated: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RunningWork:
    """A batch at its place, where it will be done at `end`. It could go on elsewhere or later from what it has committed.

    Running work that is not `movable` is told so that others know when its place will be free.
    """

    key: Request
    uid: str
    revision: str
    node: str
    requirements: PodRequirements
    begun: datetime
    end: datetime
    priority: int = 0
    deadline: datetime | None = None
    movable: bool = True
    # From being told to go until the place is free: the batch that runs is finished and committed first.
    leaving_seconds: float = 1.0
    # What going on later costs: the model has to be loaded again.
    resuming_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Usage:
    """How a node is used beyond what its pods ask for.

    `unmanaged_usage` counts devices of `resource` that are in use though no pod has them, `busy` our workers that compute.
    """

    resource: str = ""
    unmanaged_usage: float = 0.0
    busy: float = 0.0


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """By what an accelerator class can grow: `node` stands for a new one, which takes `seconds` to come.

    `coming` is how many seconds each node is still away that was asked for already; at most `most` are asked for at a time.
    """

    node: Node
    seconds: float
    most: int
    coming: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Fleet:
    """The snapshot: nodes, the pods that hold something on them, all requests, and the work that could make room."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    requests: tuple[PlacementRequest, ...]
    running: tuple[RunningWork, ...] = ()
    warm_workers: tuple[WarmWorker, ...] = ()
    slack: tuple[ServiceSlack, ...] = ()
    # By node, where there is anything to say.
    usage: Mapping[str, Usage] = field(default_factory=dict)
    # How often each namespace's work has preempted that of others in the last hour.
    preemptions: Mapping[str, int] = field(default_factory=dict)
    # The accelerator classes that can grow.
    node_groups: Mapping[str, NodeGroup] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a place was chosen: what it costs there, and the best places not taken, with the reasons."""

    cost: CostTerms
    alternatives: tuple[Alternative, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """A place for one worker. `warm_worker` takes it; None for a worker that has to be created.

    `slack` is set where that worker belongs to a service, and the work runs behind its requests.
    """

    accelerator: str
    node: str
    warm_worker: Key | None = None
    slack: SlackPlacement | None = None


class PendingReason(NamedTuple):
    """Why a request is not met, or not wholly. `final` means that it never can be.

    `start` and `done` are when it is expected to start and end; None where nothing that is known will free a place for it.
    `position` counts those who wait by that, from one. Work that the others leave no time for has to find a place by `start_by`,
    or it is late. `possible` is the earliest deadline that could be met.
    """

    reason: Reason
    message: str
    final: bool = False
    possible: datetime | None = None
    position: int | None = None
    start_by: datetime | None = None
    # Expected to start so many seconds after `now` and to take so many: a date is made when somebody asks for it.
    now: datetime = EARLIEST
    starts: float = inf
    takes: float = 0.0

    @property
    def start(self) -> datetime | None:
        """When it is expected to start."""
        return None if self.starts == inf else shift(self.now, self.starts)

    @property
    def done(self) -> datetime | None:
        """When it is expected to be done."""
        return None if self.starts == inf else shift(self.now, self.starts + self.takes)


@dataclass(frozen=True, slots=True)
class Preemption:
    """Make room: for whom, and why that is worth it."""

    beneficiary: Request
    message: str


class Decision(NamedTuple):
    """What one placement request gets, or what running work has to do.

    `revision` is theirs, so that a decision about an old request is not taken for one about a new one.
    """

    uid: str
    revision: str
    assignments: tuple[Assignment, ...] = ()
    pending: PendingReason | None = None
    preemption: Preemption | None = None
    # One for each assignment, once somebody asked for them (see `Schedule.explained`).
    explanations: tuple[Explanation, ...] = ()
    # The class of each new node that is to be asked for.
    new_nodes: tuple[str, ...] = ()

    @property
    def explained(self) -> tuple[tuple[Assignment, Explanation], ...]:
        """The assignments, each with its explanation. Raises ValueError for a decision that was not explained."""
        return tuple(zip(self.assignments, self.explanations, strict=True))
