"""Which workers a request goes to: a map from what the filter wrote to routes, looked up and not tried one after the other."""

from collections.abc import Iterable

from inference_operator.gateway import audit, messages
from inference_operator.gateway.answers import CLUSTER_NAME, PREFIX
from inference_operator.gateway.clusters import PORTS, cluster_name
from inference_operator.gateway.door import Door
from inference_operator.gateway.hold import HELD_BYTES
from inference_operator.gateway.lua import DRAW, DRAW_HEADER, ROUTE_HEADER
from inference_operator.gateway.manifests import NOBODY, Manifest, any_of, matched, metadata
from inference_operator.gateway.snapshot import Service
from inference_operator.gateway.split import WHOLE, Split, splits
from inference_operator.gateway.tenants import FILTER_TOLD, for_workers

ROUTES_NAME = "models"
# The filters that run only where a route has them do something.
FILTER_DRAW, FILTER_BRIDGE, FILTER_HOLD = "draw", "bridge", "hold"
_LONGEST_DEADLINE = "86400s"
RETRIED = "connect-failure,refused-stream,reset-before-request"


def routes(services: Iterable[Service], door: Door) -> Manifest:
    """The route table. A version that is named answers alone; callers who name none are split between versions.

    Routes say how many workers they lead to if these keep quotas, and what they lead to if requests are logged.
    """
    known = tuple(services)
    counted = for_workers(door.tenants)
    entries: dict[str, Manifest] = {}
    for protocol in PORTS:
        named = {_key(service, protocol, f"@{service.version}"): Split(((service, WHOLE),)) for service in known}
        unnamed = {_key(split.shares[0][0], protocol): split for split in splits(known)}
        entries |= {
            key: {**_to(split, protocol), **_noted(split, counted=counted, audited=door.audit)}
            for key, split in (named | unnamed).items()
        }
    host = {
        "name": "all",
        "domains": ["*"],
        "request_body_buffer_limit": str(door.request_bytes),
        "matcher": matched(ROUTE_HEADER, entries, {PREFIX: _OWN}, NOBODY),
        "typed_per_filter_config": _filters(bridge=any_of(messages.BRIDGE_OF_ROUTE, {"disabled": True}), hold=_FREE),
    }
    return {"name": ROUTES_NAME, "virtual_hosts": [host]}


def by_route(services: Iterable[Service]) -> dict[str, Service]:
    """The service that a route is of, by what the filter writes; the default version's where callers name none."""
    found: dict[str, Service] = {}
    for service in services:
        for protocol in PORTS:
            found |= {_key(service, protocol, version): service for version in (f"@{service.version}", *[""] * service.default)}
    return found


def _key(service: Service, protocol: str, version: str = "") -> str:
    """What the filter writes of a request."""
    return f"{protocol}:{service.namespace}/{service.model}{version}"


def _filters(**done: Manifest) -> list[Manifest]:
    """What filters do on a route, by their names."""
    return [{"key": name, "value": what} for name, what in sorted(done.items())]


_FREE = any_of(messages.AUTHORIZATION_OF_ROUTE, {"disabled": True})
_HELD = any_of(messages.AUTHORIZATION_OF_ROUTE, {"check_settings": {"disable_request_body_buffering": True}})
# What is asked of the server.
_OWN: Manifest = {
    "match": {"prefix": "/"},
    "route": {"cluster": CLUSTER_NAME, "timeout": "5s"},
    "typed_per_filter_config": _filters(bridge=any_of(messages.BRIDGE_OF_ROUTE, {"disabled": False})),
}


def _to(split: Split, protocol: str) -> Manifest:
    """A route. Requests have the deadline that their caller gives, which workers know too, and no other.

    Only what no worker has begun is tried again, on another: a connection that was not made, a stream that was refused. What a
    worker has no room for is the caller's to hear: tried again, it costs workers under load a third of their timely answers.
    """
    route: Manifest = {
        **_chosen(split, protocol),
        "timeout": "0s",
        "max_stream_duration": {"grpc_timeout_header_max": _LONGEST_DEADLINE},
        "retry_policy": {
            "retry_on": RETRIED,
            "num_retries": 2,
            "retry_back_off": {"base_interval": "0.005s", "max_interval": "0.025s"},
            "retry_host_predicate": [{"name": "previous", "typed_config": any_of(messages.PREVIOUS_HOSTS, {})}],
            "host_selection_retry_max_attempts": "3",
        },
        "hash_policy": [{"header": {"header_name": header}} for header in _affinity(split)],
        "request_mirror_policies": [_copied(service, percent, protocol) for service, percent in split.mirrors],
    }
    drawn = {"draw": _DRAWN} if "weighted_clusters" in route else {}
    if not any(service.holds for service, _ in split.shares):
        return {"match": {"prefix": "/"}, "route": route, "typed_per_filter_config": _filters(**drawn)}
    # What waits for a worker stays in the caller's socket but for so much.
    kept = {"request_body_buffer_limit": str(HELD_BYTES), "typed_per_filter_config": _filters(hold=_HELD, **drawn)}
    return {"match": {"prefix": "/"}, "route": route, **kept}


def _noted(split: Split, *, counted: bool, audited: bool) -> Manifest:
    """A route's metadata, for the filter that tells workers of tenants and for the log; none where nobody asks for it."""
    first = split.shares[0][0]
    workers = sum(not backend.draining for service, percent in split.shares if percent for backend in service.backends)
    return metadata(
        **({FILTER_TOLD: {"workers": max(workers, 1)}} if counted else {}),
        **({audit.SERVED: audit.of_route(first.namespace, first.model)} if audited else {}),
    )


def _affinity(split: Split) -> list[str]:
    """The header by which the route's versions choose a worker, if they do: the first that is there counts."""
    return sorted({service.options.affinity_header for service, _ in split.shares if service.options.affinity_header is not None})


_DRAWN = any_of(messages.LUA_OF_ROUTE, {"source_code": {"inline_string": DRAW}})


def _chosen(split: Split, protocol: str) -> Manifest:
    shares = [(cluster_name(service, protocol), percent) for service, percent in split.shares if percent]
    if len(shares) == 1:
        return {"cluster": shares[0][0]}
    weighted = [{"name": name, "weight": percent} for name, percent in shares]
    return {"weighted_clusters": {"clusters": weighted, "header_name": DRAW_HEADER}}


def _copied(service: Service, percent: int, protocol: str) -> Manifest:
    return {
        "cluster": cluster_name(service, protocol),
        # Of a hundred, which is the fraction's default.
        "runtime_fraction": {"default_value": {"numerator": percent}},
        "disable_shadow_host_suffix_append": True,
    }
