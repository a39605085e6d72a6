"""The real Kueue beside a control plane without nodes, with its own webhooks, which are called at a loopback URL."""

from __future__ import annotations

import base64
import os
import subprocess
import urllib.request
from typing import TYPE_CHECKING, Any

import yaml

from dev.cluster.pki import Identity, make_identity
from dev.tools import ensure, share
from tests.cluster.operators import until

if TYPE_CHECKING:
    from pathlib import Path

    from dev.cluster import ControlPlane
    from tests.cluster.client import Client, Raw

API = "/apis/kueue.x-k8s.io/v1beta2"
GPU = "nvidia.com/gpu"
_VERSION = "kueue.x-k8s.io/v1beta2"
_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_KINDS = {"workloads", "clusterqueues", "resourceflavors", "localqueues", "cohorts"}
# The manager looks for a certificate of its metrics there and nowhere else. An /etc of its own leaves this machine's alone.
_IN_OWN_ETC = 'mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && ln -s "$1" /etc/kueue/metrics/certs && shift && exec "$@"'


def crds() -> list[Raw]:
    """Kueue's CustomResourceDefinitions, without the conversion between versions, since one alone is used."""
    return [yaml.safe_load(path.read_text()) for path in sorted(share("kueue", "crds").glob("*.yaml"))]


def start(plane: ControlPlane, kubeconfig: Path, folder: Path, *, webhook_port: int, health_port: int) -> subprocess.Popen[bytes]:
    """Start Kueue as the administrator; it answers when this returns. It ends with the test that has begun it."""
    pki, certificates = plane.layout.pki, folder / "kueue-certificates"
    certificates.mkdir()
    make_identity(pki, Identity("kueue", "kueue-webhook", usage="serverAuth", alternative_names=("IP:127.0.0.1",)))
    for ending in ("crt", "key"):
        (certificates / f"tls.{ending}").write_bytes((pki / f"kueue.{ending}").read_bytes())
    config = folder / "kueue.yaml"
    config.write_text(yaml.safe_dump(_configuration(certificates, webhook_port, health_port)))
    command = [str(ensure("kueue") / "kueue"), f"--config={config}", "--zap-log-level=info"]
    inside = ["unshare", "--mount", "sh", "-c", _IN_OWN_ETC, "sh", str(certificates), *command]
    with (folder / "kueue.log").open("wb") as log:
        return subprocess.Popen(inside, env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stdout=log, stderr=log)


def wait_ready(process: subprocess.Popen[bytes], folder: Path, health_port: int) -> None:
    """Return once the manager says that it is ready."""

    def answers() -> bool:
        assert process.poll() is None, (folder / "kueue.log").read_text()[-2000:]
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{health_port}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(answers, "Kueue's manager", seconds=120)


def _configuration(certificates: Path, webhook_port: int, health_port: int) -> Raw:
    """The shipped configuration less what has no place here. No framework of Kueue's own is needed for plain Workloads."""
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"127.0.0.1:{health_port}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"port": webhook_port, "host": "127.0.0.1", "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job"]},
        "featureGates": {"VisibilityOnDemand": False},
    }


def install_webhooks(client: Client, plane: ControlPlane, webhook_port: int) -> None:
    """Have the API server ask Kueue about its own kinds."""
    authority = base64.b64encode((plane.layout.pki / "ca.crt").read_bytes()).decode()
    for document in yaml.safe_load_all((share("kueue", "webhooks") / "manifests.yaml").read_text()):
        kind = {"MutatingWebhookConfiguration": "mutating", "ValidatingWebhookConfiguration": "validating"}[document["kind"]]
        document["webhooks"] = [hook for hook in document["webhooks"] if _is_of_kueue(hook)]
        for hook in document["webhooks"]:
            path = hook["clientConfig"]["service"]["path"]
            hook["clientConfig"] = {"url": f"https://127.0.0.1:{webhook_port}{path}", "caBundle": authority}
        client.create(f"{_HOOKS}/{kind}webhookconfigurations", document)


def _is_of_kueue(hook: Raw) -> bool:
    resources = {resource.partition("/")[0] for rule in hook["rules"] for resource in rule["resources"]}
    return all(rule["apiGroups"] == ["kueue.x-k8s.io"] for rule in hook["rules"]) and resources <= _KINDS


def make_flavor(client: Client, name: str, **labels: str) -> None:
    """A ResourceFlavor whose nodes have these labels."""
    _make(client, f"{API}/resourceflavors", "ResourceFlavor", name, {"nodeLabels": labels} if labels else {})


def make_queue(client: Client, namespace: str, name: str, flavors: dict[str, dict[str, str]], *, preempts: bool = False) -> None:
    """A ClusterQueue over flavors with these quotas, and a LocalQueue of the same name."""
    resources = sorted({resource for quotas in flavors.values() for resource in quotas})
    groups = [
        {
            "coveredResources": resources,
            "flavors": [
                {"name": flavor, "resources": [{"name": one, "nominalQuota": quotas.get(one, "0")} for one in resources]}
                for flavor, quotas in flavors.items()
            ],
        }
    ]
    preemption = {"withinClusterQueue": "LowerPriority" if preempts else "Never"}
    spec = {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}
    _make(client, f"{API}/clusterqueues", "ClusterQueue", name, spec)
    _make(client, f"{API}/namespaces/{namespace}/localqueues", "LocalQueue", name, {"clusterQueue": name})


def _make(client: Client, collection: str, kind: str, name: str, spec: Raw) -> None:
    body: dict[str, Any] = {"apiVersion": _VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
    # The webhook of a new configuration may be called a moment before the API server has read it.
    until(lambda: client.call("POST", collection, body).ok, f"{kind} {name}")


def workloads(client: Client, namespace: str) -> list[Raw]:
    """The Workloads of a namespace."""
    found: list[Raw] = client.get(f"{API}/namespaces/{namespace}/workloads")["items"]
    return found


def holds(workload: Raw, kind: str) -> bool:
    """Whether a Workload has a condition that is True."""
    conditions = workload.get("status", {}).get("conditions", [])
    return any(one["type"] == kind and one["status"] == "True" for one in conditions)
