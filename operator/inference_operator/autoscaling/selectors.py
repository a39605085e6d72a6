"""Label selectors in the API's text form: `a=b,c!=d,e in (f,g),h notin (i),j,!k,l>1,m<2`.

The grammar and its meaning are those of apimachinery's `labels.Parse`: `!=` and `notin` also match objects without the key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_KEY = r"(?:[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_VALUE = r"(?:[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?"
_EXISTS = re.compile(rf"\s*(!?)\s*({_KEY})\s*")
_EQUALS = re.compile(rf"\s*({_KEY})\s*(==|=|!=)\s*({_VALUE})\s*")
_SET = re.compile(rf"\s*({_KEY})\s+(in|notin)\s*\(([^()]*)\)\s*")
_COMPARES = re.compile(rf"\s*({_KEY})\s*([<>])\s*(-?\d+)\s*")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")
_LONGEST = 4096


class SelectorError(ValueError):
    """A text that is no selector; the message quotes the part."""


@dataclass(frozen=True, slots=True)
class LabelSelectorRequirement:
    """One part. `operator` is In, NotIn, Exists, DoesNotExist, Gt or Lt."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet it."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
        if value is None or re.fullmatch(r"-?\d+", value) is None:
            return False
        bound = int(self.values[0])
        return int(value) > bound if self.operator == "Gt" else int(value) < bound


@dataclass(frozen=True, slots=True)
class Selector:
    """All requirements have to be met; none matches everything."""

    requirements: tuple[LabelSelectorRequirement, ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether labels meet all requirements."""
        return all(requirement.matches(labels) for requirement in self.requirements)

    def document(self) -> dict[str, Any] | None:
        """As a meta/v1 LabelSelector; None when there is nothing to say. It knows no comparisons, so these are left out."""
        expressions = [
            {"key": r.key, "operator": r.operator, **({"values": list(r.values)} if r.values else {})}
            for r in self.requirements
            if r.operator not in ("Gt", "Lt")
        ]
        return {"matchExpressions": expressions} if expressions else None


def parse_selector(text: str) -> Selector:
    """Read a selector. Raises SelectorError."""
    if len(text) > _LONGEST:
        raise SelectorError(f"a selector of {len(text)} characters is longer than {_LONGEST}")
    if not text.strip():
        return Selector()
    return Selector(tuple(_requirement(part) for part in _COMMA_OUTSIDE_PARENTHESES.split(text)))


def _requirement(part: str) -> LabelSelectorRequirement:
    if (found := _EQUALS.fullmatch(part)) is not None:
        return LabelSelectorRequirement(found[1], "NotIn" if found[2] == "!=" else "In", (found[3],))
    if (found := _SET.fullmatch(part)) is not None:
        values = tuple(value.strip() for value in found[3].split(","))
        if all(re.fullmatch(_VALUE, value) for value in values):
            return LabelSelectorRequirement(found[1], "In" if found[2] == "in" else "NotIn", values)
    if (found := _COMPARES.fullmatch(part)) is not None:
        return LabelSelectorRequirement(found[1], "Gt" if found[2] == ">" else "Lt", (found[3],))
    if (found := _EXISTS.fullmatch(part)) is not None:
        return LabelSelectorRequirement(found[2], "DoesNotExist" if found[1] else "Exists")
    raise SelectorError(f"{part.strip()!r} is no requirement of a label selector")
