"""New nodes for a job: which placeholder pods it needs, and what its status says of them.

Cluster Autoscaler and Karpenter add a node for a pod that is Pending because it fits none. A worker is bound to the node that the
scheduler has chosen, so that a placeholder asks in its stead. It makes way as soon as its job has a place, or needs none.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import count, islice

from inference_operator.api.conditions import NO_PLACE, Reason, UndatedCondition
from inference_operator.api.instants import EARLIEST, doubled, shift
from inference_operator.api.job_status import ProvisioningStatus
from inference_operator.api.names import placeholder_name
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.outcome import Outcome, soonest
from inference_operator.jobs.state import BatchState, Refused, ServiceState
from inference_operator.scheduling.types import Decision
from inference_operator.settings import Settings
from inference_operator.state.objects import Pod
from inference_operator.state.observed import Observed
from inference_operator.workers.actions import CreatePod, DeletePod
from inference_operator.workers.creation import is_held_up
from inference_operator.workers.placeholder import create_placeholder
from inference_operator.workers.resolve import ResolvedJob

# A placeholder that has a node has shown that there is room. A pass decides about it in less, also where a clock is cut to seconds.
_SETTLE_SECONDS = 2.0
# A node that did not come is asked for again after this time, doubling, up to the limit; sooner where others had taken it.
_RETRY_SECONDS = 60.0
_RETRY_TAKEN_SECONDS = 5.0
_RETRY_LIMIT_SECONDS = 3600.0
_TOLD = 1000

_Known = Mapping[str, ProvisioningStatus]


@dataclass(frozen=True, slots=True)
class _Failure:
    """A placeholder whose node has not come, or is of no use, and why."""

    pod: Pod
    message: str


def provisioned(
    outcome: Outcome,
    observed: Observed,
    state: Refused | BatchState | ServiceState,
    decision: Decision | None,
    settings: Settings,
    now: datetime,
) -> Outcome:
    """Return what was decided about a job with the placeholders that it needs, and without those that it doesn't."""
    if outcome.silent or (decision is None and _is_undecided(observed, state, settings, now)):
        return outcome
    wanted = Counter(decision.new_nodes if decision is not None and not outcome.ended else ())
    living = [pod for pod in observed.placeholders if not pod.deleting and not pod.terminal]
    failures = [one for pod in living if wanted[_class(pod)] and (one := _failure(pod, settings, now)) is not None]
    failed = {one.pod.uid for one in failures}
    kept = _kept([pod for pod in living if pod.uid not in failed], wanted)
    gone = [pod for pod in observed.placeholders if not pod.deleting and pod not in kept]
    missing = wanted - Counter(map(_class, kept))
    for one in failures:
        missing.pop(_class(one.pod), None)
    made = tuple(_created(observed, state, missing, settings, now))
    known = {one.accelerator: one for one in outcome.status.provisioning or ()}
    told = _told(known, observed, outcome, wanted, failures, made, now)
    status = replace(outcome.status, provisioning=[told[name] for name in sorted(told)] or None)
    return replace(
        outcome,
        actions=(*(DeletePod(pod.key, pod.uid, _why(pod, failures)) for pod in gone), *outcome.actions, *made),
        status=status,
        conditions=tuple(_with_failures(one, told.values(), now) for one in outcome.conditions),
        recheck=soonest(now, outcome.recheck, *_looks(kept, told.values(), settings)),
    )


def _is_undecided(observed: Observed, state: Refused | BatchState | ServiceState, settings: Settings, now: datetime) -> bool:
    """Whether the job may need new nodes, and the scheduler has yet to say so; a quota may have just refused one of several."""
    held_up = is_held_up(observed.create_failure, settings, now)
    return state.request is not None or (held_up and not isinstance(state, Refused) and not state.resolved.spec.suspend)


def withdrawn(observed: Observed, why: str) -> tuple[DeletePod, ...]:
    """Return the deletion of all placeholders of a job that is over."""
    return tuple(DeletePod(pod.key, pod.uid, why) for pod in observed.placeholders if not pod.deleting)


def _class(pod: Pod) -> str:
    return pod.placeholder.accelerator if pod.placeholder is not None else ""


def _kept(living: Iterable[Pod], wanted: Counter[str]) -> list[Pod]:
    """The oldest of each class, as many as are wanted: their nodes come first."""
    left, kept = Counter(wanted), []
    for pod in sorted(living, key=lambda pod: (pod.created or EARLIEST, pod.key)):
        if left[_class(pod)] > 0:
            left[_class(pod)] -= 1
            kept.append(pod)
    return kept


def _failure(pod: Pod, settings: Settings, now: datetime) -> _Failure | None:
    of_class = settings.accelerators.get(_class(pod))
    if of_class is None or of_class.provisioning is None or pod.created is None:
        return None
    if pod.node is not None:
        since = shift(pod.bound_since or pod.created, _SETTLE_SECONDS)
        return (
            _Failure(pod, f"placeholder pod {pod.key.name} went to node {pod.node}, where the job has no place")
            if since <= now
            else None
        )
    seconds = of_class.provisioning.timeout_seconds
    if shift(pod.created, seconds) > now:
        return None
    words = f": kube-scheduler says: {pod.problem.message[:_TOLD]}" if pod.problem is not None else ""
    return _Failure(pod, f"nothing came within {seconds:g} s of placeholder pod {pod.key.name}{words}")


def _why(pod: Pod, failures: Iterable[_Failure]) -> str:
    return next((one.message for one in failures if one.pod is pod), "no new node is needed any more")


def _created(
    observed: Observed, state: Refused | BatchState | ServiceState, missing: Counter[str], settings: Settings, now: datetime
) -> Iterator[CreatePod]:
    resolved: ResolvedJob | None = None if isinstance(state, Refused) else state.resolved
    if resolved is None:
        return
    job = resolved.job
    taken = {pod.key.name for pod in observed.placeholders}
    numbers = (n for n in count(1) if placeholder_name(job.key.name, job.uid, n) not in taken)
    for accelerator, number in zip(sorted(missing.elements()), islice(numbers, missing.total()), strict=True):
        yield create_placeholder(resolved, accelerator, number=number, settings=settings, now=now)


def _told(
    known: _Known,
    observed: Observed,
    outcome: Outcome,
    wanted: Counter[str],
    failures: Iterable[_Failure],
    made: Iterable[CreatePod],
    now: datetime,
) -> dict[str, ProvisioningStatus]:
    """What the status says of each class, after what was done in this look."""
    told = dict(known)
    for one in failures:
        name = _class(one.pod)
        timeouts = known[name].timeouts + 1 if name in known else 1
        first = _RETRY_SECONDS if one.pod.node is None else _RETRY_TAKEN_SECONDS
        retry = shift(now, doubled(first, timeouts, _RETRY_LIMIT_SECONDS)).replace(microsecond=0)
        told[name] = ProvisioningStatus(accelerator=name, timeouts=timeouts, retry_time=retry, message=one.message)
    for action in made:
        name = _class(action.assumed)
        before = told.get(name, ProvisioningStatus(accelerator=name))
        asked = now.replace(microsecond=0)
        told[name] = replace(before, request_time=asked, node=None, seconds=None, retry_time=None)
    if not wanted:
        placed = [action for action in outcome.actions if isinstance(action, CreatePod) and action.assumed.worker is not None]
        told = {name: one for name, one in told.items() if one.seconds is not None or (one.timeouts and not placed)}
        told |= {came.accelerator: came for action in placed if (came := _came(observed, action, now)) is not None}
    return told


def _came(observed: Observed, placing: CreatePod, now: datetime) -> ProvisioningStatus | None:
    """What is to be remembered of the node that a worker goes to, if it is one that came for this job."""
    worker = placing.assumed.worker
    if worker is None or worker.placement is None:
        return None
    node, name = worker.placement.node, worker.accelerator
    asked = [pod.created for pod in observed.placeholders if _class(pod) == name and pod.created is not None and not pod.deleting]
    made = observed.nodes_created.get(node)
    if made is None or not asked or made < min(asked).replace(microsecond=0):
        return None
    # The time of an answer is in whole seconds, and may be behind that of the object in it.
    seconds = max(0.0, round((now - min(asked)).total_seconds(), 1))
    return ProvisioningStatus(accelerator=name, request_time=min(asked).replace(microsecond=0), node=node, seconds=seconds)


def _with_failures(condition: UndatedCondition, told: Iterable[ProvisioningStatus], now: datetime) -> UndatedCondition:
    """A condition of work that waits, with the nodes that did not come."""
    if condition.reason not in NO_PLACE or condition.reason is Reason.PROVISIONING:
        return condition
    words = "".join(
        f"; no new node of class {one.accelerator}: {one.message}; the next is asked for at {rfc3339(one.retry_time)}"
        for one in told
        if one.retry_time is not None and one.retry_time > now
    )
    return condition._replace(message=condition.message + words)


def _looks(kept: Iterable[Pod], told: Iterable[ProvisioningStatus], settings: Settings) -> Iterator[datetime | None]:
    """When time alone changes something: a node is overdue, one is of no use, or the next may be asked for."""
    for pod in kept:
        of_class = settings.accelerators.get(_class(pod))
        if of_class is None or of_class.provisioning is None or pod.created is None:
            continue
        if pod.node is not None:
            yield shift(pod.bound_since or pod.created, _SETTLE_SECONDS)
        else:
            yield shift(pod.created, of_class.provisioning.timeout_seconds)
    for one in told:
        yield one.retry_time
