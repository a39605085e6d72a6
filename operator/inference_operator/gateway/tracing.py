"""Traces of requests: what Envoy tells of them, and the collector that it tells."""

from urllib.parse import urlsplit

from inference_operator.gateway import messages
from inference_operator.gateway.manifests import Manifest, address, any_of
from inference_operator.settings import GatewayTracing

COLLECTOR_NAME = "collector"
_SERVICE_NAME = "inference-gateway"
# Where collectors take traces by OTLP over HTTP, unless the endpoint has a path of its own: as OpenTelemetry's SDKs have it.
_PATH = "/v1/traces"
_OTLP_PORT = 4318
# Posts under way, of some hundred spans each: one that takes them and never answers must not have all of an Envoy's memory.
_POSTS: Manifest = {"max_connections": 4, "max_pending_requests": 16}
# Spans that wait for a collector that is away; more are dropped.
_MOST_SPANS = 2048
# The numbers of Envoy's enums.
_STRICT_DNS, _MILLION = 1, 2


def of_requests(tracing: GatewayTracing) -> Manifest:
    """What an Envoy traces: what its callers have sampled, and of those who say nothing so many; none of those who say no."""
    share = {"numerator": round(tracing.sampling_percent * 1e4), "denominator": _MILLION}
    drawn = any_of(messages.SAMPLER_BY_RATIO, {"sampling_percentage": share})
    by_caller = {"wrapped_sampler": {"name": "ratio", "typed_config": drawn}}
    provider = {
        "service_name": _SERVICE_NAME,
        "http_service": {"http_uri": {"uri": _url(tracing.endpoint), "cluster": COLLECTOR_NAME, "timeout": "2s"}},
        "sampler": {"name": "caller", "typed_config": any_of(messages.SAMPLER_BY_PARENT, by_caller)},
        "max_cache_size": _MOST_SPANS,
    }
    return {
        # One span for the request, one for each try of a worker.
        "spawn_upstream_span": True,
        "provider": {"name": "opentelemetry", "typed_config": any_of(messages.OPENTELEMETRY, provider)},
    }


def collector(tracing: GatewayTracing) -> dict[str, Manifest]:
    """Where the collector is: a cluster by its name."""
    place = urlsplit(tracing.endpoint)
    host = place.hostname or ""
    endpoint = {"endpoint": {"address": address(host, place.port or _OTLP_PORT)}}
    return {
        COLLECTOR_NAME: {
            "name": COLLECTOR_NAME,
            "type": _STRICT_DNS,
            "connect_timeout": "1s",
            "circuit_breakers": {"thresholds": [_POSTS]},
            "load_assignment": {"cluster_name": COLLECTOR_NAME, "endpoints": [{"lb_endpoints": [endpoint]}]},
        }
    }


def _url(endpoint: str) -> str:
    return endpoint if urlsplit(endpoint).path.strip("/") else endpoint.rstrip("/") + _PATH
