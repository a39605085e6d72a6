"""What is asked of the server, and not of a model: answered by Envoy itself from what it was told last, over both protocols.

A direct response can't be gRPC's, which ends with trailers. So Envoy asks a listener of its own over HTTP, on a socket that only
its pod sees, and the filter `grpc_http1_reverse_bridge` makes gRPC of the answer.
"""

import base64
import json
from collections.abc import Iterable, Iterator, Mapping

from inference_operator.gateway import messages
from inference_operator.gateway.lua import ROUTE_HEADER
from inference_operator.gateway.manifests import ADS, NOBODY, Manifest, any_of, matched
from inference_operator.gateway.snapshot import Service

ANSWERS_NAME = "answers"
LISTENER_NAME = "self"
CLUSTER_NAME = "self"
# What the filter writes of such a request begins with it.
PREFIX = "self:"
CONTENT_TYPE = "application/x-protobuf"
_JSON = "application/json"
_INDEX = ("self:http:index:", "self:grpc:RepositoryIndex:")
# Envoy takes no body of no bytes: a field that nobody knows.
_NO_MODELS = b"\x78\x00"
_NAME, _VERSION = "inference-gateway", "1"
# The number of Envoy's enum.
_OVERWRITE = 2
# An index has some 70 bytes for a model.
_LONGEST_ANSWER = 16 << 20


def answers(services: Iterable[Service]) -> Manifest:
    """The route table of that listener: every answer is a route."""
    indexes: dict[str, list[Service]] = {}
    for service in services:
        indexes.setdefault(service.namespace, []).append(service)
    said = dict(_of_the_server())
    for namespace, found in indexes.items():
        said |= zip((f"{prefix}{namespace}" for prefix in _INDEX), _index(found), strict=True)
    # A namespace without services has an index without models.
    none = dict(zip(_INDEX, _index(()), strict=True))
    host = {"name": "all", "domains": ["*"], "matcher": matched(ROUTE_HEADER, said, none, NOBODY)}
    return {"name": ANSWERS_NAME, "virtual_hosts": [host], "max_direct_response_body_size_bytes": _LONGEST_ANSWER}


def _of_the_server() -> Iterator[tuple[str, Manifest]]:
    about: Manifest = {"name": _NAME, "version": _VERSION, "extensions": ["model_repository"]}
    yield "self:http:/v2", _said(_JSON, json.dumps(about).encode())
    for word in ("live", "ready"):
        # KServe's client reads the word.
        yield f"self:http:/v2/health/{word}", _said(_JSON, json.dumps({word: True}).encode())
    yield "self:grpc:ServerLive", _said(CONTENT_TYPE, messages.embedded("ServerLiveResponse", {"live": True}))
    yield "self:grpc:ServerReady", _said(CONTENT_TYPE, messages.embedded("ServerReadyResponse", {"ready": True}))
    yield "self:grpc:ServerMetadata", _said(CONTENT_TYPE, messages.embedded("ServerMetadataResponse", about))


_STATES: Mapping[bool, Manifest] = {
    True: {"state": "READY", "reason": ""},
    False: {"state": "UNAVAILABLE", "reason": "no worker is ready"},
}


def _index(services: Iterable[Service]) -> tuple[Manifest, Manifest]:
    """By HTTP, and by gRPC."""
    models = [{"name": s.model, "version": s.version, **_STATES[s.live]} for s in services]
    packed = messages.embedded("RepositoryIndexResponse", {"models": models}) or _NO_MODELS
    return _said(_JSON, json.dumps(models).encode()), _said(CONTENT_TYPE, packed)


def _said(content_type: str, body: bytes) -> Manifest:
    header = {"header": {"key": "content-type", "value": content_type}, "append_action": _OVERWRITE}
    return {
        "match": {"prefix": "/"},
        "direct_response": {"status": 200, "body": {"inline_bytes": base64.b64encode(body).decode()}},
        "response_headers_to_add": [header],
    }


def own_cluster(port: int) -> Manifest:
    """Envoy itself, as it sees itself."""
    endpoint = {"lb_endpoints": [{"endpoint": {"address": _socket(port)}}]}
    return {
        "name": CLUSTER_NAME,
        "connect_timeout": "1s",
        "load_assignment": {"cluster_name": CLUSTER_NAME, "endpoints": [endpoint]},
    }


def own_listener(port: int) -> Manifest:
    """Where it hears itself. `port` is the callers', which tells Envoys of one network apart."""
    manager: Manifest = {
        "stat_prefix": LISTENER_NAME,
        "rds": {"config_source": ADS, "route_config_name": ANSWERS_NAME},
        "http_filters": [{"name": "router", "typed_config": any_of(messages.ROUTER, {})}],
    }
    filters = [{"name": "http", "typed_config": any_of(messages.CONNECTION_MANAGER, manager)}]
    return {"name": LISTENER_NAME, "address": _socket(port), "filter_chains": [{"filters": filters}]}


def _socket(port: int) -> Manifest:
    # An abstract name: it is in no file system, and in no other pod.
    return {"pipe": {"path": f"@inference-gateway-{port}"}}
