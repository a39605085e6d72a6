"""How nodes are used beyond what their pods ask for: unmanaged usage, and workers that compute."""

from collections.abc import Iterable, Mapping

from inference_operator.scheduling.types import Usage
from inference_operator.state.objects import Reading
from inference_operator.state.power import Device


def unmanaged_usage(devices: Iterable[Device], held: int) -> float:
    """How many of a node's devices are in use though no pod has them, by their utilisation; `held` are with pods by their requests.

    A meter may not know all pods' devices, or not map any. Then the busiest that it gives to nobody are taken to be theirs.
    """
    known = list(devices)
    unknown = max(0, held - sum(bool(device.pods) for device in known))
    idle_first = sorted(device.utilisation or 0.0 for device in known if not device.pods)
    return _rough(sum(idle_first[: len(idle_first) - unknown] if unknown < len(idle_first) else ()))


def busy_share(before: Reading | None, after: Reading) -> float:
    """The share of the time in which a worker computed since it was last asked, 0..1. A batch that runs computes all the time."""
    now = after.telemetry
    if now.progress is not None or any(task.state == "Running" for task in now.tasks):
        return 1.0
    seconds = (after.time - before.time).total_seconds() if before is not None else 0.0
    if before is None or seconds <= 0:
        return 0.0
    return min(1.0, max(0.0, now.busy_seconds - before.telemetry.busy_seconds) / seconds)


def usage(unmanaged_usage: Mapping[str, float], busy: Mapping[str, float], resource: str) -> dict[str, Usage]:
    """Both together, of the nodes of which there is anything to say."""
    nodes = unmanaged_usage.keys() | busy.keys()
    return {node: Usage(resource, unmanaged_usage.get(node, 0.0), _rough(busy.get(node, 0.0))) for node in nodes}


def _rough(value: float) -> float:
    """In tenths: less is noise, and would have a place chosen anew at every look."""
    return round(value, 1)
