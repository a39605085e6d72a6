"""Devices that a job or its model asks for by hand: a worker computes on those of its accelerator class, so others are refused.

Counting such a request as if it were not there would place a worker with fewer devices than its author believes, and passing it on
would hold devices on which nothing computes.
"""

from collections.abc import Iterator
from typing import NamedTuple

from inference_operator.accelerators import AUTO, is_device
from inference_operator.api.job import Backend, InferenceJobSpec
from inference_operator.api.quantity import parse_quantity
from inference_operator.api.resources import Resources
from inference_operator.settings import Settings
from inference_operator.state.objects import Model
from inference_operator.workers.classes import classes


class DeviceFault(NamedTuple):
    """A device that no worker would compute on: in words with the cure, and whether the job itself asks for it."""

    message: str
    of_job: bool


class _Asked(NamedTuple):
    where: str
    resource: str
    number: int
    of_job: bool


def device_fault(spec: InferenceJobSpec, backend: Backend, model: Model | None, settings: Settings) -> DeviceFault | None:
    """Return the first request for devices that a worker of a class could not honour; None where all is as the classes have it."""
    for name in classes(spec, backend, settings):
        of_class = settings.accelerators[name]
        for asked in _asked(spec, model, name, settings):
            if asked.resource == of_class.resource_name:
                if asked.number == of_class.resource_count:
                    continue
                has = f"a worker on accelerator {name} computes on {of_class.resource_count}"
                text = f"{asked.where} asks for {asked.number} {asked.resource}, but {has}; {_fewer_or_more(asked, name, settings)}"
            elif asked.number:
                why_not, cure = _why_not(spec, asked, name), _elsewhere(asked.resource, settings)
                text = f"{asked.where} asks for {asked.resource}, {why_not}; {cure}"
            else:
                continue
            return DeviceFault(text, asked.of_job)
    return None


def _asked(spec: InferenceJobSpec, model: Model | None, accelerator: str, settings: Settings) -> Iterator[_Asked]:
    """Every request for a device that concerns workers of a class."""
    if model is not None and model.spec is not None:
        for entry in model.spec.resources:
            if entry.accelerator == accelerator:
                where = f"resources of InferenceModel {model.key.name!r} for accelerator {accelerator}"
                yield from _devices(entry.resources, where, settings, of_job=False)
    if spec.resources is not None:
        yield from _devices(spec.resources, "resources", settings, of_job=True)


def _devices(given: Resources, where: str, settings: Settings, *, of_job: bool) -> Iterator[_Asked]:
    for part, amounts in (("limits", given.limits), ("requests", given.requests)):
        for resource, text in amounts.items():
            if is_device(resource, settings.accelerators):
                yield _Asked(f"{where}, {part}," if not of_job else f"{where}.{part}", resource, parse_quantity(text), of_job)


def _why_not(spec: InferenceJobSpec, asked: _Asked, name: str) -> str:
    """Why a worker of a class has no such device; with auto nobody has named the class."""
    if spec.accelerator == AUTO and asked.of_job:
        return "and accelerator auto takes classes without it too"
    return f"but a worker on accelerator {name} doesn't compute on it"


def _fewer_or_more(asked: _Asked, accelerator: str, settings: Settings) -> str:
    if not asked.number:
        return f"leave it out, or set accelerator to {_without(asked.resource, settings)}"
    more = "for more devices set replicas of a service, or split a batch into several jobs"
    return f"leave {asked.resource} out: accelerator {accelerator} brings it; {more}"


def _without(resource: str, settings: Settings) -> str:
    """The classes that don't have a device, for people."""
    return " or ".join(sorted(name for name, c in settings.accelerators.items() if c.resource_name != resource))


def _elsewhere(resource: str, settings: Settings) -> str:
    found = sorted(name for name, c in settings.accelerators.items() if c.resource_name == resource)
    if found:
        return f"set accelerator to {' or '.join(found)}, or leave {resource} out"
    return f"leave it out, or add a class with resourceName {resource} to the chart's accelerators"
