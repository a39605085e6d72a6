"""Envoy Gateway's standalone mode: a gateway of somebody else, before the workers of a test and told by files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dev.envoy import ensure_envoy
from dev.tools import ensure
from tests.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

ENVOY_VERSION = "1.40.0"
_GROUP = "gateway.envoyproxy.io"


@dataclass
class Standalone:
    """The control plane, and the Envoy that it starts. `port` is for callers."""

    process: subprocess.Popen[bytes]
    log_file: Path
    port: int

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def end(self) -> None:
        """It ends its Envoy, too."""
        self.process.terminate()
        self.process.wait(timeout=60)


def start(folder: Path, objects: Iterable[dict[str, Any]]) -> Standalone:
    """Start one whose Gateway `infra/public` has a listener on a free port; `objects` are the routes and what they need."""
    binary, (port,) = ensure("envoy-gateway") / "envoy-gateway", free_ports(1)
    homes = {name: folder / "gateway" / name for name in ("configHome", "dataHome", "stateHome", "runtimeDir")}
    envoy = homes["dataHome"] / "envoy-versions" / ENVOY_VERSION / "bin" / "envoy"
    for made in (*homes.values(), envoy.parent, folder / "resources"):
        made.mkdir(parents=True, exist_ok=True)
    # Else it would fetch one.
    envoy.symlink_to(ensure_envoy())
    subprocess.run([binary, "certgen", "--local", "--config-home", homes["configHome"]], check=True, capture_output=True)
    (folder / "resources" / "all.yaml").write_text("\n---\n".join(map(json.dumps, [*_gateway(port), *objects])))
    config = {
        "apiVersion": f"{_GROUP}/v1alpha1",
        "kind": "EnvoyGateway",
        "gateway": {"controllerName": f"{_GROUP}/gatewayclass-controller"},
        "provider": {
            "type": "Custom",
            "custom": {
                "resource": {"type": "File", "file": {"paths": [str(folder / "resources")]}},
                "infrastructure": {"type": "Host", "host": {name: str(path) for name, path in homes.items()}},
            },
        },
        "extensionApis": {"enableBackend": True},
    }
    (folder / "gateway.json").write_text(json.dumps(config))
    log = folder / "envoy-gateway.log"
    with log.open("wb") as target:
        command = [str(binary), "server", "--config-path", str(folder / "gateway.json")]
        process = subprocess.Popen(command, stdout=target, stderr=target, cwd=folder, env={**os.environ, "HOME": str(folder)})
    return Standalone(process, log, port)


def _gateway(port: int) -> list[dict[str, Any]]:
    proxy = {"provider": {"type": "Host", "host": {"envoyVersion": ENVOY_VERSION}}}
    reference = {"group": _GROUP, "kind": "EnvoyProxy", "name": "host", "namespace": "infra"}
    listener = {"name": "http", "protocol": "HTTP", "port": port, "allowedRoutes": {"namespaces": {"from": "All"}}}
    routed = {"apiVersion": "gateway.networking.k8s.io/v1"}
    return [
        {
            **routed,
            "kind": "GatewayClass",
            "metadata": {"name": "class"},
            "spec": {"controllerName": f"{_GROUP}/gatewayclass-controller", "parametersRef": reference},
        },
        {
            "apiVersion": f"{_GROUP}/v1alpha1",
            "kind": "EnvoyProxy",
            "metadata": {"name": "host", "namespace": "infra"},
            "spec": proxy,
        },
        {
            **routed,
            "kind": "Gateway",
            "metadata": {"name": "public", "namespace": "infra"},
            "spec": {"gatewayClassName": "class", "listeners": [listener]},
        },
    ]


def standing_in(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """The object with a Backend in the place of each Service, which the standalone mode does not know; all else is as it was."""

    def told(value: Any) -> Any:
        if isinstance(value, list):
            return [told(one) for one in value]
        if not isinstance(value, Mapping):
            return value
        if value.get("kind") == "Service":
            named = {key: one for key, one in value.items() if key != "port"}
            return {**named, "group": _GROUP, "kind": "Backend"}
        return {key: told(one) for key, one in value.items()}

    return dict(told(manifest))


def backend(namespace: str, name: str, places: Iterable[tuple[str, int]], *, h2c: bool = False) -> dict[str, Any]:
    """A Backend of these addresses."""
    endpoints = [{"ip": {"address": address, "port": port}} for address, port in places]
    spec = {"endpoints": endpoints, **({"appProtocols": ["gateway.envoyproxy.io/h2c"]} if h2c else {})}
    return {"apiVersion": f"{_GROUP}/v1alpha1", "kind": "Backend", "metadata": {"name": name, "namespace": namespace}, "spec": spec}


def policies(namespace: str, route: str, picker: str) -> list[dict[str, Any]]:
    """What has a route ask the picker, a Backend, and go where that says."""
    target = [{"group": "gateway.networking.k8s.io", "kind": "HTTPRoute", "name": route}]
    metadata = {"name": route, "namespace": namespace}
    asked = {
        "backendRefs": [{"group": _GROUP, "kind": "Backend", "name": picker}],
        "processingMode": {"request": {"body": "FullDuplexStreamed"}, "response": {"body": "FullDuplexStreamed"}},
        "metadata": {"writableNamespaces": ["envoy.lb"]},
    }
    override = {"type": "LeastRequest", "endpointOverride": {"extractFrom": [{"header": "x-gateway-destination-endpoint"}]}}
    return [
        {
            "apiVersion": f"{_GROUP}/v1alpha1",
            "kind": "EnvoyExtensionPolicy",
            "metadata": metadata,
            "spec": {"targetRefs": target, "extProc": [asked]},
        },
        {
            "apiVersion": f"{_GROUP}/v1alpha1",
            "kind": "BackendTrafficPolicy",
            "metadata": metadata,
            "spec": {"targetRefs": target, "loadBalancer": override},
        },
    ]
