"""Certificates of a cluster, made with the openssl program; each identity has its own key pair."""

import base64
import json
import subprocess
from dataclasses import dataclass
from pathlib import Path

from dev.cluster.files import write_if_changed
from dev.cluster.layout import API_SERVICE_ADDRESS, CLUSTER_DOMAIN, NODES, ControlPlane, Node
from dev.console import DevError

_DAYS = "3650"
# openssl's stock configuration would mark every self-made certificate as an authority.
_CONFIG = "[req]\ndistinguished_name = dn\n[dn]\n"


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate to be made: who it names and what it may be used for."""

    file: str
    common_name: str
    organization: str = ""
    usage: str = "clientAuth"
    alternative_names: tuple[str, ...] = ()
    authority: str = "ca"


def ensure_pki(plane: ControlPlane) -> None:
    """Make what is missing: authorities, identities and the key of service account tokens."""
    folder = plane.layout.pki
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    (folder / "openssl.cnf").write_text(_CONFIG)
    for authority in ("ca", "front-proxy-ca"):
        if not (folder / f"{authority}.crt").exists():
            _make_authority(folder, authority)
    for identity in _identities(plane):
        if not (folder / f"{identity.file}.crt").exists():
            make_identity(folder, identity)
    if not (folder / "sa.pub").exists():
        key = str(folder / "sa.key")
        _openssl("genpkey", "-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256", "-out", key)
        _openssl("pkey", "-in", key, "-pubout", "-out", str(folder / "sa.pub"))


def write_kubeconfig(plane: ControlPlane, *, identity: str, target: Path) -> None:
    """Write a self-contained kubeconfig (JSON is YAML) for one identity."""
    folder = plane.layout.pki
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "dev",
        "clusters": [
            {
                "name": "dev",
                "cluster": {
                    "server": f"https://{plane.host}:{plane.api_port}",
                    "certificate-authority-data": encoded(folder / "ca.crt"),
                },
            }
        ],
        "users": [
            {
                "name": identity,
                "user": {
                    "client-certificate-data": encoded(folder / f"{identity}.crt"),
                    "client-key-data": encoded(folder / f"{identity}.key"),
                },
            }
        ],
        "contexts": [{"name": "dev", "context": {"cluster": "dev", "user": identity}}],
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    write_if_changed(target, json.dumps(config, indent=1), mode=0o600)


def _identities(plane: ControlPlane) -> list[Identity]:
    service = "kubernetes.default.svc"
    names = (
        "localhost",
        "kubernetes",
        "kubernetes.default",
        service,
        f"{service}.{CLUSTER_DOMAIN}",
    )
    addresses = sorted({"127.0.0.1", plane.host, API_SERVICE_ADDRESS})
    served = (*(f"DNS:{name}" for name in names), *(f"IP:{address}" for address in addresses))
    masters = "system:masters"
    identities = [
        Identity("apiserver", "kube-apiserver", usage="serverAuth", alternative_names=served),
        Identity("apiserver-kubelet-client", "kube-apiserver-kubelet-client", masters),
        Identity("front-proxy-client", "front-proxy-client", authority="front-proxy-ca"),
        Identity("admin", "dev-admin", masters),
        Identity("agent", "dev-agent", masters),
        Identity("controller-manager", "system:kube-controller-manager"),
        Identity("scheduler", "system:kube-scheduler"),
        Identity("proxy", "system:kube-proxy"),
        Identity("coredns", "dev-coredns"),
        Identity("kube-router", "dev-kube-router"),
    ]
    if plane.has_nodes:
        identities += [_kubelet_identity(node) for node in NODES]
    return identities


def _kubelet_identity(node: Node) -> Identity:
    return Identity(
        f"kubelet-{node.name}",
        f"system:node:{node.name}",
        "system:nodes",
        usage="clientAuth,serverAuth",
        alternative_names=(f"DNS:{node.name}", f"IP:{node.address}"),
    )


def _make_authority(folder: Path, name: str) -> None:
    _openssl(
        *_new_certificate(folder, name, f"/CN=inference-operator-dev-{name}"),
        *("-addext", "basicConstraints=critical,CA:TRUE"),
        *("-addext", "keyUsage=critical,keyCertSign,cRLSign,digitalSignature"),
    )


def make_identity(folder: Path, identity: Identity) -> None:
    """Make a key and a certificate that one of the folder's authorities signs."""
    organization = f"/O={identity.organization}" if identity.organization else ""
    authority = folder / identity.authority
    arguments = [
        *_new_certificate(folder, identity.file, f"{organization}/CN={identity.common_name}"),
        *("-CA", f"{authority}.crt", "-CAkey", f"{authority}.key"),
        *("-addext", f"extendedKeyUsage={identity.usage}"),
        *("-addext", "basicConstraints=critical,CA:FALSE"),
    ]
    if identity.alternative_names:
        arguments += ["-addext", f"subjectAltName={','.join(identity.alternative_names)}"]
    _openssl(*arguments)


def _new_certificate(folder: Path, name: str, subject: str) -> list[str]:
    return [
        *("req", "-x509", "-config", str(folder / "openssl.cnf"), "-days", _DAYS),
        *("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes"),
        *("-keyout", str(folder / f"{name}.key"), "-out", str(folder / f"{name}.crt")),
        *("-subj", subject),
    ]


def _openssl(*arguments: str) -> None:
    result = subprocess.run(["openssl", *arguments], capture_output=True, text=True, check=False)
    if result.returncode != 0:
        raise DevError(f"openssl {arguments[0]} failed: {result.stderr.strip()}")


def encoded(path: Path) -> str:
    """A file as base64, as certificates stand in objects."""
    return base64.b64encode(path.read_bytes()).decode()
