"""From services to what Envoy is told: pure functions whose results are manifests, as Envoy's documentation writes them."""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from inference_operator.gateway import messages
from inference_operator.gateway.lua import ROUTE_HEADER, SOURCE
from inference_operator.gateway.snapshot import Service
from inference_operator.gateway.weights import FULL
from inference_protocol.messages import GRPC_PORT, HTTP_PORT

Manifest = Mapping[str, object]

LISTENER_NAME = "door"
ROUTES_NAME = "models"
PORTS = {"http": HTTP_PORT, "grpc": GRPC_PORT}
# The numbers of Envoy's enums.
_EDS, _LEAST_REQUEST, _V3, _OVERWRITE, _EQUAL, _REJECT = 3, 1, 2, 2, 0, 2
_HEALTHY, _DRAINING = 1, 3
_ADS: Manifest = {"ads": {}, "resource_api_version": _V3}
# Workers bound themselves and say 429; the door must not refuse before they do.
_MOST = 100_000
# What is asked of the server is answered for the door: it lives, and is ready to lead to whatever is.
_OF_THE_DOOR = {
    "/v2": '{"name":"inference-gateway","version":"1","extensions":[]}',
    "/v2/health/live": "{}",
    "/v2/health/ready": "{}",
}
_LONGEST_DEADLINE = "86400s"
# gRPC's.
_NOT_FOUND = "5"


@dataclass(frozen=True, slots=True)
class Resource:
    """A resource of Envoy's API by its name. `version` is a hash of `data`, so that every replica gives equal ones the same."""

    name: str
    version: str
    data: bytes


# By message, then by name.
Resources = Mapping[str, Mapping[str, Resource]]


def resources(services: Iterable[Service], weights: Mapping[str, int], *, port: int, request_bytes: int) -> Resources:
    """All that Envoy is told. `weights` are by the pod's uid; a worker without one has the full weight."""
    known = tuple(services)
    names = [(service, protocol, cluster_name(service, protocol)) for service in known for protocol in PORTS]
    return {
        messages.CLUSTER: _by_name(messages.CLUSTER, {name: cluster(name, protocol) for _, protocol, name in names}),
        messages.ENDPOINTS: _by_name(
            messages.ENDPOINTS, {name: endpoints(name, service, PORTS[protocol], weights) for service, protocol, name in names}
        ),
        messages.LISTENER: _by_name(messages.LISTENER, {LISTENER_NAME: listener(port)}),
        messages.ROUTES: _by_name(messages.ROUTES, {ROUTES_NAME: routes(known, request_bytes)}),
    }


def _by_name(kind: str, manifests: Mapping[str, Manifest]) -> dict[str, Resource]:
    packed = {name: messages.packed(kind, manifest) for name, manifest in manifests.items()}
    return {name: Resource(name, hashlib.sha256(data).hexdigest()[:16], data) for name, data in packed.items()}


def cluster_name(service: Service, protocol: str) -> str:
    """What the workers of a service are called in Envoy, in its statistics too."""
    return f"{protocol}:{service.namespace}/{service.model}@{service.version}"


def cluster(name: str, protocol: str) -> Manifest:
    """A service's workers by one protocol, wherever they are; it changes with nothing but this code."""
    http2 = "http2_protocol_options" if protocol == "grpc" else "http_protocol_options"
    return {
        "name": name,
        "type": _EDS,
        "eds_cluster_config": {"eds_config": _ADS},
        "connect_timeout": "1s",
        "lb_policy": _LEAST_REQUEST,
        # Of workers that all fail their checks none is asked: an answer that says so is better than one that never comes.
        "common_lb_config": {"healthy_panic_threshold": {"value": 0}},
        "ignore_health_on_host_removal": True,
        "health_checks": [
            {
                "timeout": "1s",
                "interval": "2s",
                "no_traffic_interval": "5s",
                "unhealthy_threshold": 2,
                "healthy_threshold": 1,
                "http_health_check": {"path": "/v2/health/ready"},
            }
        ],
        "outlier_detection": _OUTLIERS,
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": _MOST,
                    "max_pending_requests": _MOST,
                    "max_requests": _MOST,
                    "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3},
                }
            ]
        },
        "typed_extension_protocol_options": [
            {"key": messages.HTTP_OPTIONS, "value": _any(messages.HTTP_OPTIONS, {"explicit_http_config": {http2: {}}})}
        ],
    }


# Only connections that fail count: an answer of 429 or 503 says that a queue is full or a deadline can't be met.
_OUTLIERS: Manifest = {
    "split_external_local_origin_errors": True,
    "consecutive_local_origin_failure": 3,
    "enforcing_consecutive_5xx": 0,
    "enforcing_consecutive_gateway_failure": 0,
    "enforcing_success_rate": 0,
    "enforcing_local_origin_success_rate": 0,
    "interval": "1s",
    "base_ejection_time": "5s",
    "max_ejection_percent": 50,
}


def endpoints(name: str, service: Service, port: int, weights: Mapping[str, int]) -> Manifest:
    """Where a service's workers are, and how much each gets."""
    return {
        "cluster_name": name,
        "endpoints": [
            {
                "lb_endpoints": [
                    {
                        "endpoint": {
                            "address": _address(backend.address, port),
                            # Both protocols are one process, which tells by HTTP how it is.
                            "health_check_config": {"port_value": HTTP_PORT},
                        },
                        "health_status": _DRAINING if backend.draining else _HEALTHY,
                        "load_balancing_weight": weights.get(backend.uid, FULL),
                    }
                    for backend in service.backends
                ]
            }
        ]
        if service.backends
        else [],
    }


def listener(port: int) -> Manifest:
    """One port for both protocols: the preface of HTTP/2 tells them apart."""
    manager: Manifest = {
        "stat_prefix": LISTENER_NAME,
        "rds": {"config_source": _ADS, "route_config_name": ROUTES_NAME},
        "http_filters": [
            {"name": "whom", "typed_config": _any(messages.LUA, {"default_source_code": {"inline_string": SOURCE}})},
            {"name": "router", "typed_config": _any(messages.ROUTER, {"suppress_envoy_headers": True})},
        ],
        "use_remote_address": True,
        "normalize_path": True,
        "path_with_escaped_slashes_action": _REJECT,
        "request_headers_timeout": "10s",
        "stream_idle_timeout": "900s",
        "common_http_protocol_options": {"idle_timeout": "3600s"},
        "local_reply_config": {"mappers": _REPLIES},
    }
    filters = [{"name": "http", "typed_config": _any(messages.CONNECTION_MANAGER, manager)}]
    return {"name": LISTENER_NAME, "address": _address("0.0.0.0", port), "filter_chains": [{"filters": filters}]}  # noqa: S104


def routes(services: Iterable[Service], request_bytes: int) -> Manifest:
    """Which cluster a request goes to, by the header that the filter wrote: looked up, not tried one after the other."""
    entries = {
        f"{protocol}:{service.namespace}/{service.model}{version}": _to(cluster_name(service, protocol))
        for service in services
        for protocol in PORTS
        for version in (f"@{service.version}", *([""] if service.default else []))
    }
    entries |= {f"door:{path}": _said(body) for path, body in _OF_THE_DOOR.items()}
    entered = [{"key": key, "value": {"action": _action(route)}} for key, route in sorted(entries.items())]
    by_header = {"name": "route", "typed_config": _any(messages.HEADER_INPUT, {"header_name": ROUTE_HEADER})}
    nobody: Manifest = {"match": {"prefix": "/"}, "direct_response": {"status": 404}}
    matcher = {
        "matcher_tree": {"input": by_header, "exact_match_map": {"map": entered}},
        "on_no_match": {"action": _action(nobody)},
    }
    host = {"name": "all", "domains": ["*"], "request_body_buffer_limit": str(request_bytes), "matcher": matcher}
    return {"name": ROUTES_NAME, "virtual_hosts": [host]}


def _said(body: str) -> Manifest:
    """A route that is answered by the door itself."""
    return {"match": {"prefix": "/"}, "direct_response": {"status": 200, "body": {"inline_string": body}}}


def _to(cluster: str) -> Manifest:
    """A route. Requests have the deadline that their caller gives, which workers know too, and no other.

    Only what no worker has begun is tried again, on another: a connection that was not made, a stream that was refused.
    """
    return {
        "match": {"prefix": "/"},
        "route": {
            "cluster": cluster,
            "timeout": "0s",
            "max_stream_duration": {"grpc_timeout_header_max": _LONGEST_DEADLINE},
            "retry_policy": {
                "retry_on": "connect-failure,refused-stream,reset-before-request",
                "num_retries": 2,
                "retry_host_predicate": [{"name": "previous", "typed_config": _any(messages.PREVIOUS_HOSTS, {})}],
                "host_selection_retry_max_attempts": "3",
            },
        },
    }


def _action(route: Manifest) -> Manifest:
    return {"name": "route", "typed_config": _any(messages.ROUTE, route)}


def _status(number: int) -> Manifest:
    return {"status_code_filter": {"comparison": {"op": _EQUAL, "value": {"default_value": number, "runtime_key": "unused"}}}}


def _replies() -> list[Manifest]:
    """What Envoy itself says, in the protocol's words: an error is {"error": TEXT} over HTTP, a status over gRPC."""
    unknown = f"no model is served as %REQ({ROUTE_HEADER})%: write PATH as /NAMESPACE/v2/models/MODEL/..."
    grpc = {"header_filter": {"header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}}}
    not_found = {"header": {"key": "grpc-status", "value": _NOT_FOUND}, "append_action": _OVERWRITE}
    text = {"key": "grpc-message", "value": f"no model is served as %REQ({ROUTE_HEADER})%"}
    return [
        {
            "filter": {"and_filter": {"filters": [_status(404), grpc]}},
            "headers_to_add": [not_found, {"header": text, "append_action": _OVERWRITE}],
        },
        {"filter": grpc},
        {"filter": _status(404), "body_format_override": {"json_format": {"error": unknown}}},
        {
            "filter": _status(503),
            "body_format_override": {"json_format": {"error": "no worker of the model is ready: %LOCAL_REPLY_BODY%"}},
        },
    ]


_REPLIES = _replies()


def _address(address: str, port: int) -> Manifest:
    return {"socket_address": {"address": address, "port_value": port}}


def _any(kind: str, manifest: Manifest) -> Manifest:
    return {"@type": messages.type_url(kind), **manifest}
