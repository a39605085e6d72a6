"""Rows put together and taken apart again, wherever the model has them."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching.rows import Layout, layout_of
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import a_stage, spec


def numbered(rows: int, axis: int, start: int = 0, width: int = 3) -> np.ndarray:
    """[.., rows on `axis`, ..]: each row's values tell which row it is."""
    return np.moveaxis(np.arange(start, start + rows)[:, None, None] * 100 + np.arange(2 * width).reshape(2, width), 0, axis)


@given(
    axes=st.tuples(st.integers(0, 2), st.integers(0, 2)),
    counts=st.lists(st.integers(1, 4), min_size=1, max_size=4),
    cuts=st.lists(st.integers(0, 16), max_size=3),
)
@settings(STEADY, max_examples=150)
def test_what_is_joined_and_taken_apart_is_what_it_was_for_any_axis(
    axes: tuple[int, int], counts: list[int], cuts: list[int]
) -> None:
    shared = np.array([16000, 8])
    layout = Layout({"a": axes[0], "b": axes[1], "rate": None}, {"a": axes[0], "b": axes[1]})
    starts = np.cumsum([0, *counts])
    members = [
        {"a": numbered(n, axes[0], int(s)), "b": numbered(n, axes[1], int(s), width=5), "rate": shared}
        for n, s in zip(counts, starts, strict=False)
    ]
    total = sum(counts)

    joined = layout.joined(members)

    for size in (total, total + 3):
        stage = a_stage({name: (shape, joined[name].dtype) for name, shape in layout.shapes(members[0], size)})
        layout.write(stage, members, total)
        written = stage.feeds
        filled = layout.padded(joined, size - total) if size > total else joined
        assert all(np.array_equal(written[name], filled[name]) for name in filled)
    assert layout.rows(joined) == total and joined["rate"] is shared
    assert np.array_equal(joined["a"], numbered(total, axes[0])) and np.array_equal(joined["b"], numbered(total, axes[1], width=5))
    answers = {name: joined[name] for name in ("a", "b")}
    assert layout.count(answers) == total
    for member, start, count in zip(members, starts, counts, strict=False):
        back = layout.answer(answers, int(start), int(start) + count)
        part = layout.part(joined, int(start), int(start) + count)
        for name in ("a", "b"):
            assert np.array_equal(back[name], member[name]) and np.array_equal(part[name], member[name])
        assert part["rate"] is shared
    edges = sorted({0, total, *(min(cut, total) for cut in cuts)})
    parts = [layout.answer(answers, a, b) for a, b in pairwise(edges)]
    assembled = layout.assembled(parts)
    assert all(np.array_equal(assembled[name], answers[name]) for name in answers)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("short", [1, 3])
def test_padding_repeats_the_last_row_and_is_cut_off_again(axis: int, short: int) -> None:
    layout = Layout({"x": axis, "rate": None}, {"x": axis})
    feeds = {"x": numbered(2, axis), "rate": np.array(7.0)}

    padded = layout.padded(feeds, short)

    assert layout.rows(padded) == 2 + short and padded["rate"] is feeds["rate"]
    assert np.array_equal(layout.answer({"x": padded["x"]}, 0, 2)["x"], feeds["x"])
    last = layout.part(padded, 1, 2)["x"]
    assert all(np.array_equal(layout.part(padded, i, i + 1)["x"], last) for i in range(2, 2 + short))


def test_rows_that_disagree_are_named() -> None:
    with pytest.raises(ValueError, match="'b' has 3 rows where another has 2"):
        Layout({"a": 0, "b": 1}, {}).rows({"a": np.zeros((2, 1)), "b": np.zeros((1, 3))})


def test_one_who_comes_alone_is_not_copied() -> None:
    feeds = {"x": np.zeros((2, 3))}

    assert Layout({"x": 0}, {"x": 0}).joined([feeds]) is feeds


LAYOUT = Layout({"x": 1, "rate": None}, {"y": 0})


def bucket(x: tuple[int, ...] = (4, 1, 3), rate: object = 16000, wanted: tuple[str, ...] = ()) -> object:
    return LAYOUT.bucket({"x": np.zeros(x), "rate": np.asarray(rate)}, wanted)


def test_only_requests_of_one_shape_one_shared_value_and_one_wish_share_a_run() -> None:
    assert bucket() == bucket() == bucket(x=(4, 9, 3))
    for other in (bucket(x=(5, 1, 3)), bucket(x=(4, 1, 4)), bucket(rate=8000), bucket(rate=[16000]), bucket(wanted=("y",))):
        assert other != bucket()


@pytest.mark.parametrize("shared", [np.zeros(1000), np.array(["a"], dtype=object)], ids=["large", "texts"])
def test_shared_values_that_are_not_compared_go_alone(shared: np.ndarray) -> None:
    assert bucket(rate=shared) != bucket(rate=shared)


def test_a_model_that_does_not_batch_is_only_told_apart_by_shapes() -> None:
    alone = layout_of((spec(), spec("rate", (), None)), {}, "because")

    assert alone.why == "because"
    assert alone.bucket({"x": np.zeros((1, 2)), "rate": np.array(1.0)}, ()) == alone.bucket(
        {"x": np.ones((3, 2)), "rate": np.array(2.0)}, ()
    )


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        ({"y": np.zeros((3, 2)), "z": np.zeros((1, 3))}, 3),
        ({"y": np.zeros((3, 2)), "z": np.zeros((1, 2))}, None),
        ({"y": np.zeros((3, 2)), "z": np.zeros(3)}, None),
    ],
    ids=["agree", "disagree", "no such axis"],
)
def test_answers_are_counted_only_when_all_outputs_agree(answers: dict[str, np.ndarray], count: int | None) -> None:
    assert Layout({"x": 0}, {"y": 0, "z": 1}).count(answers) == count


@given(st.lists(st.integers(1, 3), min_size=1, max_size=3))
@settings(STEADY, max_examples=30)
def test_texts_are_rows_too(counts: list[int]) -> None:
    layout = Layout({"t": 0}, {"t": 0})
    members = [{"t": np.array([[f"{i}.{j}"] for j in range(n)], dtype=object)} for i, n in enumerate(counts)]

    joined = layout.joined(members)

    assert joined["t"].ravel().tolist() == [f"{i}.{j}" for i, n in enumerate(counts) for j in range(n)]
    assert layout.padded(joined, 1)["t"][-1] == joined["t"][-1]
