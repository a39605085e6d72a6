"""No caller's answer depends on another caller: which rows may share a run, and where the rows are."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import NodeProto, helper

from inference_worker.batching.rows import Layout
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.row_axes import candidates
from inference_worker.warmup import warm_up
from tests.process import models
from tests.process.models import FLOAT, INT64, tensor
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import Formula, spec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from inference_worker.engines.engine import TensorSpec

MODELS = Path(__file__).resolve().parents[2] / "models"
WIDTH = 6


def real(data: bytes) -> OnnxEngine:
    return OnnxEngine(data, providers=("CPUExecutionProvider",), threads=1)


def layout_of(data: bytes) -> Layout:
    return warm_up(real(data), 4).layout


def quantising(nodes: list[NodeProto]) -> bytes:
    """x [N, 6] -> y, through a scale that is taken over all of x."""
    weights = {"w": np.random.default_rng(3).integers(-9, 9, (WIDTH, 3)).astype(np.int8)}
    return models.model(nodes, [tensor("x", FLOAT, ["N", WIDTH])], [tensor("y", FLOAT, ["N", 3])], weights)


DYNAMIC = quantising(
    [
        helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "scale", "zero"]),
        helper.make_node("MatMulInteger", ["q", "w", "zero"], ["sum"]),
        helper.make_node("Cast", ["sum"], ["real"], to=FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["y"]),
    ]
)
BY_HAND = models.model(
    [
        helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=0),
        # A floor that no trial's values reach: only the graph tells.
        helper.make_node("Max", ["largest", "floor"], ["scale"]),
        helper.make_node("Div", ["x", "scale"], ["y"]),
    ],
    [tensor("x", FLOAT, ["N", WIDTH])],
    [tensor("y", FLOAT, ["N", WIDTH])],
    {"floor": np.array(1e9, np.float32)},
)
WITHIN = models.model(
    [helper.make_node("ReduceMax", ["x"], ["largest"], keepdims=1, axes=[1]), helper.make_node("Sub", ["x", "largest"], ["y"])],
    [tensor("x", FLOAT, ["N", WIDTH])],
    [tensor("y", FLOAT, ["N", WIDTH])],
)


@pytest.mark.parametrize("data", [DYNAMIC, BY_HAND], ids=["dynamic quantisation", "the largest of all rows"])
def test_a_scale_over_all_rows_keeps_them_apart(data: bytes) -> None:
    """microsoft/onnxruntime#10111."""
    layout = layout_of(data)

    assert not layout.joins and "rows" in layout.why
    # They are rows all the same: a batch job runs them one by one.
    assert (layout.inputs, layout.outputs) == ({"x": 0}, {"y": 0})


def test_a_scale_within_each_row_does_not() -> None:
    assert layout_of(WITHIN).joins


def test_a_scale_in_a_branch_is_found_too() -> None:
    branch = helper.make_graph(
        [
            helper.make_node("DynamicQuantizeLinear", ["x"], ["q", "s", "z"]),
            helper.make_node("DequantizeLinear", ["q", "s", "z"], ["t"]),
        ],
        "quantised",
        [],
        [tensor("t", FLOAT, ["N", WIDTH])],
    )
    plain = helper.make_graph([helper.make_node("Identity", ["x"], ["e"])], "plain", [], [tensor("e", FLOAT, ["N", WIDTH])])
    data = models.model(
        [helper.make_node("If", ["on"], ["y"], then_branch=branch, else_branch=plain)],
        [tensor("x", FLOAT, ["N", WIDTH]), tensor("on", models.BOOL, [])],
        [tensor("y", FLOAT, ["N", WIDTH])],
    )

    assert not layout_of(data).joins


def test_a_name_that_only_sounds_like_it_is_no_operator() -> None:
    data = models.model(
        [helper.make_node("Identity", ["x"], ["y"], name="/DynamicQuantizeLinear_was_here")],
        [tensor("x", FLOAT, ["N", 2])],
        [tensor("y", FLOAT, ["N", 2])],
    )

    assert layout_of(data).joins


LONGER_ONLY = {
    "rows that meet beyond the first four": lambda x: x + (x[:, 4:].max() if x.shape[1] > 4 else 0.0),
    "a clip that wide values meet": lambda x: np.minimum(x, np.maximum(100.0, x.min(axis=0))),
    "a scale for values of tens": lambda x: x * np.float32(1.0 if np.abs(x).max() < 10 else 2.0),
}


@pytest.mark.parametrize("mixing", LONGER_ONLY)
def test_what_short_and_small_rows_do_not_show_longer_and_wider_ones_do(mixing: str) -> None:
    free = (spec("x", (None, None)),)
    layout = warm_up(Formula(LONGER_ONLY[mixing], inputs=free, outputs=(spec("y", (None, None)),)), 4).layout

    assert not layout.joins and layout.outputs == {"y": 0}


# where the rows are

Tensors = list[tuple[str, list[int | str | None]]]
WHERE: dict[str, tuple[Tensors, Tensors, dict[str, int | None] | None]] = {
    "time first, the rows second": ([("x", ["T", "batch", 3])], [("y", ["batch", 3])], {"x": 1}),
    "a state on the second axis": ([("x", ["N", 4]), ("h", [2, "N", 8])], [("y", ["N", 4])], {"x": 0, "h": 1}),
    "no names at all": ([("x", [None, None]), ("h", [2, None, 8])], [("y", [None, 1])], {"x": 0, "h": 1}),
    "a name for each tensor": ([("x", ["a", 4]), ("z", ["b", 4])], [("y", ["c", 4])], {"x": 0, "z": 0}),
    "a size that is shared": ([("x", ["N", 4]), ("k", ["M", 4])], [("y", ["N", "M"])], {"x": 0, "k": None}),
    "one name twice": ([("a", ["N", "N"])], [("y", ["N", "N"])], None),
    "a batch of one": ([("x", [1, "L"])], [("y", [1, "L"])], None),
    "a scalar beside": ([("x", ["N", 2]), ("rate", [])], [("y", ["N", 2])], {"x": 0, "rate": None}),
}


@pytest.mark.parametrize("case", WHERE)
def test_the_likeliest_axis_comes_first(case: str) -> None:
    inputs, outputs, expected = WHERE[case]

    found = candidates(*([_named(name, shape) for name, shape in side] for side in (inputs, outputs)))

    assert ({each.name: each.batch_axis for each in found[0]} if found else None) == expected


def _named(name: str, shape: Sequence[int | str | None]) -> TensorSpec:
    sizes = tuple(size if isinstance(size, int) else None for size in shape)
    made = spec(name, sizes, None)
    return type(made)(
        name, made.datatype, made.dtype, sizes, None, tuple(size if isinstance(size, str) else None for size in shape)
    )


def test_rows_that_no_name_tells_are_found_by_trial() -> None:
    """The name that comes first is time; its rows depend on each other, those of the other axis do not."""

    def running(x: np.ndarray) -> np.ndarray:
        return x.cumsum(axis=0)

    engine = Formula(running, inputs=(_named("x", ["a", "b", 3]),), outputs=(_named("y", ["a", "b", 3]),))

    layout = warm_up(engine, 4).layout

    assert layout.joins and (layout.inputs, layout.outputs) == ({"x": 1}, {"y": 1})


def test_time_first_is_batched_over_its_second_axis() -> None:
    layout = layout_of((MODELS / "timefirst.onnx").read_bytes())

    assert layout.joins and (layout.inputs, layout.outputs) == ({"x": 1}, {"y": 0})


def test_zeros_of_length_one_may_be_too_short() -> None:
    def convolution(x: np.ndarray) -> np.ndarray:
        if x.shape[1] < 5:
            raise ValueError("the kernel is larger than its input")
        return x[:, 4:] * 2

    engine = Formula(convolution, inputs=(spec("x", (None, None)),), outputs=(spec("y", (None, None)),))

    assert warm_up(engine, 4).layout.joins


def test_a_state_on_another_axis_of_a_fixed_model_is_no_shared_input() -> None:
    engine = Formula(
        lambda x, state: {"y": x, "next": state + 1},
        inputs=(spec("x", (1, 4), 0), spec("state", (2, 1, 3), 1)),
        outputs=(spec("y", (1, 4)), spec("next", (2, 1, 3))),
        rows=1,
    )

    layout = warm_up(engine, 4).layout

    assert (layout.inputs, layout.outputs) == ({"x": 0, "state": 1}, {"y": 0, "next": 1})


# company

Attributes = dict[str, Any]
_AXIS: tuple[Attributes, ...] = ({"axis": 0}, {"axis": 1}, {"axis": -1})
STEPS: st.SearchStrategy[tuple[str, Attributes]] = st.one_of(
    st.sampled_from(["Relu", "Neg", "Sigmoid", "Abs", "Sin"]).map(lambda op: (op, {})),
    st.tuples(st.sampled_from(["Softmax", "LogSoftmax", "LpNormalization", "Hardmax"]), st.sampled_from(_AXIS)),
    st.tuples(
        st.sampled_from(["ReduceMax", "ReduceMin", "ReduceMean", "ReduceL2"]),
        st.sampled_from([{"axes": [0]}, {"axes": [1]}, {"axes": [0, 1]}, {"axes": [-1]}, {}]),
    ),
    st.sampled_from([("CumSum", {"axis": 0}), ("CumSum", {"axis": 1}), ("DynamicQuantizeLinear", {}), ("MatMul", {}), ("Max", {})]),
)


def built(steps: list[tuple[str, Attributes]]) -> bytes:
    """x [N, 6] -> y [N, 6] through the steps; reductions are taken off what they reduce."""
    nodes, now = [], "x"
    random = np.random.default_rng(5)
    weights: dict[str, np.ndarray] = {"wide": np.array(50.0, np.float32)}
    for number, (kind, attributes) in enumerate(steps):
        after = f"t{number}"
        if kind.startswith("Reduce"):
            nodes += [helper.make_node(kind, [now], [f"r{number}"], keepdims=1, **attributes)]
            nodes += [helper.make_node("Sub", [now, f"r{number}"], [after])]
        elif kind == "CumSum":
            weights[f"a{number}"] = np.array(attributes["axis"], np.int64)
            nodes += [helper.make_node(kind, [now, f"a{number}"], [after])]
        elif kind == "DynamicQuantizeLinear":
            nodes += [helper.make_node(kind, [now], [f"q{number}", f"s{number}", f"z{number}"])]
            nodes += [helper.make_node("DequantizeLinear", [f"q{number}", f"s{number}", f"z{number}"], [after])]
        elif kind == "MatMul":
            weights[f"w{number}"] = random.standard_normal((WIDTH, WIDTH)).astype(np.float32)
            nodes += [helper.make_node(kind, [now, f"w{number}"], [after])]
        elif kind == "Max":
            nodes += [helper.make_node(kind, [now, "wide"], [after])]
        else:
            nodes += [helper.make_node(kind, [now], [after], **attributes)]
        now = after
    nodes.append(helper.make_node("Identity", [now], ["y"]))
    return models.model(nodes, [tensor("x", FLOAT, ["N", WIDTH])], [tensor("y", FLOAT, ["N", WIDTH])], weights)


@given(st.lists(STEPS, min_size=1, max_size=5), st.integers(0, 1000))
@settings(STEADY, max_examples=150, suppress_health_check=[HealthCheck.too_slow])
def test_a_row_is_answered_as_in_the_company_of_its_own_copies(steps: list[tuple[str, Attributes]], seed: int) -> None:
    """Bit for bit in its place among equally many rows; by itself to rounding, which differs by the number of rows."""
    engine = real(built(steps))
    layout = warm_up(engine, 4).layout
    if not layout.joins:
        return
    random = np.random.default_rng(seed)
    rows = [(random.standard_normal((1, WIDTH)) * scale).astype(np.float32) for scale in (0.1, 3.0, 300.0)]

    copies = [engine.run(layout.joined([{"x": row}] * 3))["y"] for row in rows]
    for order in permutations(range(3)):
        together = engine.run(layout.joined([{"x": rows[index]} for index in order]))["y"]
        for place, index in enumerate(order):
            assert np.array_equal(together[place], copies[index][place], equal_nan=True)

    for row, copy in zip(rows, copies, strict=True):
        alone = engine.run({"x": row})["y"][0]
        assert np.allclose(alone, copy[0], rtol=1e-3, atol=1e-4 * max(1.0, float(np.abs(alone).max())), equal_nan=True)


@pytest.mark.parametrize("kind", ["Softmax", "ReduceMax", "CumSum"])
def test_models_that_stay_within_a_row_are_still_batched(kind: str) -> None:
    attributes: Attributes = {"axes": [1]} if kind == "ReduceMax" else {"axis": 1}

    assert layout_of(built([("MatMul", {}), (kind, attributes), ("Relu", {})])).joins


def test_token_ids_of_any_length_are_batched() -> None:
    table = np.random.default_rng(1).standard_normal((200, 3)).astype(np.float32)
    data = models.model(
        [helper.make_node("Gather", ["table", "ids"], ["y"])],
        [tensor("ids", INT64, ["batch", "seq"])],
        [tensor("y", FLOAT, ["batch", "seq", 3])],
        {"table": table},
    )

    assert layout_of(data).joins


def test_a_model_of_sound_is_tried_with_a_length_that_it_takes() -> None:
    """openWakeWord's spectrogram refuses less than a window of sound, so its callers never shared a run."""
    window: dict[str, np.ndarray] = {"w": np.ones((1, 1, 2048), np.float32), "axis": np.array([1], np.int64)}
    nodes = [helper.make_node("Unsqueeze", ["x", "axis"], ["wave"]), helper.make_node("Conv", ["wave", "w"], ["y"], strides=[512])]
    data = models.model(nodes, [tensor("x", FLOAT, ["N", "samples"])], [tensor("y", FLOAT, ["N", 1, "frames"])], window)

    assert layout_of(data).joins


def test_time_steps_are_no_rows_where_an_echo_reaches_further_than_three_of_them() -> None:
    """Two callers' sound would be laid end to end: each would hear the other's echo."""
    pads = {"pads": np.array([4, 0], np.int64), "from": np.array([0], np.int64), "to": np.array([-4], np.int64)}
    nodes = [
        helper.make_node("Pad", ["x", "pads"], ["late"]),
        helper.make_node("Slice", ["late", "from", "to"], ["echo"]),
        helper.make_node("Add", ["x", "echo"], ["y"]),
    ]
    data = models.model(nodes, [tensor("x", FLOAT, ["samples"])], [tensor("y", FLOAT, ["samples"])], pads)

    assert not layout_of(data).joins


def _flat_largest() -> bytes:
    """The largest of all, by a shape that inference loses the name of the rows in."""
    flat: dict[str, np.ndarray] = {"flat": np.array([-1], np.int64), "floor": np.array([1e9], np.float32)}
    nodes = [
        helper.make_node("Reshape", ["x", "flat"], ["all"]),
        helper.make_node("ReduceMax", ["all"], ["largest"], keepdims=0),
        helper.make_node("Max", ["largest", "floor"], ["scale"]),
        helper.make_node("Div", ["x", "scale"], ["y"]),
    ]
    return models.model(nodes, [tensor("x", FLOAT, ["N", 2])], [tensor("y", FLOAT, ["N", 2])], flat)


def _in_a_function(domain: str, name: str) -> bytes:
    """The same in a local function, whatever that is called."""
    graph = helper.make_graph(
        [helper.make_node(name, ["x"], ["y"], domain=domain)],
        "g",
        [tensor("x", FLOAT, ["N", 2])],
        [tensor("y", FLOAT, ["N", 2])],
    )
    body = [
        helper.make_node("ReduceMax", ["a"], ["largest"], keepdims=0),
        helper.make_node("Constant", [], ["floor"], value_float=1e9),
        helper.make_node("Max", ["largest", "floor"], ["scale"]),
        helper.make_node("Div", ["a", "scale"], ["b"]),
    ]
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(domain, 1)]
    function = helper.make_function(domain, name, ["a"], ["b"], body, opsets[:1])
    return helper.make_model(graph, functions=[function], opset_imports=opsets, ir_version=9).SerializeToString()


@pytest.mark.parametrize("data", [_flat_largest(), _in_a_function("my", "Scale"), _in_a_function("my", "CumSum")],
                         ids=["a flat shape", "a function", "a function with an operator's name"])  # fmt: skip
def test_what_is_lost_in_shapes_and_functions_still_keeps_rows_apart(data: bytes) -> None:
    assert "ReduceMax" in layout_of(data).why
