"""Where the API server is and who we are there: the pod's service account, or a kubeconfig."""

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class ConnectionConfigError(Exception):
    """No usable way to the API server; the message says what was looked for."""


@dataclass(frozen=True, slots=True)
class Connection:
    """An API server and credentials. `token_path` is read again and again, since tokens rotate."""

    server: str
    tls: ssl.SSLContext | None
    token_path: Path | None = None
    token: str | None = None
    ca_path: str | None = None
    ca_data: str | None = None
    certificate_path: str | None = None
    key_path: str | None = None

    def bearer(self) -> str | None:
        """The token of now."""
        return self.token_path.read_text().strip() if self.token_path is not None else self.token


def connect(environment: dict[str, str] | None = None) -> Connection:
    """Find the API server. Raises ConnectionConfigError."""
    environment = dict(os.environ) if environment is None else environment
    if "KUBERNETES_SERVICE_HOST" in environment and (_ACCOUNT / "token").exists():
        host, port = environment["KUBERNETES_SERVICE_HOST"], environment.get("KUBERNETES_SERVICE_PORT", "443")
        ca = str(_ACCOUNT / "ca.crt")
        host = f"[{host}]" if ":" in host else host
        return Connection(
            f"https://{host}:{port}", ssl.create_default_context(cafile=ca), token_path=_ACCOUNT / "token", ca_path=ca
        )
    path = Path(environment.get("KUBECONFIG") or Path.home() / ".kube" / "config")
    if not path.exists():
        raise ConnectionConfigError(f"neither a service account in this pod nor a kubeconfig at {path}; set KUBECONFIG")
    return from_kubeconfig(path)


def from_kubeconfig(path: Path) -> Connection:
    """The current context of a kubeconfig with a token or a client certificate. Raises ConnectionConfigError."""
    document = yaml.safe_load(path.read_text())
    try:
        context = _named(document["contexts"], document["current-context"], "context")
        cluster = _named(document["clusters"], context["cluster"], "cluster")
        user = _named(document["users"], context["user"], "user")
        server = cluster["server"]
    except (KeyError, TypeError) as error:
        raise ConnectionConfigError(f"{path}: {error} is missing") from error
    if not server.startswith("https"):
        return Connection(server, None, token=user.get("token"))
    ca_data = base64.b64decode(cluster["certificate-authority-data"]).decode() if "certificate-authority-data" in cluster else None
    ca_path = cluster.get("certificate-authority")
    tls = ssl.create_default_context(cafile=ca_path, cadata=ca_data)
    certificate, key = _file(user, "client-certificate"), _file(user, "client-key")
    if certificate is not None:
        tls.load_cert_chain(certificate, key)
    return Connection(
        server, tls, token=user.get("token"), ca_path=ca_path, ca_data=ca_data, certificate_path=certificate, key_path=key
    )


def _named(entries: list[dict[str, Any]], name: str, kind: str) -> dict[str, Any]:
    for entry in entries:
        if entry["name"] == name:
            found = entry[kind]
            assert isinstance(found, dict)
            return found
    raise KeyError(f"{kind} {name!r}")


def _file(user: dict[str, Any], name: str) -> str | None:
    if name in user:
        return str(user[name])
    data = user.get(f"{name}-data")
    if data is None:
        return None
    # The ssl module reads certificates from files only.
    handle, path = tempfile.mkstemp(prefix="inference-operator-")
    with os.fdopen(handle, "wb") as file:
        file.write(base64.b64decode(data))
    return path
