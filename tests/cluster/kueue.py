"""Queues of the real Kueue (`dev/kueue.py`) beside a control plane without nodes."""

from __future__ import annotations

import urllib.request
from typing import TYPE_CHECKING

from dev.kueue import API, Kueue, body, cluster_queue
from tests.cluster.objects import condition
from tests.cluster.operators import until

if TYPE_CHECKING:
    import subprocess

    from tests.cluster.client import Client, Raw

GPU = "nvidia.com/gpu"
_KINDS = {"workloads", "clusterqueues", "resourceflavors", "localqueues", "cohorts"}


def wait_ready(process: subprocess.Popen[bytes], manager: Kueue) -> None:
    """Return once the manager says that it is ready."""

    def answers() -> bool:
        assert process.poll() is None, manager.log.read_text()[-2000:]
        try:
            with urllib.request.urlopen(manager.ready_url, timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    until(answers, "Kueue's manager", seconds=120)


def install_webhooks(client: Client, manager: Kueue) -> None:
    """Have the API server ask Kueue about its own kinds."""
    for collection, configuration in manager.webhooks(_KINDS):
        client.create(collection, configuration)


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
    _make(client, f"{API}/clusterqueues", "ClusterQueue", name, cluster_queue(groups, preempts=preempts))
    _make(client, f"{API}/namespaces/{namespace}/localqueues", "LocalQueue", name, {"clusterQueue": name})


def _make(client: Client, collection: str, kind: str, name: str, spec: Raw) -> None:
    # The webhook of a new configuration may be called a moment before the API server has read it.
    until(lambda: client.call("POST", collection, body(kind, name, spec)).ok, f"{kind} {name}")


def workloads(client: Client, namespace: str) -> list[Raw]:
    """The Workloads of a namespace."""
    found: list[Raw] = client.get(f"{API}/namespaces/{namespace}/workloads")["items"]
    return found


def holds(workload: Raw, kind: str) -> bool:
    """Whether a Workload has a condition that is True."""
    return condition(workload, kind).get("status") == "True"
