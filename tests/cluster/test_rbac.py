"""The chart's roles: the operator gets along with what it is given, and is given nothing that it does not need."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.client import JSON, MERGE, Client, jobs, models, pods
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import a_batch, a_job, a_model
from tests.cluster.operators import (
    ACCOUNT,
    FAILURE,
    NODE,
    RELEASE_NAMESPACE,
    SUCCESS,
    USER,
    Installed,
    Release,
    install,
    render,
    until,
)

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

INFERENCE = "inference.myorg"
CORE = ""
DISCOVERY = "discovery.k8s.io"
NEEDED = [
    *((verb, INFERENCE, "inferencejobs", "") for verb in ("list", "watch", "delete")),
    *((verb, INFERENCE, "inferencemodels", "") for verb in ("list", "watch")),
    ("patch", INFERENCE, "inferencejobs", "status"),
    ("patch", INFERENCE, "inferencemodels", "status"),
    *((verb, CORE, "pods", "") for verb in ("get", "list", "watch", "create", "delete")),
    *((verb, CORE, "services", "") for verb in ("get", "list", "watch", "create", "patch")),
    *((verb, CORE, "endpoints", "") for verb in ("get", "delete")),
    *((verb, DISCOVERY, "endpointslices", "") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    # OpenShift's own question of whoever writes addresses of pods.
    ("create", DISCOVERY, "endpointslices", "restricted"),
    *((verb, CORE, "nodes", "") for verb in ("list", "watch")),
    *((verb, CORE, "persistentvolumes", "") for verb in ("list", "watch")),
    *((verb, CORE, "persistentvolumeclaims", "") for verb in ("list", "watch")),
    ("create", "events.k8s.io", "events", ""),
    *((verb, "autoscaling", "horizontalpodautoscalers", "") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    *((verb, "policy", "poddisruptionbudgets", "") for verb in ("get", "list", "watch", "create", "patch", "delete")),
    ("create", "authentication.k8s.io", "tokenreviews", ""),
    ("create", "authorization.k8s.io", "subjectaccessreviews", ""),
]
FORBIDDEN = [
    *((verb, CORE, "secrets", "") for verb in ("get", "list", "watch", "create", "update", "patch", "delete")),
    *((verb, CORE, "configmaps", "") for verb in ("get", "list", "create")),
    ("create", CORE, "pods", "exec"),
    ("create", CORE, "pods", "attach"),
    ("create", CORE, "pods", "portforward"),
    ("create", CORE, "pods", "ephemeralcontainers"),
    ("get", CORE, "pods", "log"),
    ("create", CORE, "pods", "eviction"),
    ("create", CORE, "pods", "binding"),
    *((verb, CORE, "pods", "") for verb in ("update", "patch", "deletecollection")),
    ("patch", CORE, "pods", "status"),
    *((verb, INFERENCE, "inferencejobs", "") for verb in ("get", "create", "update", "patch", "deletecollection")),
    ("update", INFERENCE, "inferencejobs", "scale"),
    *((verb, INFERENCE, "inferencemodels", "") for verb in ("get", "create", "update", "patch", "delete")),
    *((verb, CORE, "nodes", "") for verb in ("get", "create", "update", "patch", "delete")),
    ("update", CORE, "nodes", "status"),
    *((verb, CORE, "persistentvolumes", "") for verb in ("get", "create", "update", "patch", "delete")),
    *((verb, CORE, "services", "") for verb in ("update", "delete")),
    *((verb, CORE, "endpoints", "") for verb in ("list", "watch", "create", "update", "patch")),
    ("update", DISCOVERY, "endpointslices", ""),
    *((verb, CORE, "namespaces", "") for verb in ("create", "delete", "patch")),
    *((verb, CORE, "serviceaccounts", "") for verb in ("create", "impersonate")),
    ("create", CORE, "serviceaccounts", "token"),
    *((verb, CORE, "persistentvolumeclaims", "") for verb in ("get", "create", "delete")),
    *((verb, "apps", "deployments", "") for verb in ("get", "create", "update")),
    *((verb, "rbac.authorization.k8s.io", "clusterroles", "") for verb in ("create", "bind", "escalate")),
    ("patch", "apiextensions.k8s.io", "customresourcedefinitions", ""),
    ("create", "coordination.k8s.io", "leases", ""),
    ("update", "autoscaling", "horizontalpodautoscalers", ""),
    *((verb, "apiregistration.k8s.io", "apiservices", "") for verb in ("get", "list", "create", "patch", "update", "delete")),
]


@pytest.mark.parametrize(("verb", "group", "resource", "sub"), NEEDED, ids=str)
def test_the_operators_account_may(
    cluster: Cluster, installed: Installed, namespace: str, verb: str, group: str, resource: str, sub: str
) -> None:
    assert _may(cluster, namespace, USER, verb, group, resource, sub)


@pytest.mark.parametrize(("verb", "group", "resource", "sub"), FORBIDDEN, ids=str)
def test_the_operators_account_may_not(
    cluster: Cluster, installed: Installed, namespace: str, verb: str, group: str, resource: str, sub: str
) -> None:
    assert not _may(cluster, namespace, USER, verb, group, resource, sub)


def test_the_lease_is_the_only_one_that_the_account_may_hold(cluster: Cluster, installed: Installed) -> None:
    def may(verb: str, name: str) -> bool:
        return _may(cluster, RELEASE_NAMESPACE, USER, verb, "coordination.k8s.io", "leases", name=name)

    assert [may(verb, "inference-operator") for verb in ("get", "update")] == [True, True]
    assert [may(verb, "another") for verb in ("get", "update", "delete")] == [False, False, False]


def test_secrets_roles_and_apis_are_reached_by_their_names_alone(cluster: Cluster, installed: Installed, namespace: str) -> None:
    mine, api = f"{ACCOUNT}-custom-metrics", "apiregistration.k8s.io"

    def may(verb: str, group: str, resource: str, name: str, where: str = RELEASE_NAMESPACE) -> bool:
        return _may(cluster, where, USER, verb, group, resource, name=name)

    for secret in (mine, f"{ACCOUNT}-task-key"):
        for verb in ("get", "update"):
            assert may(verb, CORE, "secrets", secret)
            assert not may(verb, CORE, "secrets", secret, namespace)
        assert not may("delete", CORE, "secrets", secret)
    for verb in ("get", "update"):
        assert not may(verb, CORE, "secrets", "another")
    assert not may("list", CORE, "secrets", "")
    assert not may("create", CORE, "secrets", "")
    for verb in ("get", "create", "patch", "update", "delete"):
        assert may(verb, api, "apiservices", "v1beta1.custom.metrics.k8s.io", "")
        assert not may(verb, api, "apiservices", "v1beta1.metrics.k8s.io", "")
    for verb in ("create", "patch"):
        assert may(verb, DISCOVERY, "endpointslices", f"{ACCOUNT}-metrics-api-ipv4")
    assert may("get", CORE, "services", f"{ACCOUNT}-metrics-api")
    assert may("get", "rbac.authorization.k8s.io", "clusterroles", mine, "")
    assert not may("get", "rbac.authorization.k8s.io", "clusterroles", "cluster-admin", "")
    assert may("get", CORE, "configmaps", "extension-apiserver-authentication", "kube-system")
    assert not may("get", CORE, "configmaps", "another", "kube-system")


def test_with_namespaces_named_the_operator_gets_along_without_rights_elsewhere(
    cluster: Cluster, installed: Installed, namespace: str, tmp_path: Path
) -> None:
    other = make_namespace(cluster.client)
    release = Release("narrow-system", "narrow", (f"watchNamespaces={{{namespace}}}",))
    narrow = install(cluster, tmp_path, release)
    user = "system:serviceaccount:narrow-system:narrow"
    watched = {"pods", "services", "endpointslices", "persistentvolumeclaims", "horizontalpodautoscalers", "poddisruptionbudgets"}
    watched |= {"inferencejobs", "inferencemodels"}

    def requests() -> list[Raw]:
        return [e for e in cluster.audited() if e["user"]["username"] == user and "objectRef" in e]

    def watches() -> set[str]:
        return {e["objectRef"]["resource"] for e in requests() if e["verb"] == "watch"}

    try:
        until(lambda: watches() >= watched | {"nodes", "persistentvolumes"}, "the watches")
    finally:
        narrow.stop()
    assert [(e["verb"], e["requestURI"]) for e in requests() if _decision(e) == "forbid"] == []
    for verb, group, resource, sub in NEEDED:
        if resource in ("nodes", "persistentvolumes") or "reviews" in resource:
            assert _may(cluster, other, user, verb, group, resource, sub)
        else:
            assert _may(cluster, namespace, user, verb, group, resource, sub)
            assert not _may(cluster, other, user, verb, group, resource, sub)


def test_a_write_to_a_spec_is_really_refused(cluster: Cluster, installed: Installed, namespace: str) -> None:
    cluster.client.create(jobs(namespace), a_job(suspend=True))
    account = Client(cluster.kubeconfig, token=installed.token)

    answers = [
        account.call("PATCH", f"{jobs(namespace)}/job", {"spec": {"priority": 9}}, kind=MERGE),
        account.call("PATCH", f"{jobs(namespace)}/job/scale", {"spec": {"replicas": 9}}, kind=MERGE),
        account.call("GET", f"/api/v1/namespaces/{namespace}/secrets", kind=JSON),
        account.call("POST", f"{pods(namespace)}/any/exec?command=sh", kind=JSON),
    ]

    assert [answer.code for answer in answers] == [403, 403, 403, 403]


def test_the_operator_meets_no_403_in_the_whole_life_of_jobs(cluster: Cluster, installed: Installed, namespace: str) -> None:
    cluster.client.create(models(namespace), a_model())
    for job in (
        a_batch("well"),
        a_batch("badly"),
        a_batch("gone", ttlSecondsAfterFinished=0),
        a_job("serving", replicas=2),
        a_batch("lost", model="nobody"),
    ):
        cluster.client.create(jobs(namespace), job)
    installed.play(namespace, SUCCESS, name="well")
    installed.play(namespace, FAILURE, name="badly")
    installed.run(worker := installed.worker(namespace, name="gone"))
    installed.end(worker, SUCCESS)
    for number in (1, 2):
        installed.run(installed.worker(namespace, number, name="serving"))

    installed.wait_reason(namespace, "Succeeded", name="well")
    installed.wait_reason(namespace, "ModelNotFound", name="badly", kind="Stalled")
    installed.wait_reason(namespace, "Serving", name="serving")
    installed.wait_reason(namespace, "ModelUnknown", name="lost")
    until(lambda: cluster.client.call("GET", f"{jobs(namespace)}/gone").code == 404, "the deletion by ttl")
    cluster.client.merge(f"{jobs(namespace)}/serving", {"spec": {"suspend": True}})
    installed.wait_reason(namespace, "Suspended", name="serving", kind="Suspended")
    events = f"/apis/events.k8s.io/v1/namespaces/{namespace}/events"
    until(lambda: cluster.client.get(events)["items"], "the event about the failure")
    until(lambda: "profiles" in cluster.client.get(f"{models(namespace)}/digits").get("status", {}), "the profile")

    own = _requests_of_the_operator(cluster)
    verbs = {(e["verb"], e["objectRef"]["resource"], e["objectRef"].get("subresource", "")) for e in own if "objectRef" in e}
    assert {("create", "pods", ""), ("patch", "inferencejobs", "status"), ("delete", "inferencejobs", "")} <= verbs
    assert [(e["verb"], e["requestURI"]) for e in own if _decision(e) == "forbid"] == []


def test_a_service_with_a_selector_is_taken_over_without_a_gap(cluster: Cluster, installed: Installed, namespace: str) -> None:
    """The operator of the version before made it. What Kubernetes' controllers wrote goes once ours is there."""
    cluster.client.create(models(namespace), a_model())
    cluster.client.create(jobs(namespace), a_job("serving", replicas=2))
    for number in (1, 2):
        installed.run(installed.worker(namespace, number, name="serving"))
    slices = f"/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices"
    service = f"/api/v1/namespaces/{namespace}/services/serving"
    endpoints = f"/api/v1/namespaces/{namespace}/endpoints"
    until(lambda: [len(one["endpoints"]) for one in cluster.client.get(slices)["items"]] == [2], "the slice")
    (ours,) = cluster.client.get(slices)["items"]
    own = cluster.client.get(service)
    owner = {"apiVersion": "v1", "kind": "Service", "name": "serving", "uid": own["metadata"]["uid"], "controller": True}
    labels = {**ours["metadata"]["labels"], "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io"}
    theirs = {**ours, "metadata": {"name": "serving-x7k2p", "labels": labels, "ownerReferences": [owner]}}

    cluster.client.create(endpoints, {"metadata": {"name": "serving", "labels": own["metadata"]["labels"]}, "subsets": []})
    cluster.client.create(slices, theirs)
    cluster.client.merge(service, {"spec": {"selector": {"inference.myorg/job-uid": labels["inference.myorg/job-uid"]}}})

    until(lambda: "selector" not in cluster.client.get(service)["spec"], "the selector to go")
    until(lambda: cluster.client.call("GET", f"{endpoints}/serving").code == 404, "the Endpoints to go")
    until(lambda: [one["metadata"]["uid"] for one in cluster.client.get(slices)["items"]] == [ours["metadata"]["uid"]], "one slice")


def test_the_budget_of_a_service_follows_its_workers(cluster: Cluster, installed: Installed, namespace: str) -> None:
    cluster.client.create(models(namespace), a_model())
    cluster.client.create(jobs(namespace), a_job("serving", replicas=2))
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"

    def least() -> list[int]:
        return [one["spec"]["minAvailable"] for one in cluster.client.get(path)["items"]]

    until(lambda: least() == [1], "the budget")
    cluster.client.merge(f"{path}/serving-workers", {"spec": {"minAvailable": 0}})
    until(lambda: least() == [1], "what was changed to be changed back")
    cluster.client.merge(f"{jobs(namespace)}/serving", {"spec": {"replicas": 3}})
    until(lambda: least() == [2], "another worker to count")
    cluster.client.merge(f"{jobs(namespace)}/serving", {"spec": {"replicas": 1}})
    until(lambda: least() == [], "the budget of one to go")


def test_whatever_the_role_grants_the_operator_has_used(cluster: Cluster, installed: Installed, namespace: str) -> None:
    """Runs after the lives above, whose requests the audit log holds."""
    role = next(
        d for d in yaml.safe_load_all(render("rbac.yaml")) if d["kind"] == "ClusterRole" and d["metadata"]["name"] == ACCOUNT
    )
    granted = {(verb, resource) for rule in role["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    used = {
        (e["verb"], "/".join(filter(None, (e["objectRef"]["resource"], e["objectRef"].get("subresource")))))
        for e in _requests_of_the_operator(cluster)
        if "objectRef" in e
    }

    # A single get tells no more than a list; pods and Services are got when their name is taken. HPAs are made only where the
    # metrics API is served, which takes nodes: tests/e2e.
    elsewhere = {(verb, "horizontalpodautoscalers") for verb in ("create", "patch", "delete")}
    # OpenShift alone asks for it.
    elsewhere |= {("create", "endpointslices/restricted")}
    assert {(verb, resource) for verb, resource in granted - used - elsewhere if verb != "get"} == set()


@pytest.mark.parametrize(
    ("role", "allowed", "denied"),
    [
        ("view", ["get", "list", "watch"], ["create", "update", "patch", "delete"]),
        ("edit", ["get", "list", "watch", "create", "update", "patch", "delete"], []),
        ("admin", ["get", "list", "watch", "create", "update", "patch", "delete"], []),
    ],
)
def test_the_clusters_own_roles_reach_jobs_and_models(
    cluster: Cluster, installed: Installed, namespace: str, role: str, allowed: list[str], denied: list[str]
) -> None:
    # No controller aggregates roles here, so the rules are read as the controller would join them.
    rules = [
        rule
        for doc in yaml.safe_load_all(render("rbac.yaml"))
        if doc["kind"] == "ClusterRole"
        and doc["metadata"]["labels"].get(f"rbac.authorization.k8s.io/aggregate-to-{role}") == "true"
        for rule in doc["rules"]
    ]

    for resource in ("inferencejobs", "inferencemodels"):
        verbs = {verb for rule in rules if resource in rule["resources"] for verb in rule["verbs"]}
        assert set(allowed) <= verbs
        assert not verbs & set(denied)
    assert not any("status" in resource for rule in rules for resource in rule["resources"])


def test_the_node_that_the_tests_made_is_all_the_room_there_is(cluster: Cluster, installed: Installed) -> None:
    assert [node["metadata"]["name"] for node in cluster.client.get("/api/v1/nodes")["items"]] == [NODE]


def _requests_of_the_operator(cluster: Cluster) -> list[Raw]:
    """By its account and its HTTP library: tests borrow the account too."""
    return [e for e in cluster.audited() if e["user"]["username"] == USER and re.search("aiohttp|kopf", e.get("userAgent", ""))]


def _decision(entry: Raw) -> str:
    """What RBAC decided; a refusal by admission (a quota) is another matter."""
    return str(entry.get("annotations", {}).get("authorization.k8s.io/decision", ""))


def _may(
    cluster: Cluster, namespace: str, user: str, verb: str, group: str, resource: str, sub: str = "", *, name: str = ""
) -> bool:
    attributes: Raw = {"namespace": namespace, "verb": verb, "group": group, "resource": resource, "subresource": sub, "name": name}
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "groups": ["system:serviceaccounts", "system:authenticated"], "resourceAttributes": attributes},
    }
    answer = cluster.client.create("/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(answer["status"]["allowed"])
