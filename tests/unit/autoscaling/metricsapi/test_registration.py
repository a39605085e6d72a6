"""The slot of the cluster: taken while it is free, never from another, given up to another, owned by the release."""

from typing import Any

import pytest

from inference_operator.api import names
from inference_operator.autoscaling.metricsapi.registration import PATH, Registration
from inference_operator.errors import NotFoundError
from inference_operator.state.objects import MetricsApi, MetricsApiState
from tests.unit.autoscaling.metricsapi.kube import FakeKube

V1, V2 = f"{PATH}/v1beta1.custom.metrics.k8s.io", f"{PATH}/v1beta2.custom.metrics.k8s.io"
ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/role"


@pytest.fixture
def kube() -> FakeKube:
    made = FakeKube()
    made.put(ROLE, {"metadata": {"name": "role"}})
    return made


def registration(kube: FakeKube, **more: Any) -> Registration:
    return Registration(kube, **{"namespace": "system", "service": "metrics", "owner": "role", **more})


def anothers(version: str, *, service: dict[str, str] | None = None) -> dict[str, Any]:
    found = {"namespace": "monitoring", "name": "adapter"} if service is None else service
    return {"metadata": {"name": f"{version}.custom.metrics.k8s.io"}, "spec": {"service": found or None, "version": version}}


def available(kube: FakeKube, *paths: str, status: str = "True") -> None:
    for path in paths:
        kube.put(path, {**kube.objects[path], "status": {"conditions": [{"type": "Available", "status": status}]}})


async def test_a_free_slot_is_taken_in_both_versions(kube: FakeKube) -> None:
    assert await registration(kube).once("CA") == MetricsApi(MetricsApiState.PENDING)
    available(kube, V1, V2)
    assert await registration(kube).once("CA") == MetricsApi(MetricsApiState.SERVING)

    new, old = kube.objects[V2], kube.objects[V1]
    assert (new["spec"]["versionPriority"], old["spec"]["versionPriority"]) == (200, 100)
    assert new["spec"]["service"] == {"namespace": "system", "name": "metrics", "port": 443}
    assert new["spec"]["caBundle"] == "Q0E="
    assert "insecureSkipTLSVerify" not in new["spec"]
    role = kube.objects[ROLE]["metadata"]["uid"]
    assert [(o["kind"], o["uid"]) for o in new["metadata"]["ownerReferences"]] == [("ClusterRole", role)]
    assert sorted(kube.did("claim")) == [V1, V2]
    assert kube.did("create", "replace", "delete", "apply") == []


async def test_a_slot_that_leads_to_what_the_release_called_its_service_before_is_taken_over(kube: FakeKube) -> None:
    await registration(kube, service="former").once("CA")

    await registration(kube).once("CA")

    assert {kube.objects[path]["spec"]["service"]["name"] for path in (V1, V2)} == {"metrics"}


async def test_a_new_leader_is_written_down_once_and_stays_while_none_is_known(kube: FakeKube) -> None:
    """By that the API server asks anew what the API has: what it heard of a dead leader counts for a minute else."""
    for leader in ("operator-1", None, "operator-2", "operator-2"):
        await registration(kube).once("CA", leader)

    assert {kube.objects[path]["metadata"]["annotations"][names.ANNOTATION_LEADER] for path in (V1, V2)} == {"operator-2"}
    assert sorted(kube.did("replace")) == [V1, V2]


async def test_a_slot_of_another_release_in_the_namespace_is_not(kube: FakeKube) -> None:
    kube.put("/apis/rbac.authorization.k8s.io/v1/clusterroles/theirs", {"metadata": {"name": "theirs"}})
    await registration(kube, service="other", owner="theirs").once("CA")

    assert (await registration(kube).once("CA")).state is MetricsApiState.TAKEN


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
async def test_a_slot_of_another_is_left_alone_whichever_version_it_has(kube: FakeKube, version: str) -> None:
    kube.put(f"{PATH}/{version}.custom.metrics.k8s.io", anothers(version))

    found = await registration(kube).once("CA")

    assert found.state is MetricsApiState.TAKEN
    assert found.owner == f"Service monitoring/adapter (APIService {version}.custom.metrics.k8s.io)"
    assert kube.did("create", "claim", "replace", "delete", "apply") == []


async def test_a_local_api_is_another_too(kube: FakeKube) -> None:
    kube.put(V1, anothers("v1beta1", service={}))

    assert (await registration(kube).once("CA")).owner.startswith("the API server itself")


async def test_what_we_have_is_given_up_when_another_comes(kube: FakeKube) -> None:
    await registration(kube).once("CA")
    kube.put(V1, anothers("v1beta1"))

    assert (await registration(kube).once("CA")).state is MetricsApiState.TAKEN
    assert V2 not in kube.objects
    assert kube.objects[V1]["spec"]["service"]["name"] == "adapter"


async def test_a_second_release_of_ours_is_another(kube: FakeKube) -> None:
    await registration(kube).once("CA")

    assert (await registration(kube, namespace="elsewhere").once("CA")).state is MetricsApiState.TAKEN


async def test_whoever_is_quicker_keeps_it(kube: FakeKube) -> None:
    def theirs() -> None:
        kube.put(V2, anothers("v1beta2"))

    kube.before[f"claim {V1}"] = theirs

    assert await registration(kube).once("CA") == MetricsApi(MetricsApiState.PENDING)
    assert (await registration(kube).once("CA")).state is MetricsApiState.TAKEN
    assert kube.objects[V2]["spec"]["service"]["name"] == "adapter"


async def test_a_new_ca_is_written_once(kube: FakeKube) -> None:
    await registration(kube).once("OLD")
    available(kube, V1, V2)
    await registration(kube).once("NEW")
    assert await registration(kube).once("NEW") == MetricsApi(MetricsApiState.SERVING)

    assert kube.did("replace") == [V2, V1]
    assert {kube.objects[path]["spec"]["caBundle"] for path in (V1, V2)} == {"TkVX"}


async def test_an_api_that_can_not_be_reached_is_pending(kube: FakeKube) -> None:
    await registration(kube).once("CA")
    available(kube, V1)
    available(kube, V2, status="False")

    assert await registration(kube).once("CA") == MetricsApi(MetricsApiState.PENDING)


async def test_without_a_role_nobody_owns_it_and_a_missing_role_is_an_error(kube: FakeKube) -> None:
    with pytest.raises(NotFoundError):
        await registration(kube, owner="gone").once("CA")
    await registration(kube, owner="").once("CA")

    assert "ownerReferences" not in kube.objects[V2]["metadata"]
