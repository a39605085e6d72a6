"""Warm workers as the scheduler sees them: their time in lanes, and whose model they have."""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from inference_operator.scheduling.timeline import Lane, Lanes
from inference_operator.scheduling.types import Host, Need, Offer, Option
from inference_operator.state.objects import Key


def warmed(option: Option) -> Option:
    """The option on a worker that has the model."""
    return replace(option, estimate=replace(option.estimate, load_seconds=0.0))


@dataclass(frozen=True, slots=True)
class Warm:
    """Warm workers of one pool and class that are alike: there or still to be made, with the same guests and the same room."""

    pool: Key
    accelerator: str
    offer: Offer | None
    guests: frozenset[str]
    lanes: Lanes


def has_model(where: Warm | Host, need: Need) -> bool:
    """Whether a need's model is loaded there."""
    return where.pool == need.pool or (need.guest is not None and need.guest.digest in where.guests)


def warm_lanes(hosts: Iterable[Host]) -> list[Warm]:
    """The warm workers' lanes. A worker that its pool could add has one in each class, and takes no guests."""
    found: dict[tuple[Key, str, bool, frozenset[str], Offer | None], list[Host]] = {}
    for host in sorted(hosts, key=lambda h: (h.pod is None, h.pod or h.pool)):
        found.setdefault((host.pool, host.accelerator, host.pod is None, host.guests, host.offer), []).append(host)
    return [
        Warm(pool, accelerator, None if unmade else offer, guests, Lanes([Lane(free=h.wait, host=h) for h in alike]))
        for (pool, accelerator, unmade, guests, offer), alike in found.items()
    ]
