"""A real Envoy as a gateway of somebody else sets it up for an InferencePool: it asks the endpoint picker, and goes where that says."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dev.envoy import ensure_envoy
from inference_protocol.messages import GRPC_PORT, HTTP_PORT
from tests.loopback import free_ports

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

DESTINATION = "x-gateway-destination-endpoint"
_HTTP = "envoy.extensions.filters.http"
_BODIES = {"FULL_DUPLEX_STREAMED": ("SEND", "SEND"), "BUFFERED": ("SKIP", "SKIP"), "NONE": ("SKIP", "SKIP")}


@dataclass
class Gateway:
    """One process. `port` is for callers."""

    process: subprocess.Popen[bytes]
    log_file: Path
    port: int

    @property
    def url(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def log(self) -> str:
        return self.log_file.read_text(errors="replace")

    def end(self) -> None:
        self.process.kill()
        self.process.wait()


def start(
    folder: Path,
    picker: int,
    workers: Sequence[str],
    *,
    body: str = "FULL_DUPLEX_STREAMED",
    fail_open: bool = False,
    subset: Sequence[str] | None = None,
    original: bool = False,
    asks: bool = True,
    namespace: str = "default",
) -> Gateway:
    """An Envoy before a pool of workers, by their addresses. `original` goes wherever the picker says, else into the pool alone.

    One that doesn't ask spreads requests by itself.
    """
    port, admin = free_ports(2)
    config, log = folder / f"gateway-{port}.json", folder / f"gateway-{port}.log"
    filters = [*([_hint(subset)] if subset is not None else []), *([_picker(body, fail_open=fail_open)] if asks else []), _router()]
    clusters = [_original(), *(_pool(name, workers, number) for name, number in (("http", HTTP_PORT), ("grpc", GRPC_PORT)))]
    config.write_text(
        json.dumps(
            {
                "admin": {"address": _address("127.0.0.1", admin)},
                "static_resources": {
                    "listeners": [_listener(port, filters, "original" if original else "http", namespace)],
                    "clusters": [*clusters, _asked(picker)],
                },
            }
        )
    )
    command = [str(ensure_envoy()), "--config-path", str(config), "--concurrency", "1", "--use-dynamic-base-id"]
    with log.open("wb") as target:
        process = subprocess.Popen([*command, "--log-level", "warning"], stdout=target, stderr=target, cwd=folder)
    return Gateway(process, log, port)


def _typed(kind: str, **said: Any) -> dict[str, Any]:
    return {"@type": f"type.googleapis.com/{kind}", **said}


def _address(host: str, port: int) -> dict[str, Any]:
    return {"socket_address": {"address": host, "port_value": port}}


def _listener(port: int, filters: list[dict[str, Any]], cluster: str, namespace: str) -> dict[str, Any]:
    grpc = {"prefix": "/", "headers": [{"name": "content-type", "string_match": {"prefix": "application/grpc"}}]}
    path = {"match": {"prefix": f"/{namespace}/v2/"}, "route": {"cluster": cluster, "prefix_rewrite": "/v2/", "timeout": "0s"}}
    manager = _typed(
        "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
        stat_prefix="callers",
        http_filters=filters,
        route_config={
            "virtual_hosts": [
                {"name": "all", "domains": ["*"], "routes": [{"match": grpc, "route": {"cluster": "grpc", "timeout": "0s"}}, path]}
            ]
        },
    )
    return {
        "name": "callers",
        "address": _address("127.0.0.1", port),
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def _picker(body: str, *, fail_open: bool) -> dict[str, Any]:
    response, trailers = _BODIES[body]
    mode = {
        "request_header_mode": "SEND",
        "response_header_mode": response,
        "request_body_mode": body,
        "response_body_mode": body if body == "FULL_DUPLEX_STREAMED" else "NONE",
        "request_trailer_mode": trailers,
        "response_trailer_mode": trailers,
    }
    processor = _typed(
        f"{_HTTP}.ext_proc.v3.ExternalProcessor",
        grpc_service={"envoy_grpc": {"cluster_name": "picker"}, "timeout": "1s"},
        processing_mode=mode,
        failure_mode_allow=fail_open,
        message_timeout="1s",
        metadata_options={
            "forwarding_namespaces": {"untyped": ["envoy.lb.subset_hint"]},
            "receiving_namespaces": {"untyped": ["envoy.lb"]},
        },
    )
    return {"name": "picker", "typed_config": processor}


def _hint(subset: Sequence[str]) -> dict[str, Any]:
    said = {"metadata_namespace": "envoy.lb.subset_hint", "value": {f"{DESTINATION}-subset": list(subset)}}
    return {"name": "hint", "typed_config": _typed(f"{_HTTP}.set_metadata.v3.Config", metadata=[said])}


def _router() -> dict[str, Any]:
    return {"name": "router", "typed_config": _typed(f"{_HTTP}.router.v3.Router")}


def _protocol(version: str) -> dict[str, Any]:
    kind = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    return {kind: _typed(kind, explicit_http_config={version: {}})}


def _pool(name: str, workers: Sequence[str], port: int) -> dict[str, Any]:
    """The workers, of which the picker's is taken; without one, any."""
    fallback = _typed("envoy.extensions.load_balancing_policies.least_request.v3.LeastRequest")
    override = _typed(
        "envoy.extensions.load_balancing_policies.override_host.v3.OverrideHost",
        override_host_sources=[
            {"metadata": {"key": "envoy.lb", "path": [{"key": DESTINATION}]}},
            {"header": DESTINATION},
        ],
        fallback_policy={"policies": [{"typed_extension_config": {"name": "least", "typed_config": fallback}}]},
    )
    return {
        "name": name,
        "type": "STATIC",
        "load_balancing_policy": {"policies": [{"typed_extension_config": {"name": "override", "typed_config": override}}]},
        "load_assignment": {
            "cluster_name": name,
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address(worker, port)}} for worker in workers]}],
        },
        "typed_extension_protocol_options": _protocol("http2_protocol_options" if name == "grpc" else "http_protocol_options"),
    }


def _original() -> dict[str, Any]:
    return {
        "name": "original",
        "type": "ORIGINAL_DST",
        "lb_policy": "CLUSTER_PROVIDED",
        "original_dst_lb_config": {"use_http_header": True, "http_header_name": DESTINATION},
    }


def _asked(port: int) -> dict[str, Any]:
    return {
        "name": "picker",
        "type": "STATIC",
        "load_assignment": {
            "cluster_name": "picker",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": _address("127.0.0.1", port)}}]}],
        },
        "typed_extension_protocol_options": _protocol("http2_protocol_options"),
    }
