"""A real API server without nodes, brought up once on ports and in a folder of its own; a namespace for each test."""

from __future__ import annotations

import json
import os
import random
import socket
import subprocess
import uuid
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dev.cluster import ControlPlane, Layout, api_only_control_plane, start_api_only, stop_api_only
from dev.tools import kubectl as find_kubectl
from tests.cluster.client import Client, Raw
from tests.cluster.operators import NODE, Installed, Release, install, make_node, until, writes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

REPOSITORY = Path(__file__).resolve().parents[2]
# Of one job's status in a whole session; one that is tried again and again has the most.
MOST_WRITES = 60


@dataclass(frozen=True)
class Cluster:
    """The API server: as administrator by HTTP, and by kubectl as users do."""

    client: Client
    kubeconfig: Path
    audit_log: Path

    def kubectl(self, *arguments: str, stdin: str | None = None, check: bool = True) -> subprocess.CompletedProcess[str]:
        command = [find_kubectl(), *arguments]
        done = subprocess.run(command, env=self._environment(), input=stdin, capture_output=True, text=True, check=False)
        assert not check or done.returncode == 0, f"{' '.join(arguments)}: {done.stderr}"
        return done

    def start_kubectl(self, *arguments: str) -> subprocess.Popen[str]:
        """One that goes on beside the test."""
        out = subprocess.PIPE
        return subprocess.Popen([find_kubectl(), *arguments], env=self._environment(), stdout=out, stderr=out, text=True)

    def audited(self) -> list[Raw]:
        """The audit log so far."""
        return [json.loads(line) for line in self.audit_log.read_text().splitlines()]

    def _environment(self) -> dict[str, str]:
        # A cache of its own: discovery of a cluster that had this port before would mislead it.
        return {**os.environ, "KUBECONFIG": str(self.kubeconfig), "KUBECACHEDIR": str(self.kubeconfig.parent / "kubectl-cache")}


@contextmanager
def api_server(folder: Path) -> Iterator[Cluster]:
    """One that has nothing of ours yet."""
    plane = _plane(folder)
    try:
        kubeconfig = start_api_only(plane)
        yield Cluster(Client(kubeconfig), kubeconfig, plane.layout.audit_log)
    finally:
        stop_api_only(plane)


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with api_server(tmp_path_factory.mktemp("cluster")) as made:
        made.kubectl("apply", "-f", str(REPOSITORY / "crds"))
        names = [f"crd/{path.stem}" for path in sorted((REPOSITORY / "crds").glob("*.yaml"))]
        # kubectl fails for a CRD that has no conditions yet.
        wait = ("wait", "--for=condition=Established", *names)
        until(lambda: made.kubectl(*wait, check=False).returncode == 0, "the CRDs")
        yield made


@pytest.fixture
def namespace(cluster: Cluster) -> str:
    return make_namespace(cluster.client)


@pytest.fixture(scope="session")
def node(cluster: Cluster) -> str:
    """The node that all share."""
    make_node(cluster.client, NODE)
    return NODE


@pytest.fixture(scope="session")
def installed(cluster: Cluster, node: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installed]:
    """The operator, running as the chart's ServiceAccount and with no right but the chart's."""
    policy = ("admissionPolicy.images={mirror.example.com/*}", "admissionPolicy.secrets={shown-to-*}")
    template = (
        "settings.podTemplate.labels={team}",
        "settings.podTemplate.secrets={for-pods-*}",
        "settings.podTemplate.images={tools.example.com/*}",
        "settings.podTemplate.serviceAccounts={robot}",
        "settings.podTemplate.hostAliases={store.example.com}",
        "settings.podTemplate.ids={1000,2000-2999}",
    )
    release = Release(values=("backends.triton.image=localhost/triton:1", *template, *policy))
    made = install(cluster, tmp_path_factory.mktemp("operator"), release)
    yield made
    made.stop()
    # Whatever the tests have done to them: no job is written again and again.
    assert {job: count for job, count in writes_of(cluster).items() if count > MOST_WRITES} == {}


def make_namespace(client: Client, **labels: str) -> str:
    name = f"test-{uuid.uuid4().hex[:10]}"
    client.create("/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
    return name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    ours = [at for at, item in enumerate(items) if Path(__file__).parent in item.path.parents]
    for at in ours:
        items[at].add_marker(pytest.mark.cluster)
    # The operator sees every namespace and writes every status, also those that a test without it looks at: these go first.
    ordered = sorted((items[at] for at in ours), key=_needs_operator)
    for at, item in zip(ours, ordered, strict=True):
        items[at] = item


def _needs_operator(item: pytest.Item) -> bool:
    return isinstance(item, pytest.Function) and "installed" in item.fixturenames


def _plane(folder: Path) -> ControlPlane:
    # The API server, etcd's two and the controller manager sit side by side.
    return api_only_control_plane(Layout(folder / "state"), port_base=free_row(4))


def free_row(count: int) -> int:
    """The first of so many free ports in a row. Raises RuntimeError where there are none.

    Below those that the kernel gives to outgoing connections: one of these may take a port between our look and the server's start.
    """
    for base in random.sample(range(21_000, 26_000, count), 50):
        if all(is_free(base + offset) for offset in range(count)):
            return base
    raise RuntimeError(f"no {count} free ports in a row")


def is_free(port: int) -> bool:
    """Whether nobody listens on a port of this machine."""
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
