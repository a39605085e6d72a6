"""Weights and files of more than 2 GiB, at a limit of some bytes: `make test-large` has real ones."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

from inference_protocol.reasons import WorkerReason
from inference_worker.engines import external_data, onnx_faults
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from tests.process import models


def with_large_weight(kind: int, values: Any) -> tuple[bytes, dict[str, bytes]]:
    """y = w, which is kept beside the model."""
    weight = helper.make_tensor("w", kind, [3, 2], values)
    graph = helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], "g", [], [models.tensor("y", kind, [3, 2])], [weight])
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    raw = numpy_helper.from_array(numpy_helper.to_array(weight)).raw_data
    (kept,) = proto.graph.initializer
    kept.CopyFrom(TensorProto(name="w", data_type=kind, dims=[3, 2], data_location=TensorProto.EXTERNAL))
    kept.external_data.add(key="location", value="w.bin")
    kept.external_data.add(key="offset", value="4")
    return proto.SerializeToString(), {"w.bin": b"skip" + raw}


@pytest.mark.parametrize(
    ("kind", "fed"),
    [
        (TensorProto.FLOAT, 1),
        (TensorProto.INT8, 1),
        (TensorProto.BOOL, 1),
        (TensorProto.FLOAT16, 1),
        (TensorProto.BFLOAT16, 1),
        (TensorProto.INT4, 0),
    ],
)
def test_a_weight_that_is_too_large_for_a_file_is_fed_in_its_type(monkeypatch: pytest.MonkeyPatch, kind: int, fed: int) -> None:
    """Of 2 GiB the runtime refuses it; Two values a byte are left to the runtime."""
    monkeypatch.setattr(external_data, "FED_BYTES", 2)
    data, beside = with_large_weight(kind, [1, 0, 1, 1, 0, 1])

    assert len(external_data.large_weights(data, beside)) == fed
    if not fed:
        return
    options = onnxruntime.SessionOptions()
    arrays = external_data.large_weights(data, beside)
    values = [onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, told) for array, told in arrays.values()]
    options.add_external_initializers(list(arrays), values)
    (answer,) = onnxruntime.InferenceSession(data, options).run_with_ort_values(["y"], {})
    assert answer.shape() == [3, 2]
    if kind != TensorProto.BFLOAT16:
        assert answer.numpy().tolist() == [[1, 0], [1, 1], [0, 1]]


@pytest.mark.parametrize("change", ["cut off", "too long"])
def test_a_large_weight_whose_bytes_are_not_its_own_is_left_to_the_runtime(monkeypatch: pytest.MonkeyPatch, change: str) -> None:
    monkeypatch.setattr(external_data, "FED_BYTES", 2)
    data, beside = with_large_weight(TensorProto.FLOAT, [1, 0, 1, 1, 0, 1])
    whole = beside["w.bin"]

    assert external_data.large_weights(data, {"w.bin": whole[:-4] if change == "cut off" else whole + b"\0" * 4}) == {}


def test_a_file_or_a_weight_that_nothing_can_read_is_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """The runtime's words for the file are `narrowing_error`; those for a weight are its own since 1.32."""
    data = models.identity()
    monkeypatch.setattr(external_data, "FILE_LIMIT_BYTES", len(data) - 1)
    for read in (
        lambda: OnnxEngine(data, providers=("CPUExecutionProvider",), threads=1),
        lambda: external_data.embedded(data, {}),
    ):
        with pytest.raises(WorkerError, match=rf"{len(data)} bytes.*at most {len(data) - 1};.*save_as_external_data") as caught:
            read()
        assert caught.value.reason is WorkerReason.MODEL_TOO_LARGE

    words = (
        "Initializer 'w' declares a size of 2304000000 bytes which exceeds the 2147483648 byte limit for embedded initializer data"
    )
    reason, message = onnx_faults.of_load(data, words, runtime="ONNX Runtime 9")
    assert reason is WorkerReason.MODEL_TOO_LARGE and "'w' has 2304000000 bytes" in message and "2147483648" in message


def folded() -> onnx.ModelProto:
    """Nodes that the runtime's optimisers fold and fuse, so that they read and rewrite weights."""
    rng = np.random.default_rng(1)

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.uniform(0.5, 1.5, shape).astype(np.float32), name)

    nodes = [
        helper.make_node("Conv", ["x", "kernel"], ["c"], kernel_shape=[3, 3]),
        helper.make_node("BatchNormalization", ["c", "scale", "bias", "mean", "var"], ["n"]),
        helper.make_node("Relu", ["n"], ["r"]),
        helper.make_node("Flatten", ["r"], ["f"]),
        helper.make_node("Transpose", ["turned"], ["straight"], perm=[1, 0]),
        helper.make_node("MatMul", ["f", "straight"], ["m"]),
        helper.make_node("Add", ["m", "more"], ["a"]),
        helper.make_node("QuantizeLinear", ["w", "step", "zero"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "step", "zero"], ["d"]),
        helper.make_node("MatMul", ["a", "d"], ["y"]),
    ]
    weights = [
        weight("kernel", 4, 3, 3, 3),
        *(weight(name, 4) for name in ("scale", "bias", "mean", "var")),
        weight("turned", 8, 144),
        weight("more", 8),
        weight("w", 8, 5),
        numpy_helper.from_array(np.array(0.01, np.float32), "step"),
        numpy_helper.from_array(np.array(3, np.uint8), "zero"),
    ]
    inputs = [models.tensor("x", TensorProto.FLOAT, ["N", 3, 8, 8])]
    outputs = [models.tensor("y", TensorProto.FLOAT, ["N", 5])]
    return helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, weights), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )


@pytest.mark.parametrize("least", [1, 64, 2**20])
def test_weights_that_are_fed_give_the_answers_of_those_within_the_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, least: int
) -> None:
    monkeypatch.setattr(external_data, "FED_BYTES", least)
    whole = folded()
    within = OnnxEngine(whole.SerializeToString(), providers=("CPUExecutionProvider",), threads=1)
    onnx.save(whole, tmp_path / "m.onnx", save_as_external_data=True, location="m.bin", size_threshold=0)
    data, beside = (tmp_path / "m.onnx").read_bytes(), {"m.bin": (tmp_path / "m.bin").read_bytes()}
    assert (len(external_data.large_weights(data, beside)) > 0) == (least < 2**20)

    fed = OnnxEngine(data, beside=beside, providers=("CPUExecutionProvider",), threads=1)
    del beside

    feeds = {"x": np.random.default_rng(2).random((2, 3, 8, 8), np.float32)}
    np.testing.assert_allclose(fed.run(feeds)["y"], within.run(feeds)["y"], rtol=1e-5)
