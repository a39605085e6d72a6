"""The chart, installed by Helm on a real API server with names, ports and extras of a user's own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest
import yaml

from inference_operator.install_check import MODEL
from inference_operator.settings import Settings
from tests.cluster.client import jobs
from tests.cluster.conftest import make_namespace
from tests.cluster.operators import until
from tests.cluster.test_secrets import helm

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

NAMES = {
    "nameOverride": "engine",
    "commonLabels": {"team": "a", "app.kubernetes.io/name": "somebody-else"},
    "settings": {"httpPort": 9090, "leaseName": "leader", "taskKeyName": "the-key"},
    "networkPolicy": {"enabled": True},
}
EXTRAS = {
    "global": {"imageRegistry": "mirror.example.com/team", "imagePullSecrets": [{"name": "mirror"}]},
    "imagePullSecrets": [{"name": "own"}],
    "worker": {"imagePullSecrets": [{"name": "workers"}]},
    "deploymentAnnotations": {"reloader": "true"},
    "podLabels": {"mesh": "in", "team": "b"},
    "podAnnotations": {"note": "1"},
    "strategy": {"rollingUpdate": {"maxUnavailable": 1, "maxSurge": 0}},
    "revisionHistoryLimit": 3,
    "podDisruptionBudget": {"minAvailable": 1},
    "priorityClassName": "system-cluster-critical",
    "runtimeClassName": "kata",
    "hostUsers": False,
    "dnsPolicy": "Default",
    "dnsConfig": {"searches": ["example.com"]},
    "livenessProbe": {"initialDelaySeconds": 5},
    "extraEnv": [{"name": "HTTPS_PROXY", "value": "http://proxy:3128"}],
    "extraEnvFrom": [{"configMapRef": {"name": "more", "optional": True}}],
    "extraVolumes": [{"name": "ca", "configMap": {"name": "ca"}}],
    "extraVolumeMounts": [{"name": "ca", "mountPath": "/etc/ca"}],
    "initContainers": [{"name": "first", "image": "busybox"}],
    "extraContainers": [{"name": "beside", "image": "{{ .Chart.Name }}:1"}],
    "extraObjects": [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ca", "namespace": "{{ .Release.Namespace }}"}},
        "{apiVersion: v1, kind: ConfigMap, metadata: {name: more, namespace: {{ .Release.Namespace }}}}",
    ],
    "gateway": {"enabled": True},
}


class Installation:
    """A release of the chart; it is gone after the test."""

    def __init__(self, cluster: Cluster, namespace: str, folder: Path) -> None:
        self.cluster, self.namespace, self._values = cluster, namespace, folder / "values.yaml"

    def install(self, values: dict[str, Any], *more: str) -> str:
        """What Helm complains of; empty for a success."""
        self._values.write_text(yaml.safe_dump({"crds": {"enabled": False}, **values}))
        words = ("upgrade", "--install", self.namespace, "charts/inference-operator", "-f", str(self._values), *more)
        done = helm(self.cluster, self.namespace, *words)
        return done.stderr if done.returncode else ""

    def get(self, path: str, name: str, *, namespace: str = "") -> Raw:
        group = "api/v1" if "/" not in path else f"apis/{path.rpartition('/')[0]}"
        found: Raw = self.cluster.client.get(f"/{group}/namespaces/{namespace or self.namespace}/{path.rpartition('/')[2]}/{name}")
        return found


@pytest.fixture
def installation(cluster: Cluster, namespace: str, tmp_path: Path) -> Any:
    made = Installation(cluster, namespace, tmp_path)
    yield made
    helm(cluster, namespace, "uninstall", namespace)


def test_names_and_ports_of_a_users_own_agree_everywhere(cluster: Cluster, installation: Installation) -> None:
    """Three settings that are documented had broken the install: roles, policies and ports knew others."""
    assert installation.install(NAMES) == ""
    name = f"{installation.namespace}-engine"
    deployment = installation.get("apps/v1/deployments", name)
    container = deployment["spec"]["template"]["spec"]["containers"][0]
    settings = yaml.safe_load(installation.get("configmaps", name)["data"]["config.yaml"])
    policy = installation.get("networking.k8s.io/v1/networkpolicies", name)
    account = f"system:serviceaccount:{installation.namespace}:{name}"

    def may(verb: str, thing: str) -> bool:
        asked = ("auth", "can-i", verb, thing, "--as", account, "-n", installation.namespace)
        return cluster.kubectl(*asked, check=False).stdout.strip() == "yes"

    assert {"name": "http", "containerPort": 9090, "protocol": "TCP"} in container["ports"]
    assert 9090 in [port["port"] for rule in policy["spec"]["ingress"] for port in rule["ports"]]
    assert (settings["httpPort"], settings["leaseName"], settings["taskKeyName"]) == (9090, "leader", "the-key")
    assert may("update", "leases/leader") and not may("update", "leases/inference-operator")
    assert may("update", "secrets/the-key") and installation.get("secrets", "the-key")["metadata"]["name"] == "the-key"
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert (labels["app.kubernetes.io/name"], labels["team"]) == ("engine", "a")
    lease = {"metadata": {"name": "leader", "namespace": installation.namespace}}
    path = f"/apis/coordination.k8s.io/v1/namespaces/{installation.namespace}/leases"
    token = cluster.kubectl("create", "token", name, "-n", installation.namespace).stdout.strip()
    operator = type(cluster.client)(cluster.kubeconfig, token=token)
    # The API server takes a second to hear of a policy.
    until(lambda: operator.call("POST", path, {"metadata": {"name": "another"}}, dryRun="All").code == 403, "the policies")
    assert operator.call("POST", path, lease).ok


def test_everything_stands_in_the_namespace_that_the_values_name(cluster: Cluster, installation: Installation) -> None:
    elsewhere = make_namespace(cluster.client)
    values = {**NAMES, "namespaceOverride": elsewhere, "gateway": {"enabled": True}, "mutualTLS": {"enabled": True}}

    assert installation.install(values) == ""
    name = f"{installation.namespace}-engine"
    assert installation.get("apps/v1/deployments", name, namespace=elsewhere)
    binding = cluster.client.get(f"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/{name}")
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": name, "namespace": elsewhere}]
    assert cluster.client.get(f"/api/v1/namespaces/{installation.namespace}/services")["items"] == []


def test_what_a_pod_has_beside_is_taken_by_the_api_server_as_it_was_written(cluster: Cluster, installation: Installation) -> None:
    assert installation.install(EXTRAS) == ""
    name = f"{installation.namespace}-inference-operator"
    deployment = installation.get("apps/v1/deployments", name)
    spec, pod = deployment["spec"], deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    settings = msgspec.convert(yaml.safe_load(installation.get("configmaps", name)["data"]["config.yaml"]), Settings)
    gateway = installation.get("apps/v1/deployments", f"{name}-gateway")["spec"]["template"]["spec"]

    assert deployment["metadata"]["annotations"]["reloader"] == "true"
    assert (spec["revisionHistoryLimit"], spec["strategy"]["rollingUpdate"]["maxSurge"]) == (3, 0)
    assert spec["template"]["metadata"]["labels"].items() >= {"mesh": "in", "team": "b"}.items()
    assert container["image"] == "mirror.example.com/team/inference-operator:0.1.0"
    assert settings.worker_image == "mirror.example.com/team/inference-worker:0.1.0"
    assert gateway["containers"][0]["image"].startswith("mirror.example.com/team/envoyproxy/envoy:")
    assert pod["imagePullSecrets"] == gateway["imagePullSecrets"] == [{"name": "mirror"}, {"name": "own"}]
    assert settings.image_pull_secrets == ("mirror", "workers")
    assert (pod["priorityClassName"], pod["runtimeClassName"], pod["hostUsers"]) == ("system-cluster-critical", "kata", False)
    assert (pod["dnsPolicy"], pod["dnsConfig"]) == ("Default", {"searches": ["example.com"]})
    assert container["livenessProbe"]["initialDelaySeconds"] == 5 and container["livenessProbe"]["timeoutSeconds"] == 10
    assert {"name": "HTTPS_PROXY", "value": "http://proxy:3128"} in container["env"] and container["envFrom"]
    assert {"name": "ca", "mountPath": "/etc/ca"} in container["volumeMounts"]
    assert [one["image"] for one in (*pod["initContainers"], pod["containers"][1])] == ["busybox", "inference-operator:1"]
    assert installation.get("configmaps", "ca") and installation.get("configmaps", "more")
    budget = installation.get("policy/v1/poddisruptionbudgets", name)["spec"]
    assert budget["minAvailable"] == 1 and "maxUnavailable" not in budget


def test_the_api_server_takes_an_operator_on_its_nodes_network(installation: Installation) -> None:
    assert installation.install({"hostNetwork": True}) == ""
    pod = installation.get("apps/v1/deployments", f"{installation.namespace}-inference-operator")["spec"]["template"]["spec"]

    assert (pod["hostNetwork"], pod["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")


def test_the_first_job_of_the_notes_is_one_that_the_api_server_takes(cluster: Cluster, namespace: str) -> None:
    done = helm(cluster, namespace, "install", namespace, "charts/inference-operator", "--dry-run=client")
    notes = done.stdout.partition("NOTES:")[2]
    manifest = notes.partition("<<YAML")[2].partition("\n  YAML")[0].replace("\n  ", "\n")

    made = cluster.client.create(jobs(namespace), yaml.safe_load(manifest))
    assert made["spec"]["model"] == MODEL
