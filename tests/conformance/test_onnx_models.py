"""ONNX's own conformance models, served by a real worker over HTTP and gRPC, answer bit for bit as the bare runtime does.

What the runtime can't load, and what the protocol can't carry, the worker refuses by name. `make test` takes a sample;
`make test-conformance` takes all, and gives each a worker of its own.
"""

from __future__ import annotations

import ctypes
import math
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tritonclient.grpc as over_grpc
import tritonclient.http as over_http
from tritonclient.utils import np_to_triton_dtype

from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from tests.conformance import wheel
from tests.conformance.conftest import OUTCOME
from tests.process.harness import Worker

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.conformance.serving import Serving
    from tests.conformance.wheel import Case, Feeds

BF16 = datatypes.NUMPY["BF16"]
ASKED = int(os.environ.get("SAMPLE", "100"))
SEED = int(os.environ.get("SEED", "1"))
CASES = wheel.sample(ASKED or len(wheel.cases()), SEED)
OF_THE_RUNTIME = {
    WorkerReason.MODEL_TYPE_UNSUPPORTED,
    WorkerReason.MODEL_OPERATOR_UNSUPPORTED,
    WorkerReason.MODEL_INVALID,
    WorkerReason.MODEL_TOO_NEW,
    WorkerReason.MODEL_LOCALE_MISSING,
}
Tensors = list[np.ndarray[Any, Any]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_served_model_answers_as_the_bare_runtime_does(
    serving: Serving, case: Case, record_property: Callable[[str, object], None]
) -> None:
    session, refusals = bare(case.model)

    served = serving.serve(case.model)

    if session is None:
        assert served in refusals
        record_property(OUTCOME, f"refused, {served}")
        return
    assert isinstance(served, Worker), served
    feeds = case.feeds()
    expected = expected_of(session, feeds)
    for module, port in ((over_http, served.port), (over_grpc, served.grpc_port)):
        found = answers(module, port, feeds, [node.name for node in session.get_outputs()])
        differing = [str(number) for number, pair in enumerate(zip(found, expected, strict=True)) if not same(*pair, case)]
        assert differing == [], (module.__name__, found, expected)
    record_property(OUTCOME, "answered as the bare runtime")


def bare(model: bytes) -> tuple[onnxruntime.InferenceSession | None, set[WorkerReason]]:
    """The runtime's own session; None, with the reasons that a worker may have, where there is nothing to serve."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    try:
        session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001 -- the runtime has more fault classes than it documents
        return None, OF_THE_RUNTIME
    if all(node.type in datatypes.ONNX for node in (*session.get_inputs(), *session.get_outputs())):
        return session, set()
    return None, {WorkerReason.MODEL_TYPE_UNSUPPORTED}


def expected_of(session: onnxruntime.InferenceSession, feeds: Feeds) -> Tensors:
    """What the bare runtime answers."""
    kinds = {node.type for node in (*session.get_inputs(), *session.get_outputs())}
    if "tensor(bfloat16)" not in kinds:
        return [np.asarray(answer) for answer in session.run(None, feeds)]
    # numpy has no such type, so the runtime takes and gives it in its own values only.
    values = {name: value_of(array) for name, array in feeds.items()}
    return [array_of(value) for value in session.run_with_ort_values([node.name for node in session.get_outputs()], values)]


def value_of(array: np.ndarray[Any, Any]) -> onnxruntime.OrtValue:
    """A tensor as the runtime's own value."""
    if array.dtype != BF16:
        return onnxruntime.OrtValue.ortvalue_from_numpy(array)
    return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array.view(np.uint16), onnx.TensorProto.BFLOAT16)


def array_of(value: onnxruntime.OrtValue) -> np.ndarray[Any, Any]:
    """The runtime's own value as a tensor."""
    if value.data_type() != "tensor(bfloat16)":
        return np.asarray(value.numpy())
    shape = value.shape()
    return np.frombuffer(ctypes.string_at(value.data_ptr(), math.prod(shape) * BF16.itemsize), BF16).reshape(shape)


def answers(module: Any, port: int, feeds: Feeds, outputs: list[str]) -> Tensors:
    """What Triton's client gets for the same."""
    with module.InferenceServerClient(f"127.0.0.1:{port}") as client:
        types = {each["name"]: each["datatype"] for each in metadata(client)["inputs"]}
        inputs = []
        for name, array in feeds.items():
            tensor = module.InferInput(name, list(array.shape), types[name])
            inputs.append(tensor.set_data_from_numpy(array))
        result = client.infer("net", inputs, outputs=[module.InferRequestedOutput(name) for name in outputs])
        return [np.asarray(result.as_numpy(name)) for name in outputs]


def metadata(client: Any) -> dict[str, Any]:
    """The model's description as a dictionary over either protocol."""
    options = {"as_json": True} if isinstance(client, over_grpc.InferenceServerClient) else {}
    found: dict[str, Any] = client.get_model_metadata("net", **options)
    return {"inputs": [], **found}


def same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any], case: Case) -> bool:
    """Whether two answers are the same bits; for a model of random answers, whether their shapes and types are."""
    if one.shape != other.shape or np_to_triton_dtype(one.dtype) != np_to_triton_dtype(other.dtype):
        return False
    if one.dtype.kind in "OSU":
        return [text(value) for value in one.ravel()] == [text(value) for value in other.ravel()]
    return case.random or one.tobytes() == other.tobytes()


def text(value: object) -> str:
    """A string, as either side has it."""
    return value.decode() if isinstance(value, bytes) else str(value)
