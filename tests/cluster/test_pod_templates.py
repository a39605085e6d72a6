"""Templates on the real API server: what the CRDs refuse, what the operator refuses, and pods that Pod Security and the policies take."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from inference_operator.api.reasons import Reason
from tests.cluster.client import jobs, models
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import a_batch, a_job, a_model, condition
from tests.cluster.operators import until

if TYPE_CHECKING:
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

TOOL = "tools.example.com/proxy:1"
OF_MAP = {"configMapKeyRef": {"name": "c", "key": "k"}}

# What it is about, the template, and words of the refusal by the API server.
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "a reserved name from an object": ({"env": [{"name": "LD_PRELOAD", "valueFrom": OF_MAP}]}, "is reserved: the loader"),
    "a value twice": ({"env": [{"name": "APP_A", "value": "x", "valueFrom": OF_MAP}]}, "set value or valueFrom, not both"),
    "a value from nowhere": ({"env": [{"name": "APP_A", "valueFrom": {}}]}, "set exactly one of secretKeyRef"),
    "a field that is none of the pod's own": (
        {"env": [{"name": "APP_A", "valueFrom": {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}}]},
        "should match",
    ),
    "variables of any name": ({"envFrom": [{"configMapRef": {"name": "c"}}]}, "prefix: Required value"),
    "variables of two objects at once": (
        {"envFrom": [{"prefix": "APP_", "configMapRef": {"name": "c"}, "secretRef": {"name": "s"}}]},
        "set exactly one of configMapRef and secretRef",
    ),
    "a path of the node": ({"volumes": [{"name": "v", "hostPath": {"path": "/"}}]}, "set exactly one of emptyDir"),
    "a token": (
        {"volumes": [{"name": "v", "projected": {"sources": [{"serviceAccountToken": {"path": "t"}}]}}]},
        "set exactly one of emptyDir",
    ),
    "a whole Secret": ({"volumes": [{"name": "v", "secret": {"secretName": "s"}}]}, "items: Required value"),
    "a file outside of the mount": (
        {"volumes": [{"name": "v", "secret": {"secretName": "s", "items": [{"key": "k", "path": "/etc/passwd"}]}}]},
        "should match",
    ),
    "a mount over the image": ({"volumeMounts": [{"name": "v", "mountPath": "/opt/app"}]}, "should match"),
    "a mount that climbs": ({"volumeMounts": [{"name": "v", "mountPath": "/mnt/extra/../../opt"}]}, "must not contain '..'"),
    "two mounts at one place": (
        {"volumeMounts": [{"name": "v", "mountPath": "/mnt/extra/v"}, {"name": "w", "mountPath": "/mnt/extra/v"}]},
        "Duplicate value",
    ),
    "root": ({"securityContext": {"runAsUser": 0}}, "should be greater than or equal to 1"),
    "root's group": ({"securityContext": {"supplementalGroups": [0]}}, "should be greater than or equal to 1"),
    "a container without an image": ({"sidecars": [{"name": "a"}]}, "image: Required value"),
    "five sidecars": ({"sidecars": [{"name": f"a{n}", "image": TOOL} for n in range(5)]}, "must have at most 4 items"),
    "names without an address": ({"hostAliases": [{"hostnames": ["a"]}]}, "ip: Required value"),
}
FULL: Raw = {
    "labels": {"team": "a"},
    "env": [
        {"name": "APP_POD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        {"name": "APP_KEY", "valueFrom": {"secretKeyRef": {"name": "for-pods-a", "key": "key"}}},
    ],
    "envFrom": [{"prefix": "APP_", "configMapRef": {"name": "more", "optional": True}}],
    "volumes": [
        {"name": "work", "emptyDir": {"sizeLimit": "10Mi"}},
        {"name": "rules", "configMap": {"name": "rules", "optional": True}},
        {"name": "key", "secret": {"secretName": "for-pods-a", "items": [{"key": "key", "path": "key"}]}},
    ],
    "volumeMounts": [{"name": name, "mountPath": f"/mnt/extra/{name}"} for name in ("work", "rules", "key")],
    "initContainers": [
        {"name": "first", "image": TOOL, "command": ["/fill"], "volumeMounts": [{"name": "work", "mountPath": "/work"}]}
    ],
    "sidecars": [{"name": "proxy", "image": TOOL, "args": ["--quiet"], "resources": {"requests": {"cpu": "10m"}}}],
    "serviceAccountName": "robot",
    "securityContext": {"runAsUser": 1000, "runAsGroup": 2000, "fsGroup": 2500, "supplementalGroups": [2999]},
    "hostAliases": [{"ip": "10.0.0.1", "hostnames": ["store.example.com"]}],
}


@pytest.fixture
def space(cluster: Cluster, installed: Installed) -> str:
    """A namespace that takes pods of Pod Security's level restricted alone."""
    levels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
    namespace = make_namespace(cluster.client, **levels)
    cluster.client.create(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": "robot"}})
    cluster.client.create(models(namespace), a_model())
    return namespace


@pytest.mark.parametrize(("template", "words"), REFUSED.values(), ids=REFUSED)
def test_the_api_server_refuses_for_a_job_and_for_a_model(
    cluster: Cluster, namespace: str, template: dict[str, Any], words: str
) -> None:
    for path, body in ((jobs(namespace), a_batch(template=template)), (models(namespace), a_model(template=template))):
        answer = cluster.client.call("POST", path, body)

        assert answer.code == 422, path
        assert words in answer.message


@pytest.mark.parametrize("backend", ["onnx", "triton"])
def test_a_full_template_makes_a_pod_that_pod_security_and_the_policies_take(
    cluster: Cluster, installed: Installed, space: str, backend: str
) -> None:
    cluster.client.create(jobs(space), a_batch(template=FULL, backend=backend))

    pod = installed.worker(space)["spec"]
    worker, added = pod["containers"][0], [one for one in pod["initContainers"] if one["name"].startswith("extra-")]

    assert [(one["name"], one["image"]) for one in added] == [("extra-proxy", TOOL), ("extra-first", TOOL)]
    assert {"name": "extra-key", "mountPath": "/mnt/extra/key"} in worker["volumeMounts"]
    assert worker["envFrom"][0]["prefix"] == "APP_"
    assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("robot", False)
    assert pod["securityContext"]["runAsUser"] == 1000 and pod["securityContext"]["runAsNonRoot"] is True
    assert pod["hostAliases"] == FULL["hostAliases"]


def test_a_models_template_is_part_of_its_jobs_pods_and_is_remembered(cluster: Cluster, installed: Installed, space: str) -> None:
    cluster.client.create(models(space), a_model("with", template=FULL))
    cluster.client.create(jobs(space), a_job(model="with", serve={}, template={"env": [{"name": "APP_POD", "value": "mine"}]}))

    pod = installed.worker(space)
    installed.run(pod)
    told = {v["name"]: v for v in pod["spec"]["containers"][0]["env"]}
    assert told["APP_POD"]["value"] == "mine" and "valueFrom" in told["APP_KEY"]
    # The status is written after the pod.
    found = until(lambda: installed.job(space).get("status", {}).get("resolvedModel"), "the model in the status")
    assert found["template"]["serviceAccountName"] == "robot"


@pytest.mark.parametrize(
    ("template", "words"),
    [
        ({"env": [{"name": "TEAM", "value": "x"}]}, "template.env sets TEAM; this cluster allows TZ"),
        ({"sidecars": [{"name": "a", "image": "evil.example.com/x:1"}]}, "template has a container of evil.example.com/x:1"),
        ({"env": [{"name": "APP_A", "valueFrom": {"secretKeyRef": {"name": "theirs", "key": "k"}}}]}, "shows the Secret theirs"),
        ({"serviceAccountName": "admin"}, "this cluster allows robot"),
        ({"securityContext": {"runAsUser": 999}}, "has the id 999; this cluster allows 1000, 2000-2999"),
    ],
)
def test_the_operator_refuses_by_its_lists(
    cluster: Cluster, installed: Installed, space: str, template: dict[str, Any], words: str
) -> None:
    cluster.client.create(jobs(space), a_batch(template=template))

    job = installed.wait_reason(space, Reason.TEMPLATE_FORBIDDEN)
    assert words in condition(job, "Ready")["message"]
