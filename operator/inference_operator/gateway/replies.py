"""What Envoy itself says, in the protocol's words: an error is {"error": TEXT} over HTTP, a status over gRPC."""

from inference_operator.gateway.lua import ROUTE_HEADER
from inference_operator.gateway.manifests import Manifest

# The numbers of Envoy's enums.
_EQUAL, _OVERWRITE = 0, 2
# gRPC's.
_NOT_FOUND = "5"


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


REPLIES = _replies()
