"""The settings file: what an administrator writes is taken as Pods take it, or refused by name before anything starts."""

from pathlib import Path

import pytest

from inference_operator.settings import ConfigurationError, load_settings

CLASS = "accelerators: {cpu: {executionProviders: [CPUExecutionProvider], requests: {cpu: %s}, limits: {memory: %s}}}"


def written(folder: Path, cpu: str, memory: str) -> Path:
    file = folder / "config.yaml"
    file.write_text(CLASS % (cpu, memory))
    return file


def test_the_amounts_of_a_class_may_be_written_without_quotes(tmp_path: Path) -> None:
    """SeldonIO/seldon-core#1410: `cpu: 1` was refused, though a Pod takes it."""
    of_class = load_settings(written(tmp_path, "1", "1.0e+9")).accelerators["cpu"]

    assert (of_class.requests, of_class.limits) == ({"cpu": "1"}, {"memory": "1000000000.0"})


def test_a_count_of_devices_that_contradicts_the_class_is_refused(tmp_path: Path) -> None:
    """It was silently the class's count."""
    file = tmp_path / "config.yaml"
    gpu = "gpu: {executionProviders: [CUDAExecutionProvider], resourceName: nvidia.com/gpu, limits: {nvidia.com/gpu: %s}}"
    file.write_text(f"accelerators: {{cpu: {{executionProviders: [CPUExecutionProvider]}}, {gpu % 2}}}")
    with pytest.raises(ConfigurationError, match=r"limits\.nvidia\.com/gpu is 2, but resourceCount is 1"):
        load_settings(file)

    file.write_text(f"accelerators: {{cpu: {{executionProviders: [CPUExecutionProvider]}}, {gpu % 1}}}")
    assert load_settings(file).accelerators["gpu"].resource_count == 1


@pytest.mark.parametrize(("cpu", "memory", "where"), [("much", "1Gi", "requests.cpu"), ("1", "'-1'", "limits.memory")])
def test_an_amount_that_no_pod_takes_is_named(tmp_path: Path, cpu: str, memory: str, where: str) -> None:
    with pytest.raises(ConfigurationError, match=f"accelerators.cpu.{where}: "):
        load_settings(written(tmp_path, cpu, memory))
