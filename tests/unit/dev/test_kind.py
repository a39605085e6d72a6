"""What `make demo CLUSTER=kind` says where it can't run, and what it asks kind for."""

from pathlib import Path

import pytest
import yaml

from dev import kind
from dev.cluster import default_layout
from dev.console import DevError
from examples.demo.cluster import Kubectl, load


def test_without_docker_it_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(DevError, match=r"there is no docker: install it, or run `make demo` for the local cluster"):
        kind.up()


def test_with_a_docker_that_does_not_answer_it_says_so_and_why(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\necho Cannot connect to the Docker daemon >&2\nexit 1\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    with pytest.raises(DevError, match=r"its daemon doesn't answer: start it, or run `make demo`(?s:.*)Cannot connect"):
        kind.down()


def test_the_volume_of_the_examples_is_the_folder_that_the_node_sees() -> None:
    (node,) = yaml.safe_load(kind.cluster_config())["nodes"]
    (mount,) = node["extraMounts"]
    spec = kind.volume()["spec"]
    namespace, claim = load("00-namespace.yaml")

    assert isinstance(spec, dict)
    assert mount["hostPath"] == mount["containerPath"] == spec["hostPath"]["path"]
    assert (spec["claimRef"]["namespace"], spec["claimRef"]["name"]) == (namespace["metadata"]["name"], claim["metadata"]["name"])
    assert spec["accessModes"] == claim["spec"]["accessModes"] and "storageClassName" not in claim["spec"]


def test_the_demo_says_how_its_own_cluster_ends() -> None:
    assert Kubectl(kind.KUBECONFIG).ended_by == "make kind-down"
    assert Kubectl(default_layout().kubeconfig).ended_by == "make cluster-down"
