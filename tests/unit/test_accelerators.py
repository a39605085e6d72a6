"""Accelerator classes are open: any DNS label can be one, and what is wrong with a definition is told by its place."""

import json
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from inference_operator.accelerator_faults import fault_of, warnings_of
from inference_operator.accelerators import (
    COMPUTES,
    EXCLUSIVE,
    GPU_PROVIDERS,
    NAME_PATTERN,
    PROVIDERS,
    AcceleratorClass,
    TolerationSetting,
    default_classes,
)
from inference_operator.api.quantity import MAX_LENGTH, PATTERN
from inference_operator.settings import ConfigurationError, load_settings
from tests.unit.accelerators import CPU, CUDA, EXAMPLE, FAULTS, example_classes

CHART = Path(__file__).parents[2] / "charts" / "inference-operator"
CHECKS = (CHART / "templates" / "_accelerators.tpl").read_text()


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


def test_the_charts_schema_knows_every_field() -> None:
    schema = json.loads((CHART / "values.schema.json").read_text())
    of_class = schema["definitions"]["accelerator"]["properties"]

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

    assert of_default.startswith(
        "accelerators.gpu has no image: unless worker.image has CUDAExecutionProvider, jobs that name it end"
    )
    assert "auto that come here do so too, and try no other class" in of_default
    assert not warned(cpu=CPU, npu={**CPU, "resourceName": "example.com/npu"})
    assert not warned(gpu={**CUDA, "resourceName": "nvidia.com/gpu", "image": "cuda:1"})


def test_the_cpu_behind_a_device_is_no_cure_of_a_missing_image_and_what_auto_does_is_said() -> None:
    """`unless worker.image has CUDAExecutionProvider or CPUExecutionProvider` read as if all were well: every image has the CPU's."""
    (warning,) = warned(
        x={**CUDA, "executionProviders": ["CUDAExecutionProvider", "CPUExecutionProvider"], "resourceName": "a.b/c"}
    )

    assert "unless worker.image has CUDAExecutionProvider, jobs that name it end with ProviderUnavailable" in warning
    assert "auto that come here compute on CPUs instead" in warning


def test_who_has_no_gpu_is_told_that_the_warning_of_its_class_is_of_no_matter() -> None:
    (of_default,) = warnings_of(default_classes())

    assert of_default.endswith("While no node has nvidia.com/gpu, no job comes here, and nothing is to be done")


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

    assert schema["providerName"]["enum"] == list(PROVIDERS)
    assert all(text in CHECKS for text in (f'"{NAME_PATTERN}"', f'"{COMPUTES}"', *EXCLUSIVE))
    assert of_class["resourceCount"] == {"const": 1}
    assert (schema["quantity"]["pattern"], schema["quantity"]["maxLength"]) == (PATTERN, MAX_LENGTH)
    assert set(of_toleration) == {field.encode_name for field in msgspec.structs.fields(TolerationSetting)}
    for field in ("operator", "effect"):
        with pytest.raises(msgspec.ValidationError):
            msgspec.convert({"key": "a", field: "?"}, TolerationSetting)
        for value in of_toleration[field]["enum"]:
            msgspec.convert({"key": "a", field: value}, TolerationSetting)
    assert set(schema["accelerator"]["required"]) == {"executionProviders", "wattsBusy"}
