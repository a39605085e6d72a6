"""A learned policy beside the rule: what it is shown of a pass, and where the two differ. It has no say.

The policy holds work back that it thinks will be late (a veto, ADR 0010). What it would do is held to what is possible: it starts
nothing that has no place, and nothing that would be late there.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from heapq import nsmallest

from inference_operator.scheduling import filters
from inference_operator.scheduling.node_capacity import Board
from inference_operator.scheduling.scheduler import is_late
from inference_operator.scheduling.types import Answer, Fleet, Need, Option
from inference_operator.shadow.features import Scene, Waiting
from inference_operator.state.objects import Key

# The first in rank that are shown, and the most that are counted as free.
MOST = 64


class Outcome(StrEnum):
    """How the policy stands to what was decided about one job."""

    AGREES = "agrees"
    WOULD_START = "would_start"
    WOULD_HOLD = "would_hold"
    SKIPPED = "skipped"


def shown(fleet: Fleet, now: datetime, lately: int) -> tuple[tuple[Need, ...], Scene | None]:
    """The first jobs in rank of the kind that it was trained on: batches with a deadline that could run on either class.

    So many jobs have come `lately`, those that run by now with them.
    """
    able = (need for need in fleet.needs if not need.holds and need.deadline is not None and _on(need, "gpu") and _on(need, "cpu"))
    needs = tuple(
        nsmallest(MOST, able, key=lambda need: (is_late(need, now), -need.priority, need.deadline, need.created, need.key))
    )
    return needs, _scene(fleet, needs, now, lately) if needs else None


def _scene(fleet: Fleet, needs: Sequence[Need], now: datetime, lately: int) -> Scene:
    gpu, cpu = (_option(needs[0], class_).shape for class_ in ("gpu", "cpu"))
    board = Board(fleet.nodes, fleet.pods)
    free = board.openings(gpu, MOST)
    devices = gpu.wants.keys() - cpu.wants.keys()
    ends = [(tenure.end - now).total_seconds() for tenure in fleet.tenures if devices & tenure.shape.wants.keys()]
    return Scene(
        waiting=tuple(_waiting(need, now) for need in needs),
        gpus=max(1, free + len(ends)),
        free_gpus=free,
        free_cpus=board.openings(cpu, MOST),
        gpu_wait=0.0 if free else max(0.0, min(ends, default=0.0)),
        lately=lately,
    )


def vetoed(scene: Scene, scores: Sequence[float], threshold: float) -> tuple[bool, ...]:
    """Who would be held back, in the order of the scene: only while more wait than have room, and never all."""
    contended = len(scene.waiting) > max(scene.free_gpus + scene.free_cpus, 1)
    held = tuple(contended and score < threshold for score in scores)
    return held if not all(held) else (False,) * len(held)


def compare(needs: Sequence[Need], answers: Mapping[Key, Answer], held: Sequence[bool], now: datetime) -> tuple[Outcome, ...]:
    """The outcome for each need, in rank. Places that the policy would not give go to the next that would be in time there."""
    given = [answer.assignments if (answer := answers.get(need.key)) is not None else () for need in needs]
    free = [places[0].accelerator for places, hold in zip(given, held, strict=True) if places and hold]
    found = []
    for need, places, hold in zip(needs, given, held, strict=True):
        outcome = Outcome.WOULD_HOLD if places and hold else Outcome.AGREES
        if not places and not hold:
            class_ = next((class_ for class_ in free if filters.in_time(_option(need, class_), need.deadline, now)), None)
            if class_ is not None:
                free.remove(class_)
                outcome = Outcome.WOULD_START
        found.append(outcome)
    return tuple(found)


def _waiting(need: Need, now: datetime) -> Waiting:
    gpu, cpu = (_option(need, class_).estimate.total_seconds for class_ in ("gpu", "cpu"))
    assert need.deadline is not None
    return Waiting(gpu, cpu, (need.deadline - now).total_seconds())


def _on(need: Need, class_: str) -> bool:
    return any(option.accelerator == class_ for option in need.options)


def _option(need: Need, class_: str) -> Option:
    return next(option for option in need.options if option.accelerator == class_)
