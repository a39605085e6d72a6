"""Requests that come again with other tensors: what is remembered of the first changes nothing of what the others mean."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.errors import RequestError
from inference_worker.serve import codec
from inference_worker.serve.ask import Signature
from inference_worker.serve.codec import Decoder
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.serve.test_codec_requests import a_body, spec

SIGNATURE = Signature(
    (spec("a", "FP32", None, 2), spec("t", "BYTES", None)), (spec("y", "FP32", None, 2), spec("z", "INT64", None))
)


def texts(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def a_head(rows: int, size: int, **more: Any) -> bytes:
    a = {"name": "a", "datatype": "FP32", "shape": [rows, 2], "parameters": {"binary_data_size": rows * 8}}
    t = {"name": "t", "datatype": "BYTES", "shape": [rows], "parameters": {"binary_data_size": size}}
    return a_body(t, a, **more)


def outcome(decode: Any, body: bytes, header: str) -> Any:
    """All that a request means, or why it is refused."""
    try:
        ask, form = decode(body, header)
    except RequestError as error:
        return error.status, error.message
    feeds = {name: (array.dtype, array.shape, array.tolist()) for name, array in ask.feeds.items()}
    return ask.id, feeds, ask.outputs, ask.timeout_seconds, ask.priority, form.binary, form.binary_all, form.plain


heads = st.builds(
    a_head,
    st.integers(1, 2),
    st.integers(4, 14),
    parameters=st.sampled_from([{}, {"binary_data_output": True}, {"timeout": 5000, "priority": 2}]),
    outputs=st.sampled_from([[], [{"name": "z"}], [{"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]]),
)
tails = st.builds(
    lambda values, raw: texts(*values) + raw,
    st.lists(st.sampled_from([b"", b"ab", b"\xff"]), min_size=1, max_size=2),
    st.binary(min_size=8, max_size=16),
)


@given(st.lists(heads, min_size=1, max_size=3), st.lists(st.tuples(st.integers(0, 2), tails), min_size=1, max_size=12))
@settings(STEADY, max_examples=150)
def test_a_request_that_comes_again_means_what_it_means_when_it_comes_first(
    known: list[bytes], asked: list[tuple[int, bytes]]
) -> None:
    decoder = Decoder(SIGNATURE)

    for number, tail in asked:
        head = known[number % len(known)]
        body, header = head + tail, str(len(head))
        fresh = outcome(lambda b, h: codec.decode(b, h, SIGNATURE), body, header)
        again = [outcome(decoder.decode, body, header) for _ in range(2)]
        # A refusal may use other words the second time, but it is one.
        assert all(one == fresh or (one[0] == fresh[0] == 400) for one in again)


def test_the_same_head_with_other_tensors_gives_those() -> None:
    decoder, head = Decoder(SIGNATURE), a_head(1, 6)
    for value in (1.5, -2.0, 7.0):
        body = head + texts(b"ab") + np.array([value, 0], np.float32).tobytes()
        ask, _ = decoder.decode(body, str(len(head)))
        assert ask.feeds["a"].tolist() == [[value, 0]] and ask.feeds["t"].tolist() == ["ab"]
    assert len(decoder._plans) == 1


def test_an_id_is_its_own_requests() -> None:
    decoder = Decoder(SIGNATURE)
    for identity in ("one", "two", "one", ""):
        head = a_head(1, 6, id=identity)
        ask, _ = decoder.decode(head + texts(b"ab") + bytes(8), str(len(head)))
        assert ask.id == identity


@pytest.mark.parametrize("change", ["longer", "shorter", "garbled text"])
def test_a_body_that_does_not_fit_a_head_that_is_known_is_refused(change: str) -> None:
    decoder, head = Decoder(SIGNATURE), a_head(1, 6)
    good = head + texts(b"ab") + bytes(8)
    decoder.decode(good, str(len(head)))
    bad = {"longer": good + b"!", "shorter": good[:-1], "garbled text": head + texts(b"\xff\xff") + bytes(8)}[change]

    with pytest.raises(RequestError) as caught:
        decoder.decode(bad, str(len(head)))

    assert caught.value.status == 400
    assert decoder.decode(good, str(len(head)))[0].feeds["t"].tolist() == ["ab"]


def test_endless_heads_are_not_all_remembered() -> None:
    decoder = Decoder(SIGNATURE)
    for number in range(3 * codec._PLANS):
        head = a_head(1, 6, ignored=number)
        decoder.decode(head + texts(b"ab") + bytes(8), str(len(head)))
    long = a_head(1, 6, ignored="x" * 10_000)
    decoder.decode(long + texts(b"ab") + bytes(8), str(len(long)))

    assert len(decoder._plans) <= codec._PLANS and long not in decoder._plans


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2**40)), min_size=1, max_size=8))
@settings(STEADY, max_examples=60)
def test_answers_to_a_request_that_comes_again_are_written_anew(asked: list[tuple[int, int]]) -> None:
    decoder, head = Decoder(SIGNATURE), a_head(1, 6, parameters={"binary_data_output": True})
    request = head + texts(b"ab") + bytes(8)

    for rows, value in asked:
        answers: dict[str, np.ndarray] = {"y": np.full((rows, 2), value, np.float32), "z": np.full(rows, value, np.int64)}
        ask, form = decoder.decode(request, str(len(head)))
        body, size = codec.encode(ask, form, answers, model="net", version="1")
        assert (body, size) == codec.encode(ask, codec.Form(binary_all=True), answers, model="net", version="1")
        assert [o["shape"] for o in json.loads(body[:size])["outputs"]] == [[rows, 2], [rows]]


def test_texts_in_the_answer_are_measured_each_time() -> None:
    decoder, head = Decoder(SIGNATURE), a_head(1, 6, parameters={"binary_data_output": True})
    request = head + texts(b"ab") + bytes(8)

    for value in ("a", "longer", ""):
        ask, form = decoder.decode(request, str(len(head)))
        body, size = codec.encode(ask, form, {"y": np.array([value], object)}, model="net", version="1")
        (output,) = json.loads(body[:size])["outputs"]
        assert body[size:] == texts(value.encode()) and output["parameters"]["binary_data_size"] == len(value) + 4


def test_a_shape_that_the_configuration_gives_is_remembered_as_the_model_takes_it() -> None:
    """[rows, 1] stands for [rows] where a row is one value."""
    signature = Signature((replace(spec("x", "FP32", None), batch_axis=0),), (spec("y", "FP32", None),))
    x = {"name": "x", "datatype": "FP32", "shape": [2, 1], "parameters": {"binary_data_size": 8}}
    head = a_body(x)
    decoder = Decoder(signature)

    for value in (1, 2):
        ask, _ = decoder.decode(head + np.full(2, value, np.float32).tobytes(), str(len(head)))
        assert (ask.feeds["x"].shape, ask.feeds["x"].tolist()) == ((2,), [value, value])
