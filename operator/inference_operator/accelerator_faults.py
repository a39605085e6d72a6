"""What is wrong with accelerator classes, in words with the place and the cure: what can't be used, and what is probably not meant.

The chart says the same in templates/_accelerators.tpl, so that helm refuses what would stop the operator.
"""

import re
from collections.abc import Iterator, Mapping
from math import inf
from typing import Any

import msgspec

from inference_operator.accelerators import (
    AUTO,
    CPU_PROVIDER,
    EXCLUSIVE,
    GPU_PROVIDERS,
    NAME_LIMIT,
    NAME_PATTERN,
    PROVIDERS,
    AcceleratorClass,
    TaintSetting,
    TolerationSetting,
    is_device,
)
from inference_operator.api.quantity import parse_quantity

_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DOMAIN_LIMIT = 253
# No worker starts in less, so whoever wrote less has left out the unit, or written m for Mi.
_LEAST_MEMORY = 16 * 2**20


def unreadable(document: Any) -> str | None:
    """What is wrong with the first class that has unknown fields or values of another type, by its name; None where all are read.

    The settings as a whole would be refused for it as well, without a word of which class it is.
    """
    classes = document.get("accelerators") if isinstance(document, dict) else None
    for name, given in classes.items() if isinstance(classes, dict) else ():
        try:
            msgspec.convert(given, AcceleratorClass)
        except msgspec.ValidationError as error:
            what, _, place = str(error).partition(" - at `$")
            return f"accelerators.{name}{place.removesuffix('`')}: {what}"
    return None


def warnings_of(classes: dict[str, AcceleratorClass]) -> tuple[str, ...]:
    """What is probably wrong with classes that can be used, each with its place and the cure."""
    return tuple(warning for name, of_class in classes.items() for warning in _warnings(f"accelerators.{name}", of_class))


def _warnings(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    names, resource = of_class.provider_names, of_class.resource_name
    beyond = [name for name in names if name != CPU_PROVIDER]
    if resource is None and (on_gpu := [name for name in names if name in GPU_PROVIDERS]):
        yield f"{where} has {on_gpu[0]} and no resourceName, so its workers get no device; name it, for example nvidia.com/gpu"
    if not of_class.image and beyond:
        auto = "compute on CPUs instead" if CPU_PROVIDER in names else "do so too, and try no other class"
        harmless = f". While no node has {resource}, no job comes here, and nothing is to be done" if resource is not None else ""
        yield (
            f"{where} has no image: unless worker.image has {' or '.join(beyond)}, jobs that name it end with ProviderUnavailable, "
            f"and those with accelerator: auto that come here {auto}{harmless}"
        )


def fault_of(classes: Mapping[str, AcceleratorClass]) -> str | None:
    """What is wrong with the first class that can't be used, with its place and the cure; None where all can."""
    if "cpu" not in classes:
        return "accelerators must have a class 'cpu'"
    return next((fault for name, of_class in classes.items() for fault in _faults(name, of_class, classes)), None)


def _faults(name: str, of_class: AcceleratorClass, classes: Mapping[str, AcceleratorClass]) -> Iterator[str]:
    where = f"accelerators.{name}"
    if len(name) > NAME_LIMIT or re.fullmatch(NAME_PATTERN, name) is None:
        yield f"{where}: the name must be a DNS label: at most {NAME_LIMIT} lower-case letters, digits and '-'"
    if name == AUTO:
        yield f"{where}: auto stands for any class; choose another name"
    yield from _provider_faults(where, of_class.provider_names)
    yield from _device_faults(where, of_class)
    yield from _placing_faults(where, of_class)
    for part, given in (("requests", of_class.requests), ("limits", of_class.limits)):
        for resource, text in given.items():
            yield from _quantity_faults(f"{where}.{part}.{resource}", resource, text, of_class)
            if resource != of_class.resource_name and is_device(resource, classes):
                yield f"{where}.{part}.{resource}: a worker's device comes from resourceName alone; set resourceName: {resource}"
    yield from _balance_faults(where, of_class)
    yield from _watts_faults(where, of_class)
    yield from _provisioning_faults(f"{where}.provisioning", of_class)


def _provisioning_faults(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    """What would keep every worker of the class from a new node, though nodes are asked for."""
    grows = of_class.provisioning
    if grows is None:
        return
    for resource, text in grows.allocatable.items():
        try:
            parse_quantity(text)
        except ValueError as error:
            yield f"{where}.allocatable.{resource}: {error}"
            return
    device = {of_class.resource_name: str(of_class.resource_count)} if of_class.resource_name is not None else {}
    for resource, asked in {**of_class.requests, **device}.items():
        there = grows.allocatable.get(resource, "0")
        if parse_quantity(asked, milli=True) > parse_quantity(there, milli=True):
            yield f"{where}.allocatable.{resource} is {there}, and a worker asks for {asked}; write what a new node has for pods"
    for key, value in of_class.node_selector.items():
        if grows.labels.get(key, value) != value:
            yield f"{where}.labels: {key}={grows.labels[key]} is not what nodeSelector asks for; leave it out, or write {value}"
    for taint in grows.taints:
        if taint.effect != "PreferNoSchedule" and not any(_tolerates(t, taint) for t in of_class.tolerations):
            yield f"{where}.taints: workers don't tolerate {taint.key}; add it to the class's tolerations"


def _tolerates(toleration: TolerationSetting, taint: TaintSetting) -> bool:
    covers = toleration.effect in (None, taint.effect) and toleration.key in ("", taint.key)
    return covers and (toleration.operator == "Exists" or (toleration.value or "") == taint.value)


def _balance_faults(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    """Requests above their limits, all of which are quantities: the API server refuses each pod with such."""
    for resource in sorted(of_class.requests.keys() & of_class.limits.keys()):
        asked, most = of_class.requests[resource], of_class.limits[resource]
        if parse_quantity(asked, milli=True) > parse_quantity(most, milli=True):
            yield f"{where}.requests.{resource} is {asked}, above limits.{resource}, which is {most}; lower it, or raise the limit"


def _watts_faults(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    busy, idle, share = of_class.watts_busy, of_class.watts_idle, "write the watts that one worker's share draws"
    if not 0 < busy < inf:
        given = f"{busy:g}" if busy else "0 or missing"
        yield f"{where}.wattsBusy is {given}; {share}, above 0: auto would prefer a class that costs no energy to all others"
    if not 0 <= idle < inf:
        yield f"{where}.wattsIdle is {idle:g}; {share} when idle, 0 or more"
    elif idle > busy:
        yield f"{where}.wattsIdle is {idle:g}, above wattsBusy, which is {busy:g}; {share} when idle"


def _provider_faults(where: str, names: tuple[str, ...]) -> Iterator[str]:
    where = f"{where}.executionProviders"
    if not names:
        yield f"{where} is empty; name at least one: {', '.join(PROVIDERS)}"
    for name in names:
        if name not in PROVIDERS:
            yield f"{where}: there is no execution provider {name!r}; choose among {', '.join(PROVIDERS)}"
        if names.count(name) > 1:
            yield f"{where} names {name} twice"
    if CPU_PROVIDER in names[:-1]:
        yield f"{where}: {CPU_PROVIDER} takes every model, so what follows it is never used; write it last"
    if set(names) >= EXCLUSIVE:
        yield f"{where}: ONNX Runtime takes only one of {' and '.join(sorted(EXCLUSIVE))}; make two classes"


def _device_faults(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    resource, count = of_class.resource_name, of_class.resource_count
    if resource is not None and not _is_qualified(resource, domain=True):
        yield f"{where}.resourceName is {resource!r}; write it as nodes have it, for example nvidia.com/gpu"
    if (memory := of_class.device_memory) is not None:
        if resource is None:
            yield f"{where}.deviceMemory is {memory}, but the class has no device; name its resourceName"
        yield from _memory_faults(f"{where}.deviceMemory", memory)
    if count != 1:
        yield (
            f"{where}.resourceCount is {count}, and a worker computes on one device; "
            "leave it out, and set replicas of a service or split a batch for more"
        )


def _memory_faults(where: str, text: str) -> Iterator[str]:
    try:
        if parse_quantity(text) < _LEAST_MEMORY:
            yield f"{where} is {text}, which is less than 16Mi; write what one worker may take with its unit, for example 8Gi"
    except ValueError as error:
        yield f"{where}: {error}"


def _placing_faults(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    if of_class.image.split() not in ([], [of_class.image]):
        yield f"{where}.image is {of_class.image!r}; write one image without blanks"
    if (runtime := of_class.runtime_class_name) is not None and not _is_domain(runtime):
        yield f"{where}.runtimeClassName is {runtime!r}; name one of kubectl get runtimeclasses"
    for key, value in of_class.node_selector.items():
        if not _is_qualified(key) or (value and not _LABEL_PART.fullmatch(value)):
            yield f"{where}.nodeSelector: {key}={value} is no label that a node can have"
    for toleration in of_class.tolerations:
        if toleration.key and not _is_qualified(toleration.key):
            yield f"{where}.tolerations: {toleration.key!r} is no key that a taint can have"
        if toleration.operator == "Exists" and toleration.value:
            yield f"{where}.tolerations: {toleration.key} has a value, which goes with operator: Equal"


def _quantity_faults(where: str, resource: str, text: str, of_class: AcceleratorClass) -> Iterator[str]:
    try:
        amount = parse_quantity(text)
    except ValueError as error:
        yield f"{where}: {error}"
        return
    if amount < 0:
        yield f"{where}: is below zero"
    if resource == "memory" and 0 < amount < _LEAST_MEMORY:
        yield f"{where} is {text}, in which no worker starts; write it with its unit, for example 512Mi"
    if resource == of_class.resource_name and amount != of_class.resource_count:
        yield f"{where} is {text}, and a worker computes on one device, which resourceName brings; leave it out"


def _is_qualified(name: str, *, domain: bool = False) -> bool:
    """Whether it is a name as labels and resources have them: with a domain before a slash, which resources must have."""
    prefix, slash, rest = name.rpartition("/")
    if not slash:
        return not domain and _LABEL_PART.fullmatch(name) is not None
    return _is_domain(prefix) and _LABEL_PART.fullmatch(rest) is not None


def _is_domain(name: str) -> bool:
    return len(name) <= _DOMAIN_LIMIT and _DOMAIN.fullmatch(name) is not None
