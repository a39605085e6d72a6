"""The bases for Kustomize: they are what the chart makes, and kubectl applies them from either side."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import yaml

from dev import kustomize
from dev.kustomize import FOLDER, NAMESPACE, RELEASE, ROOT, SETTINGS
from dev.tools import kubectl
from tests.pages import manifests

if TYPE_CHECKING:
    from dev.kustomize import Manifest
    from tests.cluster.conftest import Cluster

pytestmark = pytest.mark.cluster
DEFAULT = FOLDER / "default"


def build(folder: Path) -> list[Manifest]:
    done = subprocess.run([kubectl(), "kustomize", str(folder)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return list(yaml.safe_load_all(done.stdout))


def key(one: Manifest) -> tuple[str, str, str]:
    return one["kind"], one["metadata"].get("namespace", ""), one["metadata"]["name"]


def installed_by_helm() -> dict[tuple[str, str, str], Manifest]:
    """What `helm install` makes, without what Helm alone reads; by its own words, not by those of dev/kustomize.py."""
    found = {}
    for one in kustomize.rendered():
        if "helm.sh/hook" in one["metadata"].get("annotations", {}):
            continue
        found[key(one)] = one
        pod = one["spec"]["template"] if one["kind"] == "Deployment" else {"metadata": {}}
        for metadata in (one["metadata"], pod["metadata"]):
            for field in ("labels", "annotations"):
                for name in ("helm.sh/chart", "helm.sh/resource-policy", "app.kubernetes.io/managed-by", "checksum/config"):
                    metadata.get(field, {}).pop(name, None)
                if not metadata.get(field):
                    metadata.pop(field, None)
    return found


def test_the_files_are_what_the_chart_gives() -> None:
    written = {path.relative_to(FOLDER).as_posix(): path.read_text() for path in FOLDER.rglob("*") if path.is_file()}

    assert written == kustomize.files(), "run `make kustomize`"


def test_kustomize_installs_what_helm_installs() -> None:
    """But for the labels of the CRDs, and the name of the settings, which ends in their hash. Nothing else may get that hash: a Role did."""
    built, chart = {key(one): one for one in build(DEFAULT)}, installed_by_helm()
    namespace = built.pop(("Namespace", "", NAMESPACE))
    assert namespace["metadata"]["labels"] == {"pod-security.kubernetes.io/enforce": "restricted"}
    (hashed,) = (at for at in built if at[0] == "ConfigMap")
    settings = built.pop(hashed)
    deployment = built["Deployment", NAMESPACE, RELEASE]
    (config,) = (one for one in deployment["spec"]["template"]["spec"]["volumes"] if one["name"] == "config")
    assert config["configMap"]["name"] == settings["metadata"]["name"]
    assert re.fullmatch(rf"{SETTINGS}-\w+", settings["metadata"]["name"])
    config["configMap"]["name"] = settings["metadata"]["name"] = RELEASE
    built[key(settings)] = settings
    for one in (*built.values(), *chart.values()):
        if one["kind"] == "CustomResourceDefinition":
            one["metadata"] = {"name": one["metadata"]["name"]}
        if one["kind"] == "ConfigMap":
            one["data"] = {name: yaml.safe_load(text) for name, text in one["data"].items()}

    assert built == chart


def test_the_crds_are_a_base_of_their_own() -> None:
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]

    assert sorted(build(ROOT / "crds"), key=key) == sorted(files, key=key)


def test_changed_settings_replace_the_operators_pods(tmp_path: Path) -> None:
    """By the overlay of the page: its settings get another name, and the pods name it."""
    (overlay,) = (one for where, one in manifests() if where == "docs/tasks/gitops.md" and one["kind"] == "Kustomization")
    assert overlay["resources"] == ["../config/default"]
    overlay["resources"] = [relative(DEFAULT, tmp_path)]
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    (tmp_path / "config.yaml").write_text((FOLDER / "operator" / "config.yaml").read_text().replace("INFO", "DEBUG"))

    (deployment,) = (one for one in build(tmp_path) if one["kind"] == "Deployment")
    (before,) = (one for one in build(DEFAULT) if one["kind"] == "Deployment")
    assert settings_of(deployment) != settings_of(before)
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["containers"][0]["image"] == "registry.example.com/inference-operator:0.1.0"


def settings_of(deployment: Manifest) -> str:
    volumes = deployment["spec"]["template"]["spec"]["volumes"]
    (name,) = (one["configMap"]["name"] for one in volumes if one["name"] == "config")
    return str(name)


def relative(target: Path, start: Path) -> str:
    """Kustomize takes no absolute path."""
    return "../" * len(start.resolve().parts[1:]) + str(target).lstrip("/")


def test_values_reach_each_place_that_has_them(tmp_path: Path) -> None:
    """A worker's image stands in the settings and in a policy, which no transformer of Kustomize knows."""
    values = tmp_path / "values.yaml"
    values.write_text("worker: {image: {registry: mirror.example.com}}\nreplicaCount: 1\n")
    kustomize.write(tmp_path / "base", kustomize.files([values], crds=relative(ROOT / "crds", tmp_path / "base" / "default")))
    objects = build(tmp_path / "base" / "default")

    image = "mirror.example.com/inference-worker:0.1.0"
    assert image in next(one["data"]["config.yaml"] for one in objects if one["kind"] == "ConfigMap")
    assert any(image in json.dumps(one) for one in objects if one["kind"] == "ValidatingAdmissionPolicy")
    assert [one["spec"]["replicas"] for one in objects if one["kind"] == "Deployment"] == [1]


@pytest.mark.parametrize("flags", [(), ("--server-side",)], ids=["client", "server"])
def test_kubectl_applies_them_and_finds_no_difference_after_it(cluster: Cluster, flags: tuple[str, ...]) -> None:
    try:
        cluster.kubectl("apply", *flags, "-k", str(DEFAULT))

        assert cluster.kubectl("diff", *flags, "-k", str(DEFAULT), check=False).stdout == ""
    finally:
        # The CRDs and the namespace are also others'.
        cluster.kubectl("delete", "--ignore-not-found", "-k", str(FOLDER / "operator"))
