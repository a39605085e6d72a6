"""What Envoy itself says, in the protocol's words: an error is {"error": TEXT} over HTTP, a status over gRPC."""

from collections.abc import Iterator
from dataclasses import dataclass

from inference_operator.gateway.lua import ROUTE_HEADER
from inference_operator.gateway.manifests import Manifest
from inference_operator.gateway.tenants import OVER_QUOTA
from inference_operator.gateway.tenants_lua import CALLER, NOTES

# The numbers of Envoy's enums.
_EQUAL, _IF_ABSENT, _OVERWRITE = 0, 1, 2


@dataclass(frozen=True, slots=True)
class _Reply:
    """What is said in a case, and how by gRPC; `hint` is added for HTTP, `status` is said in place of Envoy's own."""

    case: Manifest
    grpc_status: int
    text: str
    hint: str = ""
    status: int | None = None
    retry_seconds: int | str | None = None


def _status(number: int) -> Manifest:
    return {"status_code_filter": {"comparison": {"op": _EQUAL, "value": {"default_value": number, "runtime_key": "unused"}}}}


def _flag(flag: str) -> Manifest:
    return {"response_flag_filter": {"flags": [flag]}}


_GRPC: Manifest = {"header_filter": {"header": {"name": "content-type", "string_match": {"prefix": "application/grpc"}}}}
_NOT_FOUND, _RESOURCE_EXHAUSTED, _UNAVAILABLE, _DEADLINE_EXCEEDED = 5, 8, 14, 4
_HINT = ": write PATH as /NAMESPACE/v2/models/MODEL/..."
_CALLER = f"%DYNAMIC_METADATA({NOTES}:{CALLER}"
_TABLE = (
    _Reply(_status(404), _NOT_FOUND, f"no model is served as %REQ({ROUTE_HEADER})%", _HINT),
    _Reply(
        _status(OVER_QUOTA),
        _RESOURCE_EXHAUSTED,
        f"the tenant {_CALLER}:tenant)% has used its quota of {_CALLER}:quota)%",
        status=429,
        retry_seconds=f"{_CALLER}:again)%",
    ),
    # A circuit breaker is open: as many requests as serve.gateway.maxParallelRequests are under way.
    _Reply(_flag("UO"), _RESOURCE_EXHAUSTED, "too many requests for the model are under way", status=429, retry_seconds=1),
    _Reply(
        _status(413),
        _RESOURCE_EXHAUSTED,
        "the request is too large to be read for its model: name that in the metadata inference-model",
    ),
    _Reply(_status(504), _DEADLINE_EXCEEDED, "the request's deadline can't be met: %LOCAL_REPLY_BODY%"),
    _Reply(_status(429), _RESOURCE_EXHAUSTED, "%LOCAL_REPLY_BODY%", retry_seconds=1),
    _Reply(_status(503), _UNAVAILABLE, "no worker of the model is ready: %LOCAL_REPLY_BODY%", retry_seconds=1),
)


def _mappers() -> Iterator[Manifest]:
    for reply in _TABLE:
        again = [("retry-after", str(reply.retry_seconds))] if reply.retry_seconds is not None else []
        yield {
            "filter": {"and_filter": {"filters": [reply.case, _GRPC]}},
            # Envoy makes the message of the body.
            "body_format_override": {"text_format_source": {"inline_string": reply.text}},
            "headers_to_add": _headers([("grpc-status", str(reply.grpc_status)), *again]),
        }
        yield {
            "filter": reply.case,
            **({"status_code": reply.status} if reply.status is not None else {}),
            "body_format_override": {"json_format": {"error": reply.text + reply.hint}},
            "headers_to_add": _headers(again),
        }


def _headers(pairs: list[tuple[str, str]]) -> list[Manifest]:
    return [
        {"header": {"key": key, "value": value}, "append_action": _IF_ABSENT if key == "retry-after" else _OVERWRITE}
        for key, value in pairs
    ]


REPLIES = list(_mappers())
