"""Answers of ONNX Runtime by where the tensors lie, which must make no difference to callers."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from inference_worker.engines.onnx import OnnxEngine
from tests.process import models

KINDS = [(TensorProto.FLOAT, np.float32), (TensorProto.DOUBLE, np.float64)]


def total(kind: int) -> bytes:
    """x [N, 15] -> y, the sum of all: 15 values fill no number of vectors."""
    node = helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)
    return models.model([node], [models.tensor("x", kind, ["N", 15])], [models.tensor("y", kind, [])])


def placed(array: np.ndarray, offset: int) -> np.ndarray:
    """The same values, so many bytes behind an address of numpy's own choice."""
    memory = np.zeros(array.nbytes + 64, np.uint8)
    begin = -memory.ctypes.data % 16 + offset
    found = memory[begin : begin + array.nbytes].view(array.dtype).reshape(array.shape)
    found[...] = array
    return found


@pytest.mark.parametrize(("kind", "dtype"), KINDS, ids=["FP32", "FP64"])
def test_an_answer_does_not_depend_on_where_in_a_body_a_tensor_begins(kind: int, dtype: type[np.floating]) -> None:
    engine = OnnxEngine(total(kind), providers=("CPUExecutionProvider",), threads=1)
    rows = np.random.default_rng(1).random((64, 15)).astype(dtype)
    expected = engine.run({"x": rows})["y"].tobytes()

    differing = [offset for offset in range(17) if engine.run({"x": placed(rows, offset)})["y"].tobytes() != expected]

    assert differing == []


def test_an_answer_does_not_depend_on_which_rows_were_cut_off_before_it() -> None:
    engine = OnnxEngine(total(TensorProto.FLOAT), providers=("CPUExecutionProvider",), threads=1)
    rows = np.random.default_rng(1).random((64, 15)).astype(np.float32)

    differing = [
        start
        for start in range(16)
        if engine.run({"x": rows[start:]})["y"].tobytes() != engine.run({"x": rows[start:].copy()})["y"].tobytes()
    ]

    assert differing == []
