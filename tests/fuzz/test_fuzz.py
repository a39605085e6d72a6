"""The targets, fed by hypothesis: the same examples in every run; `make fuzz` looks for new ones."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.fuzz.targets import TARGETS, seeds

STEADY = settings(deadline=None, derandomize=True, database=None, max_examples=300)


@pytest.mark.parametrize("target", TARGETS)
def test_good_inputs_pass(target: str) -> None:
    for seed in seeds()[target]:
        TARGETS[target](seed)


@pytest.mark.parametrize("target", TARGETS)
def test_any_bytes_are_answered_or_refused(target: str) -> None:
    @STEADY
    @given(st.binary(max_size=400))
    def check(data: bytes) -> None:
        TARGETS[target](data)

    check()


@pytest.mark.parametrize("target", TARGETS)
def test_good_inputs_with_a_few_bytes_changed_are_answered_or_refused(target: str) -> None:
    good = seeds()[target]

    @STEADY
    @given(
        st.sampled_from(good),
        st.lists(st.tuples(st.integers(0, 400), st.binary(max_size=4), st.integers(0, 6)), max_size=6),
    )
    def check(seed: bytes, changes: list[tuple[int, bytes, int]]) -> None:
        data = seed
        for place, put, cut in changes:
            at = min(place, len(data))
            data = data[:at] + put + data[at + cut :]
        TARGETS[target](data)

    check()


@pytest.mark.parametrize("target", ["json-body", "binary-body"])
def test_json_of_any_form_is_answered_or_refused(target: str) -> None:
    leaf = st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=8)
    keys = st.sampled_from(["name", "datatype", "shape", "data", "parameters", "binary_data_size", "inputs", "outputs", "timeout"])
    names = st.sampled_from(["x", "t", "b", "n", "y", "FP32", "BYTES", "BOOL", "INT8"])
    form = st.recursive(
        leaf | names, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=5), max_leaves=24
    )

    @STEADY
    @given(form, st.binary(max_size=16))
    def check(document: object, tail: bytes) -> None:
        import json

        body = json.dumps(document).encode()
        TARGETS[target](body if target == "json-body" else len(body).to_bytes(4, "big")[-2:] + body + tail)

    check()
