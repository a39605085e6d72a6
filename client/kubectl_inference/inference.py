"""Asks a service for a prediction by the Open Inference Protocol, over HTTP or gRPC."""

import contextlib
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tritonclient import grpc as over_grpc
from tritonclient import http as over_http
from tritonclient.utils import InferenceServerException

from inference_client.errors import ClientError, InvalidError
from kubectl_inference import tensors


@dataclass(frozen=True, slots=True)
class Way:
    """How the service is asked."""

    grpc: bool
    tls: bool
    ca_file: str | None
    insecure: bool
    headers: Mapping[str, str]
    timeout: float


def ask(address: str, model: str, version: str, value: Any, way: Way) -> dict[str, Any]:
    """The answer to one request: each output by its name. Raises ClientError."""
    kit = over_grpc if way.grpc else over_http
    try:
        with contextlib.closing(_client(address, way)) as asked:
            # HTTP has its limit from the client, gRPC from each call.
            limit = {"client_timeout": way.timeout} if way.grpc else {}
            form = {"as_json": True} if way.grpc else {}
            metadata = asked.get_model_metadata(model, version, headers=way.headers, **form, **limit)
            declared = [_declared(one) for one in metadata.get("inputs", ())]
            inputs = []
            for one in tensors.tensors(value, declared):
                inputs.append(kit.InferInput(one.name, list(one.array.shape), one.datatype))
                inputs[-1].set_data_from_numpy(one.array)
            answer = asked.infer(model, inputs, version, headers=way.headers, **limit)
            names = [one["name"] for one in metadata.get("outputs", ())]
            return {"model": model, "outputs": {name: tensors.plain(answer.as_numpy(name)) for name in names}}
    except InferenceServerException as error:
        raise ClientError(f"model {model} at {address}: {error.message()}") from error
    except (OSError, ssl.SSLError) as error:
        raise ClientError(f"{address} doesn't answer: {error}") from error


def _declared(one: Mapping[str, Any]) -> tensors.Declared:
    # Numbers are texts where gRPC's messages become JSON.
    return tensors.Declared(str(one["name"]), str(one["datatype"]), tuple(int(size) for size in one["shape"]))


def _client(address: str, way: Way) -> Any:
    if way.grpc:
        if way.insecure:
            raise InvalidError("gRPC always checks who answers: leave --insecure-skip-tls-verify out, or ask by HTTP")
        return over_grpc.InferenceServerClient(address, ssl=way.tls, root_certificates=way.ca_file)
    return over_http.InferenceServerClient(
        address,
        ssl=way.tls,
        insecure=way.insecure,
        ssl_context_factory=lambda: _tls(way),
        connection_timeout=way.timeout,
        network_timeout=way.timeout,
    )


def _tls(way: Way) -> ssl.SSLContext:
    made = ssl.create_default_context(cafile=way.ca_file)
    if way.insecure:
        made.check_hostname = False
        made.verify_mode = ssl.CERT_NONE
    return made
