"""What the jobs of one namespace may take from those of others: caps, and the weight of their fair share.

Without any setting a namespace has no cap, and all namespaces have the same weight.
"""

import re
from collections.abc import Collection, Iterator
from typing import Any

import msgspec

HIGHEST_PRIORITY = 1000
"""The highest priority that a job can have."""

_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")


class Limits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What one namespace may have. A cap of None is none."""

    # The highest priority of its jobs: a job that asks for more has this one.
    max_priority: int = HIGHEST_PRIORITY
    # Workers at a time, by accelerator class; each holds one device of the class.
    max_devices: dict[str, int] = {}
    # Workers at a time: of services, batches and warm pools together.
    max_replicas: int | None = None
    # How often in an hour its jobs may preempt work of other namespaces.
    max_preemptions_per_hour: int | None = None
    # Its part in the fair share: a namespace of weight 2 gets twice what one of weight 1 gets.
    weight: float = 1.0


class NamespaceLimits(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The limits of each namespace: its own, else the default."""

    default: Limits = Limits()
    overrides: dict[str, Limits] = {}

    def of(self, namespace: str) -> Limits:
        """Return the limits of one namespace."""
        return self.overrides.get(namespace, self.default)

    @property
    def caps_workers(self) -> bool:
        """Whether any namespace has a cap on its workers."""
        return any(one.max_devices or one.max_replicas is not None for one in (self.default, *self.overrides.values()))


def with_defaults(document: Any) -> Any:
    """The document of all settings, where each override has what it leaves out from the default."""
    limits = document.get("namespaceLimits") if isinstance(document, dict) else None
    if not isinstance(limits, dict):
        return document
    default, overrides = limits.get("default", {}), limits.get("overrides")
    if not isinstance(default, dict) or not isinstance(overrides, dict):
        return document
    merged = {name: {**default, **own} if isinstance(own, dict) else own for name, own in overrides.items()}
    return {**document, "namespaceLimits": {**limits, "overrides": merged}}


def namespace_fault(limits: NamespaceLimits, classes: Collection[str]) -> str | None:
    """What is wrong with the first entry that can't be used, with its place and the cure; None where all can.

    `classes` are the accelerator classes that there are.
    """
    return next(_faults(limits, classes), None)


def _faults(limits: NamespaceLimits, classes: Collection[str]) -> Iterator[str]:
    yield from _limits_faults("namespaceLimits.default", limits.default, classes)
    for name, own in limits.overrides.items():
        where = f"namespaceLimits.overrides.{name}"
        if _NAME.fullmatch(name) is None:
            yield f"{where}: no namespace can have this name; write one namespace's name, without * or /"
        yield from _limits_faults(where, own, classes)


def _limits_faults(where: str, limits: Limits, classes: Collection[str]) -> Iterator[str]:
    if not 0 <= limits.max_priority <= HIGHEST_PRIORITY:
        yield f"{where}.maxPriority is {limits.max_priority}; jobs have priorities from 0 to {HIGHEST_PRIORITY}"
    for name, most in limits.max_devices.items():
        if name not in classes:
            yield f"{where}.maxDevices.{name}: there is no accelerator class {name!r}; choose among {', '.join(classes)}"
        if most < 0:
            yield f"{where}.maxDevices.{name} is {most}; write how many workers may have a device, 0 or more"
    for field, most_of in (("maxReplicas", limits.max_replicas), ("maxPreemptionsPerHour", limits.max_preemptions_per_hour)):
        if most_of is not None and most_of < 0:
            yield f"{where}.{field} is {most_of}; write 0 or more, or leave it out for no cap"
    if not 0 < limits.weight < float("inf"):
        yield f"{where}.weight is {limits.weight:g}; write a number above 0; 1 is the usual"
