"""Fleet-wide scheduling: which needs get which places, now.

Earliest deadline first inside priority bands, among the work that can still be on time; work that is late comes after all of it,
so that it never makes anything else late. Work that can't be on time is told so before it touches a device. Among the places
that meet the deadline the least power-hungry class wins, and inside it the least cost; without a deadline the cost alone decides.

Pure and deterministic: one snapshot, one answer. A shape that found no room stays without room for the rest of the pass
(capacity only shrinks), so a thousand jobs behind a full resource cost one look each.
"""

from collections.abc import Iterable
from datetime import UTC, datetime

from inference_operator.decisions import place
from inference_operator.decisions.fleet import Answer, Assignment, Capacity, Fleet, Need, Obstacle, Option, Shape
from inference_operator.domain.cluster import Key, Node, Pod
from inference_operator.domain.conditions import Reason
from inference_operator.domain.job import Alternative
from inference_operator.domain.resources import subtract
from inference_operator.domain.schema import rfc3339
from inference_operator.settings import CostWeights

_FAR = datetime.max.replace(tzinfo=UTC)
_ALTERNATIVES = 4


def schedule(fleet: Fleet, weights: CostWeights, now: datetime) -> dict[Key, Answer]:
    """Answer every need."""
    board = _Board(fleet)
    answers: dict[Key, Answer] = {}
    for need in sorted(fleet.needs, key=lambda n: _rank(n, now)):
        answers[need.key] = _answer(need, board, weights, now)
    return answers


def _rank(need: Need, now: datetime) -> tuple[bool, int, datetime, datetime, Key]:
    """Sort key: on time before late, high priority before low, early deadlines before late ones, old before new."""
    return (is_late(need, now), -need.priority, need.deadline or _FAR, need.created, need.key)


def is_late(need: Need, now: datetime) -> bool:
    """Whether no place could be in time any more. Mere assumptions don't make work late: only measurements and the clock do."""
    if need.deadline is None:
        return False
    if need.deadline <= now:
        return True
    return all(o.estimate.measured and not place.in_time(o, need.deadline, now) for o in need.options)


def _answer(need: Need, board: "_Board", weights: CostWeights, now: datetime) -> Answer:
    late = is_late(need, now)
    if late and need.firm:
        return Answer(need.uid, need.revision, obstacle=_infeasible(need, now))
    assignments: list[Assignment] = []
    for _ in range(need.slots):
        assignment = _assign(need, board, weights, now)
        if assignment is None:
            return Answer(need.uid, need.revision, tuple(assignments), _obstacle(need, board))
        assignments.append(assignment)
    return Answer(need.uid, need.revision, tuple(assignments))


def _assign(need: Need, board: "_Board", weights: CostWeights, now: datetime) -> Assignment | None:
    """The best place for one worker, taken off the board; None when nothing has room."""
    best: tuple[tuple[bool, float, float], Option, Capacity] | None = None
    for option in need.options:
        capacity = board.roomiest(option.shape)
        if capacity is None:
            continue
        terms = place.cost(option, weights)
        timely = place.in_time(option, need.deadline, now)
        thrift = option.watts if timely and need.deadline is not None else 0.0
        rank = (not timely, thrift, terms.total)
        if best is None or rank < best[0]:
            best = (rank, option, capacity)
    if best is None:
        return None
    _, option, capacity = best
    alternatives = _alternatives(need, option, capacity, board, weights, now)
    board.take(capacity, option.shape)
    return Assignment(option.accelerator, capacity.node.name, place.cost(option, weights), alternatives)


def _alternatives(
    need: Need, chosen: Option, taken: Capacity, board: "_Board", weights: CostWeights, now: datetime
) -> tuple[Alternative, ...]:
    """Why not elsewhere: the other classes first, then other nodes of the chosen one."""
    found: list[Alternative] = []
    for option in need.options:
        terms = place.cost(option, weights)
        for capacity in board.some(option.shape, _ALTERNATIVES):
            if option is chosen and capacity is taken:
                continue
            reason = place.full(capacity, option.shape) or _why_not(need, option, chosen, weights, now)
            found.append(Alternative(accelerator=option.accelerator, node=capacity.node.name, reason=reason, cost=terms))
        for node, reason in board.unfit(option.shape)[:_ALTERNATIVES]:
            found.append(Alternative(accelerator=option.accelerator, node=node, reason=reason))
    # What could have run tells more than what could not; the chosen class's neighbours tell least.
    found.sort(key=lambda a: (a.accelerator == chosen.accelerator, a.cost is None))
    return tuple(found[:_ALTERNATIVES])


def _why_not(need: Need, option: Option, chosen: Option, weights: CostWeights, now: datetime) -> str:
    if option is chosen:
        return "fuller than the node taken, at the same cost"
    if need.deadline is not None and not place.in_time(option, need.deadline, now):
        return f"would be done at {rfc3339(place.completion(option, now))}, after the deadline"
    if need.deadline is not None and option.watts > chosen.watts:
        return f"{chosen.accelerator} is in time too, on {chosen.watts:g} W instead of {option.watts:g} W"
    more = place.cost(option, weights).total - place.cost(chosen, weights).total
    return f"costs {more:.3g} s more"


def _infeasible(need: Need, now: datetime) -> Obstacle:
    assert need.deadline is not None
    quickest = min(need.options, key=lambda o: o.estimate.total_seconds)
    earliest = place.completion(quickest, now)
    if need.deadline <= now:
        text = "the deadline has passed"
    else:
        text = (
            f"even started now on {quickest.accelerator} it would be done at {rfc3339(earliest)}, "
            f"{(earliest - need.deadline).total_seconds():.0f} s after the deadline"
        )
    cure = f"set deadline to {rfc3339(earliest)} or later, or deadlinePolicy: Soft to run late"
    return Obstacle(Reason.DEADLINE_INFEASIBLE, f"{text}; {cure}", final=True, possible=earliest)


def _obstacle(need: Need, board: "_Board") -> Obstacle:
    """Why no place has room: for good, or just now."""
    words = []
    hopeless = True
    for option in need.options:
        fitting = board.some(option.shape, None)
        hopeless = hopeless and not fitting
        rejected = [(c.node.name, place.full(c, option.shape) or "has room") for c in fitting] + board.unfit(option.shape)
        words.append(f"{option.accelerator}: {place.summary(rejected) or 'the cluster has no nodes'}")
    text = "; ".join(words)
    if hopeless:
        return Obstacle(Reason.NO_NODE_FITS, f"no node could hold a worker even when empty ({text}); ask for less, or add a node")
    return Obstacle(Reason.NO_FREE_CAPACITY, f"waits for room: {text}")


class _Board:
    """Free capacity during one pass, recounted from nodes and pods at its start."""

    def __init__(self, fleet: Fleet) -> None:
        self.capacities = {node.name: Capacity(node, dict(node.allocatable)) for node in fleet.nodes}
        for pod in fleet.pods:
            self._count(pod)
        self._nodes = fleet.nodes
        self._fitting: dict[Shape, list[Capacity]] = {}
        self._unfit: dict[Shape, list[tuple[str, str]]] = {}
        self._full: set[Shape] = set()

    def _count(self, pod: Pod) -> None:
        node = pod.node or (pod.worker.placement.node if pod.worker and pod.worker.placement else None)
        if node is None or pod.terminal or node not in self.capacities:
            return
        subtract(self.capacities[node].free, pod.requests)

    def roomiest(self, shape: Shape) -> Capacity | None:
        """The fit node with room that would be least full; None when none has room."""
        if shape in self._full:
            return None
        open_ = [c for c in self._look(shape) if place.full(c, shape) is None]
        if not open_:
            self._full.add(shape)
            return None
        return min(open_, key=lambda c: (place.pressure(c, shape), c.node.name))

    def some(self, shape: Shape, limit: int | None) -> list[Capacity]:
        """Nodes that could hold the shape when empty."""
        return self._look(shape)[:limit]

    def unfit(self, shape: Shape) -> list[tuple[str, str]]:
        """Nodes that never could, with the reason."""
        self._look(shape)
        return self._unfit[shape]

    def take(self, capacity: Capacity, shape: Shape) -> None:
        """Use up what a worker of this shape takes."""
        subtract(capacity.free, dict(shape.amounts))

    def _look(self, shape: Shape) -> list[Capacity]:
        if shape not in self._fitting:
            verdicts = [(node, place.unfit(node, shape)) for node in self._nodes]
            self._fitting[shape] = [self.capacities[node.name] for node, why in verdicts if why is None]
            self._unfit[shape] = [(node.name, why) for node, why in verdicts if why is not None]
        return self._fitting[shape]


def capacity_of(nodes: Iterable[Node], pods: Iterable[Pod]) -> dict[str, dict[str, int]]:
    """Free amounts by node: the same recount, for metrics and tests."""
    return {name: capacity.free for name, capacity in _Board(Fleet(tuple(nodes), tuple(pods), ())).capacities.items()}
