"""Callers over gRPC, by grpcio and the messages that Triton's client ships; and what a worker says of itself, as numbers."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import grpc
import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from tritonclient.grpc import service_pb2 as pb
from tritonclient.grpc.service_pb2_grpc import GRPCInferenceServiceStub

from tests.process.wire import get

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tests.process.harness import Worker

INFER = "/v2/models/net/infer"
PATIENCE_SECONDS = 60.0
_UNLIMITED = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]


@contextlib.contextmanager
def stub(worker: Worker, *, options: list[tuple[str, Any]] | None = None) -> Iterator[GRPCInferenceServiceStub]:
    """One connection of its own: channels of equal arguments share theirs otherwise."""
    apart = [*_UNLIMITED, ("grpc.use_local_subchannel_pool", 1), *(options or [])]
    with grpc.insecure_channel(f"127.0.0.1:{worker.grpc_port}", apart) as channel:
        yield GRPCInferenceServiceStub(channel)


def tensor_request(
    array: np.ndarray,
    datatype: str = "FP32",
    *,
    name: str = "x",
    outputs: tuple[str, ...] = (),
    **more: Any,
) -> pb.ModelInferRequest:
    """A request with one raw input."""
    request = pb.ModelInferRequest(model_name="net", raw_input_contents=[array.tobytes()], **more)
    request.inputs.add(name=name, datatype=datatype, shape=array.shape)
    for output in outputs:
        request.outputs.add(name=output)
    return request


def rows_request(rows: list[list[float]], **more: Any) -> pb.ModelInferRequest:
    return tensor_request(np.array(rows, np.float32), **more)


def answer(response: pb.ModelInferResponse, dtype: Any = np.float32, *, index: int = 0) -> np.ndarray:
    """An output that came raw."""
    return np.frombuffer(response.raw_output_contents[index], dtype).reshape(list(response.outputs[index].shape))


def code_of(call: Any) -> str:
    """The status of what a call raises, by name; OK when it raises nothing."""
    try:
        call()
    except grpc.RpcError as error:
        return error.code().name
    return "OK"


def metric(worker: Worker, name: str, **labels: str) -> float:
    """The value of a metric, summed over what the labels leave open."""
    text = get(worker.port, "/metrics").body.decode()
    wanted: Mapping[str, str] = labels
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name and wanted.items() <= sample.labels.items()
    )


def queued(worker: Worker) -> int:
    return int(get(worker.port, "/telemetry").json.get("queued", 0))


def running(worker: Worker) -> int:
    return int(get(worker.port, "/telemetry").json.get("inFlight", 0))


def resident_bytes(worker: Worker) -> int:
    return int(metric(worker, "inference_resident_bytes"))
