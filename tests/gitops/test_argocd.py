"""The operator and its jobs by the real Argo CD: install, health, drift, prune, and jobs that the operator deletes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.client import jobs, pods
from tests.cluster.conftest import REPOSITORY, make_namespace
from tests.cluster.objects import a_batch, a_job, a_model
from tests.cluster.operators import FAILURE, RELEASE_NAMESPACE, SUCCESS, Installed, start, until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.gitops.argocd import ArgoCd
    from tests.gitops.repository import Repository

RELEASE = "inference-operator"


@pytest.fixture(scope="module")
def chart(cluster: Cluster, argocd: ArgoCd, repository: Repository) -> Raw:
    """The Application of the chart, once all of it is applied. Its Deployment has no node to run on."""
    repository.copy(REPOSITORY / "charts" / "inference-operator", "charts/inference-operator")
    revision = repository.commit("Add the operator's chart")
    argocd.sync(RELEASE, repository.url, namespace=RELEASE_NAMESPACE)
    return argocd.wait(RELEASE, health="Progressing", revision=revision, seconds=120)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, chart: Raw, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The operator of this checkout, with the account and the rights that Argo CD has installed."""
    made = start(cluster, tmp_path_factory.mktemp("operator"))
    yield made
    made.stop()


@pytest.fixture(scope="module")
def team(cluster: Cluster, argocd: ArgoCd, repository: Repository, operator: Installed) -> str:
    """A namespace whose model and jobs are in Git."""
    namespace = make_namespace(cluster.client)
    revision = repository.commit("Add a model", {"team/model.yaml": (a_model(),)})
    argocd.sync("team", repository.url, namespace=namespace)
    argocd.wait("team", revision=revision)
    return namespace


def test_the_chart_is_installed_with_its_crds_and_nothing_differs(cluster: Cluster, argocd: ArgoCd, chart: Raw) -> None:
    found = argocd.resources(RELEASE)

    assert {one["status"] for one in found.values()} == {"Synced"}
    assert {name for kind, name in found if kind == "CustomResourceDefinition"} == {
        "inferencejobs.inference.myorg",
        "inferencemodels.inference.myorg",
    }
    # What waits are the pods alone, and the budget of these.
    waits = {("Deployment", RELEASE), ("PodDisruptionBudget", RELEASE)}
    until(lambda: progressing(argocd) == waits, "the health of all else")
    # `helm test` is nobody's here.
    assert not any(kind == "Pod" for kind, _ in found)


def progressing(argocd: ArgoCd) -> set[tuple[str, str]]:
    found = argocd.resources(RELEASE)
    return {at for at, one in found.items() if one.get("health", {}).get("status") == "Progressing"}


def test_whoever_scales_the_operator_by_hand_is_set_right(cluster: Cluster, argocd: ArgoCd, chart: Raw) -> None:
    deployment = f"/apis/apps/v1/namespaces/{RELEASE_NAMESPACE}/deployments/{RELEASE}"
    cluster.client.merge(deployment, {"spec": {"replicas": 0}})

    until(lambda: cluster.client.get(deployment)["spec"]["replicas"] == 2, "Argo CD's repair")
    argocd.wait(RELEASE, health="Progressing")


# Jobs. Each test has files of its own in the same Application, and takes them away again.


@pytest.fixture
def committed(argocd: ArgoCd, repository: Repository, team: str) -> Iterator[Committed]:
    made = Committed(argocd, repository, team)
    yield made
    made.clear()


class Committed:
    """Jobs of the namespace, as Git has them."""

    def __init__(self, argocd: ArgoCd, repository: Repository, namespace: str) -> None:
        self.argocd, self.repository, self.namespace = argocd, repository, namespace
        self._paths: set[str] = set()

    def put(self, *objects: Raw) -> str:
        """Commit each to a file of its own, and have Argo CD look."""
        for one in objects:
            path = f"team/{one['metadata']['name']}.yaml"
            self.repository.write(path, one)
            self._paths.add(path)
        return self._push(f"Put {', '.join(one['metadata']['name'] for one in objects)}")

    def remove(self, name: str) -> str:
        path = f"team/{name}.yaml"
        self.repository.write(path)
        self._paths.discard(path)
        return self._push(f"Remove {name}")

    def clear(self) -> None:
        for path in self._paths:
            self.repository.write(path)
        self._paths.clear()
        self.argocd.wait("team", revision=self._push("Clear"))

    def _push(self, subject: str) -> str:
        revision = self.repository.commit(subject)
        self.argocd.refresh("team")
        return revision

    def health(self, wanted: str, name: str) -> None:
        until(
            lambda: self.argocd.health("team", "InferenceJob", name) == wanted,
            f"{name} {wanted}, not {self.argocd.health('team', 'InferenceJob', name)}",
        )


def test_a_job_is_progressing_and_then_healthy_degraded_or_suspended(
    committed: Committed, operator: Installed, argocd: ArgoCd
) -> None:
    revision = committed.put(a_batch("good"), a_batch("bad"), a_batch("paused", suspend=True), a_job("served"))
    for name in ("good", "bad", "served"):
        committed.health("Progressing", name)
    committed.health("Suspended", "paused")

    operator.play(committed.namespace, SUCCESS, name="good")
    operator.play(committed.namespace, FAILURE, name="bad")
    operator.run(operator.worker(committed.namespace, name="served"))

    committed.health("Healthy", "good")
    committed.health("Healthy", "served")
    committed.health("Degraded", "bad")
    assert argocd.health("team", "InferenceModel", "digits") == "Healthy"
    # All statuses are written by now: none of them, nor any default, is a difference. The worst of them is the Application's.
    argocd.wait("team", health="Degraded", revision=revision)
    assert {one["status"] for one in argocd.resources("team").values()} == {"Synced"}
    assert "there is no such file" in argocd.resources("team")["InferenceJob", "bad"]["health"]["message"]


def test_an_edit_by_hand_is_taken_back_and_an_autoscalers_replicas_stay(
    committed: Committed, operator: Installed, argocd: ArgoCd, cluster: Cluster
) -> None:
    committed.put(a_job("edited", priority=5))
    operator.run(operator.worker(committed.namespace, name="edited"))
    committed.health("Healthy", "edited")
    path = f"{jobs(committed.namespace)}/edited"

    cluster.client.merge(f"{path}/scale", {"spec": {"replicas": 2}}, fieldManager="kube-controller-manager")
    cluster.client.merge(path, {"spec": {"priority": 900}}, fieldManager="kubectl-edit")

    until(lambda: cluster.client.get(path)["spec"]["priority"] == 5, "Argo CD's repair")
    operator.run(operator.worker(committed.namespace, 2, name="edited"))
    argocd.wait("team")
    assert cluster.client.get(path)["spec"]["replicas"] == 2
    assert argocd.resources("team")["InferenceJob", "edited"]["status"] == "Synced"


def test_a_job_that_git_no_longer_has_goes_with_its_worker(
    committed: Committed, operator: Installed, argocd: ArgoCd, cluster: Cluster
) -> None:
    committed.put(a_batch("pruned"))
    operator.run(operator.worker(committed.namespace, name="pruned"))
    operator.wait_reason(committed.namespace, "Running", name="pruned")

    revision = committed.remove("pruned")

    argocd.wait("team", revision=revision)
    assert cluster.client.call("GET", f"{jobs(committed.namespace)}/pruned").code == 404
    query = f"{pods(committed.namespace)}?labelSelector=inference.myorg/job=pruned"
    # A pod that is bound waits for its kubelet, and there is none.
    until(lambda: all("deletionTimestamp" in one["metadata"] for one in cluster.client.get(query)["items"]), "the worker's end")


def test_a_job_that_its_ttl_deleted_is_made_again(committed: Committed, operator: Installed, cluster: Cluster) -> None:
    committed.put(a_batch("fleeting", ttlSecondsAfterFinished=1))
    operator.worker(committed.namespace, name="fleeting")
    first = operator.job(committed.namespace, "fleeting")["metadata"]["uid"]
    operator.play(committed.namespace, SUCCESS, name="fleeting")

    def second() -> bool:
        found = cluster.client.call("GET", f"{jobs(committed.namespace)}/fleeting")
        return found.ok and found.body["metadata"]["uid"] != first

    until(second, "the job that Argo CD makes again", seconds=60)


def test_a_hook_runs_with_each_sync_and_may_have_a_ttl(
    committed: Committed, operator: Installed, argocd: ArgoCd, cluster: Cluster
) -> None:
    """The sync waits for it, and misses nothing once it is deleted. A commit that changes a hook alone is no reason for a sync."""
    hook = a_batch("nightly", ttlSecondsAfterFinished=1)
    hook["metadata"]["annotations"] = {"argocd.argoproj.io/hook": "PostSync"}
    argocd.wait("team", revision=committed.put(hook))
    assert cluster.client.call("GET", f"{jobs(committed.namespace)}/nightly").code == 404

    revision = committed.put(a_model("new"))

    operator.worker(committed.namespace, name="nightly")
    assert argocd.application("team")["status"]["operationState"]["phase"] == "Running"

    operator.play(committed.namespace, SUCCESS, name="nightly")

    done = argocd.wait("team", revision=revision)
    assert done["status"]["operationState"]["phase"] == "Succeeded"
    until(lambda: cluster.client.call("GET", f"{jobs(committed.namespace)}/nightly").code == 404, "its end by TTL")
    argocd.refresh("team")
    argocd.wait("team", revision=revision)
    assert cluster.client.call("GET", f"{jobs(committed.namespace)}/nightly").code == 404


def test_a_job_of_a_later_wave_waits_for_its_model(committed: Committed, argocd: ArgoCd, cluster: Cluster) -> None:
    """A model that its author has to correct holds it back."""
    job = a_batch("after", model="late")
    job["metadata"]["annotations"] = {"argocd.argoproj.io/sync-wave": "1"}
    # A file for a back end that this cluster has not.
    row = {"name": "x", "datatype": "FP32", "shape": [-1, 1]}
    version = {"name": "1", "uri": "pvc://data/model.pt", "format": "torchscript", "signature": {"inputs": [row], "outputs": [row]}}
    committed.put(a_model("late", versions=[version]), job)
    until(lambda: argocd.health("team", "InferenceModel", "late") == "Degraded", "the model's fault")
    assert cluster.client.call("GET", f"{jobs(committed.namespace)}/after").code == 404

    committed.put(a_model("late"))

    until(lambda: cluster.client.call("GET", f"{jobs(committed.namespace)}/after").ok, "the job")


def test_neither_a_prune_nor_the_end_of_the_application_takes_the_crds(
    cluster: Cluster, argocd: ArgoCd, repository: Repository, chart: Raw
) -> None:
    """Argo CD tracks no CRD as an Application's own. Otherwise all jobs would go with them."""
    argocd.sync(RELEASE, repository.url, namespace=RELEASE_NAMESPACE, helm={"valuesObject": {"crds": {"enabled": False}}})
    until(lambda: all(kind != "CustomResourceDefinition" for kind, _ in argocd.resources(RELEASE)), "a look at the changed values")
    argocd.wait(RELEASE, health=None)

    argocd.delete(RELEASE)

    deployment = f"/apis/apps/v1/namespaces/{RELEASE_NAMESPACE}/deployments/{RELEASE}"
    until(lambda: cluster.client.call("GET", deployment).code == 404, "the end of the operator")
    assert len(cluster.client.get("/apis/inference.myorg/v1")["resources"]) > 2
    for path in (REPOSITORY / "crds").glob("*.yaml"):
        found = cluster.client.get(f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{path.stem}")
        assert "deletionTimestamp" not in found["metadata"]
