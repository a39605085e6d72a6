"""Who owns which field: users by apply, autoscalers by /scale, the operator by server-side apply of the status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.client import APPLY, INFERENCE, MERGE, jobs, models
from tests.cluster.objects import DIGEST, a_batch, a_condition, a_job, a_model

if TYPE_CHECKING:
    from tests.cluster.client import Answer, Raw
    from tests.cluster.conftest import Cluster

OPERATOR = "inference-operator"


@pytest.mark.parametrize("where", ["/scale", ""], ids=["by scale", "by a patch of spec"])
def test_what_an_autoscaler_wrote_outlives_an_apply_without_replicas(cluster: Cluster, namespace: str, where: str) -> None:
    path = f"{jobs(namespace)}/job"
    assert cluster.client.apply(path, _named(a_job(), namespace), manager="gitops").ok

    cluster.client.merge(f"{path}{where}", {"spec": {"replicas": 7}}, fieldManager="kube-controller-manager")
    again = cluster.client.apply(path, _named(a_job(priority=3), namespace), manager="gitops")

    assert again.ok, again.message
    assert (again.body["spec"]["replicas"], again.body["spec"]["priority"]) == (7, 3)


def test_an_apply_with_replicas_is_told_that_an_autoscaler_has_them(cluster: Cluster, namespace: str) -> None:
    path = f"{jobs(namespace)}/job"
    cluster.client.apply(path, _named(a_job(replicas=1), namespace), manager="gitops")
    cluster.client.call("PATCH", f"{path}/scale", {"spec": {"replicas": 7}}, kind=MERGE, fieldManager="kube-controller-manager")

    refused = cluster.client.apply(path, _named(a_job(replicas=1), namespace), manager="gitops")

    assert refused.code == 409
    assert "kube-controller-manager" in refused.message


def test_a_status_applied_to_an_old_version_is_a_conflict(cluster: Cluster, namespace: str) -> None:
    first = cluster.client.create(jobs(namespace), a_job())["metadata"]
    cluster.client.delete(f"{jobs(namespace)}/job")
    cluster.client.create(jobs(namespace), a_job())

    refused = _apply_status(cluster, namespace, {"phase": "Running"}, resourceVersion=first["resourceVersion"])

    assert refused.code == 409
    assert "phase" not in cluster.client.get(f"{jobs(namespace)}/job")["status"]


def test_the_uid_in_an_applied_status_protects_nobody(cluster: Cluster, namespace: str) -> None:
    # What the real server does, against what one would think: on a custom resource's /status the metadata of the stored object
    # replaces the given one before the uid is looked at. Tests with stand-ins must do as it does.
    first = cluster.client.create(jobs(namespace), a_job())["metadata"]
    cluster.client.delete(f"{jobs(namespace)}/job")
    second = cluster.client.create(jobs(namespace), a_job())["metadata"]

    taken = _apply_status(cluster, namespace, {"phase": "Running"}, uid=first["uid"])

    assert taken.ok
    assert (taken.body["metadata"]["uid"], taken.body["status"]["phase"]) == (second["uid"], "Running")


def test_a_deletion_meant_for_another_uid_is_a_conflict(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())

    refused = cluster.client.delete(f"{jobs(namespace)}/job", {"preconditions": {"uid": "another"}})

    assert refused.code == 409
    assert cluster.client.call("GET", f"{jobs(namespace)}/job").ok


def test_a_status_applied_for_a_job_that_is_gone_makes_none(cluster: Cluster, namespace: str) -> None:
    assert _apply_status(cluster, namespace, {"phase": "Running"}).code == 404
    assert cluster.client.get(jobs(namespace))["items"] == []


def test_conditions_of_several_writers_merge_by_type(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())
    _apply_status(cluster, namespace, {"conditions": [a_condition("Ready", "False"), a_condition("Placed")]})
    _apply_status(cluster, namespace, {"conditions": [a_condition("Audited")]}, manager="auditor")

    # The operator leaves Placed out from now on: its own goes, the other's stays.
    answer = _apply_status(cluster, namespace, {"conditions": [a_condition("Ready", "True")]})

    assert {c["type"]: c["status"] for c in answer.body["status"]["conditions"]} == {"Ready": "True", "Audited": "True"}


def test_two_conditions_of_one_type_are_refused(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())

    refused = _apply_status(cluster, namespace, {"conditions": [a_condition("Ready"), a_condition("Ready")]})

    assert not refused.ok
    assert "Ready" in refused.message


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"conditions": [{**a_condition("Ready"), "status": "Maybe"}]}, "Unsupported value"),
        ({"conditions": [{**a_condition("Ready"), "reason": ""}]}, "at least 1 chars long"),
        ({"conditions": [a_condition(f"T{n}") for n in range(17)]}, "must have at most 16 items"),
        ({"attempts": -1}, "greater than or equal to 0"),
        ({"model": {"name": "m", "digest": "sha1:1"}}, "should match"),
        ({"deadline": {"time": "2026-01-01T00:00:00Z", "outlook": "Rosy"}}, "Unsupported value"),
        ({"deadline": {"outlook": "Met"}}, "time: Required value"),
    ],
)
def test_a_status_that_breaks_its_schema_is_refused(cluster: Cluster, namespace: str, status: Raw, words: str) -> None:
    cluster.client.create(jobs(namespace), a_job())

    refused = _apply_status(cluster, namespace, status)

    assert refused.code == 422
    assert words in refused.message


def test_the_same_status_applied_twice_is_no_new_version(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())
    status = {"phase": "Running", "conditions": [a_condition("Ready")]}

    versions = [_apply_status(cluster, namespace, status).body["metadata"]["resourceVersion"] for _ in range(2)]

    assert versions[0] == versions[1]


def test_a_users_apply_leaves_the_status_alone(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job())
    _apply_status(cluster, namespace, {"phase": "Running"})

    applied = cluster.client.apply(
        f"{jobs(namespace)}/job", {**_named(a_job(), namespace), "status": {"phase": "Mine"}}, manager="me"
    )

    assert applied.ok
    assert applied.body["status"]["phase"] == "Running"


def test_versions_of_a_model_applied_by_two_teams_merge_by_name(cluster: Cluster, namespace: str) -> None:
    path = f"{models(namespace)}/digits"
    one = {"name": "1", "uri": "pvc://data/1.onnx"}
    two = {"name": "2", "uri": "pvc://data/2.onnx"}
    cluster.client.apply(path, _named(a_model(versions=[one]), namespace), manager="team-a")

    merged = cluster.client.apply(path, _named(a_model(versions=[two]), namespace), manager="team-b")

    assert merged.ok, merged.message
    assert [v["name"] for v in merged.body["spec"]["versions"]] == ["1", "2"]


def test_profiles_merge_by_file_class_back_end_and_batch_size(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(models(namespace), a_model())
    path = f"{models(namespace)}/digits/status"

    def write(manager: str, size: int, rate: float, **backend: str) -> Answer:
        profile = {
            "digest": DIGEST,
            "accelerator": "cpu",
            "batchSize": size,
            **backend,
            "itemsPerSecond": rate,
            "loadSeconds": 1.0,
            "observedTime": "2026-01-01T00:00:00Z",
        }
        body = {**_named(a_model(), namespace), "status": {"profiles": [profile]}}
        del body["spec"]
        return cluster.client.apply(path, body, manager=manager)

    write("a", 1, 10.0, backend="onnx")
    write("b", 8, 50.0, backend="onnx")
    merged = write("c", 8, 20.0, backend="triton")

    told = [(p["backend"], p["batchSize"], p["itemsPerSecond"]) for p in merged.body["status"]["profiles"]]
    assert told == [("onnx", 1, 10.0), ("onnx", 8, 50.0), ("triton", 8, 20.0)]
    # The back end is part of the key, and no default stands inside a list.
    assert write("d", 16, 1.0).code == 422


def test_a_job_is_deleted_at_once_and_never_hangs_on_a_finalizer(cluster: Cluster, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_batch())

    cluster.kubectl("delete", "ij/job", "-n", namespace, "--timeout=60s")

    assert cluster.client.call("GET", f"{jobs(namespace)}/job").code == 404


def _apply_status(cluster: Cluster, namespace: str, status: Raw, *, manager: str = OPERATOR, **meta: str) -> Answer:
    """As Applier does."""
    meta = {"name": "job", "namespace": namespace, **meta}
    body = {"apiVersion": INFERENCE.removeprefix("/apis/"), "kind": "InferenceJob", "metadata": meta, "status": status}
    return cluster.client.call("PATCH", f"{jobs(namespace)}/job/status", body, kind=APPLY, fieldManager=manager, force="true")


def _named(obj: Raw, namespace: str) -> Raw:
    return {**obj, "metadata": {**obj["metadata"], "namespace": namespace}}
