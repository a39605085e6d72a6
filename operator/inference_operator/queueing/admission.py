"""What Kueue says of a batch: it waits for quota, has it, has to give it back, or is not in the queue at all."""

from dataclasses import dataclass

from inference_operator.state.kueue import ADMITTED, EVICTED, FINISHED, QUOTA_RESERVED, KueueObserved, Workload


@dataclass(frozen=True, slots=True)
class Waiting:
    """It is queued; Kueue's words say what for."""

    message: str


@dataclass(frozen=True, slots=True)
class Admitted:
    """It may run, on nodes with these labels: those of the ResourceFlavors that its quota is of."""

    node_labels: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Evicted:
    """It has to stop: its quota is wanted back, or gone."""

    message: str


@dataclass(frozen=True, slots=True)
class Inactive:
    """Somebody has taken it out of the queue."""

    message: str


Admission = Waiting | Admitted | Evicted | Inactive


def admission(seen: KueueObserved, *, under_way: bool) -> Admission:
    """Return what Kueue says of a batch; `under_way` that an attempt of it runs, which it may do only while it is admitted."""
    found = _of(seen.workload, seen)
    if under_way and isinstance(found, Waiting | Inactive):
        return Evicted(f"it has no quota any more: {found.message}")
    return found


def _of(workload: Workload | None, seen: KueueObserved) -> Admission:
    if workload is None or workload.deleting:
        return Waiting("its Workload is gone, or yet to be made")
    if workload.holds(FINISHED):
        return Waiting(f"Workload {workload.key.name} counts as finished, and is made anew")
    if workload.reserved and workload.holds(EVICTED):
        return Evicted(_message(workload, EVICTED))
    if not workload.active and not workload.suspended:
        why = _message(workload, EVICTED) or "its spec.active is false"
        return Inactive(f"Workload {workload.key.name} is inactive: {why}; set its spec.active to true to queue it again")
    if not workload.reserved:
        return Waiting(_message(workload, QUOTA_RESERVED) or f"Kueue has yet to look at Workload {workload.key.name}")
    if not workload.holds(ADMITTED):
        checks = _message(workload, ADMITTED) or "its admission checks are not ready"
        return Waiting(f"quota is reserved in ClusterQueue {workload.cluster_queue}: {checks}")
    unknown = sorted(set(workload.flavors or ()) - set(seen.flavors))
    if unknown:
        return Waiting(f"ResourceFlavor {', '.join(unknown)} of its quota is not known yet")
    return Admitted(_node_labels(workload, seen))


def _message(workload: Workload, kind: str) -> str:
    found = workload.condition(kind)
    return found.message or found.reason if found is not None else ""


def _node_labels(workload: Workload, seen: KueueObserved) -> tuple[tuple[str, str], ...]:
    """All labels of all flavors: a node has to have each."""
    flavors = (seen.flavors[name] for name in workload.flavors or ())
    return tuple(sorted({pair for flavor in flavors for pair in flavor.node_labels.items()}))
