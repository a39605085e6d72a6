"""Where a volume can be mounted: the node selector of core/v1, as PersistentVolumes carry it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NodeSelectorRequirement:
    """One expression of a node selector, about a label, or about the node's name (`metadata.name`, from matchFields)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def holds(self, labels: Mapping[str, str]) -> bool:
        """Whether a node with these labels meets it. What the API does not define is never met."""
        test = _OPERATORS.get(self.operator)
        return test is not None and test(labels.get(self.key), self.values)

    def __str__(self) -> str:
        """As people write it."""
        match self.operator:
            case "In" if len(self.values) == 1:
                return f"{self.key}={self.values[0]}"
            case "Exists":
                return self.key
            case "DoesNotExist":
                return f"!{self.key}"
            case operator:
                return f"{self.key} {operator} ({', '.join(self.values)})"


# One of them has to hold wholly.
Terms = tuple[tuple[NodeSelectorRequirement, ...], ...]
NAME_FIELD = "metadata.name"
ZONE_LABEL = "topology.kubernetes.io/zone"


@dataclass(frozen=True, slots=True)
class Volume:
    """A PersistentVolume that is bound to a claim, and the nodes that can mount it."""

    uid: str
    resource_version: str
    namespace: str
    claim: str
    terms: Terms

    @property
    def says(self) -> tuple[str, str, Terms]:
        """What of it matters to whoever mounts it."""
        return (self.namespace, self.claim, self.terms)


def reaches(terms: Terms, name: str, labels: Mapping[str, str]) -> bool:
    """Whether a node is among those that a volume can be mounted on. An empty term is met by none, as in core/v1."""
    known = {**labels, NAME_FIELD: name}
    return any(term and all(requirement.holds(known) for requirement in term) for term in terms)


def described(terms: Terms) -> str:
    """The terms for people."""
    return " or ".join(" and ".join(map(str, term)) for term in terms if term) or "no node at all"


def _compared(value: str | None, values: tuple[str, ...], decide: Callable[[int, int], bool]) -> bool:
    try:
        return value is not None and len(values) == 1 and decide(int(value), int(values[0]))
    except ValueError:
        return False


_OPERATORS: dict[str, Callable[[str | None, tuple[str, ...]], bool]] = {
    "In": lambda value, values: value in values,
    "NotIn": lambda value, values: value not in values,
    "Exists": lambda value, _: value is not None,
    "DoesNotExist": lambda value, _: value is None,
    "Gt": lambda value, values: _compared(value, values, int.__gt__),
    "Lt": lambda value, values: _compared(value, values, int.__lt__),
}
