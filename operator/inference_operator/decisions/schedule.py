"""Fleet-wide scheduling: which needs get which places, now.

Earliest deadline first inside priority bands, among the work that can still be on time; work that is late comes after all of it,
so that it never makes anything else late. Work that can't be on time is told so before it touches a device. Among the places
that meet the deadline the least power-hungry class wins, and inside it the least cost; without a deadline the cost alone decides.

Pure and deterministic: one snapshot, one answer. A shape that found no room stays without room for the rest of the pass
(capacity only shrinks), and all that wait for the same shapes share one obstacle, so a job that waits costs next to nothing.
"""

from datetime import UTC, datetime

from inference_operator.decisions import place
from inference_operator.decisions.board import Board, Slot
from inference_operator.decisions.fleet import Answer, Assignment, Fleet, Need, Obstacle, Option, Shape
from inference_operator.domain.cluster import Key
from inference_operator.domain.conditions import Reason
from inference_operator.domain.job import Alternative
from inference_operator.domain.schema import rfc3339
from inference_operator.settings import CostWeights

_FAR = datetime.max.replace(tzinfo=UTC)
_ALTERNATIVES = 4


def schedule(fleet: Fleet, weights: CostWeights, now: datetime) -> dict[Key, Answer]:
    """Answer every need."""
    run = _Pass(Board(fleet.nodes, fleet.pods), weights, now)
    return {need.key: run.answer(need) for need in sorted(fleet.needs, key=lambda n: _rank(n, now))}


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


class _Pass:
    """One pass over the fleet: the board that is used up, and what every look at it needs."""

    def __init__(self, board: Board, weights: CostWeights, now: datetime) -> None:
        self._board = board
        self._weights = weights
        self._now = now
        self._obstacles: dict[tuple[tuple[str, Shape, bool], ...], Obstacle] = {}

    def answer(self, need: Need) -> Answer:
        """Places for as many of the need's workers as there is room for, and the obstacle for the rest."""
        if need.firm and is_late(need, self._now):
            return Answer(need.uid, need.revision, obstacle=self._infeasible(need))
        assignments: list[Assignment] = []
        for _ in range(need.slots):
            assignment = self._assign(need)
            if assignment is None:
                return Answer(need.uid, need.revision, tuple(assignments), self._obstacle(need))
            assignments.append(assignment)
        return Answer(need.uid, need.revision, tuple(assignments))

    def _assign(self, need: Need) -> Assignment | None:
        """The best place for one worker, taken off the board; None when nothing that would do has room.

        Work that can still be on time waits for a place where it will be, rather than take one where it can't: that would
        make it late for certain, and hold the place against others.
        """
        best: tuple[tuple[bool, float, float], Option, Slot] | None = None
        late = is_late(need, self._now)
        for option in need.options:
            if not late and not self._may_be_timely(need, option):
                continue
            slot = self._board.roomiest(option.shape)
            if slot is None:
                continue
            timely = place.in_time(option, need.deadline, self._now)
            thrift = option.watts if timely and need.deadline is not None else 0.0
            rank = (not timely, thrift, place.total_cost(option, self._weights))
            if best is None or rank < best[0]:
                best = (rank, option, slot)
        if best is None:
            return None
        _, option, slot = best
        alternatives = self._alternatives(need, option, slot)
        self._board.take(slot, option.shape)
        return Assignment(option.accelerator, slot.node.name, place.cost(option, self._weights), alternatives)

    def _alternatives(self, need: Need, chosen: Option, taken: Slot) -> tuple[Alternative, ...]:
        """Why not elsewhere: the other classes first, and what could have run before what could not."""
        found: list[Alternative] = []
        for option in sorted(need.options, key=lambda o: o is chosen):
            terms = place.cost(option, self._weights)
            for slot in self._board.fit(option.shape)[: _ALTERNATIVES + 1]:
                if option is chosen and slot is taken:
                    continue
                reason = place.full(slot.node, slot.free, option.shape) or self._why_not(need, option, chosen)
                found.append(Alternative(accelerator=option.accelerator, node=slot.node.name, reason=reason, cost=terms))
            for node, reason in self._board.unfit(option.shape)[:_ALTERNATIVES]:
                found.append(Alternative(accelerator=option.accelerator, node=node, reason=reason))
            if len(found) >= _ALTERNATIVES:
                break
        return tuple(found[:_ALTERNATIVES])

    def _why_not(self, need: Need, option: Option, chosen: Option) -> str:
        if option is chosen:
            return "no emptier than the node taken, at the same cost"
        if need.deadline is not None and not place.in_time(option, need.deadline, self._now):
            return f"would be done at {rfc3339(place.completion(option, self._now))}, after the deadline"
        if need.deadline is not None and option.watts > chosen.watts:
            return f"{chosen.accelerator} is in time too, on {chosen.watts:g} W instead of {option.watts:g} W"
        more = place.total_cost(option, self._weights) - place.total_cost(chosen, self._weights)
        return f"costs {more:.3g} s more"

    def _infeasible(self, need: Need) -> Obstacle:
        assert need.deadline is not None
        quickest = min(need.options, key=lambda o: o.estimate.total_seconds)
        earliest = place.completion(quickest, self._now)
        if need.deadline <= self._now:
            text = "the deadline has passed"
        else:
            text = (
                f"even started now on {quickest.accelerator} it would be done at {rfc3339(earliest)}, "
                f"{(earliest - need.deadline).total_seconds():.0f} s after the deadline"
            )
        cure = f"set deadline to {rfc3339(earliest)} or later, or deadlinePolicy: Soft to run late"
        return Obstacle(Reason.DEADLINE_INFEASIBLE, f"{text}; {cure}", final=True, possible=earliest)

    def _obstacle(self, need: Need) -> Obstacle:
        """Why no place would do: for good, or just now. Once a shape has no room it has none for the rest of the pass."""
        late = is_late(need, self._now)
        asked = tuple((o.accelerator, o.shape, late or self._may_be_timely(need, o)) for o in need.options)
        if asked not in self._obstacles:
            self._obstacles[asked] = self._explain(asked)
        return self._obstacles[asked]

    def _may_be_timely(self, need: Need, option: Option) -> bool:
        return not option.estimate.measured or place.in_time(option, need.deadline, self._now)

    def _explain(self, asked: tuple[tuple[str, Shape, bool], ...]) -> Obstacle:
        words = []
        for accelerator, shape, timely in asked:
            if not timely:
                words.append(f"{accelerator}: would be done there after the deadline")
                continue
            rejected = [(s.node.name, place.full(s.node, s.free, shape) or "has room") for s in self._board.fit(shape)]
            rejected += self._board.unfit(shape)
            words.append(f"{accelerator}: {place.summary(rejected) or 'the cluster has no nodes'}")
        text = "; ".join(words)
        if not any(self._board.fit(shape) for _, shape, _ in asked):
            text = f"no node could hold a worker even when empty ({text}); ask for less, or add a node"
            return Obstacle(Reason.NO_NODE_FITS, text)
        return Obstacle(Reason.NO_FREE_CAPACITY, f"waits for room: {text}")
