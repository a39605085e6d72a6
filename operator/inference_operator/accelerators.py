"""Accelerator classes: what each name that a job may ask for means on this cluster, and what is wrong with a definition."""

import re
from collections.abc import Iterator
from math import inf
from typing import Any, Literal

import msgspec

from inference_operator.api.quantity import parse_quantity, quantity_text

AUTO = "auto"
"""What a job asks for that leaves the class to the operator; no class has this name."""

NAME_PATTERN = "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$"
NAME_LIMIT = 63

CPU_PROVIDER = "CPUExecutionProvider"
CUDA_PROVIDER = "CUDAExecutionProvider"
_TENSORRT = "TensorrtExecutionProvider"
_TENSORRT_RTX = "NvTensorRTRTXExecutionProvider"
PROVIDERS = (
    CPU_PROVIDER,
    CUDA_PROVIDER,
    _TENSORRT,
    _TENSORRT_RTX,
    "OpenVINOExecutionProvider",
    "ROCMExecutionProvider",
    "MIGraphXExecutionProvider",
    "QNNExecutionProvider",
    "CANNExecutionProvider",
    "VitisAIExecutionProvider",
    "WebGpuExecutionProvider",
    "DnnlExecutionProvider",
    "XnnpackExecutionProvider",
)
"""ONNX Runtime's names of those that run on Linux. Which of them a worker has is up to its image."""

EXCLUSIVE = frozenset({_TENSORRT, _TENSORRT_RTX})
"""ONNX Runtime takes one of the two for a session."""

GPU_PROVIDERS = frozenset({CUDA_PROVIDER, _TENSORRT, _TENSORRT_RTX, "ROCMExecutionProvider", "MIGraphXExecutionProvider"})
"""Those that find no device in a pod that was given none."""

_LABEL_PART = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
_DOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_DOMAIN_LIMIT = 253


class TolerationSetting(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A toleration that every worker of an accelerator class gets. Without an operator it is Exists, where a Pod's is Equal."""

    key: str
    operator: Literal["Exists", "Equal"] = "Exists"
    value: str | None = None
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"] | None = None


class ProviderSetting(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """An execution provider of ONNX Runtime. `options` are its own, by the names and with the values that it documents."""

    name: str
    options: dict[str, str | bool | int | float] = {}


class AcceleratorClass(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """What `accelerator: NAME` means on this cluster."""

    # In order of preference, each by its name or as {name, options}: a worker computes with the first that it can have.
    execution_providers: tuple[str | ProviderSetting, ...]
    # The extended resource that a worker asks for; none for plain CPU.
    resource_name: str | None = None
    resource_count: int = 1
    # What one worker may take of the device's memory, where several share a device; all that is free without it.
    device_memory: str | None = None
    # The image of its workers; empty for `worker_image`. Workers of TorchScript have an image of their own.
    image: str = ""
    # The RuntimeClass of its workers, where the node's default runtime gives them no device; a job's own wins.
    runtime_class_name: str | None = None
    # Requests and limits of a worker container unless the job or its model says otherwise.
    requests: dict[str, str] = {}
    limits: dict[str, str] = {}
    node_selector: dict[str, str] = {}
    tolerations: tuple[TolerationSetting, ...] = ()
    # Declared board or package power of one worker's share: what costs are reckoned with, and energy where no meter watched.
    # A class has to say what it draws when busy: one that costs nothing would be preferred to all others.
    watts_busy: float = 0.0
    watts_idle: float = 0.0

    @property
    def provider_names(self) -> tuple[str, ...]:
        """The names of the execution providers, in order of preference."""
        return tuple(provider.name for provider in self.providers)

    @property
    def providers(self) -> tuple[ProviderSetting, ...]:
        """The execution providers, each with its options."""
        return tuple(ProviderSetting(given) if isinstance(given, str) else given for given in self.execution_providers)


def default_classes() -> dict[str, AcceleratorClass]:
    """The classes of a cluster with NVIDIA's device plugin."""
    memory = {"memory": "512Mi"}
    return {
        "cpu": AcceleratorClass(
            execution_providers=(CPU_PROVIDER,),
            requests={"cpu": "500m", **memory},
            limits=memory,
            watts_busy=15.0,
            watts_idle=2.0,
        ),
        "gpu": AcceleratorClass(
            execution_providers=(CUDA_PROVIDER,),
            resource_name="nvidia.com/gpu",
            requests={"cpu": "500m", "memory": "1Gi"},
            limits={"memory": "4Gi"},
            tolerations=(TolerationSetting(key="nvidia.com/gpu"),),
            watts_busy=300.0,
            watts_idle=60.0,
        ),
    }


def with_quantities(document: Any) -> Any:
    """The document with the classes' quantities as text: a Pod takes `cpu: 1` too."""
    classes = document.get("accelerators") if isinstance(document, dict) else None
    for of_class in classes.values() if isinstance(classes, dict) else ():
        for part in ("requests", "limits") if isinstance(of_class, dict) else ():
            if isinstance(given := of_class.get(part), dict):
                of_class[part] = {name: quantity_text(value) for name, value in given.items()}
        if isinstance(of_class, dict) and of_class.get("deviceMemory") is not None:
            of_class["deviceMemory"] = quantity_text(of_class["deviceMemory"])
    return document


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
    names = of_class.provider_names
    if of_class.resource_name is None and (on_gpu := [name for name in names if name in GPU_PROVIDERS]):
        yield f"{where} has {on_gpu[0]} and no resourceName, so its workers get no device; name it, for example nvidia.com/gpu"
    if not of_class.image and set(names) != {CPU_PROVIDER}:
        yield (
            f"{where} has no image: unless worker.image has {' or '.join(names)}, its jobs end with ProviderUnavailable, "
            "and auto tries no other class"
        )


def fault_of(classes: dict[str, AcceleratorClass]) -> str | None:
    """What is wrong with the first class that can't be used, with its place and the cure; None where all can."""
    if "cpu" not in classes:
        return "accelerators must have a class 'cpu'"
    return next((fault for name, of_class in classes.items() for fault in _faults(name, of_class)), None)


def _faults(name: str, of_class: AcceleratorClass) -> Iterator[str]:
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
    yield from _watts_faults(where, of_class)


def _watts_faults(where: str, of_class: AcceleratorClass) -> Iterator[str]:
    busy, idle, share = of_class.watts_busy, of_class.watts_idle, "write the watts that one worker's share draws"
    if not 0 < busy < inf:
        given = f"{busy:g}" if busy else "0 or missing"
        yield f"{where}.wattsBusy is {given}; {share}, above 0: auto would prefer a class that costs no energy to all others"
    if not 0 <= idle < inf:
        yield f"{where}.wattsIdle is {idle:g}; {share} when idle, 0 or more"


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
        if parse_quantity(text) < 1:
            yield f"{where} is {text}; write what one worker may take, for example 8Gi"
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
    if resource == of_class.resource_name and amount != of_class.resource_count:
        yield f"{where} is {text}, but resourceCount is {of_class.resource_count}; set resourceCount alone"


def _is_qualified(name: str, *, domain: bool = False) -> bool:
    """Whether it is a name as labels and resources have them: with a domain before a slash, which resources must have."""
    prefix, slash, rest = name.rpartition("/")
    if not slash:
        return not domain and _LABEL_PART.fullmatch(name) is not None
    return _is_domain(prefix) and _LABEL_PART.fullmatch(rest) is not None


def _is_domain(name: str) -> bool:
    return len(name) <= _DOMAIN_LIMIT and _DOMAIN.fullmatch(name) is not None
