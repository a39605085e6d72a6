"""Who goes first: on time before late, high priority before low, and within such a band namespaces by fair share.

The work of one namespace goes by deadline, then by age.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import heapify, heappop, heapreplace
from itertools import groupby
from math import inf
from typing import NamedTuple

from inference_operator.scheduling.requirements import PodRequirements
from inference_operator.scheduling.shares import Parts, Shares
from inference_operator.scheduling.timeline import SchedulingUnit
from inference_operator.scheduling.types import Assignment, Fleet, PlacementRequest


def is_late(request: PlacementRequest, now: datetime) -> bool:
    """Whether no place could be in time any more. Mere assumptions don't make work late: only measurements and the clock do."""
    return late_by(request, seconds_left(request, now))


def seconds_left(request: PlacementRequest, now: datetime) -> float:
    """Seconds until the deadline; endless without one."""
    return inf if request.deadline is None else (request.deadline - now).total_seconds()


def late_by(request: PlacementRequest, left: float) -> bool:
    """Whether no place could be in time with so many seconds left."""
    return left <= 0 or left < request.least_seconds


@dataclass(slots=True)
class Asked:
    """A request in one pass: the seconds to its deadline, endless for one that is late already, and its part of the plan."""

    request: PlacementRequest
    late: bool
    left: float
    band: int
    units: Sequence[SchedulingUnit] = ()
    rank: int = 0
    # Places that it was given, and its first unit that got none.
    given: tuple[Assignment, ...] = ()
    waiting: SchedulingUnit | None = None
    # The class of each new node that is asked for it.
    new_nodes: tuple[str, ...] = ()


class Turn(NamedTuple):
    """One worker's turn to get a place."""

    asked: Asked
    unit: SchedulingUnit


def bands_of(fleet: Fleet) -> dict[tuple[bool, int], int]:
    """Bands of (late, priority downwards), numbered in their order: they are compared often."""
    priorities = {request.priority for request in fleet.requests} | {running_work.priority for running_work in fleet.running}
    return {band: number for number, band in enumerate(sorted((late, -p) for late in (False, True) for p in priorities))}


def namespaces_of(fleet: Fleet) -> set[str]:
    """The namespaces that have something to win or to lose in a pass."""
    found = {request.key.key.namespace for request in fleet.requests}
    found.update([running_work.key.key.namespace for running_work in fleet.running])
    return found


def namespaces_given(asked: Iterable[Asked]) -> dict[tuple[int, str], set[str]]:
    """Who has been given places in a pass, by band and accelerator class."""
    found: dict[tuple[int, str], set[str]] = defaultdict(set)
    for one in asked:
        for assignment in one.given:
            found[one.band, assignment.accelerator].add(one.request.key.key.namespace)
    return found


def in_turn(
    asked: Sequence[Asked],
    shares: Shares | None,
    fits: Callable[[PodRequirements], object],
    lent: Callable[[PlacementRequest, SchedulingUnit], bool] = lambda *_: False,
) -> list[Turn]:
    """The turns of all workers that are wanted, of requests in order; ranks follow from the turns.

    Band by band it is always the turn of the namespace with the smallest share; among equals the requests' order decides. Without
    `shares` there is one namespace. `fits` says whether any node could hold a worker, for what can't be placed takes no share.
    Nor does what is `lent` time of a worker that is there already.
    """
    for rank, one in enumerate(asked):
        one.rank = rank
    if shares is None:
        return [Turn(one, unit) for one in asked for unit in one.units]
    known: dict[tuple[PodRequirements, ...], Parts] = {}

    def parts_of(one: Asked) -> Parts:
        if not one.units[0].candidates or (one.request.pool is not None and one.left == inf):
            # Held back, or nothing but a warm worker will do.
            return ()
        if lent(one.request, one.units[0]):
            return ()
        key = tuple([option.requirements for option in one.request.options])
        if key not in known:
            known[key] = shares.least([requirements for requirements in key if fits(requirements)])
        return known[key]

    turns = [turn for _, band in groupby(asked, key=lambda one: one.band) for turn in _filled(band, shares, parts_of)]
    first: dict[int, Asked] = {}
    for turn in turns:
        first.setdefault(id(turn.asked), turn.asked)
    for rank, one in enumerate(first.values()):
        one.rank = rank
    return turns


def _filled(band: Iterable[Asked], shares: Shares, parts_of: Callable[[Asked], Parts]) -> Iterator[Turn]:
    """Progressive filling: one worker at a time."""
    queues: dict[str, deque[Turn]] = {}
    for one in band:
        for unit in one.units:
            queues.setdefault(unit.namespace, deque()).append(Turn(one, unit))
    heap = [(shares.of(namespace), queue[0].asked.rank, namespace) for namespace, queue in queues.items()]
    heapify(heap)
    while heap:
        namespace = heap[0][2]
        queue = queues[namespace]
        turn = queue.popleft()
        turn.unit.share = share = shares.take(namespace, parts_of(turn.asked))
        yield turn
        if queue:
            heapreplace(heap, (share, queue[0].asked.rank, namespace))
        else:
            heappop(heap)
