"""Whose objects the operator reads: those of the namespaces that it serves, or of all."""

from collections.abc import Iterable
from dataclasses import dataclass

# Kinds without namespaces, of those that the operator reads.
CLUSTER_SCOPED = ("nodes", "persistentvolumes", "resourceflavors", "priorityclasses")

Namespaces = tuple[str | None, ...]
EVERYWHERE: Namespaces = (None,)


@dataclass(frozen=True, slots=True)
class Scope:
    """Namespaces; none means all. `all_pods` has all pods read also where some are named: they take room on the nodes."""

    namespaces: tuple[str, ...] = ()
    all_pods: bool = False

    def of(self, plural: str) -> Namespaces:
        """The namespaces to read a kind from; None is the whole cluster at once."""
        everywhere = not self.namespaces or plural in CLUSTER_SCOPED or (self.all_pods and plural == "pods")
        return EVERYWHERE if everywhere else self.namespaces

    def parted(self, plurals: Iterable[str]) -> dict[Namespaces, list[str]]:
        """The kinds, by where they are read from."""
        parts: dict[Namespaces, list[str]] = {}
        for plural in plurals:
            parts.setdefault(self.of(plural), []).append(plural)
        return parts
