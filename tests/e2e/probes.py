"""Pods that try to connect, and that listen: what a NetworkPolicy lets through is seen from where it matters."""

import json
from dataclasses import dataclass, replace

from examples.demo.cluster import Kubectl, wait_for
from tests.e2e.support import Manifest

PORT = 9000
# Longer than a lost packet takes to be sent again, and no answer at all is as good as a refusal.
_CONNECT = "import socket, sys; s = socket.socket(); s.settimeout(3); print(s.connect_ex((sys.argv[1], int(sys.argv[2]))))"
_RESOLVE = "import socket, sys; print(socket.gethostbyname(sys.argv[1]))"
RESTRICTED: Manifest = {
    "allowPrivilegeEscalation": False,
    "readOnlyRootFilesystem": True,
    "runAsNonRoot": True,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


@dataclass(frozen=True)
class Probe:
    """A pod from which connections are tried."""

    kube: Kubectl
    pod: str
    container: str = "probe"

    @property
    def address(self) -> str:
        """The pod's own."""
        return str(self.kube.get("pod", self.pod)["status"]["podIP"])

    def reaches(self, address: str, port: int) -> bool:
        """Whether a TCP connection comes about."""
        return self._python(_CONNECT, address, str(port)) == "0"

    def resolves(self, name: str) -> bool:
        """Whether DNS answers for a name that is there."""
        return self._python(_RESOLVE, name) != ""

    def _python(self, code: str, *arguments: str) -> str:
        command = ("exec", self.pod, "-c", self.container, "--", "python3", "-I", "-c", code, *arguments)
        return self.kube.run(*command, check=False).strip()


def make_namespace(kube: Kubectl, name: str) -> Kubectl:
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    kube.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}, server_side=True)
    return replace(kube, namespace=name)


def make_probe(kube: Kubectl, name: str, image: str, node: str, labels: dict[str, str] | None = None) -> Probe:
    """A pod that listens on PORT, on this node."""
    container = {
        "name": "probe",
        "image": image,
        "command": ["python3", "-I", "-m", "http.server", str(PORT), "--directory", "/opt"],
        "securityContext": RESTRICTED,
    }
    spec = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "nodeSelector": {"kubernetes.io/hostname": node},
        "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}],
        "containers": [container],
    }
    kube.apply({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": labels or {}}, "spec": spec})
    return Probe(kube, name)


def await_probes(*probes: Probe) -> None:
    for probe in probes:
        probe.kube.run("wait", "--for=condition=Ready", f"pod/{probe.pod}", "--timeout=60s")


def the_pod(kube: Kubectl, selector: str) -> str:
    """The name of the one pod that is ready."""
    found: list[Manifest] = []

    def there() -> bool:
        found[:] = json.loads(kube.run("get", "pods", "-l", selector, "-o", "json"))["items"]
        return len(found) == 1 and bool(found[0]["status"].get("podIP"))

    wait_for(there, f"one pod with {selector}")
    return str(found[0]["metadata"]["name"])


def refused(probe: Probe, address: str, port: int, *, seconds: float = 15) -> bool:
    """Whether a connection fails, and fails again; rules take a moment to follow a new pod."""
    try:
        wait_for(lambda: not probe.reaches(address, port), "the first refusal", seconds=seconds)
    except RuntimeError:
        return False
    return not probe.reaches(address, port)
