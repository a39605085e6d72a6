"""Whether a quota would have room for a refused worker once old ones have left, by the numbers in the API server's refusal."""

import re
from collections.abc import Iterable, Iterator

from inference_operator.api.quantity import parse_quantity
from inference_operator.state.objects import Pod
from inference_operator.state.resources import CPU, PODS

# Kubernetes' own admission words it so; of what exceeds the quota it gives each resource, and no other.
_REFUSAL = re.compile(r'pods "[^"]*" is forbidden: exceeded quota: [^,]*, requested: (.+), used: (.+), limited: (.+)', re.DOTALL)
_PREFIX = re.compile(r"^(?:requests\.|limits\.|count/)")


def has_room_without(refusal: str, leaving: Iterable[Pod]) -> bool:
    """Whether the refused pod would fit once these have left. What can't be read has no room, so that nobody leaves for it."""
    found = _REFUSAL.search(refusal)
    if found is None:
        return False
    gone = tuple(leaving)
    try:
        requested, used, limited = (dict(_amounts(text)) for text in found.groups())
        return all(used[name] + amount - _freed(name, gone) <= limited[name] for name, amount in requested.items())
    except (ValueError, KeyError):
        return False


def _amounts(text: str) -> Iterator[tuple[str, int]]:
    for entry in text.split(","):
        name, _, amount = entry.strip().rpartition("=")
        yield name, parse_quantity(amount, milli=_PREFIX.sub("", name) == CPU)


def _freed(name: str, leaving: Iterable[Pod]) -> int:
    """What these pods give back: of a quota on limits their limits, else their requests."""
    resource = _PREFIX.sub("", name)
    if resource == PODS:
        return sum(1 for _ in leaving)
    return sum((pod.limits if name.startswith("limits.") else pod.requests).get(resource, 0) for pod in leaving)
