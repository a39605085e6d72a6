"""The volumes that can't be mounted everywhere and the claims that not all can mount, as the watches have shown them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum

from inference_operator.state.objects import Key
from inference_operator.state.topology import Terms, Volume


class Access(StrEnum):
    """Who may mount a claim at a time, where not everybody may: the access modes of core/v1."""

    ONE_NODE = "ReadWriteOnce"
    ONE_POD = "ReadWriteOncePod"


_SHARED, _READ = "ReadWriteMany", "ReadOnlyMany"


@dataclass(frozen=True, slots=True)
class Claim:
    """A PersistentVolumeClaim: what its volume allows, or what is asked for until it has one, and whether it is being deleted."""

    uid: str
    resource_version: str
    modes: tuple[str, ...]
    deleting: bool

    def access(self, *, writes: bool) -> Access | None:
        """Who may mount it at a time; None for everybody, and for modes that we don't know."""
        if Access.ONE_POD in self.modes:
            return Access.ONE_POD
        if _SHARED in self.modes or (_READ in self.modes and not writes):
            return None
        return Access.ONE_NODE if self.modes else None

    @property
    def says(self) -> tuple[tuple[str, ...], bool]:
        """What of it matters to whoever mounts it."""
        return (self.modes, self.deleting)


class Claims:
    """PersistentVolumeClaims by namespace and name."""

    def __init__(self) -> None:
        self.known: dict[Key, Claim] = {}
        self._of: dict[str, dict[str, Claim]] = {}
        # What was handed out: all jobs of a namespace share one look, until something changes there.
        self._views: dict[str, Mapping[str, Claim]] = {}

    def put(self, key: Key, claim: Claim | None) -> bool:
        """Take a claim in, None for one that is gone; returns whether that is news to those who mount it."""
        before = self.known.pop(key, None)
        if claim is not None:
            self.known[key] = claim
        there = self._of.setdefault(key.namespace, {})
        there.pop(key.name, None)
        if claim is not None:
            there[key.name] = claim
        self._views.pop(key.namespace, None)
        return (before.says if before is not None else None) != (claim.says if claim is not None else None)

    def of(self, namespace: str) -> Mapping[str, Claim]:
        """The claims of a namespace, by name."""
        found = self._views.get(namespace)
        if found is None:
            found = self._views[namespace] = dict(self._of.get(namespace, {}))
        return found


def deleting(names: Collection[str], claims: Mapping[str, Claim]) -> bool:
    """Whether one of these claims is being deleted, which it is only once no pod has it any more."""
    return any(name in claims and claims[name].deleting for name in names)


class Volumes:
    """Bound PersistentVolumes with node affinity, by name."""

    def __init__(self) -> None:
        self.known: dict[str, Volume] = {}
        # The same by their claims' namespaces and names: all jobs of a namespace share one look.
        self._terms: dict[str, dict[str, Terms]] = {}

    def put(self, name: str, volume: Volume | None) -> set[str]:
        """Take a volume in, None for one that holds nobody back; returns the namespaces where what can be mounted has changed."""
        before = self.known.pop(name, None)
        if volume is not None:
            self.known[name] = volume
        if before is not None and volume is not None and before.says == volume.says:
            return set()
        touched = {found.namespace for found in (before, volume) if found is not None}
        for namespace in touched:
            # Made anew, not changed: snapshots share it.
            self._terms[namespace] = dict(self._terms.get(namespace, {}))
        # The claim may have another volume by now.
        if before is not None and self._terms[before.namespace].get(before.claim) is before.terms:
            del self._terms[before.namespace][before.claim]
        if volume is not None:
            self._terms[volume.namespace][volume.claim] = volume.terms
        return touched

    def terms(self, namespace: str) -> Mapping[str, Terms]:
        """Where the volumes of a namespace's claims can be mounted, by claim."""
        return self._terms.get(namespace, {})
