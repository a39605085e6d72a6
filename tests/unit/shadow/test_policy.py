"""Files that are no policy are said to be none, by the real ONNX Runtime."""

import builtins
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from inference_operator import parts
from inference_operator.errors import PolicyError
from inference_operator.observability import metrics
from inference_operator.settings import PolicySettings, Settings
from inference_operator.shadow.features import NAMES
from inference_operator.shadow.policy import load_policy

GOOD = {"features": "\n".join(NAMES), "threshold": "0.1"}


def a_file(folder: Path, told: dict[str, str], *, operator: str = "Sigmoid", width: int = len(NAMES), axis: int = 1) -> Path:
    """Answers each row by the mean of its numbers, through one more operator."""
    nodes = [
        helper.make_node("ReduceMean", ["rows", "axes"], ["mean"], keepdims=1),
        helper.make_node(operator, ["mean"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("rows", TensorProto.DOUBLE, [None, width])],
        [helper.make_tensor_value_info("out", TensorProto.DOUBLE, [None, None])],
        [helper.make_tensor("axes", TensorProto.INT64, [1], [axis])],
    )
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    helper.set_model_props(proto, told)
    path = folder / "policy.onnx"
    onnx.save(proto, path)
    return path


def test_a_policy_scores_each_row(tmp_path: Path) -> None:
    policy = load_policy(a_file(tmp_path, GOOD))

    assert policy.threshold == 0.1
    assert policy.scores(np.zeros((3, len(NAMES)))) == [0.5, 0.5, 0.5]


@pytest.mark.parametrize(
    ("how", "says"),
    [
        ({"told": {**GOOD, "features": "others"}}, "not trained on"),
        ({"told": {"features": GOOD["features"]}}, "no threshold"),
        ({"told": {**GOOD, "threshold": "much"}}, "no threshold"),
        ({"told": GOOD, "operator": "Exp"}, "no probabilities"),
        ({"told": GOOD, "axis": 0}, "answered by"),
        ({"told": GOOD, "width": 3}, "policy|Got|dimension"),
    ],
    ids=["other features", "no threshold", "bad threshold", "no probabilities", "another number of answers", "another width"],
)
def test_what_was_made_for_something_else_is_refused(tmp_path: Path, how: dict[str, Any], says: str) -> None:
    with pytest.raises(PolicyError, match=says):
        load_policy(a_file(tmp_path, **how))


def test_scores_that_are_no_probabilities_are_no_answer(tmp_path: Path) -> None:
    policy = load_policy(a_file(tmp_path, GOOD, operator="Abs"))

    with pytest.raises(PolicyError, match="no probabilities"):
        policy.scores(np.full((1, len(NAMES)), np.nan))


def shadow_of(path: str) -> object:
    return parts.shadow(Settings(policy=PolicySettings(path=path)))


def loaded() -> float:
    return metrics.policy_loaded._value.get()


def test_the_operator_starts_in_an_image_without_numpy_and_onnx_runtime() -> None:
    code = "import sys; sys.modules.update(numpy=None, onnxruntime=None); import inference_operator.app"

    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_a_policy_there_is_no_shadow() -> None:
    assert shadow_of("") is None


@pytest.mark.parametrize("content", [None, b"", b"no model at all"], ids=["not there", "empty", "garbage"])
def test_a_file_that_can_not_be_used_is_one_line(tmp_path: Path, content: bytes | None, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "policy.onnx"
    if content is not None:
        path.write_bytes(content)

    assert shadow_of(str(path)) is None
    assert loaded() == 0
    assert [str(path) in record.getMessage() for record in caplog.records] == [True]


def test_an_image_without_onnx_runtime_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = builtins.__import__

    def importing(name: str, *more: Any, **and_more: Any) -> Any:
        if name == "onnxruntime":
            raise ImportError("No module named 'onnxruntime'")
        return real(name, *more, **and_more)

    path = a_file(tmp_path, GOOD)
    monkeypatch.setattr(builtins, "__import__", importing)

    assert shadow_of(str(path)) is None
    assert "no ONNX Runtime" in caplog.text


def test_a_policy_that_can_be_used_is_told(tmp_path: Path) -> None:
    try:
        assert shadow_of(str(a_file(tmp_path, GOOD))) is not None
        assert loaded() == 1
    finally:
        metrics.policy_loaded.set(0)
