"""One situation of a job, and the words that the tables of situations are written in."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from inference_operator.api.conditions import Condition, Reason, Truth
from inference_operator.api.job_status import InferenceJobStatus
from inference_operator.scheduling.types import Decision, PlacementRequest
from inference_operator.state.objects import Job, PodPhase
from inference_operator.state.observed import Observed
from inference_protocol.reasons import WorkerReason
from tests.builders import NOW, a_report, no_room, placed_on, whole
from tests.unit.scheduling.support import Scheduler

PENDING, FAILED = PodPhase.PENDING, PodPhase.FAILED
LOOKED = InferenceJobStatus(observed_generation=1)


@dataclass(frozen=True)
class Situation:
    """What is seen, and what must follow.

    `conditions` are all there are, with status and reason; `actions` come in order; `looks` is how many looks in a row have
    something to do or to say when nothing else happens.
    """

    seen: Observed
    conditions: Mapping[str, tuple[str, str]]
    kstatus: str
    phase: str
    actions: tuple[str, ...] = ("WriteStatus",)
    scheduler: Scheduler | None = None
    now: datetime = NOW
    recheck: datetime | None = None
    says: str = ""
    events: tuple[str, ...] = field(default=())
    looks: int = 1


def on(*nodes: str, accelerator: str = "cpu", seconds: float | None = None) -> Scheduler:
    return lambda placement_request: placed_on(placement_request, *nodes, accelerator=accelerator, seconds=seconds)


def full(
    reason: Reason = Reason.NO_FREE_CAPACITY, text: str = "waits for room: cpu: 1 of 1 nodes", *, final: bool = False
) -> Scheduler:
    return lambda placement_request: no_room(placement_request, text, reason=reason, final=final)


def partly(*nodes: str) -> Callable[[PlacementRequest], Decision]:
    def decision(placement_request: PlacementRequest) -> Decision:
        return placed_on(placement_request, *nodes, pending=no_room(placement_request, "waits for room").pending)

    return decision


def waits(kind: str, reason: str) -> dict[str, tuple[str, str]]:
    head = {} if kind == "Accepted" else {"Accepted": ("True", "Accepted")}
    return {**head, kind: ("False", reason), "Ready": ("False", reason), "Reconciling": ("True", reason)}


def opens(reason: str, *, placed: bool = True) -> dict[str, tuple[str, str]]:
    """A batch on its way."""
    rest = {"Ready": ("False", reason), "Succeeded": ("Unknown", "Running"), "Reconciling": ("True", reason)}
    place = {"Placed": ("True", "Placed")} if placed else {"Placed": ("False", reason)}
    return {"Accepted": ("True", "Accepted"), **place, **rest}


def fails(reason: str, *, accepted: bool = True) -> dict[str, tuple[str, str]]:
    head = ("True", "Accepted") if accepted else ("False", reason)
    return {"Accepted": head, "Ready": ("False", reason), "Succeeded": ("False", reason), "Stalled": ("True", reason)}


def serves(
    ready: str, reason: str, *, moving: bool = False, placed: tuple[str, str] = ("True", "Placed")
) -> dict[str, tuple[str, str]]:
    more = {"Reconciling": ("True", reason)} if moving else {}
    return {"Accepted": ("True", "Accepted"), "Placed": placed, "Ready": (ready, reason), **more}


DONE = {
    "Accepted": ("True", "Accepted"),
    "Placed": ("True", "Placed"),
    "Ready": ("True", "Succeeded"),
    "Succeeded": ("True", "Succeeded"),
}
SUSPENDED = {"Accepted": ("True", "Accepted"), "Suspended": ("True", "Suspended")}


def failure(reason: WorkerReason = WorkerReason.INTERNAL, message: str = "as the worker says") -> dict[str, object]:
    return {
        "phase": FAILED,
        "report": a_report("Failed", reason=reason, message=message, completed=4),
        "exit_code": 1,
        "ended_ago": 1,
    }


def ended(job: Job, status: InferenceJobStatus | None = None, *, ago: float = 60.0) -> Job:
    """The job after its end."""
    then = whole(NOW - timedelta(seconds=ago))
    done = Condition(
        type="Succeeded", status=Truth.TRUE, reason="Succeeded", message="", last_transition_time=then, observed_generation=1
    )
    return replace(
        job,
        status=replace(
            status or LOOKED,
            conditions=[done],
            start_time=then,
            completion_time=then,
            phase="Succeeded",
            observed_generation=job.generation,
        ),
    )
