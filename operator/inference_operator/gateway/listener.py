"""Where callers connect, and the filters that their requests pass."""

from inference_operator.gateway import audit, messages
from inference_operator.gateway.answers import CONTENT_TYPE
from inference_operator.gateway.door import Door
from inference_operator.gateway.lua import SOURCE
from inference_operator.gateway.manifests import ADS, Manifest, address, any_of
from inference_operator.gateway.payloads import copying
from inference_operator.gateway.replies import REPLIES
from inference_operator.gateway.routes import FILTER_BRIDGE, FILTER_DRAW, FILTER_HOLD, ROUTES_NAME
from inference_operator.gateway.tenants import before_the_route, behind_the_route
from inference_operator.gateway.tls import of_callers
from inference_operator.gateway.tracing import of_requests

LISTENER_NAME = "door"
# The number of Envoy's enum.
_REJECT, _V3, _UNAVAILABLE = 2, 2, 503
# The operator, as the bootstrap names it.
_OPERATOR = "operator"
# The operator ends a wait itself.
_LATER_SECONDS = 5
_BRIDGE: Manifest = {"content_type": CONTENT_TYPE, "withhold_grpc_frames": True}


def listener(door: Door) -> Manifest:
    """One port for both protocols: the preface of HTTP/2 tells them apart."""
    manager: Manifest = {
        "stat_prefix": LISTENER_NAME,
        "rds": {"config_source": ADS, "route_config_name": ROUTES_NAME},
        "http_filters": [
            *before_the_route(door),
            {"name": "whom", "typed_config": any_of(messages.LUA, {"default_source_code": {"inline_string": SOURCE}})},
            *behind_the_route(door.tenants),
            *copying(door.payloads),
            {"name": FILTER_DRAW, "typed_config": any_of(messages.LUA, {})},
            {"name": FILTER_HOLD, "typed_config": any_of(messages.AUTHORIZATION, _asking(door.hold_seconds))},
            {"name": FILTER_BRIDGE, "typed_config": any_of(messages.BRIDGE, _BRIDGE)},
            {"name": "router", "typed_config": any_of(messages.ROUTER, {})},
        ],
        "access_log": [audit.log()] if door.audit else [],
        "use_remote_address": True,
        "normalize_path": True,
        "path_with_escaped_slashes_action": _REJECT,
        "request_headers_timeout": "10s",
        "stream_idle_timeout": "900s",
        "common_http_protocol_options": {"idle_timeout": "3600s"},
        "local_reply_config": {"mappers": REPLIES},
        **({"tracing": of_requests(door.tracing)} if door.tracing is not None else {}),
    }
    filters = [{"name": "http", "typed_config": any_of(messages.CONNECTION_MANAGER, manager)}]
    secured = {"transport_socket": of_callers(known=bool(door.callers_folder))} if door.tls_folder else {}
    chain: Manifest = {"filters": filters, **secured}
    return {"name": LISTENER_NAME, "address": address("0.0.0.0", door.port), "filter_chains": [chain]}  # noqa: S104


def _asking(hold_seconds: float) -> Manifest:
    """Asks the operator on routes whose requests wait; without an answer they are told that no worker is ready."""
    return {
        "grpc_service": {"envoy_grpc": {"cluster_name": _OPERATOR}, "timeout": f"{hold_seconds + _LATER_SECONDS:g}s"},
        "transport_api_version": _V3,
        "status_on_error": {"code": _UNAVAILABLE},
    }
