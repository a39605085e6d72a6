"""INT8 variants of small models: what is quantised, what is refused, and in which words."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.matching import from_arrays
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.quantize import Bounds, Fault, QuantizeError, RefusedError, Variant, measure, method, quantize
from inference_worker.quantize.variant import digest_of, processor
from tests.process import models
from tests.process.harness import REPOSITORY

if TYPE_CHECKING:
    from pathlib import Path

RNG = np.random.default_rng(11)
ROWS = {"x": RNG.standard_normal((200, 64)).astype(np.float32)}
IMAGES = {"x": RNG.standard_normal((200, 3, 8, 8)).astype(np.float32)}
BOUNDS = Bounds(min_agreement=0.95, batch_size=8)


def perceptron(*, opset: int = 17, rows: int | str = "N", bias: tuple[int, ...] = (48,), scale: float = 1.0) -> bytes:
    """x [rows, 64] -> scores [rows, 10]: two Gemms with a Relu between them."""
    rng = np.random.default_rng(5)
    weights = {
        "w0": rng.standard_normal((64, 48)).astype(np.float32) * scale,
        "b0": rng.standard_normal(bias).astype(np.float32),
        "w1": rng.standard_normal((48, 10)).astype(np.float32) * scale,
        "b1": rng.standard_normal(10).astype(np.float32),
    }
    nodes = [
        helper.make_node("Gemm", ["x", "w0", "b0"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Gemm", ["r", "w1", "b1"], ["scores"]),
    ]
    shapes = [models.tensor("x", models.FLOAT, [rows, 64])], [models.tensor("scores", models.FLOAT, [rows, 10])]
    made = onnx.load_model_from_string(models.model(nodes, *shapes, weights))
    made.opset_import[0].version = opset
    return bytes(made.SerializeToString())


def convolution(*, head: bool = False) -> bytes:
    """x [N, 3, 8, 8] -> y: a Conv, and a MatMul over its flattened result where a head is wanted."""
    rng = np.random.default_rng(6)
    weights = {"k": rng.standard_normal((8, 3, 3, 3)).astype(np.float32)}
    nodes = [helper.make_node("Conv", ["x", "k"], ["c"], pads=[1, 1, 1, 1])]
    if head:
        weights["w"] = rng.standard_normal((512, 10)).astype(np.float32)
        nodes += [helper.make_node("Flatten", ["c"], ["f"]), helper.make_node("MatMul", ["f", "w"], ["y"])]
    else:
        nodes += [helper.make_node("Relu", ["c"], ["y"])]
    out: models.Shape = ["N", 10] if head else ["N", 8, 8, 8]
    return models.model(nodes, [models.tensor("x", models.FLOAT, ["N", 3, 8, 8])], [models.tensor("y", models.FLOAT, out)], weights)


def half_precision() -> bytes:
    """x [N, 64] -> y [N, 4], with weights in FP16."""
    weight = np.ones((64, 4), dtype=np.float16)
    nodes = [
        helper.make_node("Cast", ["x"], ["h"], to=TensorProto.FLOAT16),
        helper.make_node("MatMul", ["h", "w"], ["m"]),
        helper.make_node("Cast", ["m"], ["y"], to=TensorProto.FLOAT),
    ]
    return models.model(
        nodes, [models.tensor("x", models.FLOAT, ["N", 64])], [models.tensor("y", models.FLOAT, ["N", 4])], {"w": weight}
    )


def embedding() -> bytes:
    """i [N, 4] -> y [N, 4, 32]: a table that tokens are looked up in."""
    table = np.random.default_rng(8).standard_normal((500, 32)).astype(np.float32)
    return models.model(
        [helper.make_node("Gather", ["table", "i"], ["y"])],
        [models.tensor("i", models.INT64, ["N", 4])],
        [models.tensor("y", models.FLOAT, ["N", 4, 32])],
        {"table": table},
    )


def shared_factor() -> bytes:
    """x [N, 64] times one factor for all rows -> y [N, 8]."""
    weight = np.random.default_rng(9).standard_normal((64, 8)).astype(np.float32)
    return models.model(
        [helper.make_node("MatMul", ["x", "w"], ["m"]), helper.make_node("Mul", ["m", "factor"], ["y"])],
        [models.tensor("x", models.FLOAT, ["N", 64]), models.tensor("factor", models.FLOAT, [])],
        [models.tensor("y", models.FLOAT, ["N", 8])],
        {"w": weight},
    )


def recurrent() -> bytes:
    """x [N, 5, 16] -> y [N, 5, 1, 8]: an LSTM over five steps."""
    rng = np.random.default_rng(10)
    weights = {name: rng.standard_normal((1, 32, size)).astype(np.float32) for name, size in (("w", 16), ("r", 8))}
    nodes = [
        helper.make_node("Transpose", ["x"], ["steps"], perm=[1, 0, 2]),
        helper.make_node("LSTM", ["steps", "w", "r"], ["states"], hidden_size=8),
        helper.make_node("Transpose", ["states"], ["y"], perm=[2, 0, 1, 3]),
    ]
    shapes = [models.tensor("x", models.FLOAT, ["N", 5, 16])], [models.tensor("y", models.FLOAT, ["N", 5, 1, 8])]
    return models.model(nodes, *shapes, weights)


def made(data: bytes, how: str = "dynamic", **changes: Any) -> Variant:
    given: dict[str, Any] = {"calibration": ROWS, "evaluation": ROWS, "labels": None, "bounds": BOUNDS, **changes}
    return quantize(data, method=how, **given)  # type: ignore[arg-type]


def refusal(data: bytes, how: str = "dynamic", **changes: Any) -> QuantizeError:
    with pytest.raises(QuantizeError) as caught:
        made(data, how, **changes)
    return caught.value


def operators(data: bytes) -> set[str]:
    return {node.op_type for node in onnx.load_model_from_string(data).graph.node}


def test_dynamic_takes_gemms_apart_and_quantises_them() -> None:
    source = perceptron()

    variant = made(source)

    assert "MatMulInteger" in operators(variant.data)
    assert variant.report.quantized == {"Gemm": 2}
    assert len(variant.data) < len(source) / 2
    assert variant.digest == f"sha256:{hashlib.sha256(variant.data).hexdigest()}" == variant.report.variant_digest
    assert variant.report.source_digest == digest_of(source)
    assert any("each batch" in note for note in variant.report.notes)


def test_static_has_a_scale_for_each_channel() -> None:
    variant = made(perceptron(), "static")

    model = onnx.load_model_from_string(variant.data)
    scales = [tensor for tensor in model.graph.initializer if tensor.name.startswith("w") and tensor.name.endswith("_scale")]
    assert sorted(list(tensor.dims) for tensor in scales) == [[10], [48]]
    assert variant.report.calibration_rows == 200


def test_static_quantises_convolutions() -> None:
    variant = made(convolution(head=True), "static", calibration=IMAGES, evaluation=IMAGES)

    assert variant.report.quantized == {"Conv": 1, "MatMul": 1}
    assert any("same rows" in note for note in variant.report.notes)


def test_dynamic_leaves_convolutions_and_says_so() -> None:
    variant = made(convolution(head=True), evaluation=IMAGES)

    assert variant.report.quantized == {"MatMul": 1}
    assert "Conv" in operators(variant.data)
    assert any("1 Conv stay" in note for note in variant.report.notes)
    assert any("--method static" in note for note in variant.report.notes)


def test_dynamic_on_nothing_but_convolutions_points_to_static() -> None:
    error = refusal(convolution(), evaluation=IMAGES)

    assert error.fault == Fault.NOTHING_TO_QUANTIZE
    assert "slower" in error.message
    assert "--method static" in error.message


def test_tables_of_embeddings_are_quantised() -> None:
    rows = {"i": np.random.default_rng(1).integers(0, 500, (200, 4))}

    variant = made(embedding(), evaluation=rows)

    assert variant.report.quantized == {"Gather": 1}
    assert variant.report.variant_bytes < variant.report.source_bytes / 2


def test_a_bias_of_one_row_is_quantised_as_a_vector() -> None:
    assert made(perceptron(bias=(1, 48)), "static").report.quantized == {"Gemm": 2}


def test_a_model_of_fixed_rows_is_judged_by_all_rows() -> None:
    report = made(perceptron(rows=7), "static").report

    assert report.gate.rows == 200
    assert report.timing.batch_size == 7


@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_an_input_that_all_rows_share_is_given_to_each_batch(how: str) -> None:
    rows = {**ROWS, "factor": np.float32(0.5)}

    assert made(shared_factor(), how, calibration=rows, evaluation=rows).report.gate.rows == 200


def test_recurrent_networks_are_quantised() -> None:
    rows = {"x": RNG.standard_normal((200, 5, 16)).astype(np.float32)}

    report = made(recurrent(), evaluation=rows, bounds=Bounds(min_agreement=0.9, batch_size=8)).report

    assert (report.quantized, report.gate.rows) == ({"LSTM": 1}, 200)


def test_rows_that_only_fill_a_batch_up_are_not_judged() -> None:
    engine = OnnxEngine(models.identity(shape=[3, 2]), providers=("CPUExecutionProvider",), threads=1)
    pairs = np.arange(8, dtype=np.float32).reshape(4, 2)

    answers = measure.answers(engine, from_arrays({"x": pairs}, engine.inputs), 1)

    assert np.array_equal(answers["y"], pairs)


def test_an_old_opset_gets_one_scale_a_tensor() -> None:
    report = made(perceptron(opset=11), "static").report

    assert any("opset 11" in note for note in report.notes)


@pytest.mark.parametrize("data", [models.identity(), models.add(), models.label(), half_precision()])
@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_models_without_weights_are_left_alone(data: bytes, how: str) -> None:
    with pytest.raises(QuantizeError) as caught:
        method.build(data, how, ())  # type: ignore[arg-type]

    assert caught.value.fault == Fault.NOTHING_TO_QUANTIZE
    assert "FP32" in caught.value.message


@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_a_variant_is_not_quantised_again(how: str) -> None:
    error = refusal(made(perceptron(), how).data)

    assert error.fault == Fault.ALREADY_QUANTIZED
    assert "FP32" in error.message


@pytest.mark.parametrize("data", [b"", b"<html>", b"version https://git-lfs.github.com/spec/v1\n", perceptron()[:-100]])
def test_what_is_no_model_is_told_so(data: bytes) -> None:
    with pytest.raises(WorkerError) as caught:
        made(data)

    assert caught.value.reason in (WorkerReason.MODEL_CORRUPT, WorkerReason.MODEL_FORMAT_UNSUPPORTED)
    assert not isinstance(caught.value, QuantizeError)


def test_nothing_passes_without_rows_to_judge_by() -> None:
    error = refusal(perceptron(), evaluation=None)

    assert error.fault == Fault.ROWS_MISSING
    assert "--evaluate" in error.message


def test_static_asks_for_calibration_rows() -> None:
    error = refusal(perceptron(), "static", calibration=None)

    assert error.fault == Fault.ROWS_MISSING
    assert "--calibration" in error.message


@pytest.mark.parametrize(
    ("name", "array", "words"),
    [
        ("x", np.zeros((200, 63), dtype=np.float32), "63"),
        ("z", np.zeros((200, 64), dtype=np.float32), "'?z"),
        ("x", np.full((200, 64), "a"), "FP32"),
        ("x", np.full((200, 64), np.nan, dtype=np.float32), "NaN"),
        ("x", np.zeros((0, 64), dtype=np.float32), "no items"),
    ],
)
@pytest.mark.parametrize("purpose", ["calibration", "evaluation"])
def test_rows_that_do_not_fit_are_named(purpose: str, name: str, array: np.ndarray, words: str) -> None:
    error = refusal(perceptron(), "static", **{purpose: {name: array}})

    assert error.fault == Fault.ROWS_UNFIT
    assert error.message.startswith(f"the {purpose} rows")
    assert words.strip("'?") in error.message


@pytest.mark.parametrize("data", [models.scaled(), models.constant()])
def test_a_model_that_takes_no_rows_is_told_so(data: bytes) -> None:
    assert refusal(data, evaluation={}).fault == Fault.ROWS_UNFIT


def test_too_few_rows_are_told_with_the_number_that_is_enough() -> None:
    few = {"x": ROWS["x"][:15]}

    assert "at least 16" in refusal(perceptron(), "static", calibration=few).message
    error = refusal(perceptron(), evaluation=few, bounds=Bounds(min_agreement=0.99))
    assert error.fault == Fault.TOO_FEW_ROWS
    assert "at least 100" in error.message
    assert "at least 1000" in refusal(perceptron(), evaluation=few, bounds=Bounds(min_agreement=1)).message


@pytest.mark.parametrize(
    ("labels", "words"),
    [(np.zeros(199, dtype=np.int64), "[200]"), (np.zeros(200), "whole numbers"), (np.full(200, "cat"), "no output")],
)
def test_labels_that_do_not_fit_are_told_so(labels: np.ndarray, words: str) -> None:
    error = refusal(perceptron(), labels=labels)

    assert error.fault == Fault.ROWS_UNFIT
    assert words in error.message


def test_rows_that_the_model_refuses_are_told_so() -> None:
    error = refusal(embedding(), evaluation={"i": np.full((200, 4), 500)})

    assert error.fault == Fault.ROWS_UNFIT
    assert "can't run" in error.message


def scrambled(data: bytes, change: Any) -> bytes:
    """The model with one of its weights changed."""
    model = onnx.load_model_from_string(data)
    weight = next(tensor for tensor in model.graph.initializer if len(tensor.dims) == 2)
    weight.CopyFrom(numpy_helper.from_array(change(numpy_helper.to_array(weight)), weight.name))
    return bytes(model.SerializeToString())


@pytest.mark.parametrize(
    ("change", "words"),
    [(lambda w: w[::-1].copy(), "agreement"), (np.zeros_like, "agreement"), (lambda w: w * np.float32(np.nan), "NaN")],
    ids=["shuffled", "zero", "nan"],
)
def test_a_destroyed_variant_is_refused_with_its_report(monkeypatch: pytest.MonkeyPatch, change: Any, words: str) -> None:
    monkeypatch.setattr(method, "build", lambda data, *_: method.Built(scrambled(data, change), {"Gemm": 2}, ()))

    error = refusal(perceptron())

    assert isinstance(error, RefusedError)
    assert error.fault == Fault.REFUSED
    assert error.permanent
    assert words in error.message
    assert error.report.verdict == "refused"
    assert error.report.variant_digest != error.report.source_digest


def test_a_variant_that_can_not_be_loaded_or_run_is_the_tools_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(method, "build", lambda *_: method.Built(b"broken", {}, ()))
    assert refusal(perceptron()).fault == Fault.TOOL_FAILED

    monkeypatch.setattr(method, "build", lambda *_: method.Built(models.add(), {}, ()))
    assert refusal(perceptron()).fault == Fault.TOOL_FAILED


def test_a_tool_that_stumbles_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def stumble(*_: object) -> None:
        raise AttributeError("deep inside\nof something")

    monkeypatch.setattr(method, "_run", stumble)

    error = refusal(perceptron())

    assert error.fault == Fault.TOOL_FAILED
    assert "deep inside;" in error.message
    assert "--method static" in error.message


def test_without_onnx_the_message_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)

    error = refusal(perceptron())

    assert error.fault == Fault.PACKAGE_MISSING
    assert "requirements-quantize.txt" in error.message
    assert error.permanent


def test_a_worker_without_onnx_can_import_the_package() -> None:
    code = "import sys; sys.modules['onnx'] = None; import inference_worker.quantize.__main__"

    subprocess.run([sys.executable, "-c", code], check=True, cwd=REPOSITORY, env=environment())


def environment(seed: int = 0) -> dict[str, str]:
    path = os.pathsep.join(str(REPOSITORY / part) for part in ("protocol", "worker-image", "."))
    return {**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": str(seed)}


@pytest.mark.parametrize("how", ["dynamic", "static"])
def test_the_same_inputs_give_the_same_bytes_in_any_process(how: str) -> None:
    code = f"from tests.unit.worker.quantize import test_method as t; print(t.made(t.perceptron(), {how!r}).digest)"

    digests = {
        subprocess.run(
            [sys.executable, "-c", code], check=True, capture_output=True, text=True, cwd=REPOSITORY, env=environment(seed)
        ).stdout
        for seed in (1, 2)
    }

    assert digests == {made(perceptron(), how).digest + "\n"}


def test_a_variant_names_only_operator_sets_that_it_uses() -> None:
    model = onnx.load_model_from_string(made(perceptron(), "static").data)

    assert [entry.domain for entry in model.opset_import] == [""]


@pytest.mark.parametrize(
    "wrong", [{"max_drop": -0.1}, {"max_drop": 1}, {"min_agreement": 0}, {"min_agreement": 1.1}, {"batch_size": 0}]
)
def test_bounds_that_bound_nothing_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        Bounds(**wrong)


def test_the_kind_of_cpu_tells_of_vnni(tmp_path: Path) -> None:
    (tmp_path / "with").write_text("flags : avx2 avx512_vnni\n")
    (tmp_path / "without").write_text("flags : avx2\n")

    assert processor(tmp_path / "with").endswith("+vnni")
    assert not processor(tmp_path / "without").endswith("+vnni")
    assert processor(tmp_path / "missing") == processor(tmp_path / "without")
