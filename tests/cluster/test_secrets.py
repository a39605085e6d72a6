"""The operator's Secrets: made by the chart without data, filled by the operator, and left alone by whatever applies the chart."""

from __future__ import annotations

import base64
import subprocess
from typing import TYPE_CHECKING

import pytest

from dev.tools import ensure
from tests.cluster.client import Client
from tests.cluster.operators import ACCOUNT, RELEASE_NAMESPACE, REPOSITORY, Installed, Release

if TYPE_CHECKING:
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster

SECRETS = f"/api/v1/namespaces/{RELEASE_NAMESPACE}/secrets"
TASK_KEY = f"{SECRETS}/{ACCOUNT}-task-key"
KEY = base64.b64encode(b"k" * 32).decode()


def helm(cluster: Cluster, namespace: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = [str(ensure("helm") / "helm"), *words, "-n", namespace, "--kubeconfig", str(cluster.kubeconfig)]
    return subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)


def upgrade(cluster: Cluster, namespace: str, *more: str) -> str:
    """What Helm complains of; empty for a success."""
    values = ("--set", f"crds.enabled=false,fullnameOverride={namespace}")
    done = helm(cluster, namespace, "upgrade", "--install", namespace, "charts/inference-operator", *values, *more)
    return done.stderr if done.returncode else ""


def test_the_operator_fills_its_secret_and_can_make_none(cluster: Cluster, installed: Installed) -> None:
    account = Client(cluster.kubeconfig, token=installed.token)

    assert account.call("POST", SECRETS, {"metadata": {"name": "more"}}).code == 403
    assert account.call("GET", SECRETS).code == 403
    assert set(cluster.client.get(TASK_KEY)["data"]) == {"task-key"}


@pytest.mark.parametrize("how", [(), ("--server-side",)], ids=["by a three-way merge", "by server-side apply"])
def test_an_apply_of_the_chart_leaves_the_data_and_finds_no_difference(
    cluster: Cluster, installed: Installed, how: tuple[str, ...]
) -> None:
    """As `kubectl apply` and Helm 3 do it, and as Helm 4 and Argo CD do."""
    before = cluster.client.get(TASK_KEY)["data"]
    label = f"n{len(how)}"
    manifest = Release(values=(f"commonLabels.{label}=yes",)).render("secrets.yaml")

    cluster.kubectl("apply", *how, "-f", "-", stdin=manifest)

    after = cluster.client.get(TASK_KEY)
    assert (after["data"], after["metadata"]["labels"][label]) == (before, "yes")
    assert cluster.kubectl("diff", *how, "-f", "-", stdin=manifest, check=False).returncode == 0


def test_the_data_survives_helms_upgrades_and_the_key_of_workers_an_uninstall(cluster: Cluster, namespace: str) -> None:
    def secret(name: str) -> Raw:
        found: Raw = cluster.client.get(f"/api/v1/namespaces/{namespace}/secrets/{namespace}-{name}")
        return found

    def fill(name: str, key: str) -> None:
        path = f"/api/v1/namespaces/{namespace}/secrets/{namespace}-{name}"
        body = {**secret(name), "data": {key: KEY}}
        assert cluster.client.call("PUT", path, body, fieldManager="inference-operator").ok

    assert upgrade(cluster, namespace) == ""
    assert [secret(name).get("data") for name in ("task-key", "custom-metrics")] == [None, None]
    fill("task-key", "task-key")
    fill("custom-metrics", "tls.crt")

    assert upgrade(cluster, namespace, "--set", "commonLabels.new=yes") == ""
    assert [secret(name)["data"] for name in ("task-key", "custom-metrics")] == [{"task-key": KEY}, {"tls.crt": KEY}]
    assert secret("task-key")["metadata"]["labels"]["new"] == "yes"

    helm(cluster, namespace, "uninstall", namespace)
    assert upgrade(cluster, namespace) == ""
    assert (secret("task-key")["data"], secret("custom-metrics").get("data")) == ({"task-key": KEY}, None)
    helm(cluster, namespace, "uninstall", namespace)


def test_helm_takes_over_the_secrets_that_earlier_operators_made(cluster: Cluster, namespace: str) -> None:
    path = f"/api/v1/namespaces/{namespace}/secrets"
    labels = {"app.kubernetes.io/managed-by": "inference-operator"}
    made: tuple[Raw, ...] = (
        {"metadata": {"name": f"{namespace}-task-key"}, "data": {"task-key": KEY}},
        {
            "metadata": {"name": f"{namespace}-custom-metrics", "labels": labels},
            "type": "kubernetes.io/tls",
            "data": {"tls.crt": KEY, "tls.key": KEY},
        },
    )
    for secret in made:
        assert cluster.client.call("POST", path, secret, fieldManager="inference-operator").ok

    assert "invalid ownership metadata" in upgrade(cluster, namespace)
    assert upgrade(cluster, namespace, "--take-ownership", "--force-conflicts") == ""
    assert [cluster.client.get(f"{path}/{one['metadata']['name']}")["data"] for one in made] == [one["data"] for one in made]
    helm(cluster, namespace, "uninstall", namespace)
