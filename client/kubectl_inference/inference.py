"""Asks a service for a prediction by the Open Inference Protocol, over HTTP or gRPC. It trusts nothing of what comes back."""

import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import msgspec
from tritonclient import grpc as over_grpc
from tritonclient import http as over_http
from tritonclient.utils import InferenceServerException

from inference_client.errors import ClientError, InvalidError
from kubectl_inference import bounded, tensors

# What tritonclient and NumPy raise for an answer that is none.
_MALFORMED = (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError, MemoryError)
_LENGTH = "Inference-Header-Content-Length"


@dataclass(frozen=True, slots=True)
class Way:
    """How the service is asked."""

    grpc: bool
    tls: bool
    ca_file: str | None
    insecure: bool
    headers: Mapping[str, str]
    timeout: float


class _Tensor(msgspec.Struct, frozen=True):
    name: str
    datatype: str
    # Numbers are texts where gRPC's messages become JSON.
    shape: tuple[int, ...]


class _Metadata(msgspec.Struct, frozen=True):
    inputs: tuple[_Tensor, ...] = ()
    outputs: tuple[_Tensor, ...] = ()


def ask(address: str, model: str, version: str, value: Any, way: Way) -> dict[str, Any]:
    """The answer to one request: each output by its name. Raises ClientError."""
    asked = _over_grpc if way.grpc else _over_http
    try:
        return bounded.within(way.timeout, f"model {model} at {address}", lambda: asked(address, model, version, value, way))
    except InferenceServerException as error:
        raise ClientError(f"model {model} at {address}: {error.message()}") from error
    except OSError as error:
        raise ClientError(f"{address} doesn't answer: {error}") from error


def _over_http(address: str, model: str, version: str, value: Any, way: Way) -> dict[str, Any]:
    tls = _tls(way) if way.tls else None
    root = f"/v2/models/{quote(model, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "")

    def send(method: str, path: str, body: bytes | None = None, **more: str) -> bounded.Answer:
        try:
            return bounded.exchange(address, (method, path, body), {**way.headers, **more}, tls, way.timeout)
        except ClientError as error:
            raise ClientError(f"model {model} at {address}: {error}") from error

    found = _metadata(send("GET", root).body)
    body, length = over_http.InferenceServerClient.generate_request_body(_inputs(over_http, found, value))
    answer = send("POST", f"{root}/infer", body, **({} if length is None else {_LENGTH: str(length)}))
    with _checked(model):
        told = answer.headers.get(_LENGTH)
        result = over_http.InferenceServerClient.parse_response_body(answer.body, header_length=None if told is None else int(told))
        return _outputs(model, found, result)


def _over_grpc(address: str, model: str, version: str, value: Any, way: Way) -> dict[str, Any]:
    if way.insecure:
        raise InvalidError("gRPC always checks who answers: leave --insecure-skip-tls-verify out, or ask by HTTP")
    bound = [("grpc.max_receive_message_length", bounded.ANSWER_BYTES), ("grpc.max_send_message_length", -1)]
    made = over_grpc.InferenceServerClient(address, ssl=way.tls, root_certificates=way.ca_file, channel_args=bound)
    limit = {"headers": way.headers, "client_timeout": way.timeout}
    with contextlib.closing(made) as client:
        found = _metadata(msgspec.json.encode(client.get_model_metadata(model, version, as_json=True, **limit)))
        result = client.infer(model, _inputs(over_grpc, found, value), version, **limit)
        with _checked(model):
            return _outputs(model, found, result)


def _metadata(body: bytes) -> _Metadata:
    try:
        # gRPC's JSON has whole numbers of 64 bits as texts.
        return msgspec.json.decode(body, type=_Metadata, strict=False)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ClientError(f"its metadata is none of the Open Inference Protocol: {error}") from error


def _inputs(kit: Any, found: _Metadata, value: Any) -> list[Any]:
    inputs = []
    for one in tensors.tensors(value, [tensors.Declared(each.name, each.datatype, each.shape) for each in found.inputs]):
        inputs.append(kit.InferInput(one.name, list(one.array.shape), one.datatype))
        inputs[-1].set_data_from_numpy(one.array)
    return inputs


def _outputs(model: str, found: _Metadata, result: Any) -> dict[str, Any]:
    return {"model": model, "outputs": {one.name: tensors.plain(result.as_numpy(one.name)) for one in found.outputs}}


@contextlib.contextmanager
def _checked(model: str) -> Any:
    try:
        yield
    except _MALFORMED as error:
        raise ClientError(
            f"model {model}: its answer is none of the Open Inference Protocol: {type(error).__name__}: {error}"
        ) from error


def _tls(way: Way) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=way.ca_file)
    if way.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
