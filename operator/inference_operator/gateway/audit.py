"""One line of JSON for each request, on Envoy's standard output: who, what, when, how long, and how it ended.

Envoy escapes what callers wrote. Nothing is logged that may hold a secret: no query, no body, and of headers an id and a trace.
"""

from inference_operator.gateway import messages
from inference_operator.gateway.lua import ROUTE_HEADER
from inference_operator.gateway.manifests import Manifest, any_of
from inference_operator.gateway.tenants_lua import CALLER, NOTES

# What routes and workers have for the log, by the name of their metadata.
SERVED = "served"
_CALLER = f"DYNAMIC_METADATA({NOTES}:{CALLER}"
_LINE: Manifest = {
    "time": "%START_TIME%",
    "milliseconds": "%DURATION%",
    "tenant": f"%{_CALLER}:tenant)%",
    "knownBy": f"%{_CALLER}:by)%",
    "identity": f"%{_CALLER}:identity)%",
    "from": "%DOWNSTREAM_REMOTE_ADDRESS_WITHOUT_PORT%",
    "namespace": f"%METADATA(ROUTE:{SERVED}:namespace)%",
    "model": f"%METADATA(ROUTE:{SERVED}:model)%",
    "version": f"%UPSTREAM_METADATA({SERVED}:version)%",
    "digest": f"%UPSTREAM_METADATA({SERVED}:digest)%",
    "worker": "%UPSTREAM_HOST%",
    "attempts": "%UPSTREAM_REQUEST_ATTEMPT_COUNT%",
    "asked": f"%REQ({ROUTE_HEADER}):256%",
    "method": "%REQ(:METHOD):16%",
    "path": "%PATH(NQ):256%",
    "protocol": "%PROTOCOL%",
    "status": "%RESPONSE_CODE%",
    "grpcStatus": "%GRPC_STATUS_NUMBER%",
    "flags": "%RESPONSE_FLAGS%",
    "details": "%RESPONSE_CODE_DETAILS%",
    "bytesReceived": "%BYTES_RECEIVED%",
    "bytesSent": "%BYTES_SENT%",
    "requestId": "%REQ(X-REQUEST-ID):64%",
    "traceparent": "%REQ(TRACEPARENT):64%",
}


def log() -> Manifest:
    """The listener's log."""
    return {"name": "audit", "typed_config": any_of(messages.STDOUT, {"log_format": {"json_format": _LINE}})}


def of_route(namespace: str, model: str) -> Manifest:
    """What a route's metadata says."""
    return {"namespace": namespace, "model": model}


def of_worker(version: str, digest: str) -> Manifest:
    """What a worker's metadata says. It is the worker's: while a version is rolled out, workers of two files answer."""
    return {"version": version, "digest": digest}
