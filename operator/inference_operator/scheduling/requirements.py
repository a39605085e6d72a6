"""What a worker takes and where it may go."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from inference_operator.state.objects import Key
from inference_operator.state.topology import Terms
from inference_operator.state.volumes import Access


@dataclass(frozen=True, slots=True)
class Tolerance:
    """A toleration, hashable."""

    key: str | None
    operator: str
    value: str | None
    effect: str | None


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class PodRequirements:
    """What a worker takes and where it may go. Equal requirements fit the same nodes, so each set is looked at once.

    Made by `pod_requirements`: equal ones are one object, which a pass looks up ten thousand times without comparing anything.
    """

    amounts: tuple[tuple[str, int], ...]
    node_selector: tuple[tuple[str, str], ...] = ()
    tolerations: tuple[Tolerance, ...] = ()
    # Claims whose volumes can't be mounted everywhere, and where they can.
    volumes: tuple[tuple[str, Terms], ...] = ()
    # Claims that not all may mount at a time.
    claims: tuple[tuple[Key, Access], ...] = ()
    # Whether it runs in a user namespace of its own.
    user_namespace: bool = False
    # The same without those claims, where there are any: as long as nobody uses them, the same nodes fit.
    unclaimed: "PodRequirements | None" = field(default=None, repr=False)
    # The amounts by name.
    wants: Mapping[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "wants", dict(self.amounts))


_interned: WeakValueDictionary[object, PodRequirements] = WeakValueDictionary()


def pod_requirements(
    amounts: tuple[tuple[str, int], ...],
    node_selector: tuple[tuple[str, str], ...] = (),
    tolerations: tuple[Tolerance, ...] = (),
    volumes: tuple[tuple[str, Terms], ...] = (),
    claims: tuple[tuple[Key, Access], ...] = (),
    *,
    user_namespace: bool = False,
) -> PodRequirements:
    """Return the one object for these requirements, as long as anyone has it."""
    what = (amounts, node_selector, tolerations, volumes, claims, user_namespace)
    found = _interned.get(what)
    if found is None:
        unclaimed = (
            pod_requirements(amounts, node_selector, tolerations, volumes, user_namespace=user_namespace) if claims else None
        )
        found = _interned[what] = PodRequirements(*what, unclaimed)
    return found
