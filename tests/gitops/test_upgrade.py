"""An upgrade of operator and CRDs by a commit, on the real two-node cluster: what runs meanwhile doesn't notice."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from dev.cluster.layout import NODES, default_layout
from dev.cluster.node_config import socket_of
from dev.tools import ensure
from examples.demo.cluster import RELEASE, ROOT, SYSTEM, Kubectl, build_images, wait_for
from tests.e2e.conftest import Space, kube, make_space
from tests.e2e.load import digits_of, load
from tests.e2e.support import a_job, a_slow_batch, assert_every_item_answered_once, leader, progress, truth_of_slow_batches, workers
from tests.gitops.argocd import NAMESPACE, ArgoCd, argo_cd
from tests.gitops.conftest import health_scripts
from tests.gitops.repository import Repository

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.support import Manifest

__all__ = ["kube"]
CHART = "charts/inference-operator"
NEXT = "0.2.0"
# So much work that the batch still runs when the upgrade is over.
REPEAT = 20


@pytest.fixture
def argocd(kube: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ArgoCd]:
    """Argo CD beside the local cluster, without an operator yet."""
    helm = [str(ensure("helm") / "helm"), "--kubeconfig", str(kube.kubeconfig), "-n", SYSTEM]
    subprocess.run([*helm, "uninstall", RELEASE, "--wait", "--timeout", "60s"], check=True, capture_output=True)
    with argo_cd(kube.kubeconfig, tmp_path_factory.mktemp("argocd"), health_scripts()) as made:
        yield made
    # Its Applications have no finalizer: what they have installed stays, until the next `helm upgrade` takes it over.
    kube.delete("crd", "applications.argoproj.io", "applicationsets.argoproj.io", "appprojects.argoproj.io")
    kube.delete("namespace", NAMESPACE)


@pytest.fixture
def space(kube: Kubectl) -> Iterator[Space]:
    made = make_space(kube)
    yield made
    made.kube.delete("namespace", made.name, "--wait=false")


def values(images: dict[str, str], *, operator: str) -> Manifest:
    """Those of the local cluster, with an operator of this tag."""
    given: Manifest = yaml.safe_load((ROOT / "examples" / "local-values.yaml").read_text())
    worker = images["worker"].rsplit(":", 1)[1]
    return {**given, "image": {"tag": operator}, "worker": {"image": {"tag": worker}}}


def deliver(argocd: ArgoCd, repository: Repository, given: Manifest, revision: str) -> None:
    """Have Argo CD install this revision of the chart with these values, and wait until all of it is well."""
    argocd.sync(RELEASE, repository.url, namespace=SYSTEM, helm={"valuesObject": given})
    argocd.refresh(RELEASE)
    argocd.wait(RELEASE, revision=revision, seconds=180)


def release_another(repository: Repository) -> str:
    """Commit a chart of the next version, whose CRDs know one field more."""
    chart = repository.tree / CHART / "Chart.yaml"
    chart.write_text(chart.read_text().replace("0.1.0", NEXT))
    crd = repository.tree / CHART / "files" / "crds" / "inferencejobs.inference.myorg.yaml"
    body = yaml.safe_load(crd.read_text())
    spec = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["fresh"] = {"type": "string", "maxLength": 9, "description": "What only the next version knows."}
    crd.write_text(yaml.safe_dump(body))
    return repository.commit("Release the next version")


def tag_on_nodes(name: str, tag: str) -> None:
    """Give an image that the nodes have another tag."""
    for node in NODES:
        ctr = ["ctr", "--address", str(socket_of(default_layout().node(node.name))), "--namespace", "k8s.io"]
        subprocess.run([*ctr, "images", "tag", "--force", name, f"{name.rsplit(':', 1)[0]}:{tag}"], check=True, capture_output=True)


def seen(kube: Kubectl, name: str) -> dict[str, int]:
    """The job's workers by UID, and how often each was restarted."""
    return {pod["metadata"]["uid"]: pod["status"]["containerStatuses"][0]["restartCount"] for pod in workers(kube, name)}


def test_an_upgrade_of_operator_and_crds_leaves_running_work_alone(
    kube: Kubectl, space: Space, argocd: ArgoCd, repository: Repository
) -> None:
    inside, folder, images = space.kube, space.folder, build_images()
    before = images["operator"].rsplit(":", 1)[1]
    repository.copy(ROOT / CHART, CHART)
    jobs = a_job("served", serve={"minReplicas": 2}), a_slow_batch("counted", folder, repeat=REPEAT)
    revision = repository.commit("Begin", {"team/jobs.yaml": jobs})
    deliver(argocd, repository, values(images, operator=before), revision)
    argocd.sync("team", repository.url, namespace=space.name)
    argocd.wait("team", health=None, revision=revision)
    inside.wait("served", "Ready")
    wait_for(lambda: progress(folder, "counted") > 0, "the batch commits")
    running = {name: seen(inside, name) for name in ("served", "counted")}
    led = leader(kube)

    tag_on_nodes(images["operator"], NEXT)
    with load(digits_of(inside, "served")) as callers:
        deliver(argocd, repository, values(images, operator=NEXT), release_another(repository))
        wait_for(lambda: leader(kube) != led, "a new operator leads")
    told = inside.get("ij", "counted")["status"]

    assert callers.faults == []
    assert {name: seen(inside, name) for name in running} == running
    assert set(running["served"].values()) == {0}
    assert told["phase"] == "Running"
    leading = replace(kube, namespace=SYSTEM).get("pod", leader(kube))
    assert leading["spec"]["containers"][0]["image"].endswith(f":{NEXT}")
    # A field of the new version is kept, and what was applied before it differs in nothing.
    argocd.refresh("team")
    argocd.wait("team", health=None)
    jobs[0]["spec"]["fresh"] = "new"
    revision = repository.commit("Use the new field", {"team/jobs.yaml": jobs})
    argocd.refresh("team")
    argocd.wait("team", health=None, revision=revision)
    assert inside.get("ij", "served")["spec"]["fresh"] == "new"
    assert seen(inside, "served") == running["served"]
    job = inside.wait("counted", "Succeeded", seconds=240)
    assert job["status"]["attempts"] == 1
    assert_every_item_answered_once(folder, "counted", truth_of_slow_batches(folder, repeat=REPEAT))
    argocd.wait("team", revision=revision)
