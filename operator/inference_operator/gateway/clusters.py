"""The workers of a service as Envoy knows them: how they are checked and chosen from, and where they are."""

from collections.abc import Mapping

from inference_operator.api.gateway import TrafficDistribution
from inference_operator.gateway import audit, messages
from inference_operator.gateway.manifests import ADS, Manifest, address, any_of, metadata
from inference_operator.gateway.snapshot import Backend, Service
from inference_operator.gateway.tls import CHECKED, of_workers
from inference_operator.gateway.weights import FULL
from inference_protocol.messages import GRPC_PORT, HEALTH_PORT, HTTP_PORT, READY_PATH

PORTS = {"http": HTTP_PORT, "grpc": GRPC_PORT}
# The numbers of Envoy's enums.
_EDS, _LEAST_REQUEST, _MAGLEV = 3, 1, 5
_HEALTHY, _DRAINING = 1, 3
# Workers bound themselves and say 429; the door must not refuse before they do.
_MOST = 100_000


def cluster_name(service: Service, protocol: str) -> str:
    """What the workers of a service are called in Envoy, in its statistics too."""
    return f"{protocol}:{service.namespace}/{service.model}@{service.version}"


def cluster(name: str, service: Service, protocol: str) -> Manifest:
    """A service's workers by one protocol, wherever they are.

    It changes with the job's options alone: a changed one is made anew, with new connections.
    """
    secured = of_workers(service) if service.tls else {}
    http2 = "http2_protocol_options" if protocol == "grpc" else "http_protocol_options"
    return {
        **secured,
        "name": name,
        "type": _EDS,
        "eds_cluster_config": {"eds_config": ADS},
        "connect_timeout": "1s",
        **(_BY_HASH if service.options.affinity_header is not None else _BY_LOAD),
        "ignore_health_on_host_removal": True,
        "health_checks": [_CHECK_OF_TLS if service.tls else _CHECK],
        "outlier_detection": _OUTLIERS,
        "circuit_breakers": {
            "thresholds": [
                {
                    "max_connections": _MOST,
                    "max_pending_requests": _MOST,
                    "max_requests": service.options.max_parallel_requests or _MOST,
                    "retry_budget": {"budget_percent": {"value": 20}, "min_retry_concurrency": 3},
                }
            ]
        },
        "typed_extension_protocol_options": [
            {"key": messages.HTTP_OPTIONS, "value": any_of(messages.HTTP_OPTIONS, {"explicit_http_config": {http2: {}}})}
        ],
    }


_COMMON: Manifest = {
    # Of workers that all fail their checks none is asked: an answer that says so is better than one that never comes.
    "healthy_panic_threshold": {"value": 0},
    # A new worker that is found healthy gets requests at once, and not a second later.
    "update_merge_window": "0s",
}
_BY_LOAD: Manifest = {"lb_policy": _LEAST_REQUEST, "common_lb_config": _COMMON}
# Bounded loads: whoever has half as many again as the others on average is passed over for the next.
_BY_HASH: Manifest = {
    "lb_policy": _MAGLEV,
    "common_lb_config": {**_COMMON, "consistent_hashing_lb_config": {"hash_balance_factor": 150}},
}
_CHECK: Manifest = {
    "timeout": "1s",
    "interval": "2s",
    "no_traffic_interval": "5s",
    "unhealthy_threshold": 2,
    "healthy_threshold": 1,
    "http_health_check": {"path": "/v2/health/ready"},
}
# Over TLS workers may ask for a token; probes have a port of their own.
_CHECK_OF_TLS: Manifest = {**_CHECK, "http_health_check": {"path": READY_PATH}, "transport_socket_match_criteria": CHECKED}
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


def endpoints(
    name: str, service: Service, port: int, weights: Mapping[str, int], zone: str = "", *, audited: bool = False
) -> Manifest:
    """Where a service's workers are, and how much each gets; for an Envoy in `zone`, if the service prefers its own.

    If requests are `audited`, also what each has loaded.

    The last worker of a service that falls asleep answers what comes before Envoy holds requests back.
    """
    groups = [group for group in _nearest_first(service, zone) if group]
    return {
        "cluster_name": name,
        "endpoints": [
            {
                "lb_endpoints": [
                    {**_endpoint(service, backend, port, weights), **(_loaded(service, backend) if audited else {})}
                    for backend in group
                ],
                "priority": priority,
            }
            for priority, group in enumerate(groups)
        ],
    }


def _loaded(service: Service, backend: Backend) -> Manifest:
    return metadata(**{audit.SERVED: audit.of_worker(service.version, backend.digest)})


def _nearest_first(service: Service, zone: str) -> tuple[list[Backend], list[Backend]]:
    """Those of the zone, where one of them takes requests, and the others."""
    near = [backend for backend in service.backends if backend.zone == zone]
    if prefers_zones(service) and zone and any(not backend.draining for backend in near):
        return near, [backend for backend in service.backends if backend.zone != zone]
    return list(service.backends), []


def prefers_zones(service: Service) -> bool:
    """Whether Envoys of different zones are told differently of its workers."""
    return service.options.traffic_distribution is TrafficDistribution.PREFER_SAME_ZONE


def _endpoint(service: Service, backend: Backend, port: int, weights: Mapping[str, int]) -> Manifest:
    return {
        "endpoint": {
            "address": address(backend.address, port),
            # Both protocols are one process, which tells by HTTP how it is.
            "health_check_config": {
                "port_value": HEALTH_PORT if service.tls else HTTP_PORT,
                # One that was told to go says that it isn't ready. And of a service that has just woken nobody would be healthy
                # before Envoy's own first check: the operator, which asks more often, vouches for one.
                **({"disable_active_health_check": True} if backend.last or backend.first else {}),
            },
        },
        "health_status": _HEALTHY if not backend.draining or backend.last or service.holds else _DRAINING,
        "load_balancing_weight": weights.get(backend.uid, FULL),
    }
