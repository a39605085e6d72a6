"""Where a user's model may be: a real S3 server, a real registry, and a server that answers as a hub, for the laptop and for pods.

All of them speak TLS by a CA that nobody knows beforehand, as in a company's own network.
"""

import http.server
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from dev.cluster.layout import CONTROL_ADDRESS
from examples.demo.cluster import Kubectl, Manifest
from tests.authority import Authority
from tests.process.stores import registry, s3_server
from tests.web import serving

# What the hub was asked by.
TOKEN = "hf_of_the_benchmark"
NAMES = ("s3", "registry", "hub")


@dataclass(frozen=True)
class Places:
    """The ports of the three, and the file of their CA. A laptop reaches them by an address, and pods by a Service."""

    ports: dict[str, int]
    namespace: str
    authorities: Path
    hub: Path

    def seen_by_laptop(self, name: str) -> str:
        """HOST:PORT."""
        return f"{CONTROL_ADDRESS}:{self.ports[name]}"

    def seen_by_pods(self, name: str) -> str:
        """HOST:PORT."""
        return f"{name}.{self.namespace}.svc:{self.ports[name]}"


@contextmanager
def opened(kube: Kubectl, folder: Path) -> Iterator[Places]:
    """Start all three, with Services in the namespace of `kube` that lead to them."""
    authority = Authority()
    (folder / "ca.crt").write_text(authority.pem)
    hub = folder / "hub"
    with ExitStack() as stack:

        def names(name: str) -> tuple[str, ...]:
            (folder / name).mkdir(exist_ok=True)
            return (f"{name}.{kube.namespace}.svc", CONTROL_ADDRESS)

        s3 = s3_server(folder / "s3", authority, written_to=True, host=CONTROL_ADDRESS, names=names("s3"))
        artifacts = registry(folder / "registry", authority, host=CONTROL_ADDRESS, names=names("registry"))
        ports = {
            "s3": stack.enter_context(s3).port,
            "registry": stack.enter_context(artifacts).port,
            "hub": stack.enter_context(_hub(hub, authority, names("hub"))),
        }
        kube.apply(*(each for name in NAMES for each in _service(name, ports[name])))
        yield Places(ports, kube.namespace, folder / "ca.crt", hub)


class _Hub(http.server.SimpleHTTPRequestHandler):
    """Files below ORG/REPO/REVISION, as `/ORG/REPO/resolve/REVISION/PATH`, for who has the token."""

    def translate_path(self, path: str) -> str:
        place, _, file = path.partition("/resolve/")
        return super().translate_path(f"{place}/{unquote(file)}")

    def send_head(self) -> object:  # type: ignore[override]
        if self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self.send_error(401)
            return None
        return super().send_head()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""


def _hub(folder: Path, authority: Authority, names: tuple[str, ...]) -> AbstractContextManager[int]:
    authority.server(*names).put(folder / "tls")
    return serving(partial(_Hub, directory=str(folder)), CONTROL_ADDRESS, tls=folder / "tls")


def _service(name: str, port: int) -> Iterator[Manifest]:
    yield {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": {"ports": [{"port": port}]}}
    yield {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {"name": name, "labels": {"kubernetes.io/service-name": name}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [CONTROL_ADDRESS], "conditions": {"ready": True}}],
        "ports": [{"port": port, "protocol": "TCP"}],
    }
