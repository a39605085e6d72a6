"""The key of a request: equal for equal bytes alone, and never across tenants, models and outputs."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.cache.keys import Asked, asked, key_of
from tests.unit.worker.states import FACTS

WANTED = Asked("a", "net", "1", "sha256:aa/", ("y",))
TEXT = st.text(max_size=4)
FEEDS = {"x": np.array([[1.0, 2.0]], np.float32)}


@given(
    st.lists(st.tuples(TEXT, TEXT, TEXT, TEXT, st.lists(TEXT, max_size=2).map(tuple)).map(lambda parts: Asked(*parts)), min_size=2)
)
def test_two_requests_have_one_key_only_where_all_that_they_ask_is_the_same(wanted: list[Asked]) -> None:
    keys = {key_of(each, FEEDS) for each in wanted}

    assert len(keys) == len(set(map(msgspec.json.encode, wanted)))


@given(st.lists(st.lists(TEXT, max_size=3), min_size=2, max_size=6))
def test_texts_that_are_the_same_in_a_row_are_not_the_same_in_other_pieces(rows: list[list[str]]) -> None:
    arrays = {tuple(row): np.array([*row, None], dtype=object)[:-1] for row in rows}

    assert len({key_of(WANTED, {"x": array}) for array in arrays.values()}) == len(arrays)


@pytest.mark.parametrize(
    "other",
    [
        {"x": np.array([[1.0, 2.0]], np.float64)},
        {"x": np.array([[1.0], [2.0]], np.float32)},
        {"x": np.array([[2.0, 1.0]], np.float32)},
        {"x": np.array([[1.0, -2.0]], np.float32)},
        {"z": FEEDS["x"]},
        {**FEEDS, "z": FEEDS["x"]},
        {"x": np.frombuffer(FEEDS["x"].tobytes(), np.uint32).reshape(1, 2)},
        {"x": np.array(["1.0", "2.0"], object)},
        {},
    ],
)
def test_other_inputs_have_another_key(other: dict[str, np.ndarray]) -> None:
    assert key_of(WANTED, other) != key_of(WANTED, FEEDS)


def test_the_order_of_inputs_and_how_they_lie_in_memory_make_no_difference() -> None:
    x, z = np.arange(12, dtype=np.float32).reshape(3, 4), np.array(["a", b"b"], object)

    assert key_of(WANTED, {"x": x, "z": z}) == key_of(WANTED, {"z": z, "x": np.asfortranarray(x)})


def test_another_file_version_or_variant_has_another_key() -> None:
    facts = [
        FACTS,
        msgspec.structs.replace(FACTS, digest="sha256:" + "b" * 64),
        msgspec.structs.replace(FACTS, variant="sha256:cc"),
    ]
    keys = {key_of(asked("a", "net", version, fact, ()), FEEDS) for fact in facts for version in ("1", "2")}

    assert len(keys) == 6
