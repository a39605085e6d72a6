"""The binary tensor extension: lengths that lie, and every datatype there and back."""

from __future__ import annotations

import json
import struct
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker import datatypes
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import RequestError
from inference_worker.serve import codec
from inference_worker.serve.ask import Ask
from tests.process import models
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.serve.test_codec_requests import TEXT, X, a_body, an_input, decode, decode_formed, refusal, spec, texts

ROW = np.array([1.5, -2], np.float32).tobytes()


def binary(entry: dict[str, Any], raw: bytes, *, size: Any = None, header: str | None = None) -> tuple[bytes, str]:
    entry = {k: v for k, v in entry.items() if k != "data"}
    head = a_body({**entry, "parameters": {"binary_data_size": len(raw) if size is None else size}})
    return head + raw, str(len(head)) if header is None else header


def strings(*values: bytes) -> bytes:
    return b"".join(struct.pack("<I", len(value)) + value for value in values)


def answer(arrays: dict[str, np.ndarray], **request: Any) -> tuple[dict[str, Any], bytes, int | None]:
    """The parsed JSON part, the binary part, and the header's value."""
    ask, form = Ask(request.pop("id", ""), {}, ()), codec.Form(**request)
    body, size = codec.encode(ask, form, arrays, model="net", version="1")
    return json.loads(body[:size]), body[size:] if size is not None else b"", size


def test_a_binary_tensor_is_taken_bit_by_bit() -> None:
    body, header = binary(an_input(), ROW)

    assert decode(body, header=header).feeds["x"].tobytes() == ROW


@pytest.mark.parametrize(
    "header", ["-1", "-0", "+1", "1e1", "1.0", " 1", "1 ", "", "abc", "0x10", "١٢", "²", "99999999999999999999", "None", "1_0"]
)
def test_a_header_that_is_no_length_is_refused(header: str) -> None:
    body, _ = binary(an_input(), ROW)

    assert "Inference-Header-Content-Length" in refusal(body, header=header)


def test_a_header_of_thousands_of_digits_is_refused() -> None:
    refusal(b"{}", header="1" * 5000)


def test_every_wrong_header_length_is_refused() -> None:
    body, header = binary(an_input(), ROW)

    for length in range(len(body) + 3):
        if length != int(header):
            refusal(body, header=str(length))


def test_without_the_header_the_whole_body_is_json() -> None:
    body, _ = binary(an_input(), ROW)

    refusal(body)


@pytest.mark.parametrize("raw", [ROW, b"12345678", np.full(2, np.nan, np.float32).tobytes()], ids=["numbers", "text", "no text"])
def test_without_the_header_a_binary_body_is_told_which_header_it_lacks(raw: bytes) -> None:
    """The refusal spoke of surrogates in a str, and not of the header."""
    body, _ = binary(an_input(), raw)

    assert "the header Inference-Header-Content-Length must give" in refusal(body)
    assert "Inference-Header" not in refusal(b"{")


def test_an_input_with_data_and_binary_bytes_is_refused() -> None:
    """The bytes were taken and the data left out, without a word, though nobody knows which was meant."""
    for data, taken in (([1, 2], False), ([[0]], False), (None, True), ([], True)):
        head = a_body(an_input(data=data, parameters={"binary_data_size": 8}))
        if taken:
            assert decode(head + ROW, header=str(len(head))).feeds["x"].tobytes() == ROW
        else:
            assert "'x' has data besides binary_data_size" in refusal(head + ROW, header=str(len(head)))


@pytest.mark.parametrize("size", [0, 1, 7, 9, 2**31, 2**63, 2**70, -1, -8, 8.0, "8", True, [8], {}])
def test_a_size_that_lies_is_refused(size: Any) -> None:
    body, header = binary(an_input(), ROW, size=size)

    refusal(body, header=header)


def test_bytes_that_no_input_accounts_for_are_refused() -> None:
    body, header = binary(an_input(), ROW)
    plain = a_body(an_input())

    assert "account" in refusal(body + b"!", header=header)
    assert "account" in refusal(plain + b"!", header=str(len(plain)))


def test_two_binary_inputs_follow_each_other() -> None:
    a, b = {"name": "a", "datatype": "FP32", "shape": [1, 2]}, {"name": "b", "datatype": "INT64", "shape": [1]}
    head = a_body({**b, "parameters": {"binary_data_size": 8}}, {**a, "parameters": {"binary_data_size": 8}})

    feeds = decode(
        head + struct.pack("<q", -5) + ROW, spec("a", "FP32", None, 2), spec("b", "INT64", None), header=str(len(head))
    ).feeds

    assert feeds["b"].tolist() == [-5] and feeds["a"].tobytes() == ROW


def test_an_empty_binary_tensor_is_taken() -> None:
    body, header = binary(an_input(shape=[0, 2]), b"", size=0)

    assert decode(body, header=header).feeds["x"].shape == (0, 2)


@pytest.mark.parametrize(
    "values",
    [(b"",), (b"abc", b""), (b"a\0b", b"\0"), ("größe ✓".encode(),), (b"x" * 70_000,)],
    ids=["empty", "two", "nul", "utf-8", "long"],
)
def test_strings_carry_their_lengths(values: tuple[bytes, ...]) -> None:
    body, header = binary(an_input(name="t", datatype="BYTES", shape=[len(values)]), strings(*values))

    assert texts(decode(body, TEXT, header=header).feeds["t"]) == [value.decode() for value in values]


@pytest.mark.parametrize(
    "raw",
    [b"\1", b"\1\0\0", b"\5\0\0\0abcd", b"\xff\xff\xff\xffabcd", b"\0\0\0\x80", strings(b"a", b"b"), strings(b"a") + b"\0\0", b""],
    ids=["1 byte", "3 bytes", "cut", "4 GiB", "2 GiB", "too many", "trailing", "none"],
)
def test_strings_that_are_cut_or_lie_are_refused(raw: bytes) -> None:
    body, header = binary(an_input(name="t", datatype="BYTES", shape=[1]), raw)

    assert "BYTES" in refusal(body, TEXT, header=header)


@given(st.binary(max_size=40), st.integers(0, 4))
@settings(STEADY, max_examples=200)
def test_any_bytes_are_strings_or_refused(raw: bytes, count: int) -> None:
    body, header = binary(an_input(name="t", datatype="BYTES", shape=[count]), raw, size=len(raw))

    try:
        fed = decode(body, TEXT, header=header).feeds["t"]
    except RequestError:
        return
    assert fed.shape == (count,)


@pytest.mark.parametrize("datatype", ["UINT8", "FP16", "FP32"])
def test_a_tensor_is_a_view_of_its_body_so_that_its_first_copy_is_the_one_to_the_device(datatype: str) -> None:
    raw = np.arange(600, dtype=np.uint8).astype(datatypes.NUMPY[datatype]).tobytes()
    body, header = binary(an_input(datatype=datatype, shape=[2, 300]), raw)

    fed = decode(body, spec("x", datatype, None, 300), header=header).feeds["x"]

    assert np.shares_memory(fed, np.frombuffer(body, np.uint8)) and fed.dtype == datatypes.NUMPY[datatype]


@pytest.mark.parametrize("datatype", [d for d in datatypes.NUMPY if d != "BYTES"])
def test_each_datatype_goes_through_the_model_bit_by_bit_from_any_offset(datatype: str) -> None:
    engine = OnnxEngine(models.identity(models.BY_DATATYPE[datatype], ["N", 3]), providers=("CPUExecutionProvider",), threads=1)
    dtype = datatypes.NUMPY[datatype]
    raw = (np.arange(6) % 2).astype(dtype).tobytes() if datatype == "BOOL" else bytes(range(6 * dtype.itemsize))

    for padding in range(8):
        entry = an_input(datatype=datatype, shape=[2, 3], name="x", ignored="." * padding)
        body, header = binary(entry, raw)
        request = decode(body, *engine.inputs, header=header)
        document, out, _ = answer(engine.run(request.feeds), binary_all=True)
        assert out == raw
        assert document["outputs"] == [
            {"name": "y", "datatype": datatype, "shape": [2, 3], "parameters": {"binary_data_size": len(raw)}}
        ]


@pytest.mark.parametrize("form", ["json", "binary"])
@pytest.mark.parametrize("values", [["abc", "", "é ✓"], ["a\0b", "\0"], ["b'x'"]], ids=["plain", "nul", "quoted"])
def test_strings_reach_the_model_and_come_back_as_they_are(values: list[str], form: str) -> None:
    engine = OnnxEngine(models.identity(models.STRING, ["N"]), providers=("CPUExecutionProvider",), threads=1)
    entry = an_input(datatype="BYTES", shape=[len(values)], data=values)
    body, header = (a_body(entry), None) if form == "json" else binary(entry, strings(*(v.encode() for v in values)))

    answers = engine.run(decode(body, *engine.inputs, header=header).feeds)

    document, _, _ = answer(answers)
    _, raw, _ = answer(answers, binary_all=True)
    assert document["outputs"][0]["data"] == values
    assert raw == strings(*(v.encode() for v in values))


def test_bytes_that_are_no_utf_8_are_carried_or_refused() -> None:
    engine = OnnxEngine(models.identity(models.STRING, ["N"]), providers=("CPUExecutionProvider",), threads=1)
    body, header = binary(an_input(datatype="BYTES", shape=[1]), strings(b"\xff\xfe"))

    try:
        answers = engine.run(decode(body, *engine.inputs, header=header).feeds)
    except (RequestError, ValueError):
        return
    assert answer(answers, binary_all=True)[1] == strings(b"\xff\xfe")


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_answers_that_json_can_not_hold_name_the_binary_form_that_carries_them(bad: float, dtype: Any) -> None:
    array = np.array([1, bad], dtype)

    with pytest.raises(RequestError) as caught:
        answer({"y": array})
    assert caught.value.status == 400 and "binary" in caught.value.message and "'y'" in caught.value.message
    assert answer({"y": array}, binary_all=True)[1] == array.tobytes()


def test_half_precision_answers_name_the_binary_form_that_carries_them() -> None:
    half = np.array([1, 2], np.float16)

    with pytest.raises(RequestError) as caught:
        answer({"y": half})
    assert "binary" in caught.value.message
    assert answer({"y": half}, binary_all=True)[1] == half.tobytes()


@pytest.mark.parametrize(
    "array", [np.array(5, np.int64), np.zeros((0, 4), np.float32), np.array([[True], [False]]), np.ones((2, 1, 2), np.uint16)]
)
def test_answers_of_any_shape_are_flat_json(array: np.ndarray) -> None:
    entry = answer({"y": array})[0]["outputs"][0]

    assert entry["shape"] == list(array.shape) and entry["data"] == array.ravel().tolist()


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), max_size=20))
@STEADY
def test_fractions_survive_json_exactly(values: list[float]) -> None:
    array = np.array(values, np.float32)

    back = answer({"y": array[:, None].repeat(2, axis=1).T})[0]["outputs"][0]["data"]

    assert np.array_equal(np.array(back, np.float32), np.concatenate([array, array]))


def test_ids_are_echoed_and_left_out_when_there_are_none() -> None:
    array = np.ones(1, np.float32)

    assert answer({"y": array}, id="é-1")[0]["id"] == "é-1"
    assert "id" not in answer({"y": array})[0]
    assert {k: answer({"y": array})[0][k] for k in ("model_name", "model_version")} == {"model_name": "net", "model_version": "1"}


def test_one_answer_may_be_binary_beside_another_in_json() -> None:
    document, raw, size = answer({"y": np.ones(1, np.float32), "z": np.ones(2, np.int64)}, binary=frozenset({"z"}))

    assert document["outputs"][0]["data"] == [1.0] and "data" not in document["outputs"][1]
    assert raw == np.ones(2, np.int64).tobytes() and size == len(orjson.dumps(document))


def test_an_output_may_ask_for_json_where_the_request_asks_for_binary() -> None:
    engine_answer = {"y": np.ones((1, 2), np.float32)}
    ask, form = decode_formed(
        a_body(an_input(), parameters={"binary_data_output": True}, outputs=[{"name": "y", "parameters": {"binary_data": False}}]),
        X,
    )

    body, size = codec.encode(ask, form, engine_answer, model="net", version="1")

    assert size is None and json.loads(body)["outputs"][0]["data"] == [1, 1]
