"""The classes of examples/accelerators-values.yaml, beside the chart's own, as tests see them; and definitions that are wrong."""

from pathlib import Path
from typing import Any

import msgspec
import yaml

from inference_operator.accelerators import AcceleratorClass, default_classes
from inference_operator.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerators-values.yaml"
CPU: dict[str, Any] = {"executionProviders": ["CPUExecutionProvider"], "wattsBusy": 15}
CUDA: dict[str, Any] = {"executionProviders": ["CUDAExecutionProvider"], "wattsBusy": 300}
FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no provider": ({**CPU, "executionProviders": []}, "executionProviders is empty; name at least one: CPUExecutionProvider"),
    "a provider that nobody has": (
        {**CPU, "executionProviders": ["TensorRTExecutionProvider"]},
        "there is no execution provider 'TensorRTExecutionProvider'; choose among",
    ),
    "a provider twice": (
        {**CPU, "executionProviders": ["CUDAExecutionProvider", {"name": "CUDAExecutionProvider"}]},
        "names CUDAExecutionProvider twice",
    ),
    "a provider behind the CPU": (
        {**CPU, "executionProviders": ["CPUExecutionProvider", "CUDAExecutionProvider"]},
        "write it last",
    ),
    "both TensorRTs": (
        {**CPU, "executionProviders": ["TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"]},
        "only one of NvTensorRTRTXExecutionProvider and TensorrtExecutionProvider; make two classes",
    ),
    "options that are none": ({**CPU, "executionProviders": [{"name": "CUDAExecutionProvider", "options": {"a": [1]}}]}, "options"),
    "a resource without a domain": ({**CUDA, "resourceName": "gpu"}, "resourceName is 'gpu'; write it as nodes have it"),
    "memory of no device": ({**CPU, "deviceMemory": "8Gi"}, "the class has no device"),
    "memory that is none": (
        {**CUDA, "resourceName": "nvidia.com/gpu", "deviceMemory": "0"},
        "deviceMemory is 0, which is less than 16Mi",
    ),
    "memory that is no quantity": (
        {**CUDA, "resourceName": "nvidia.com/gpu", "deviceMemory": "8Gigs"},
        "accelerators.x.deviceMemory",
    ),
    "an image with a blank": ({**CUDA, "image": "a b"}, "image is 'a b'"),
    "a label that no node has": ({**CUDA, "nodeSelector": {"gpu product": "A100"}}, "nodeSelector: gpu product=A100"),
    "a value that no label has": ({**CUDA, "nodeSelector": {"gpu": "NVIDIA A100"}}, "nodeSelector: gpu=NVIDIA A100"),
    "an operator of no toleration": (
        {**CUDA, "tolerations": [{"key": "gpu", "operator": "In"}]},
        "accelerators.x.tolerations[0].operator: Invalid enum value 'In'",
    ),
    "an effect of no taint": (
        {**CUDA, "tolerations": [{"key": "gpu", "effect": "Never"}]},
        "accelerators.x.tolerations[0].effect: Invalid enum value 'Never'",
    ),
    "a key that no taint has": ({**CUDA, "tolerations": [{"key": "a b"}]}, "'a b' is no key"),
    "a value that is not compared": ({**CUDA, "tolerations": [{"key": "gpu", "value": "yes"}]}, "operator: Equal"),
    "no watts": ({"executionProviders": ["CUDAExecutionProvider"]}, "wattsBusy is 0 or missing; write"),
    "watts of nothing": ({**CUDA, "wattsBusy": 0}, "auto would prefer a class that costs no energy to all others"),
    "a RuntimeClass that there can't be": ({**CUDA, "runtimeClassName": "NVIDIA"}, "accelerators.x.runtimeClassName is 'NVIDIA'"),
    "watts below zero": ({**CUDA, "wattsBusy": -1}, "accelerators.x.wattsBusy is -1"),
    "watts without end": ({**CUDA, "wattsIdle": float("inf")}, "accelerators.x.wattsIdle is inf"),
    "a quantity that no pod takes": ({**CUDA, "limits": {"memory": "8Gigs"}}, "accelerators.x.limits.memory"),
    "an unknown field": ({**CUDA, "watts": 300}, "accelerators.x: Object contains unknown field `watts`"),
    "a new node without the device": (
        {**CUDA, "resourceName": "nvidia.com/gpu", "provisioning": {"allocatable": {"cpu": 4}}},
        "accelerators.x.provisioning.allocatable.nvidia.com/gpu is 0, and a worker asks for 1; write what a new node has",
    ),
    "a new node that is too small": (
        {**CUDA, "requests": {"memory": "2Gi"}, "provisioning": {"allocatable": {"memory": "1Gi"}}},
        "accelerators.x.provisioning.allocatable.memory is 1Gi, and a worker asks for 2Gi",
    ),
    "a new node with another label": (
        {**CUDA, "nodeSelector": {"pool": "a"}, "provisioning": {"allocatable": {}, "labels": {"pool": "b"}}},
        "accelerators.x.provisioning.labels: pool=b is not what nodeSelector asks for; leave it out, or write a",
    ),
    "a new node with a taint that workers don't tolerate": (
        {**CUDA, "provisioning": {"allocatable": {}, "taints": [{"key": "spot", "effect": "NoSchedule"}]}},
        "accelerators.x.provisioning.taints: workers don't tolerate spot; add it to the class's tolerations",
    ),
    "a new node of no cpu": (
        {**CUDA, "provisioning": {"allocatable": {"cpu": "4 cores"}}},
        "accelerators.x.provisioning.allocatable.cpu",
    ),
    "no list of providers": ({"wattsBusy": 300}, "accelerators.x: Object missing required field `executionProviders`"),
    "memory without a unit": (
        {**CUDA, "resourceName": "nvidia.com/gpu", "deviceMemory": 8},
        "accelerators.x.deviceMemory is 8, which is less than 16Mi",
    ),
    "memory in thousandths": ({**CPU, "limits": {"memory": "512m"}}, "accelerators.x.limits.memory is 512m, in which no worker"),
    "a resource in capitals": ({**CUDA, "resourceName": "Nvidia.com/GPU"}, "accelerators.x.resourceName is 'Nvidia.com/GPU'"),
    "a device among the limits": (
        {**CUDA, "limits": {"nvidia.com/gpu": 1}},
        "accelerators.x.limits.nvidia.com/gpu: a worker's device comes from resourceName alone; set resourceName: nvidia.com/gpu",
    ),
    "a device of the same vendor among the requests": (
        {**CUDA, "resourceName": "example.com/a", "requests": {"example.com/b": "1"}},
        "accelerators.x.requests.example.com/b: a worker's device comes from resourceName alone",
    ),
    "two devices among the limits": (
        {**CUDA, "resourceName": "nvidia.com/gpu", "limits": {"nvidia.com/gpu": "2"}},
        "accelerators.x.limits.nvidia.com/gpu is 2, and a worker computes on one device, which resourceName brings; leave it out",
    ),
    "requests above the limits": (
        {**CPU, "requests": {"memory": "1Gi"}, "limits": {"memory": "1000M"}},
        "accelerators.x.requests.memory is 1Gi, above limits.memory, which is 1000M; lower it",
    ),
    "CPUs above the limit": (
        {**CPU, "requests": {"cpu": 2}, "limits": {"cpu": "1500m"}},
        "accelerators.x.requests.cpu is 2, above limits.cpu, which is 1500m",
    ),
    "more watts idle than busy": ({**CPU, "wattsIdle": 16}, "accelerators.x.wattsIdle is 16, above wattsBusy, which is 15"),
}
"""What the operator refuses in a class x, by its name, and words of what it says."""


def example_classes() -> dict[str, AcceleratorClass]:
    given = yaml.safe_load(EXAMPLE.read_text())["accelerators"]
    return default_classes() | msgspec.convert(given, dict[str, AcceleratorClass])


def with_classes(*names: str) -> Settings:
    """Settings with these classes of the example."""
    found = example_classes()
    return Settings(accelerators={name: found[name] for name in names})
