"""Fleet-wide scheduling: which needs get which places now, and which work makes room for them.

Earliest deadline first inside priority bands, among the work that can still be on time; work that is late comes after all of it,
so that it never makes anything else late. Work that can't be on time is told so before it touches a device. `lookahead` plans all
that is known and says what starts now and on which class: the cheapest of those that meet the deadline, where a second that is
early counts for little. The board gives what starts now a node, beside the room that `reserve` keeps for large work.

Pure and deterministic: one snapshot, one answer. All that wait for the same shapes share one look at the nodes, and reasons for a
place are put into words when the worker is made, so that a job that waits costs next to nothing.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from math import inf

from inference_operator.scheduling import explanation, filters
from inference_operator.scheduling.node_capacity import Board
from inference_operator.scheduling.pending import Waiting
from inference_operator.scheduling.room import Room
from inference_operator.scheduling.timeline import Choice, Held, Lanes, Work, look_ahead
from inference_operator.scheduling.types import Answer, Assignment, Fleet, Guest, Host, Need, Option, Shape, Tenure
from inference_operator.scheduling.warm_workers import Warm, has_model, warm_lanes, warmed
from inference_operator.settings import CostWeights
from inference_operator.state.objects import Key

# What is planned to start within this time starts now.
_NOW_SECONDS = 1e-3
# A warm worker is given its next tasks before it has done the last, so that it never waits for us; this much ahead, and so many.
_AHEAD_SECONDS = 0.25
_AHEAD_TASKS = 16
# Work that takes longer than expected is reckoned to take this much of its time so far again, and never less than the second.
_OVERDUE = 0.05
_OVERDUE_SECONDS = 0.01


def schedule(fleet: Fleet, weights: CostWeights, now: datetime) -> dict[Key, Answer]:
    """Answer every need, and the tenures that have to make room."""
    run = _Pass(fleet, weights, now)
    found = run.answers()
    run.forget()
    return found


def is_late(need: Need, now: datetime) -> bool:
    """Whether no place could be in time any more. Mere assumptions don't make work late: only measurements and the clock do."""
    return _late(need, _left(need, now))


def _left(need: Need, now: datetime) -> float:
    """Seconds until the deadline; endless without one."""
    return inf if need.deadline is None else (need.deadline - now).total_seconds()


def _late(need: Need, left: float) -> bool:
    return left <= 0 or left < need.least_seconds


@dataclass(slots=True)
class _Asked:
    """A need in one pass: the seconds to its deadline, endless for one that is late already, and its part of the plan."""

    need: Need
    late: bool
    left: float
    band: int
    works: Sequence[Work] = ()


def _bands(fleet: Fleet) -> dict[tuple[bool, int], int]:
    """Bands of (late, priority downwards), numbered in their order: they are compared often."""
    priorities = {need.priority for need in fleet.needs} | {tenure.priority for tenure in fleet.tenures}
    return {band: number for number, band in enumerate(sorted((late, -p) for late in (False, True) for p in priorities))}


class _Pass:
    """One pass over the fleet: the board that is used up, and the plan of what starts when."""

    def __init__(self, fleet: Fleet, weights: CostWeights, now: datetime) -> None:
        self._board = Board(fleet.nodes, fleet.pods, fleet.usage)
        self._weights = weights
        self._now = now
        tenures = sorted(fleet.tenures, key=lambda tenure: tenure.key)
        bands = _bands(fleet)
        self._held = [(tenure, self._hold(tenure, bands[False, -tenure.priority])) for tenure in tenures]
        self._room = Room(self._board, self._held)
        self._waiting = Waiting(self._board, fleet.hosts, now)
        self._wanted = sum([need.slots for need in fleet.needs])
        self._lanes: dict[Shape, Lanes] = {}
        self._warm = warm_lanes(fleet.hosts)
        self._welcome: dict[tuple[Key | None, Guest | None], tuple[Warm, ...]] = {}
        self._given: Counter[Key] = Counter({host.pod: host.tasks for host in fleet.hosts if host.pod is not None})
        self._asked = self._ranked(fleet.needs, bands)
        self._plan()

    # the plan

    def _ranked(self, needs: Iterable[Need], bands: Mapping[tuple[bool, int], int]) -> list[_Asked]:
        """By rank: on time before late, high priority before low, early deadlines before late ones, old before new.

        All that the plan wants to know of a need is read here, in the order in which needs lie in memory: by rank they lie all over
        it, and ten thousand of them are more than a cache holds.
        """
        found: list[tuple[float, datetime, Key, _Asked]] = []
        for need in needs:
            left = _left(need, self._now)
            late = _late(need, left)
            asked = _Asked(need, late, inf if late else left, bands[late, -need.priority])
            if not (need.firm and late):
                asked.works = self._works(need, asked.left, asked.band)
            found.append((left, need.created, need.key, asked))
        found.sort()
        # Two plain sorts take half as long as one by all.
        return sorted([one[3] for one in found], key=lambda asked: asked.band)

    def _works(self, need: Need, left: float, band: int) -> list[Work]:
        timed = left != inf
        haste = self._weights.early if timed else 1.0
        choices = self._warm_choices(need, haste) if need.pool is not None or need.guest is not None else []
        # Without a deadline a job waits for the pool; with one it may have a worker of its own to be in time.
        if need.pool is None or timed:
            for number, option in enumerate(need.options):
                lanes = self._lanes.get(option.shape)
                if lanes is None:
                    lanes = self._lanes[option.shape] = self._room.lanes(option.shape, self._wanted)
                choices.append(self._choice(lanes, option, number, haste))
        return [Work(need.key, left, band, choices, need.holds, haste) for _ in range(need.slots)]

    def _choice(self, lanes: Lanes, option: Option, number: int, haste: float) -> Choice:
        estimate = option.estimate
        return Choice(lanes, estimate.cautious_seconds, filters.total_cost(option, self._weights, haste), estimate.measured, number)

    def _hold(self, tenure: Tenure, band: int) -> Held:
        """A tenure as the plan sees it."""
        overdue = max(_OVERDUE * (self._now - tenure.begun).total_seconds(), _OVERDUE_SECONDS)
        remaining = max((tenure.end - self._now).total_seconds(), overdue)
        slack = inf if tenure.deadline is None else (tenure.deadline - self._now).total_seconds() - remaining
        # Leaving and coming back must not take longer than what is left.
        movable = tenure.movable and remaining > tenure.leaving_seconds + tenure.resuming_seconds
        return Held(
            tenure.key,
            remaining,
            slack,
            band,
            movable=movable,
            leaving=tenure.leaving_seconds,
            resuming=tenure.resuming_seconds,
        )

    def _plan(self) -> None:
        self._room.reserve(((rank, a.need, a.left) for rank, a in enumerate(self._asked) if not a.late), self._lanes)
        works = [work for asked in self._asked for work in asked.works]
        look_ahead(works, (*self._lanes.values(), *(warm.lanes for warm in self._warm)))

    def _warm_choices(self, need: Need, haste: float) -> list[Choice]:
        found = []
        for warm in self._warm_for(need.pool, need.guest):
            for number, option in enumerate(need.options):
                if option.accelerator == warm.accelerator:
                    there = warmed(option) if has_model(warm, need) else option
                    found.append(self._choice(warm.lanes, there, number, haste))
        return found

    def _warm_for(self, pool: Key | None, guest: Guest | None) -> tuple[Warm, ...]:
        """The warm workers of a job's own pool, and those that would take it as a guest; looked up once for all that are alike."""
        found = self._welcome.get((pool, guest))
        if found is None:
            found = tuple(
                warm
                for warm in self._warm
                if warm.pool == pool or (guest is not None and warm.offer is not None and warm.offer.takes(guest, warm.accelerator))
            )
            self._welcome[pool, guest] = found
        return found

    # answers

    def answers(self) -> dict[Key, Answer]:
        """One for each need, one for each tenure that is to leave."""
        found: dict[Key, Answer] = {}
        waiting: list[tuple[float, int, _Asked, tuple[Assignment, ...], Work]] = []
        for rank, asked in enumerate(self._asked):
            need = asked.need
            if need.firm and asked.late:
                found[need.key] = Answer(need.uid, need.revision, obstacle=explanation.infeasible(need, self._now))
                continue
            given, left = self._assign_all(asked, rank)
            if left is None:
                found[need.key] = Answer(need.uid, need.revision, given)
            else:
                waiting.append((left.start, rank, asked, given, left))
        waiting.sort()
        position = 1
        for _, _, asked, given, work in waiting:
            need = asked.need
            obstacle = self._waiting.obstacle(need, work, asked.left, position)
            position += obstacle.position is not None
            found[need.key] = Answer(need.uid, need.revision, given, obstacle)
        for tenure, held in self._held:
            if held.evicted_for is not None:
                reason = explanation.eviction(tenure, held.evicted_for.key)
                found[tenure.key] = Answer(tenure.uid, tenure.revision, eviction=reason)
        return found

    def forget(self) -> None:
        """Undo the references in a circle: ten thousand works would stay until the collector comes, which is rare."""
        for asked in self._asked:
            for work in asked.works:
                work.lane = None

    def _assign_all(self, asked: _Asked, rank: int) -> tuple[tuple[Assignment, ...], Work | None]:
        """Places for as many of the need's workers as start now, and the first that does not."""
        given: tuple[Assignment, ...] = ()
        for work in asked.works:
            assignment = self._assign(asked.need, rank, work, given)
            if assignment is None:
                return given, work
            given = (*given, assignment)
        return given, None

    def _assign(self, need: Need, rank: int, work: Work, given: Sequence[Assignment]) -> Assignment | None:
        """A node for what starts now, taken off the board; None when it starts later, or the room is gone after all."""
        if work.choice is None or work.lane is None:
            return None
        if work.lane.host is not None:
            return self._hand_over(need, work, work.lane.host)
        if work.start > _NOW_SECONDS:
            return None
        beside = (*need.beside, *[one.node for one in given]) if need.holds else ()
        assignment = self._take(need, rank, work, work.choice, beside)
        if assignment is not None or len(work.choices) == 1:
            return assignment
        # Workers of another shape have taken what the lane promised. Another class may have room, and be in time too.
        for choice in sorted(work.choices, key=lambda c: c.cost):
            if not choice.lanes.hosted and (not choice.sure or choice.seconds <= work.due):
                assignment = self._take(need, rank, work, choice, beside)
                if assignment is not None:
                    return assignment
        return None

    def _take(self, need: Need, rank: int, work: Work, choice: Choice, beside: Sequence[str]) -> Assignment | None:
        option = need.options[choice.number]
        if option.shape in self._room.exhausted:
            return None
        slot = self._room.take(option.shape, inf if need.holds else choice.seconds, rank, beside)
        if slot is None:
            return None
        grounds = explanation.Choosing(self._board, need, option, slot, self._weights, work.haste, self._now)
        return Assignment(option.accelerator, slot.node.name, grounds)

    def _hand_over(self, need: Need, work: Work, host: Host) -> Assignment | None:
        """A warm worker that is free, or will be in a moment."""
        assert work.choice is not None
        if not host.ready or host.pod is None or work.start > _AHEAD_SECONDS or self._given[host.pod] >= _AHEAD_TASKS:
            return None
        self._given[host.pod] += 1
        option = need.options[work.choice.number]
        there = warmed(option) if has_model(host, need) else option
        grounds = explanation.Choosing(self._board, need, there, None, self._weights, work.haste, self._now)
        return Assignment(option.accelerator, host.node, grounds, host.pod)
