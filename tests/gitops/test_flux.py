"""The operator and its jobs by Flux's real helm-controller: install, drift, an upgrade of CRDs, and the end."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.client import jobs
from tests.cluster.conftest import REPOSITORY, make_namespace
from tests.cluster.objects import a_batch, a_job, a_model
from tests.cluster.operators import RELEASE_NAMESPACE, SUCCESS, Installed, start, until
from tests.gitops.flux import Flux, flux

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.cluster.conftest import Cluster

RELEASE = "inference-operator"
CHART = REPOSITORY / "charts" / "inference-operator"
# Nothing runs the operator's pods here.
UNWAITED = {"install": {"createNamespace": True, "disableWait": True}, "upgrade": {"disableWait": True}}


@pytest.fixture(scope="module")
def helm_controller(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Flux]:
    with flux(cluster.kubeconfig, tmp_path_factory.mktemp("flux")) as made:
        yield made


@pytest.fixture(scope="module")
def operator(cluster: Cluster, helm_controller: Flux, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The operator of this checkout, with the account and the rights that the HelmRelease has installed."""
    helm_controller.publish(RELEASE, CHART, "0.1.0")
    helm_controller.release(RELEASE, namespace=RELEASE_NAMESPACE, **UNWAITED)
    helm_controller.wait(RELEASE, "0.1.0")
    made = start(cluster, tmp_path_factory.mktemp("operator"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def team(cluster: Cluster, helm_controller: Flux, operator: Installed, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A namespace with a release of a model, a service and a batch."""
    chart = tmp_path_factory.mktemp("charts") / "team"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text(yaml.safe_dump({"apiVersion": "v2", "name": "team", "version": "1.0.0"}))
    objects = a_model(), a_job("served", priority=5), a_batch("counted")
    (chart / "templates" / "all.yaml").write_text(yaml.safe_dump_all(objects))
    namespace = make_namespace(cluster.client)
    helm_controller.publish("team", chart, "1.0.0")
    helm_controller.release("team", namespace=namespace)
    helm_controller.wait("team", "1.0.0")
    operator.run(operator.worker(namespace, name="served"))
    operator.wait_reason(namespace, "Serving", name="served")
    return namespace


def test_nothing_differs_once_the_operator_has_written_its_statuses(helm_controller: Flux, operator: Installed, team: str) -> None:
    for name in (RELEASE, "team"):
        helm_controller.look(name)

    assert "DriftDetected" not in reasons(helm_controller)


def test_an_edit_by_hand_is_taken_back_and_an_autoscalers_replicas_stay(
    cluster: Cluster, helm_controller: Flux, operator: Installed, team: str
) -> None:
    path = f"{jobs(team)}/served"
    cluster.client.merge(f"{path}/scale", {"spec": {"replicas": 2}}, fieldManager="kube-controller-manager")
    cluster.client.merge(path, {"spec": {"priority": 900}}, fieldManager="kubectl-edit")

    helm_controller.look("team")

    until(lambda: cluster.client.get(path)["spec"]["priority"] == 5, "Flux's repair")
    assert cluster.client.get(path)["spec"]["replicas"] == 2


def test_an_upgrade_of_the_crds_leaves_jobs_and_workers_alone(
    cluster: Cluster, helm_controller: Flux, operator: Installed, team: str, tmp_path: Path
) -> None:
    operator.run(operator.worker(team, name="counted"))
    before = operator.wait_reason(team, "Running", name="counted")
    chart = tmp_path / RELEASE
    shutil.copytree(CHART, chart)
    crd = chart / "files" / "crds" / "inferencejobs.inference.myorg.yaml"
    body = yaml.safe_load(crd.read_text())
    spec = body["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    spec["fresh"] = {"type": "string", "maxLength": 9, "description": "What only the next version knows."}
    crd.write_text(yaml.safe_dump(body))

    helm_controller.publish(RELEASE, chart, "0.2.0")
    helm_controller.wait(RELEASE, "0.2.0")

    cluster.client.merge(f"{jobs(team)}/counted", {"spec": {"fresh": "new"}})
    after = operator.job(team, "counted")
    assert after["spec"]["fresh"] == "new"
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    operator.end(operator.worker(team, name="counted"), SUCCESS)
    assert operator.wait_reason(team, "Succeeded", name="counted")["status"]["attempts"] == 1
    helm_controller.look("team")
    assert cluster.client.get(f"{jobs(team)}/served")["spec"]["replicas"] == 2


def test_a_job_that_its_ttl_deleted_is_made_again_at_the_next_look(
    cluster: Cluster, helm_controller: Flux, operator: Installed, team: str
) -> None:
    first = operator.job(team, "counted")["metadata"]["uid"]
    cluster.client.merge(f"{jobs(team)}/counted", {"spec": {"ttlSecondsAfterFinished": 0}})
    until(lambda: cluster.client.call("GET", f"{jobs(team)}/counted").code == 404, "its end by TTL")

    helm_controller.look("team")

    until(lambda: cluster.client.call("GET", f"{jobs(team)}/counted").ok, "the job that Flux makes again")
    assert operator.job(team, "counted")["metadata"]["uid"] != first


def reasons(helm_controller: Flux) -> set[str]:
    """Of the events of all HelmReleases."""
    found = helm_controller.client.get("/api/v1/namespaces/flux-system/events")["items"]
    return {one["reason"] for one in found if one["involvedObject"]["kind"] == "HelmRelease"}
