"""The real Kueue beside a control plane that has no Services: its webhooks are called at a loopback URL."""

import os
import subprocess
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from dev.cluster import Layout
from dev.cluster.pki import Identity, encoded, make_identity
from dev.tools import ensure, share

VERSION = "kueue.x-k8s.io/v1beta2"
API = f"/apis/{VERSION}"

Raw = dict[str, Any]

_HOOKS = "/apis/admissionregistration.k8s.io/v1"
_GROUPS = {"batch", "kueue.x-k8s.io"}
# The manager looks for a certificate of its metrics there and nowhere else. An /etc of its own leaves this machine's alone.
_IN_OWN_ETC = 'mount -t tmpfs none /etc && mkdir -p /etc/kueue/metrics && ln -s "$1" /etc/kueue/metrics/certs && shift && exec "$@"'


@dataclass(frozen=True, slots=True)
class Kueue:
    """The manager of one control plane: what it keeps is in `folder`."""

    layout: Layout
    folder: Path
    webhook_port: int
    health_port: int

    @property
    def log(self) -> Path:
        """What the manager says."""
        return self.folder / "kueue.log"

    @property
    def ready_url(self) -> str:
        """Where it answers 200 once it is ready."""
        return f"http://127.0.0.1:{self.health_port}/readyz"

    def start(self, kubeconfig: Path, *, level: str = "info", more: Mapping[str, Any] | None = None) -> subprocess.Popen[bytes]:
        """Start it as the administrator, with `more` in its configuration."""
        certificates = self.folder / "kueue-certificates"
        certificates.mkdir()
        make_identity(self.layout.pki, Identity("kueue", "kueue-webhook", usage="serverAuth", alternative_names=("IP:127.0.0.1",)))
        for ending in ("crt", "key"):
            (certificates / f"tls.{ending}").write_bytes((self.layout.pki / f"kueue.{ending}").read_bytes())
        config = self.folder / "kueue.yaml"
        config.write_text(yaml.safe_dump(self._configuration(certificates) | dict(more or {})))
        command = [str(ensure("kueue") / "kueue"), f"--config={config}", f"--zap-log-level={level}"]
        inside = ["unshare", "--mount", "sh", "-c", _IN_OWN_ETC, "sh", str(certificates), *command]
        with self.log.open("wb") as out:
            return subprocess.Popen(inside, env={**os.environ, "KUBECONFIG": str(kubeconfig)}, stdout=out, stderr=out)

    def webhooks(self, kinds: Collection[str]) -> Iterator[tuple[str, Raw]]:
        """The collection and the object of each webhook configuration, of these kinds alone."""
        authority = encoded(self.layout.pki / "ca.crt")
        for document in yaml.safe_load_all((share("kueue", "webhooks") / "manifests.yaml").read_text()):
            kind = {"MutatingWebhookConfiguration": "mutating", "ValidatingWebhookConfiguration": "validating"}[document["kind"]]
            document["webhooks"] = [hook for hook in document["webhooks"] if _is_of(hook, kinds)]
            for hook in document["webhooks"]:
                path = hook["clientConfig"]["service"]["path"]
                hook["clientConfig"] = {"url": f"https://127.0.0.1:{self.webhook_port}{path}", "caBundle": authority}
            yield f"{_HOOKS}/{kind}webhookconfigurations", document

    def _configuration(self, certificates: Path) -> Raw:
        """The shipped configuration less what has no place here: other frameworks, metrics, leader election, visibility."""
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self.health_port}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"port": self.webhook_port, "host": "127.0.0.1", "certDir": str(certificates)},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["batch/job"]},
            "featureGates": {"VisibilityOnDemand": False},
        }


def crds() -> list[Raw]:
    """Kueue's kinds, without the conversion between their versions, since only one is used."""
    return [yaml.safe_load(path.read_text()) for path in sorted(share("kueue", "crds").glob("*.yaml"))]


def body(kind: str, name: str, spec: Raw) -> Raw:
    """An object of Kueue's."""
    return {"apiVersion": VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}


def cluster_queue(groups: list[Raw], *, preempts: bool) -> Raw:
    """The spec of a ClusterQueue that is open to all namespaces."""
    preemption = {"withinClusterQueue": "LowerPriority" if preempts else "Never"}
    return {"namespaceSelector": {}, "resourceGroups": groups, "preemption": preemption}


def _is_of(hook: Mapping[str, Any], kinds: Collection[str]) -> bool:
    return all(
        set(rule["apiGroups"]) <= _GROUPS and {resource.partition("/")[0] for resource in rule["resources"]} <= set(kinds)
        for rule in hook["rules"]
    )
