"""A learned policy beside the rule: what it is shown of a pass, and where the two differ. It has no say.

The policy holds work back that it thinks will be late (a veto, ADR 0010). What it would do is held to what is possible: it starts
nothing that has no place, and nothing that would be late there.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from heapq import nsmallest

from inference_operator.scheduling import cost
from inference_operator.scheduling.node_capacity import NodeCapacity
from inference_operator.scheduling.ranking import is_late
from inference_operator.scheduling.types import Decision, Fleet, Option, PlacementRequest
from inference_operator.shadow.features import Scene, WaitingJob
from inference_operator.state.request import Request

# The first in rank that are shown, and the most that are counted as free.
MOST = 64


class Verdict(StrEnum):
    """How the policy stands to what was decided about one job."""

    AGREES = "agrees"
    WOULD_START = "would_start"
    WOULD_HOLD = "would_hold"
    SKIPPED = "skipped"


def shown(fleet: Fleet, now: datetime, lately: int) -> tuple[tuple[PlacementRequest, ...], Scene | None]:
    """The first jobs in rank of the kind that it was trained on: batches with a deadline that could run on either class.

    So many jobs have come `lately`, those that run by now with them.
    """
    able = (
        request
        for request in fleet.requests
        if not request.holds and request.deadline is not None and _on(request, "gpu") and _on(request, "cpu")
    )
    requests = tuple(
        nsmallest(
            MOST,
            able,
            key=lambda request: (is_late(request, now), -request.priority, request.deadline, request.created, request.key),
        )
    )
    return requests, _scene(fleet, requests, now, lately) if requests else None


def _scene(fleet: Fleet, requests: Sequence[PlacementRequest], now: datetime, lately: int) -> Scene:
    gpu, cpu = (_option(requests[0], class_).requirements for class_ in ("gpu", "cpu"))
    capacity = NodeCapacity(fleet.nodes, fleet.pods)
    free = capacity.openings(gpu, MOST)
    devices = gpu.wants.keys() - cpu.wants.keys()
    ends = [
        (running_work.end - now).total_seconds()
        for running_work in fleet.running
        if devices & running_work.requirements.wants.keys()
    ]
    return Scene(
        waiting=tuple(_waiting(request, now) for request in requests),
        gpus=max(1, free + len(ends)),
        free_gpus=free,
        free_cpus=capacity.openings(cpu, MOST),
        gpu_wait=0.0 if free else max(0.0, min(ends, default=0.0)),
        lately=lately,
    )


def vetoed(scene: Scene, scores: Sequence[float], threshold: float) -> tuple[bool, ...]:
    """Who would be held back, in the order of the scene: only while more wait than have room, and never all."""
    contended = len(scene.waiting) > max(scene.free_gpus + scene.free_cpus, 1)
    running_unit = tuple(contended and score < threshold for score in scores)
    return running_unit if not all(running_unit) else (False,) * len(running_unit)


def compare(
    requests: Sequence[PlacementRequest], decisions: Mapping[Request, Decision], running_unit: Sequence[bool], now: datetime
) -> tuple[Verdict, ...]:
    """The outcome for each need, in rank. Places that the policy would not give go to the next that would be in time there."""
    given = [decision.assignments if (decision := decisions.get(request.key)) is not None else () for request in requests]
    free = [places[0].accelerator for places, hold in zip(given, running_unit, strict=True) if places and hold]
    found = []
    for request, places, hold in zip(requests, given, running_unit, strict=True):
        outcome = Verdict.WOULD_HOLD if places and hold else Verdict.AGREES
        if not places and not hold:
            class_ = next((class_ for class_ in free if cost.in_time(_option(request, class_), request.deadline, now)), None)
            if class_ is not None:
                free.remove(class_)
                outcome = Verdict.WOULD_START
        found.append(outcome)
    return tuple(found)


def _waiting(request: PlacementRequest, now: datetime) -> WaitingJob:
    gpu, cpu = (_option(request, class_).estimate.total_seconds for class_ in ("gpu", "cpu"))
    assert request.deadline is not None
    return WaitingJob(gpu, cpu, (request.deadline - now).total_seconds())


def _on(request: PlacementRequest, class_: str) -> bool:
    return any(option.accelerator == class_ for option in request.options)


def _option(request: PlacementRequest, class_: str) -> Option:
    return next(option for option in request.options if option.accelerator == class_)
