"""Accelerator classes are open: any DNS label can be one, and what is wrong with a definition is told by its place."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from inference_operator.accelerators import (
    AUTO,
    EXCLUSIVE,
    GPU_PROVIDERS,
    NAME_PATTERN,
    PROVIDERS,
    AcceleratorClass,
    TolerationSetting,
    default_classes,
    fault_of,
    warnings_of,
)
from inference_operator.api.quantity import MAX_LENGTH, PATTERN
from inference_operator.settings import ConfigurationError, load_settings
from tests.unit.accelerators import EXAMPLE, example_classes

CHART = Path(__file__).parents[2] / "charts" / "inference-operator"
CPU: dict[str, Any] = {"executionProviders": ["CPUExecutionProvider"], "wattsBusy": 15}
CUDA: dict[str, Any] = {"executionProviders": ["CUDAExecutionProvider"], "wattsBusy": 300}


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
    "memory of no device": ({**CPU, "deviceMemory": "8Gi"}, "the class has no device"),
    "memory that is none": ({**CUDA, "resourceName": "nvidia.com/gpu", "deviceMemory": "0"}, "deviceMemory is 0; write what"),
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
    "no list of providers": ({"wattsBusy": 300}, "accelerators.x: Object missing required field `executionProviders`"),
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


def warned(**classes: dict[str, Any]) -> tuple[str, ...]:
    return warnings_of(msgspec.convert(classes, dict[str, AcceleratorClass]))


def test_a_class_without_an_image_of_its_own_is_warned_of_at_the_start() -> None:
    """The default image has the CPU's provider alone, and auto had sent work to a class that could not run any."""
    (of_default,) = warnings_of(default_classes())

    assert of_default.startswith("accelerators.gpu has no image: unless worker.image has CUDAExecutionProvider, its jobs end with")
    assert "auto tries no other class" in of_default
    assert not warned(cpu=CPU, npu={**CPU, "resourceName": "example.com/npu"})
    assert not warned(gpu={**CUDA, "resourceName": "nvidia.com/gpu", "image": "cuda:1"})


@pytest.mark.parametrize("provider", sorted(GPU_PROVIDERS))
def test_a_gpus_class_without_a_resource_is_warned_of_at_the_start(provider: str) -> None:
    given = {"executionProviders": [{"name": provider}, "CPUExecutionProvider"], "image": "cuda:1"}

    (warning,) = warned(x=given)
    assert f"accelerators.x has {provider} and no resourceName, so its workers get no device" in warning
    assert not warned(x={**given, "resourceName": "nvidia.com/gpu"})


def test_nothing_of_the_example_is_warned_of_and_its_images_have_to_be_named_first() -> None:
    given = yaml.safe_load(EXAMPLE.read_text())["accelerators"]
    images = [
        of_class.get("image", "") for of_class in given.values() if of_class["executionProviders"] != ["CPUExecutionProvider"]
    ]

    assert not warned(**given)
    # A name that resolves nowhere (RFC 2606) can't be pulled by mistake.
    assert images and all(image.startswith("registry.example.com/") for image in images)


def test_every_class_of_the_example_says_what_it_takes_and_lives_with_the_taint_of_its_nodes() -> None:
    for name, of_class in yaml.safe_load(EXAMPLE.read_text())["accelerators"].items():
        assert {"cpu", "memory"} <= set(of_class["requests"]) and "memory" in of_class["limits"], name
        if "resourceName" in of_class:
            assert {"key": "nvidia.com/gpu", "operator": "Exists"} in of_class["tolerations"], name


def test_the_charts_schema_takes_what_the_operator_takes_and_no_more() -> None:
    """An upgrade that helm lets through must not stop the operator."""
    schema = json.loads((CHART / "values.schema.json").read_text())["definitions"]
    of_class, of_toleration = schema["accelerator"]["properties"], schema["toleration"]["properties"]
    exclusive = {schema[name]["anyOf"][0]["const"] for name in ("tensorrt", "tensorrtRtx")}

    assert schema["providerName"]["enum"] == list(PROVIDERS)
    assert exclusive == EXCLUSIVE
    assert of_class["resourceCount"] == {"const": 1}
    assert (schema["quantity"]["pattern"], schema["quantity"]["maxLength"]) == (PATTERN, MAX_LENGTH)
    assert set(of_toleration) == {field.encode_name for field in msgspec.structs.fields(TolerationSetting)}
    for field in ("operator", "effect"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"key": "a", field: "?"}, TolerationSetting)
        for value in of_toleration[field]["enum"]:
            msgspec.convert({"key": "a", field: value}, TolerationSetting)
    assert set(schema["accelerator"]["required"]) == {"executionProviders", "wattsBusy"}
