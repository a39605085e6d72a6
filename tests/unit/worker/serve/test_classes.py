"""The classification extension: the best classes of a row as texts, as Triton's clients know them."""

from __future__ import annotations

import json
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.errors import RequestError
from inference_worker.serve import extras
from inference_worker.serve.extras import best_classes
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.states import a_worker_state, infer, routes_of


@pytest.mark.parametrize(
    ("values", "count", "told"),
    [
        ([0.1, 0.7, 0.2], 2, ["0.700000:1", "0.200000:2"]),
        ([0.1, 0.7, 0.2], 9, ["0.700000:1", "0.200000:2", "0.100000:0"]),
        ([1.0, 1.0, 1.0, 1.0], 2, ["1.000000:0", "1.000000:1"]),
        ([float("nan"), -1.0, float("inf")], 3, ["inf:2", "-1.000000:1", "nan:0"]),
        ([float("nan"), float("-inf")], 2, ["nan:0", "-inf:1"]),
        ([], 3, []),
    ],
)
def test_the_largest_come_first_and_of_equal_ones_the_first(values: list[float], count: int, told: list[str]) -> None:
    assert best_classes(np.array([values], np.float64), count, "y", 0).tolist() == [told]


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int64, np.uint64, np.int32])
def test_whole_numbers_are_told_exactly(dtype: Any) -> None:
    limits = np.iinfo(dtype)
    array = np.array([[limits.min, limits.max, 0]], dtype)

    assert best_classes(array, 1, "y", 0).tolist() == [[f"{limits.max}:1"]]


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32])
def test_halves_have_classes_too(dtype: Any) -> None:
    assert best_classes(np.array([[0.5, 2.0]], dtype), 1, "y", 0).tolist() == [["2.000000:1"]]


@given(
    st.lists(st.lists(st.integers(-3, 3), min_size=5, max_size=5), min_size=1, max_size=6),
    st.integers(1, 7),
    st.sampled_from([np.float32, np.int16]),
)
@STEADY
def test_any_rows_are_ranked_as_sorting_ranks_them(rows: list[list[int]], count: int, dtype: Any) -> None:
    found = best_classes(np.array(rows, dtype), count, "y", 0)

    for row, texts in zip(rows, found.tolist(), strict=True):
        places = [int(text.partition(":")[2]) for text in texts]
        assert places == sorted(range(5), key=lambda i: (-row[i], i))[:count]


def test_rows_are_found_on_their_axis_and_without_one_all_is_one_row() -> None:
    array = np.array([[1, 5], [7, 2], [3, 3]])

    assert best_classes(array, 1, "y", 0).tolist() == [["5:1"], ["7:0"], ["3:0"]]
    assert best_classes(array, 1, "y", 1).tolist() == [["7:1"], ["5:0"]]
    assert best_classes(array, 2, "y", None).tolist() == ["7:2", "5:1"]


@pytest.mark.parametrize("array", [np.array([["a"]], object), np.array([[True]])], ids=["texts", "truths"])
def test_what_has_no_order_is_refused(array: np.ndarray) -> None:
    with pytest.raises(RequestError, match="no classes"):
        best_classes(array, 1, "y", 0)


def test_classes_without_end_are_refused() -> None:
    with pytest.raises(RequestError, match="ask for fewer"):
        best_classes(np.zeros((17, 1000)), 1000, "y", 0)


def test_rows_without_values_are_no_way_around_the_bound_on_rows() -> None:
    with pytest.raises(RequestError, match="ask for fewer"):
        best_classes(np.zeros((1 << 30, 0)), 1, "y", 0)


def test_a_row_that_takes_much_memory_to_rank_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(extras, "_RANKED", 8)

    assert best_classes(np.zeros((3, 8)), 1, "y", 0).shape == (3, 1)
    with pytest.raises(RequestError, match="as a tensor"):
        best_classes(np.zeros((1, 9)), 1, "y", 0)


@pytest.mark.parametrize(("shape", "axis", "told"), [((0, 3), 0, (0, 2)), ((4, 0, 2), 1, (0, 2)), ((0, 0), 0, (0, 0))])
def test_an_answer_of_no_rows_has_no_classes_rather_than_a_traceback(
    shape: tuple[int, ...], axis: int, told: tuple[int, ...]
) -> None:
    assert best_classes(np.zeros(shape), 2, "y", axis).shape == told


@pytest.mark.parametrize("count", [-1, 1.5, "2", True, 2**70, None, [1]])
async def test_a_count_that_is_none_is_refused(count: Any) -> None:
    output = {"name": "y", "parameters": {"classification": count}}
    reply = await infer(
        routes_of(await a_worker_state(models.matmul(), batch_size=4)), infer_json([[1, 2, 3, 4]], outputs=[output])
    )

    assert reply.status == 400 and "classification" in json.loads(reply.body)["error"]


@pytest.mark.parametrize("rows", [1, 3, 3000])
async def test_an_answer_is_the_classes_of_each_row(rows: int) -> None:
    """The last one is written beside the event loop."""
    routes = routes_of(await a_worker_state(models.identity(shape=["N", 6]), batch_size=4096))
    x = np.random.default_rng(rows).random((rows, 6)).round(3)

    reply = await infer(
        routes,
        infer_json(x.tolist(), outputs=[{"name": "y", "parameters": {"classification": 2}}]),
    )

    (output,) = json.loads(reply.body)["outputs"]
    best = [[f"{np.float32(row[i]):f}:{i}" for i in np.argsort(-row, kind="stable")[:2]] for row in x]
    assert (output["datatype"], output["shape"]) == ("BYTES", [rows, 2])
    assert np.array(output["data"]).reshape(rows, 2).tolist() == best


async def test_none_at_all_is_the_tensor() -> None:
    routes = routes_of(await a_worker_state(models.identity()))
    output = {"name": "y", "parameters": {"classification": 0}}

    reply = await infer(routes, infer_json([[1, 2]], outputs=[output]))

    assert json.loads(reply.body)["outputs"][0]["data"] == [1, 2]
