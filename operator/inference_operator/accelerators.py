"""Accelerator classes: what each name that a job may ask for means on this cluster."""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal

import msgspec

from inference_operator.api.quantity import quantity_text

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

# How vendors name devices that compute, beside those that classes name: amd.com/gpu, google.com/tpu, nvidia.com/mig-1g.5gb.
COMPUTES = "(?i)gpu|tpu|npu|vpu|mig-|neuron|gaudi|ascend|fpga"
_COMPUTES = re.compile(COMPUTES)


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


class TaintSetting(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A taint that a new node has, and keeps."""

    key: str
    effect: Literal["NoSchedule", "PreferNoSchedule", "NoExecute"]
    value: str = ""


class Provisioning(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """How an accelerator class grows: by nodes that Cluster Autoscaler or Karpenter adds for pods that fit none."""

    # What a new node has for workers, less what the cluster's own pods take of it: cpu, memory, and the class's device.
    allocatable: dict[str, str]
    # The labels of a new node, beside those of the class's nodeSelector.
    labels: dict[str, str] = {}
    # The taints that it keeps once it is ready.
    taints: tuple[TaintSetting, ...] = ()
    # Seconds from a placeholder pod to a node that takes workers, until the first nodes have shown how many it really takes.
    node_seconds: Annotated[float, msgspec.Meta(gt=0)] = 120.0
    # At most so many placeholder pods of the class at a time.
    max_pending: Annotated[int, msgspec.Meta(ge=1)] = 10
    # A node that has not come after so many seconds is told of, and asked for again later.
    timeout_seconds: Annotated[float, msgspec.Meta(gt=0)] = 900.0


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
    # What is added to the pods of its workers, as in spec.template of a job; the model's and the job's own go before it.
    template: dict[str, Any] = {}
    # Declared board or package power of one worker's share: what costs are reckoned with, and energy where no meter watched.
    # A class has to say what it draws when busy: one that costs nothing would be preferred to all others.
    watts_busy: float = 0.0
    watts_idle: float = 0.0
    # How it grows by new nodes: {allocatable, labels, taints, nodeSeconds, maxPending, timeoutSeconds}; not at all without this.
    provisioning: Provisioning | None = None

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
        if not isinstance(of_class, dict):
            continue
        _with_texts(of_class, "requests", "limits")
        if isinstance(grows := of_class.get("provisioning"), dict):
            _with_texts(grows, "allocatable")
        if of_class.get("deviceMemory") is not None:
            of_class["deviceMemory"] = quantity_text(of_class["deviceMemory"])
    return document


def _with_texts(document: dict[str, Any], *parts: str) -> None:
    for part in parts:
        if isinstance(given := document.get(part), dict):
            document[part] = {name: quantity_text(value) for name, value in given.items()}


def is_device(resource: str, classes: Mapping[str, AcceleratorClass]) -> bool:
    """Whether a resource is a device that computes: one of a class, of the vendor of one, or one by its name."""
    known = {c.resource_name for c in classes.values() if c.resource_name is not None}
    vendor, slash, name = resource.partition("/")
    same_vendor = any(vendor == one.partition("/")[0] for one in known)
    return resource in known or (bool(slash) and (same_vendor or _COMPUTES.search(name) is not None))
