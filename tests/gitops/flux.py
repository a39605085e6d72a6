"""Flux's real helm-controller as a process of this machine. A folder served by HTTP plays the source.

Flux foresees sources of others: an ExternalArtifact says where an archive is and what its digest is. These are written here, because
Flux's own source-controller doesn't build without libraries in C.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from http.server import SimpleHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from bench.proc import end
from dev.tools import ensure, share
from tests.cluster.client import Client, Raw
from tests.cluster.operators import until
from tests.loopback import free_ports
from tests.pages import manifests
from tests.web import serving

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE = "flux-system"
_HERE = "127.0.0.1"
_ARTIFACTS = f"/apis/source.toolkit.fluxcd.io/v1/namespaces/{NAMESPACE}/externalartifacts"
_RELEASES = f"/apis/helm.toolkit.fluxcd.io/v2/namespaces/{NAMESPACE}/helmreleases"
_TOLD_CHARACTERS = 3000


@dataclass(frozen=True)
class Flux:
    """Where it runs; `served` is the folder of archives, and `port` where it is served."""

    client: Client
    kubeconfig: Path
    folder: Path
    served: Path
    port: int

    def publish(self, name: str, chart: Path, version: str) -> None:
        """Pack a chart as this version, and have the ExternalArtifact of this name lead to it."""
        command = [str(ensure("helm") / "helm"), "package", str(chart), "--version", version, "--destination", str(self.served)]
        packed = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.rpartition(": ")[2].strip())
        digest = f"sha256:{hashlib.sha256(packed.read_bytes()).hexdigest()}"
        artifact = {
            "path": packed.name,
            "url": f"http://{_HERE}:{self.port}/{packed.name}",
            "revision": f"{version}@{digest}",
            "digest": digest,
            "lastUpdateTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        body = {"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "ExternalArtifact", "metadata": {"name": name}}
        apply(self.client, f"{_ARTIFACTS}/{name}", {**body, "spec": {}})
        self.client.merge(f"{_ARTIFACTS}/{name}/status", {"status": {"artifact": artifact}})

    def release(self, name: str, *, namespace: str, **spec: Any) -> None:
        """Have the HelmRelease of the page for the artifact of this name."""
        (body,) = (one for _, one in manifests() if one["kind"] == "HelmRelease")
        body["metadata"]["name"] = name
        body["spec"] |= {"releaseName": name, "targetNamespace": namespace, "storageNamespace": namespace, **spec}
        body["spec"]["chartRef"] = {"kind": "ExternalArtifact", "name": name, "namespace": NAMESPACE}
        apply(self.client, f"{_RELEASES}/{name}", body)

    def look(self, name: str) -> None:
        """Have it look at the release now, and wait until it has."""
        now = datetime.now(UTC).isoformat()
        self.client.merge(f"{_RELEASES}/{name}", {"metadata": {"annotations": {"reconcile.fluxcd.io/requestedAt": now}}})
        self._until(name, lambda found: found.get("status", {}).get("lastHandledReconcileAt") == now, f"a look at {name}")

    def wait(self, name: str, version: str, *, seconds: float = 120) -> Raw:
        """The HelmRelease, once this version is what is installed."""

        def there(found: Raw) -> bool:
            status = found.get("status", {})
            ready = {one["type"]: one["status"] for one in status.get("conditions", ())}.get("Ready")
            installed = (status.get("history") or [{}])[0].get("chartVersion", "").partition("+")[0]
            return (ready, installed) == ("True", version)

        return self._until(name, there, f"{version} of {name}", seconds=seconds)

    def _until(self, name: str, holds: Any, what: str, *, seconds: float = 60) -> Raw:
        def there() -> Raw | None:
            found = self.client.get(f"{_RELEASES}/{name}")
            return found if holds(found) else None

        try:
            found: Raw = until(there, what, seconds=seconds)
        except TimeoutError as error:
            error.add_note(yaml.safe_dump(self.client.get(f"{_RELEASES}/{name}").get("status")))
            error.add_note(self.log[-_TOLD_CHARACTERS:])
            raise
        return found

    @property
    def log(self) -> str:
        return (self.folder / "helm-controller.log").read_text()


@contextmanager
def flux(kubeconfig: Path, folder: Path) -> Iterator[Flux]:
    """Its kinds and its controller; what it leaves in the cluster stays."""
    client = Client(kubeconfig)
    client.create("/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    for crd in (*share("helm-controller", "crds").glob("*.yaml"), *share("source-controller", "crds").glob("*.yaml")):
        body = yaml.safe_load(crd.read_text())
        apply(client, f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{body['metadata']['name']}", body)
    until(lambda: client.call("GET", _RELEASES).ok and client.call("GET", _ARTIFACTS).ok, "Flux's kinds")
    served = folder / "served"
    served.mkdir()
    metrics, health = free_ports(2)
    command = [
        str(ensure("helm-controller") / "helm-controller"),
        *(f"--metrics-addr={_HERE}:{metrics}", f"--health-addr={_HERE}:{health}"),
        *("--watch-all-namespaces=true", "--enable-leader-election=false", "--feature-gates=ExternalArtifact=true"),
    ]
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "RUNTIME_NAMESPACE": NAMESPACE, "HOME": str(folder)}
    with ExitStack() as stack:
        port = stack.enter_context(serving(partial(_Quiet, directory=str(served)), _HERE))
        out = stack.enter_context((folder / "helm-controller.log").open("wb"))
        stack.callback(end, subprocess.Popen(command, env=environment, stdout=out, stderr=out, cwd=folder))
        yield Flux(client, kubeconfig, folder, served, port)


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- its name in the class above
        """Say nothing."""


def apply(client: Client, path: str, body: Raw) -> None:
    """Apply an object as somebody who owns it."""
    answer = client.apply(path, body, manager="somebody", force=True)
    assert answer.ok, answer.message
