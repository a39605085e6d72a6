"""Fleet-wide scheduling: which needs get which places now, and which work makes room for them.

Earliest deadline first inside priority bands, among the work that can still be on time; work that is late comes after all of it,
so that it never makes anything else late. Work that can't be on time is told so before it touches a device. `lookahead` plans all
that is known and says what starts now and on which class: the cheapest of those that meet the deadline, where a second that is
early counts for little. The board gives what starts now a node, beside the room that `reserve` keeps for large work.

Pure and deterministic: one snapshot, one answer. All that wait for the same shapes share one look at the nodes, and reasons for a
place are put into words when the worker is made, so that a job that waits costs next to nothing.
"""

from collections import Counter
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import islice
from math import inf

from inference_operator.decisions import explain, place
from inference_operator.decisions.board import Board, Slot
from inference_operator.decisions.fleet import Answer, Assignment, Fleet, Guest, Host, Need, Obstacle, Option, Shape, Tenure
from inference_operator.decisions.lookahead import Choice, Held, Lane, Lanes, Work, done_behind_all, look_ahead
from inference_operator.decisions.reserve import Ends, Reservation, reserve
from inference_operator.decisions.warm import Warm, has_model, warm_lanes, warmed
from inference_operator.domain.cluster import Key
from inference_operator.domain.conditions import Reason
from inference_operator.domain.instants import shift
from inference_operator.domain.resources import Amounts
from inference_operator.settings import CostWeights

_FAR = datetime.max.replace(tzinfo=UTC)
# What is planned to start within this time starts now.
_NOW_SECONDS = 1e-3
# A warm worker is given its next tasks before it has done the last, so that it never waits for us; this much ahead, and so many.
_AHEAD_SECONDS = 0.25
_AHEAD_TASKS = 16
# Work that takes longer than expected is reckoned to take this much of its time so far again, and never less than the second.
_OVERDUE = 0.05
_OVERDUE_SECONDS = 0.01
# Room is kept for so many at a time: each makes others wait.
_RESERVATIONS = 4


def schedule(fleet: Fleet, weights: CostWeights, now: datetime) -> dict[Key, Answer]:
    """Answer every need, and the tenures that have to make room."""
    run = _Pass(fleet, weights, now)
    found = run.answers()
    run.forget()
    return found


def is_late(need: Need, now: datetime) -> bool:
    """Whether no place could be in time any more. Mere assumptions don't make work late: only measurements and the clock do."""
    if need.deadline is None:
        return False
    if need.deadline <= now:
        return True
    left = (need.deadline - now).total_seconds()
    return all(o.estimate.measured and o.estimate.total_seconds > left for o in need.options)


class _Pass:
    """One pass over the fleet: the board that is used up, and the plan of what starts when."""

    def __init__(self, fleet: Fleet, weights: CostWeights, now: datetime) -> None:
        self._board = Board(fleet.nodes, fleet.pods)
        self._weights = weights
        self._now = now
        # By rank: on time before late, high priority before low, early deadlines before late ones, old before new.
        ranked = sorted(
            ((is_late(need, now), -need.priority, need.deadline or _FAR, need.created, need.key), need) for need in fleet.needs
        )
        self._needs = [(need, rank[0]) for rank, need in ranked]
        tenures = sorted(fleet.tenures, key=lambda tenure: tenure.key)
        self._held = {tenure.key: (tenure, self._hold(tenure)) for tenure in tenures}
        self._obstacles: dict[tuple[Key | None, tuple[tuple[Shape, bool], ...]], Obstacle] = {}
        self._hosts = fleet.hosts
        self._warm = warm_lanes(fleet.hosts)
        self._welcome: dict[tuple[Key | None, Guest | None], tuple[Warm, ...]] = {}
        self._given: Counter[Key] = Counter({host.pod: host.tasks for host in fleet.hosts if host.pod is not None})
        self._works: dict[Key, list[Work]] = {}
        # Room that is kept, by node.
        self._reserved: dict[str, Reservation] = {}
        self._plan()

    # the plan

    def _hold(self, tenure: Tenure) -> Held:
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
            movable=movable,
            leaving=tenure.leaving_seconds,
            resuming=tenure.resuming_seconds,
        )

    def _plan(self) -> None:
        demand: Counter[Shape] = Counter()
        for need, _ in self._needs:
            for option in need.options:
                demand[option.shape] += need.slots
        bands = {band: number for number, band in enumerate(sorted(self._bands()))}
        for tenure, held in self._held.values():
            held.band = bands[(False, -tenure.priority)]
        lanes = {shape: self._lanes(shape, count) for shape, count in demand.items()}
        self._reserve(lanes)
        works: list[Work] = []
        for need, late in self._needs:
            if need.firm and late:
                continue
            due = self._left(need, late=late)
            timed = due != inf
            haste = self._weights.early if timed else 1.0
            choices = self._warm_choices(need, haste)
            # Without a deadline a job waits for the pool; with one it may have a worker of its own to be in time.
            if need.pool is None or timed:
                choices += [self._choice(lanes[o.shape], o, number, haste) for number, o in enumerate(need.options)]
            band = bands[(late, -need.priority)]
            mine = [Work(len(works) + i, need.key, due, band, choices, need.holds, haste) for i in range(need.slots)]
            works += mine
            self._works[need.key] = mine
        look_ahead(works, (*lanes.values(), *(warm.lanes for warm in self._warm)))

    def _left(self, need: Need, *, late: bool) -> float:
        """Seconds until the deadline; endless without one, and for work that is late already."""
        return inf if late or need.deadline is None else (need.deadline - self._now).total_seconds()

    def _warm_choices(self, need: Need, haste: float) -> list[Choice]:
        if need.pool is None and need.guest is None:
            return []
        found = []
        for warm in self._warm_for(need.pool, need.guest):
            for number, option in enumerate(need.options):
                if option.accelerator == warm.accelerator:
                    there = warmed(option) if has_model(warm, need) else option
                    found.append(self._choice(warm.lanes, there, number, haste))
        return found

    def _choice(self, lanes: Lanes, option: Option, number: int, haste: float) -> Choice:
        estimate = option.estimate
        return Choice(lanes, estimate.cautious_seconds, place.total_cost(option, self._weights, haste), estimate.measured, number)

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

    def _bands(self) -> set[tuple[bool, int]]:
        of_needs = {(late, -need.priority) for need, late in self._needs}
        return of_needs | {(False, -tenure.priority) for tenure, _ in self._held.values()}

    def _lanes(self, shape: Shape, count: int) -> Lanes:
        """A lane for each worker that fits now, as far as anyone wants one, and for each tenure that would free a place."""
        lanes = [Lane() for _ in range(self._board.openings(shape, count))]
        if self._held:
            fit = {slot.node.name: slot for slot in self._board.fit(shape)}
            for tenure, held in self._held.values():
                slot = fit.get(tenure.node)
                if slot is not None and place.frees(tenure, slot.free, shape):
                    lanes.append(Lane(held, held.remaining))
        return Lanes(lanes)

    def _reserve(self, lanes: dict[Shape, Lanes]) -> None:
        """Keep room for the first few in rank that need the room of several others, who would never leave it at one time."""
        if not self._held:
            return
        ends: dict[str, list[tuple[float, Amounts]]] = {}
        for tenure, held in sorted(self._held.values(), key=lambda one: one[1].remaining):
            ends.setdefault(tenure.node, []).append((held.remaining, dict(tenure.shape.amounts)))
        full = {shape for shape in lanes if not self._board.openings(shape, 1)}
        without_room = (
            (rank, need)
            for rank, (need, late) in enumerate(self._needs)
            if not late and need.pool is None and all(option.shape in full for option in need.options)
        )
        for rank, need in islice(without_room, _RESERVATIONS):
            self._keep_room(rank, need, ends, lanes)

    def _keep_room(self, rank: int, need: Need, ends: Mapping[str, Ends], lanes: dict[Shape, Lanes]) -> None:
        """Reserve a node for a need on the class where it would find one soonest, if that is in time."""
        left = self._left(need, late=False)
        found: list[tuple[float, int, Reservation]] = []
        for number, option in enumerate(need.options):
            latest = left - option.estimate.cautious_seconds if option.estimate.measured else inf
            slots = (slot for slot in self._board.fit(option.shape) if slot.node.name not in self._reserved)
            if (kept := reserve(option.shape, rank, slots, ends, latest)) is not None:
                found.append((kept.at, number, kept))
        if found:
            at, number, kept = min(found, key=lambda one: one[:2])
            self._reserved[kept.slot.node.name] = kept
            shape = need.options[number].shape
            if not lanes[shape].lanes:
                lanes[shape] = Lanes([Lane(free=at, opens=at)])

    # answers

    def answers(self) -> dict[Key, Answer]:
        """One for each need, one for each tenure that is to leave."""
        found: dict[Key, Answer] = {}
        waiting: list[tuple[float, int, Need, tuple[Assignment, ...], Work]] = []
        for number, (need, late) in enumerate(self._needs):
            if need.firm and late:
                found[need.key] = Answer(need.uid, need.revision, obstacle=explain.infeasible(need, self._now))
                continue
            given, left = self._assign_all(need, number)
            if left is None:
                found[need.key] = Answer(need.uid, need.revision, given)
            else:
                waiting.append((left.start, number, need, given, left))
        waiting.sort()
        position = 1
        for _, number, need, given, left in waiting:
            obstacle = self._obstacle(need, left, late=self._needs[number][1], position=position)
            position += obstacle.position is not None
            found[need.key] = Answer(need.uid, need.revision, given, obstacle)
        for tenure, held in self._held.values():
            if held.evicted_for is not None:
                reason = explain.eviction(tenure, held.evicted_for.key)
                found[tenure.key] = Answer(tenure.uid, tenure.revision, eviction=reason)
        return found

    def forget(self) -> None:
        """Undo the references in a circle: ten thousand works would stay until the collector comes, which is rare."""
        for works in self._works.values():
            for work in works:
                work.lane = None

    def _assign_all(self, need: Need, rank: int) -> tuple[tuple[Assignment, ...], Work | None]:
        """Places for as many of the need's workers as start now, and the first that does not."""
        given: list[Assignment] = []
        for work in self._works[need.key]:
            assignment = self._assign(need, rank, work, (*need.beside, *(a.node for a in given)) if need.holds else ())
            if assignment is None:
                return tuple(given), work
            given.append(assignment)
        return tuple(given), None

    def _assign(self, need: Need, rank: int, work: Work, beside: tuple[str, ...]) -> Assignment | None:
        """A node for what starts now, taken off the board; None when it starts later, or the room is gone after all."""
        if work.choice is None or work.lane is None:
            return None
        if work.lane.host is not None:
            return self._hand_over(need, work, work.lane.host)
        if work.start > _NOW_SECONDS:
            return None
        option = need.options[work.choice.number]
        seconds = inf if need.holds else work.choice.seconds
        slot = self._open_slot(option.shape, seconds, rank, beside)
        if slot is None and len(work.choices) > 1:
            # Workers of another shape have taken what the lane promised. Another class may have room, and be in time too.
            for choice in sorted(work.choices, key=lambda c: c.cost):
                if choice.lanes.hosted:
                    continue
                option = need.options[choice.number]
                seconds = inf if need.holds else choice.seconds
                timely = not choice.sure or choice.seconds <= work.due
                slot = self._open_slot(option.shape, seconds, rank, beside) if timely else None
                if slot is not None:
                    break
        if slot is None:
            return None
        self._board.take(slot, option.shape)
        if (kept := self._reserved.get(slot.node.name)) is not None:
            kept.admitted(option.shape, seconds, rank)
        grounds = explain.Choosing(self._board, need, option, slot, self._weights, work.haste, self._now)
        return Assignment(option.accelerator, slot.node.name, grounds)

    def _open_slot(self, shape: Shape, seconds: float, rank: int, beside: tuple[str, ...]) -> Slot | None:
        """A node with room for work that takes so long, and on which nobody else's reservation is in its way."""
        barred = [name for name, kept in self._reserved.items() if not kept.admits(shape, seconds, rank)]
        return self._board.apart(shape, beside, barred) if beside else self._board.roomiest(shape, barred)

    def _hand_over(self, need: Need, work: Work, host: Host) -> Assignment | None:
        """A warm worker that is free, or will be in a moment."""
        assert work.choice is not None
        if not host.ready or host.pod is None or work.start > _AHEAD_SECONDS or self._given[host.pod] >= _AHEAD_TASKS:
            return None
        self._given[host.pod] += 1
        option = need.options[work.choice.number]
        there = warmed(option) if has_model(host, need) else option
        grounds = explain.Choosing(self._board, need, there, None, self._weights, work.haste, self._now)
        return Assignment(option.accelerator, host.node, grounds, host.pod)

    def _obstacle(self, need: Need, work: Work, *, late: bool, position: int) -> Obstacle:
        """Why nothing starts now, and when it should: the look at the nodes is shared, the expected start is the need's own."""
        left = self._left(need, late=late)
        asked = tuple(
            (option.shape, not option.estimate.measured or option.estimate.total_seconds <= left) for option in need.options
        )
        # Work that is to be a guest waits for its host, as a pool's own does.
        pool = work.lane.host.pool if work.lane is not None and work.lane.host is not None else need.pool
        shared = self._obstacles.get((pool, asked))
        if shared is None:
            classes = [(option.accelerator, shape, timely) for option, (shape, timely) in zip(need.options, asked, strict=True)]
            shared = explain.no_room(self._board, classes) if pool is None else explain.no_host(pool, self._hosts)
            self._obstacles[pool, asked] = shared
        if shared.reason is Reason.NO_NODE_FITS:
            return shared
        start = done = None
        if work.start != inf and work.choice is not None:
            start, done = shift(self._now, work.start), shift(self._now, work.start + work.choice.seconds)
        crowded = work.lane is None and left != inf
        start_by = shift(self._now, left - min(o.estimate.total_seconds for o in need.options)) if crowded else None
        behind = done_behind_all(work) if crowded else inf
        possible = shift(self._now, behind) if behind < inf else None
        return Obstacle(
            shared.reason, shared.message, possible=possible, start=start, done=done, position=position, start_by=start_by
        )
