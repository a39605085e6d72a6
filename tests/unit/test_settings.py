"""The settings file: what an administrator writes is taken as Pods take it, or refused by name before anything starts."""

from pathlib import Path

import pytest

from inference_operator.settings import ConfigurationError, load_settings

CLASS = (
    "accelerators: {cpu: {executionProviders: [CPUExecutionProvider], wattsBusy: 15, requests: {cpu: %s}, limits: {memory: %s}}}"
)


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
    gpu = "gpu: {executionProviders: [CUDAExecutionProvider], wattsBusy: 300, resourceName: nvidia.com/gpu, limits: {nvidia.com/gpu: %s}}"
    file.write_text(f"accelerators: {{cpu: {{executionProviders: [CPUExecutionProvider], wattsBusy: 15}}, {gpu % 2}}}")
    with pytest.raises(ConfigurationError, match=r"limits\.nvidia\.com/gpu is 2, and a worker computes on one device"):
        load_settings(file)

    file.write_text(f"accelerators: {{cpu: {{executionProviders: [CPUExecutionProvider], wattsBusy: 15}}, {gpu % 1}}}")
    assert load_settings(file).accelerators["gpu"].resource_count == 1


@pytest.mark.parametrize(("cpu", "memory", "where"), [("much", "1Gi", "requests.cpu"), ("1", "'-1'", "limits.memory")])
def test_an_amount_that_no_pod_takes_is_named(tmp_path: Path, cpu: str, memory: str, where: str) -> None:
    with pytest.raises(ConfigurationError, match=f"accelerators.cpu.{where}: "):
        load_settings(written(tmp_path, cpu, memory))


@pytest.mark.parametrize(
    ("security", "says"),
    [
        ("{runAsUser: 0}", "workerSecurity.runAsUser is 0"),
        ("{fsGroup: -1}", "an id is negative"),
        ("{runAsUser: 1000650000, userNamespaces: true}", "no ids above 65535"),
        ("{privileged: true}", "privileged"),
        ("null", "workerSecurity"),
    ],
)
def test_settings_that_would_weaken_worker_pods_are_refused(tmp_path: Path, security: str, says: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"workerSecurity: {security}")

    with pytest.raises(ConfigurationError, match=says):
        load_settings(file)


def test_an_id_that_is_null_is_left_to_the_cluster(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("workerSecurity: {runAsUser: null, runAsGroup: null, fsGroup: null}")
    security = load_settings(file).worker_security

    assert (security.run_as_user, security.run_as_group, security.fs_group) == (None, None, None)
