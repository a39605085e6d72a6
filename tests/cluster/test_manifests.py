"""kube-score and Trivy over the chart and over what the operator makes, as the API server holds it: each finding is explained."""

from __future__ import annotations

import json
import os
import re
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dev.tools import KUBERNETES_VERSION, ensure
from tests.cluster.client import jobs, models, pods
from tests.cluster.objects import a_batch, a_job, a_model
from tests.cluster.operators import ACCOUNT, RELEASE_NAMESPACE, REPOSITORY, SUCCESS, until
from tests.cluster.test_autoscalers import a_service, applied

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

EXPLAINED: dict[str, list[dict[str, str]]] = yaml.safe_load((Path(__file__).parent / "explained.yaml").read_text())


@dataclass(frozen=True)
class Finding:
    """What a check says of an object."""

    check: str
    thing: str
    says: str

    def explained_by(self, entry: dict[str, str]) -> bool:
        return self.check == entry["check"] and fnmatchcase(self.thing, entry["objects"]) and entry["says"] in self.says


@pytest.fixture(scope="module")
def made(cluster: Cluster, installed: Installed) -> list[Raw]:
    """What the operator makes of jobs of each kind."""
    space = f"test-{__name__.rpartition('.')[2].replace('_', '-')}"
    cluster.client.create("/api/v1/namespaces", {"metadata": {"name": space}})
    cluster.client.create(models(space), a_model())
    written = {"input": {"uri": "pvc://data/in.npy"}, "output": {"uri": "pvc://data/out"}}
    claim = {"accessModes": ["ReadWriteMany"], "storageClassName": "", "resources": {"requests": {"storage": "1Gi"}}}
    cluster.client.create(f"/api/v1/namespaces/{space}/persistentvolumeclaims", {"metadata": {"name": "data"}, "spec": claim})
    for job in (
        a_batch("batch"),
        a_batch("over-a-claim", **written),
        a_batch("triton", backend="triton"),
        a_job("service"),
    ):
        cluster.client.create(jobs(space), job)
    services = f"/api/v1/namespaces/{space}/services"
    found = [
        *until(lambda: len(items := _items(cluster, pods(space))) == 4 and items, "four pods"),
        *until(lambda: _items(cluster, services), "a Service"),
        # Nobody serves custom metrics here, so that the operator makes no HPA by itself.
        applied(cluster, a_service(space)),
    ]
    for name in ("batch", "over-a-claim", "triton"):
        installed.play(space, SUCCESS, name=name)
    cluster.client.delete(f"{jobs(space)}/service")
    return found


def _items(cluster: Cluster, path: str) -> list[Raw]:
    # Lists leave out what each item is.
    listed = cluster.client.get(path)
    kind = {"kind": listed["kind"].removesuffix("List"), "apiVersion": listed["apiVersion"]}
    return [{**kind, **item} for item in listed["items"]]


def charted(space: str) -> list[Raw]:
    """The chart with all that is of interest to a check."""
    settings = (
        "networkPolicy.enabled=true",
        f"watchNamespaces={{{space}}}",
        "kedaScaler.enabled=true",
        "crds.enabled=false",
    )
    flags = [part for setting in settings for part in ("--set", setting)]
    command = [str(ensure("helm") / "helm"), "template", ACCOUNT, "charts/inference-operator", "-n", RELEASE_NAMESPACE, *flags]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=True)
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def by_kube_score(objects: list[Raw], _: Path) -> set[Finding]:
    """All that kube-score does not find perfect. Annotations that tell it to pass over something are not obeyed."""
    version = ".".join(KUBERNETES_VERSION.split(".")[:2])
    program = [str(ensure("kube-score") / "kube-score"), "score", "--kubernetes-version", version, "-o", "json"]
    optional = ("container-seccomp-profile", "container-ports-check")
    flags = [part for name in optional for part in ("--enable-optional-test", name)]
    done = subprocess.run(
        [*program, *flags, "--disable-ignore-checks-annotations", "-"],
        # Its API is older than the field, and it reads no file with one that it doesn't know.
        input=re.sub(r"\n +matchLabelKeys:\n +- pod-template-hash", "", yaml.safe_dump_all(objects)),
        capture_output=True,
        text=True,
        check=False,
    )
    scored: list[dict[str, Any]] = json.loads(done.stdout)
    return {
        Finding(check["check"]["id"], f"{one['type_meta']['kind']}/{one['object_meta']['name']}", comment["summary"])
        for one in scored
        for check in one["checks"] or ()
        if not check["skipped"]
        for comment in check["comments"] or ()
        if check["grade"] < 10
    }


def by_trivy(objects: list[Raw], folder: Path) -> set[Finding]:
    """All that Trivy's own rules find, of any severity; nothing is downloaded."""
    scanned = folder / "scanned"
    for number, one in enumerate(objects):
        file = scanned / one["kind"] / one["metadata"]["name"] / f"{number}.yaml"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(yaml.safe_dump(one))
    offline = ("--skip-check-update", "--skip-version-check", "--cache-dir", str(folder / "cache"))
    command = [str(ensure("trivy") / "trivy"), "config", "--quiet", *offline, "--format", "json", str(scanned)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return {
        Finding(found["ID"], str(Path(result["Target"]).parent), found["Message"])
        for result in json.loads(done.stdout)["Results"]
        for found in result.get("Misconfigurations", ())
    }


CHECKERS = {"kube-score": by_kube_score, "trivy": by_trivy}
slow = pytest.mark.skipif(
    os.environ.get("INFERENCE_CHECKS") != "all", reason="INFERENCE_CHECKS=all builds Trivy (ten minutes, once)"
)
each_checker = pytest.mark.parametrize("checker", ["kube-score", pytest.param("trivy", marks=slow)])


@pytest.fixture(scope="module")
def find(made: list[Raw], tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], set[Finding]]:
    """What a checker finds in the chart and in what the operator makes."""

    @cache
    def all_of(checker: str) -> set[Finding]:
        return CHECKERS[checker]([*charted(made[0]["metadata"]["namespace"]), *made], tmp_path_factory.mktemp(checker))

    return all_of


@each_checker
def test_nothing_is_found_that_is_not_explained(find: Callable[[str], set[Finding]], checker: str) -> None:
    assert [one for one in find(checker) if not any(map(one.explained_by, EXPLAINED[checker]))] == []


@each_checker
def test_nothing_is_explained_that_is_not_found(find: Callable[[str], set[Finding]], checker: str) -> None:
    assert [entry for entry in EXPLAINED[checker] if not any(one.explained_by(entry) for one in find(checker))] == []


@pytest.mark.parametrize(
    ("checker", "sees"),
    [
        ("kube-score", {"container-security-context-readonlyrootfilesystem", "pod-networkpolicy"}),
        pytest.param("trivy", {"KSV-0001", "KSV-0014"}, marks=slow),
    ],
)
def test_a_checker_sees_what_is_open(made: list[Raw], tmp_path: Path, checker: str, sees: set[str]) -> None:
    """A worker whose container may gain privileges and write everywhere."""
    worker = next(one for one in made if one["kind"] == "Pod")
    (container,) = worker["spec"]["containers"]
    bare = {**worker, "spec": {**worker["spec"], "containers": [{**container, "securityContext": {}}]}}

    assert sees <= {one.check for one in CHECKERS[checker]([bare], tmp_path)}
