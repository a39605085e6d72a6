"""kube-score over the chart and over what the operator makes, as the API server holds it: each finding is mended or explained."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from fnmatch import fnmatchcase
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
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

EXPLAINED: list[dict[str, str]] = yaml.safe_load((Path(__file__).parent / "explained.yaml").read_text())


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


def findings(objects: list[Raw]) -> set[Finding]:
    """All that kube-score does not find perfect. Annotations that tell it to pass over something are not obeyed."""
    version = ".".join(KUBERNETES_VERSION.split(".")[:2])
    program = [str(ensure("kube-score") / "kube-score"), "score", "--kubernetes-version", version, "-o", "json"]
    optional = ("container-seccomp-profile", "container-ports-check")
    flags = [part for name in optional for part in ("--enable-optional-test", name)]
    done = subprocess.run(
        [*program, *flags, "--disable-ignore-checks-annotations", "-"],
        input=yaml.safe_dump_all(objects),
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


@pytest.fixture(scope="module")
def found(made: list[Raw]) -> set[Finding]:
    return findings([*charted(made[0]["metadata"]["namespace"]), *made])


def test_nothing_is_found_that_is_not_explained(found: set[Finding]) -> None:
    assert [one for one in found if not any(map(one.explained_by, EXPLAINED))] == []


def test_nothing_is_explained_that_is_not_found(found: set[Finding]) -> None:
    assert [entry for entry in EXPLAINED if not any(one.explained_by(entry) for one in found)] == []


def test_the_check_sees_what_is_open(made: list[Raw]) -> None:
    """Pods that anybody could reach, or that could write everywhere, are found."""
    worker = next(one for one in made if one["kind"] == "Pod")
    (container,) = worker["spec"]["containers"]
    bare = {**worker, "spec": {**worker["spec"], "containers": [{**container, "securityContext": {}}]}}

    seen = {one.check for one in findings([bare]) if not any(map(one.explained_by, EXPLAINED))}
    assert {"container-security-context-readonlyrootfilesystem", "pod-networkpolicy"} <= seen
