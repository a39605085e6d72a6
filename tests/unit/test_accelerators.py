"""Accelerator classes are open: any DNS label can be one, and what is wrong with a definition is told by its place."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from inference_operator.accelerators import AUTO, NAME_PATTERN, PROVIDERS, fault_of
from inference_operator.settings import ConfigurationError, load_settings
from tests.unit.accelerators import EXAMPLE, example_classes

CHART = Path(__file__).parents[2] / "charts" / "inference-operator"
CPU: dict[str, Any] = {"executionProviders": ["CPUExecutionProvider"]}
CUDA: dict[str, Any] = {"executionProviders": ["CUDAExecutionProvider"]}


def loaded(folder: Path, **classes: Any) -> dict[str, Any]:
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump({"accelerators": {"cpu": CPU, **classes}}))
    return dict(load_settings(file).accelerators)


def refused(folder: Path, **classes: Any) -> str:
    with pytest.raises(ConfigurationError) as error:
        loaded(folder, **classes)
    return str(error.value)


@pytest.mark.parametrize("name", ["a100", "mig-1g", "l4", "cpu-avx512", "8-bit", "a" * 63])
def test_any_dns_label_is_a_class(tmp_path: Path, name: str) -> None:
    assert name in loaded(tmp_path, **{name: CUDA})


@pytest.mark.parametrize("name", ["A100", "mig_1g", "nvidia.com", "-l4", "l4-", "", "a" * 64])
def test_no_other_name_is_one(tmp_path: Path, name: str) -> None:
    assert f"accelerators.{name}: the name must be a DNS label" in refused(tmp_path, **{name: CUDA})


def test_auto_is_no_class(tmp_path: Path) -> None:
    assert "auto stands for any class" in refused(tmp_path, auto=CUDA)


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no provider": ({"executionProviders": []}, "executionProviders is empty; name at least one: CPUExecutionProvider"),
    "a provider that nobody has": (
        {"executionProviders": ["TensorRTExecutionProvider"]},
        "there is no execution provider 'TensorRTExecutionProvider'; choose among",
    ),
    "a provider twice": (
        {"executionProviders": ["CUDAExecutionProvider", {"name": "CUDAExecutionProvider"}]},
        "names CUDAExecutionProvider twice",
    ),
    "a provider behind the CPU": ({"executionProviders": ["CPUExecutionProvider", "CUDAExecutionProvider"]}, "write it last"),
    "both TensorRTs": (
        {"executionProviders": ["TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider"]},
        "only one of NvTensorRTRTXExecutionProvider and TensorrtExecutionProvider; make two classes",
    ),
    "options that are none": ({"executionProviders": [{"name": "CUDAExecutionProvider", "options": {"a": [1]}}]}, "options"),
    "a resource without a domain": ({**CUDA, "resourceName": "gpu"}, "resourceName is 'gpu'; write it as nodes have it"),
    "memory of no device": ({"executionProviders": ["CPUExecutionProvider"], "deviceMemory": "8Gi"}, "the class has no device"),
    "memory that is none": ({**CUDA, "resourceName": "nvidia.com/gpu", "deviceMemory": "0"}, "deviceMemory is 0; write what"),
    "memory that is no quantity": (
        {**CUDA, "resourceName": "nvidia.com/gpu", "deviceMemory": "8Gigs"},
        "accelerators.x.deviceMemory",
    ),
    "an image with a blank": ({**CUDA, "image": "a b"}, "image is 'a b'"),
    "a label that no node has": ({**CUDA, "nodeSelector": {"gpu product": "A100"}}, "nodeSelector: gpu product=A100"),
    "a value that no label has": ({**CUDA, "nodeSelector": {"gpu": "NVIDIA A100"}}, "nodeSelector: gpu=NVIDIA A100"),
    "an operator of no toleration": ({**CUDA, "tolerations": [{"key": "gpu", "operator": "In"}]}, "'In'"),
    "an effect of no taint": ({**CUDA, "tolerations": [{"key": "gpu", "effect": "Never"}]}, "'Never'"),
    "a key that no taint has": ({**CUDA, "tolerations": [{"key": "a b"}]}, "'a b' is no key"),
    "a value that is not compared": ({**CUDA, "tolerations": [{"key": "gpu", "value": "yes"}]}, "operator: Equal"),
    "watts below zero": ({**CUDA, "wattsBusy": -1}, "accelerators.x.wattsBusy is -1"),
    "watts without end": ({**CUDA, "wattsIdle": float("inf")}, "accelerators.x.wattsIdle is inf"),
    "a quantity that no pod takes": ({**CUDA, "limits": {"memory": "8Gigs"}}, "accelerators.x.limits.memory"),
    "an unknown field": ({**CUDA, "watts": 300}, "watts"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_class_is_told_with_its_place(tmp_path: Path, fault: str) -> None:
    given, words = FAULTS[fault]

    assert words in refused(tmp_path, x=given)


@pytest.mark.parametrize("count", [0, 2, 8])
def test_a_count_that_a_worker_would_not_compute_on_is_refused(tmp_path: Path, count: int) -> None:
    """All but one of the devices were held for nothing."""
    found = refused(tmp_path, x={**CUDA, "resourceName": "nvidia.com/gpu", "resourceCount": count})

    assert f"resourceCount is {count}, and a worker computes on one device" in found and "replicas" in found


def test_the_example_can_be_installed() -> None:
    found = example_classes()

    assert fault_of(found) is None
    assert {"mig-1g": "nvidia.com/mig-1g.10gb", "gpu-shared": "nvidia.com/gpu.shared"}.items() <= {
        name: of_class.resource_name for name, of_class in found.items()
    }.items()


def test_the_charts_schema_knows_every_field_and_name() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    names = schema["properties"]["accelerators"]["propertyNames"]
    of_class = schema["definitions"]["accelerator"]["properties"]

    assert (names["pattern"], names["not"]) == (NAME_PATTERN, {"const": AUTO})
    assert set(of_class) == {field.encode_name for field in msgspec.structs.fields(type(example_classes()["cpu"]))}


def test_the_example_says_nothing_that_the_chart_does_not_know() -> None:
    of_class = json.loads((CHART / "values.schema.json").read_text())["definitions"]["accelerator"]["properties"]

    for name, given in yaml.safe_load(EXAMPLE.read_text())["accelerators"].items():
        assert set(given) <= set(of_class) and re.fullmatch(NAME_PATTERN, name)


def test_tensorrt_in_both_forms_can_be_named() -> None:
    assert {"TensorrtExecutionProvider", "NvTensorRTRTXExecutionProvider", "OpenVINOExecutionProvider"} <= set(PROVIDERS)
