"""Who answers callers that name no version: shares of the requests, and who gets copies of them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from inference_operator.gateway.snapshot import Service

WHOLE = 100


@dataclass(frozen=True, slots=True)
class Split:
    """Who gets how many of a hundred requests, the default version first, and of how many of a hundred who gets a copy."""

    shares: tuple[tuple[Service, int], ...]
    mirrors: tuple[tuple[Service, int], ...] = ()


def splits(services: Iterable[Service]) -> tuple[Split, ...]:
    """One for each model that has a default version."""
    models: dict[tuple[str, str], list[Service]] = {}
    for service in services:
        models.setdefault((service.namespace, service.model), []).append(service)
    return tuple(_split(default, versions) for versions in models.values() for default in versions if default.default)


def _split(default: Service, versions: Sequence[Service]) -> Split:
    """Only versions with a worker that answers take part: a canary that is not up loses nobody's request."""
    others = [other for other in versions if other is not default and other.live]
    asked = [(other, other.options.traffic_percent) for other in others if other.options.traffic_percent]
    given = _within(asked)
    rest = WHOLE - sum(percent for _, percent in given)
    mirrors = tuple((other, other.options.mirror_percent) for other in others if other.options.mirror_percent)
    return Split(((default, rest), *given), mirrors)


def _within(asked: Sequence[tuple[Service, int]]) -> list[tuple[Service, int]]:
    """What is asked for; where that is more than all, each has its part of all."""
    total = sum(percent for _, percent in asked)
    return [(service, percent * WHOLE // max(total, WHOLE)) for service, percent in asked]
