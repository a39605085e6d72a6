"""What hides that rows depend on each other: thresholds, small features, whole numbers, products that are not finite."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, helper

from inference_worker.engines.mixing import Graph
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.weightless import weightless
from inference_worker.likeness import ROUNDING, alike
from inference_worker.warmup import warm_up
from tests.process import models
from tests.process.models import FLOAT, tensor
from tests.unit.worker.scripted_engines import Formula, spec

if TYPE_CHECKING:
    from inference_worker.batching.rows import Layout

Weights = dict[str, np.ndarray]
ROWS = (spec("x", (None, 4), 0),)


def why(nodes: list[NodeProto], weights: Weights | None = None, shape: tuple[int | None, ...] = (None, 4), axis: int = 0) -> str:
    """Why rows on an axis of x must not share a run, by the graph alone."""
    sizes: list[int | str] = [f"d{place}" if size is None else size for place, size in enumerate(shape)]
    data = models.model(nodes, [tensor("x", FLOAT, sizes)], [onnx.ValueInfoProto(name="y")], weights)
    graph = Graph.of(data)
    return graph.mixes((spec("x", shape, axis),)) if graph is not None else ""


def node(kind: str, *more: str, **attributes: Any) -> NodeProto:
    return helper.make_node(kind, ["x", *more], ["y"], **attributes)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int64)


W = np.ones((2, 4, 1), np.float32)
OVER: dict[str, tuple[NodeProto, Weights, tuple[int | None, ...], int]] = {
    "a sum": (node("ReduceSum", "a"), {"a": ints(0)}, (None, 4), 0),
    "a mean of all": (node("ReduceMean"), {}, (None, 4), 0),
    "a softmax": (node("Softmax", axis=0), {}, (None, 4), 0),
    "the places of the largest": (node("ArgMax", axis=0), {}, (None, 4), 0),
    "a product from the left": (helper.make_node("MatMul", ["w", "x"], ["y"]), {"w": np.ones((4, 10007), np.float32)}, (None, 4), 0),
    "a transposed product": (node("Gemm", "w", transA=1), {"w": np.ones((10007, 2), np.float32)}, (None, 4), 0),
    "labels that are summed": (node("Einsum", equation="ij->j"), {}, (None, 4), 0),
    "a kernel of two": (node("Conv", "w"), {"w": np.ones((2, 4, 2), np.float32)}, (1, 4, None), 2),
    "a window": (node("MaxPool", kernel_shape=[2]), {}, (1, 4, None), 2),
    "time steps": (node("LSTM", "w", "r", hidden_size=1), {"w": W[:1].repeat(4, 2).reshape(1, 4, 4), "r": np.ones((1, 4, 1), np.float32)},
                   (None, 1, 4), 0),
    "a shift": (node("Slice", "from", "to", "at"), {"from": ints(1), "to": ints(2**62), "at": ints(0)}, (None, 4), 0),
    "the first for all": (node("Gather", "zero"), {"zero": ints(0)}, (None, 4), 0),
    "halves": (helper.make_node("Split", ["x"], ["y", "z"], axis=0), {}, (None, 4), 0),
    "one more in front": (helper.make_node("Concat", ["c", "x"], ["y"], axis=0), {"c": np.ones((1, 4), np.float32)}, (None, 4), 0),
    "words that are left out": (node("StringNormalizer", stopwords=["the"]), {}, (None,), 0),
    "a margin": (node("Pad", "pads"), {"pads": ints(1, 0, 0, 0)}, (None, 4), 0),
    "a triangle": (node("Trilu"), {}, (None, 4), 0),
    "a scale of the batch": (helper.make_node("BatchNormalization", ["x", *"sbmv"], ["y", "n", "o"], training_mode=1),
                             {name: np.ones(4, np.float32) for name in "sbmv"}, (None, 4), 0),
}  # fmt: skip
WITHIN: dict[str, tuple[NodeProto, Weights, tuple[int | None, ...], int]] = {
    "a sum": (node("ReduceSum", "a"), {"a": ints(1)}, (None, 4), 0),
    "a product": (node("MatMul", "w"), {"w": np.ones((4, 2), np.float32)}, (None, 4), 0),
    "a kernel of one": (node("Conv", "w"), {"w": W}, (1, 4, None), 2),
    "images": (node("Conv", "w"), {"w": np.ones((2, 4, 3, 3), np.float32)}, (None, 4, 9, 9), 0),
    "time second": (node("LSTM", "w", "r", hidden_size=1), {"w": np.ones((1, 4, 4), np.float32), "r": np.ones((1, 4, 1), np.float32)},
                    (7, None, 4), 1),
    "the first token": (node("Gather", "zero", axis=1), {"zero": ints(0)}, (None, 4), 0),
    "all of the rows": (node("Slice", "from", "to"), {"from": ints(0, 1), "to": ints(10**9, 3)}, (None, 4), 0),
    "no words left out": (node("StringNormalizer", case_change_action="NONE"), {}, (None,), 0),
    "a scale within": (node("LayerNormalization", "s"), {"s": np.ones(4, np.float32)}, (None, 4), 0),
    "a margin beside": (node("Pad", "pads"), {"pads": ints(0, 1, 0, 1)}, (None, 4), 0),
}  # fmt: skip


@pytest.mark.parametrize("case", OVER)
def test_an_operator_that_goes_over_the_rows_is_found(case: str) -> None:
    made, weights, shape, axis = OVER[case]

    assert made.op_type in why([made], weights, shape, axis)


@pytest.mark.parametrize("case", WITHIN)
def test_an_operator_that_stays_within_a_row_is_let_be(case: str) -> None:
    made, weights, shape, axis = WITHIN[case]

    assert why([made], weights, shape, axis) == ""


def test_rows_are_followed_through_shapes_that_a_graph_computes() -> None:
    """An attention's heads: [N, 4] -> [N, 2, 2] by the shape of x, then flat for a product, and back."""
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Unsqueeze", ["n", "zero1"], ["n1"]),
        helper.make_node("Concat", ["n1", "heads"], ["by_heads"], axis=0),
        helper.make_node("Reshape", ["x", "by_heads"], ["h"]),
        helper.make_node("Softmax", ["h"], ["p"], axis=-1),
        helper.make_node("Reshape", ["p", "flat"], ["f"]),
    ]
    weights = {"zero": np.array(0), "zero1": ints(0), "heads": ints(2, 2), "flat": ints(-1)}

    assert why([*nodes, helper.make_node("Abs", ["f"], ["y"])], weights) == ""
    assert "ReduceSum" in why([*nodes, helper.make_node("ReduceSum", ["f"], ["y"])], weights)


ROWS_OF_X = [helper.make_node("Shape", ["x"], ["s"]), helper.make_node("Slice", ["s", "zero", "one"], ["n"])]
BOUNDS = {"zero": ints(0), "one": ints(1), "all": ints(2**62)}


def test_two_towers_that_share_a_run_are_no_cut_through_the_rows() -> None:
    """A siamese network: both sides in one run, cut apart by the number of rows."""
    nodes = [
        *ROWS_OF_X,
        helper.make_node("Abs", ["x"], ["other"]),
        helper.make_node("Concat", ["x", "other"], ["both"], axis=0),
        helper.make_node("Slice", ["both", "zero", "n", "zero"], ["a"]),
        helper.make_node("Slice", ["both", "n", "all", "zero"], ["b"]),
        helper.make_node("Sub", ["a", "b"], ["y"]),
    ]

    assert why(nodes, BOUNDS) == ""
    shifted = [*nodes[:-1], helper.make_node("Slice", ["both", "one", "all", "zero"], ["y"])]
    assert "Slice" in why(shifted, BOUNDS)


@pytest.mark.parametrize("axis", [1, -1])
def test_an_old_softmax_of_an_unknown_shape_is_not_taken_for_one_over_the_rows(axis: int) -> None:
    """A BERT that ONNX Runtime's own tools have optimised: their operators tell no shapes."""
    unknown = helper.make_node("BiasGelu", ["x", "bias"], ["h"], domain="com.microsoft")
    data = onnx.load_model_from_string(
        models.model([unknown, helper.make_node("Softmax", ["h"], ["y"], axis=axis)], [tensor("x", FLOAT, ["N", 4])], [])
    )
    data.opset_import[0].version = 11
    graph = Graph.of(data.SerializeToString())

    assert graph is not None and graph.mixes((spec("x", (None, 4), 0),)) == ""


def test_what_a_loop_puts_together_is_known_by_its_steps() -> None:
    """The largest of all time steps is no largest of all rows."""
    body = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["step"], axis=1), helper.make_node("Identity", ["go"], ["on"])],
        "step",
        [tensor("i", models.INT64, []), tensor("go", models.BOOL, [])],
        [tensor("on", models.BOOL, []), tensor("step", FLOAT, ["N"])],
    )
    steps = [helper.make_node("Slice", ["s", at, to], [name]) for at, to, name in (("zero", "one", "n"), ("one", "all", "t"))]
    for count, found in (("t", ""), ("n", "ReduceMax")):
        nodes = [
            helper.make_node("Shape", ["x"], ["s"]),
            *steps,
            helper.make_node("Loop", [count, "true"], ["all_steps"], body=body),
            helper.make_node("ReduceMax", ["all_steps"], ["y"], axes=[0]),
        ]
        because = why(nodes, {**BOUNDS, "true": np.array(True)})
        assert found in because and bool(found) == bool(because)


def test_places_that_all_callers_share_pick_the_same_rows_for_everybody() -> None:
    """A graph network's edges, in an input that has no rows: they would hold for the first caller's nodes only."""
    data = models.model(
        [helper.make_node("Gather", ["x", "edges"], ["y"], axis=0)],
        [tensor("x", FLOAT, ["N", 4]), tensor("edges", models.INT64, ["E"])],
        [tensor("y", FLOAT, ["E", 4])],
    )
    graph = Graph.of(data)
    assert graph is not None

    shared, own = (spec("edges", (3,), None, "INT64"), spec("edges", (None,), 0, "INT64"))
    assert "Gather" in graph.mixes((spec("x", (None, 4), 0), shared))
    assert graph.mixes((spec("x", (None, 4), 0), own)) == ""


def test_what_is_counted_from_shapes_alone_has_nothing_of_a_caller() -> None:
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("ConstantOfShape", ["s"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["none"]),
        helper.make_node("Add", ["x", "none"], ["y"]),
    ]

    assert why(nodes) == ""


@pytest.mark.parametrize("kind", ["ConstantOfShape", "Range", "Expand", "Concat"])
def test_a_graph_that_computes_huge_constants_is_read_in_no_time(kind: str) -> None:
    """ONNX's own inference takes the memory of all of them."""
    weights: Weights = {"zero": np.array(0), "one": np.array(1), "many": np.array(2**40), "sizes": ints(2**40), "unit": ints(1)}
    first = {
        "ConstantOfShape": helper.make_node("ConstantOfShape", ["sizes"], ["c0"]),
        "Range": helper.make_node("Range", ["zero", "many", "one"], ["c0"]),
        "Expand": helper.make_node("Expand", ["unit", "sizes"], ["c0"]),
        "Concat": helper.make_node("Identity", ["unit"], ["c0"]),
    }[kind]
    doubled = [helper.make_node("Concat", [f"c{i}", f"c{i}"], [f"c{i + 1}"], axis=0) for i in range(40)]

    found = why(
        [first, *doubled, helper.make_node("Reshape", ["x", "c40"], ["r"]), helper.make_node("ReduceMax", ["x"], ["y"])], weights
    )

    assert "ReduceMax" in found


def test_a_graph_is_read_without_its_weights() -> None:
    data = models.model([node("MatMul", "w")], [tensor("x", FLOAT, ["N", 512])], [tensor("y", FLOAT, ["N", 512])],
                        {"w": np.ones((512, 512), np.float32), "a": ints(1)})  # fmt: skip

    light = weightless(data)

    assert len(light) < 1000 < len(data)
    found = onnx.load_model_from_string(light).graph
    assert [(each.name, list(each.dims), len(each.raw_data)) for each in found.initializer] == [("w", [512, 512], 0), ("a", [1], 8)]
    with pytest.raises(ValueError, match="beyond"):
        weightless(data[:-4])


def layout_of(compute: Any, dtype: type = np.float32) -> Layout:
    out = spec("y", (None, 4), 0)
    return warm_up(Formula(lambda x: compute(x).astype(dtype), inputs=ROWS, outputs=(out,)), 4).layout


def beside(x: np.ndarray) -> np.ndarray:
    """The sum over all rows, for each."""
    found: np.ndarray = x.sum(axis=0, keepdims=True) + 0 * x
    return found


def not_finite(x: np.ndarray) -> np.ndarray:
    with np.errstate(invalid="ignore"):
        found: np.ndarray = np.eye(len(x), dtype=np.float32) @ x
    return found


HIDDEN = {
    "a small feature beside a large one": lambda x: np.hstack([1e5 + 0 * x[:, :1], np.clip(beside(x)[:, :3], -5, 5)]),
    "a product with zero": not_finite,
    "a threshold": lambda x: x + np.maximum(beside(x) - 1e9, 0),
}


@pytest.mark.parametrize("case", HIDDEN)
def test_what_hides_that_rows_meet_is_tried(case: str) -> None:
    with np.errstate(invalid="ignore"):
        layout = layout_of(HIDDEN[case])

    assert not layout.joins and layout.outputs == {"y": 0}


def test_a_row_past_a_threshold_that_no_trial_reaches_may_not_read_its_neighbours() -> None:
    """What is not finite is past each."""

    def scrambled(x: np.ndarray) -> np.ndarray:
        found: np.ndarray = np.where(x > 1e6, np.ascontiguousarray(x.T).reshape(x.shape), x)
        return found

    assert "not finite depends" in layout_of(scrambled).why


def test_a_place_beyond_the_first_dozen_rows_may_not_matter() -> None:
    out = (spec("y", (None, 4), 0),)
    engine = Formula(lambda x: x + (np.arange(len(x)) > 20)[:, None], inputs=ROWS, outputs=out)

    assert not warm_up(engine, 64).layout.joins


def test_a_place_counted_from_the_end_may_not_be_a_neighbours() -> None:
    """Rows laid flat, and a caller's own place in them: -1 is the end of the row before."""
    nodes = [
        *ROWS_OF_X,
        helper.make_node("Squeeze", ["n"], ["rows"]),
        helper.make_node("Range", ["first", "rows", "step"], ["numbers"]),
        helper.make_node("Mul", ["numbers", "width"], ["begin"]),
        helper.make_node("Add", ["begin", "place"], ["flat_place"]),
        helper.make_node("Reshape", ["x", "flat"], ["all"]),
        helper.make_node("Gather", ["all", "flat_place"], ["y"]),
    ]
    weights = {"zero": ints(0), "one": ints(1), "first": np.array(0), "step": np.array(1), "width": np.array(4), "flat": ints(-1)}
    inputs = [tensor("x", FLOAT, ["N", 4]), tensor("place", models.INT64, ["N"])]
    engine = OnnxEngine(
        models.model(nodes, inputs, [tensor("y", FLOAT, ["N"])], weights), providers=("CPUExecutionProvider",), threads=1
    )

    assert not warm_up(engine, 4).layout.joins


def test_what_a_shared_input_switches_on_is_tried() -> None:
    inputs = (*ROWS, spec("mode", (), None, "BOOL"))
    engine = Formula(lambda x, mode: beside(x) if mode else x, inputs=inputs, outputs=(spec("y", (None, 4), 0),))

    assert not warm_up(engine, 4).layout.joins


def test_a_whole_number_that_counts_the_rows_is_found() -> None:
    layout = layout_of(lambda x: np.full_like(x, len(x)), np.int64)

    assert "number of rows" in layout.why


def test_a_whole_number_that_flips_here_and_there_is_rounding() -> None:
    def undecided(x: np.ndarray) -> np.ndarray:
        found = np.nan_to_num(np.round(x), posinf=0, neginf=0)
        # One row of zeros, whose net can't tell.
        found[(x == 0).all(axis=1)] += len(x) > 1
        return found

    assert layout_of(undecided, np.int64).joins


def test_a_refused_wide_row_does_not_end_its_trial() -> None:
    """Rows that meet beyond a length, in a model that refuses wide values."""

    def compute(x: np.ndarray) -> np.ndarray:
        if np.abs(x).max(initial=0) > 1000:
            raise ValueError("no such token")
        return x + (np.minimum(x, 1).sum(axis=0, keepdims=True) if x.shape[1] > 1 else 0)

    free = (spec("x", (None, None)),)

    assert not warm_up(Formula(compute, inputs=free, outputs=(spec("y", (None, None)),)), 4).layout.joins


def test_much_longer_rows_are_tried_too() -> None:
    free = (spec("x", (None, None)),)
    engine = Formula(
        lambda x: x + (x.sum(axis=0, keepdims=True) if x.shape[1] > 40 else 0), inputs=free, outputs=(spec("y", (None, None)),)
    )

    assert not warm_up(engine, 4).layout.joins


@pytest.mark.parametrize("kind", [np.float32, np.float16])
def test_rounding_of_what_sums_to_nearly_nothing_is_no_difference(kind: type) -> None:
    one: np.ndarray = np.array([[1000.0, 0.0, 3.0]], kind)

    assert alike(one, one + np.array([[0.0, 1e-4, 1e-4]], kind), ROUNDING)
    assert not alike(one, one + np.array([[0.0, 100.0, 0.0]], kind), ROUNDING)
