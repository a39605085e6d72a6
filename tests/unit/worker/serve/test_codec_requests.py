"""Open Inference Protocol v2 requests as JSON: right ones become exact tensors, all others a 400 that says why."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker import datatypes
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import RequestError
from inference_worker.serve import codec
from inference_worker.serve.ask import Ask, Signature
from tests.unit.worker.conftest import STEADY


def spec(name: str = "x", datatype: str = "FP32", *shape: int | None) -> TensorSpec:
    return TensorSpec(name, datatype, datatypes.NUMPY[datatype], shape)


X = spec("x", "FP32", None, 2)
Y = spec("y", "FP32", None, 2)
PAIR = (spec("a", "FP32", None, 2), spec("b", "INT64", None))
TEXT = spec("t", "BYTES", None)


def an_input(**changes: Any) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [1, 2], **changes}


def a_body(*inputs: Any, **more: Any) -> bytes:
    return json.dumps({"inputs": list(inputs), **more}).encode()


def decode_formed(body: bytes, *inputs: TensorSpec, header: str | None = None) -> tuple[Ask, codec.Form]:
    return codec.decode(body, header, Signature(inputs or (X,), (Y, spec("z", "FP32", None))))


def decode(body: bytes, *inputs: TensorSpec, header: str | None = None) -> Ask:
    return decode_formed(body, *inputs, header=header)[0]


def refusal(body: bytes, *inputs: TensorSpec, header: str | None = None) -> str:
    with pytest.raises(RequestError) as caught:
        decode(body, *inputs, header=header)
    assert caught.value.status is HTTPStatus.BAD_REQUEST
    return caught.value.message


def texts(array: np.ndarray) -> list[str]:
    return [value.decode() if isinstance(value, bytes) else value for value in array.ravel()]


@pytest.mark.parametrize("data", [[1, 2.5, 3, 4], [[1, 2.5], [3, 4]]], ids=["flat", "nested"])
def test_flat_and_nested_data_are_the_same_tensor(data: Any) -> None:
    fed = decode(a_body(an_input(shape=[2, 2], data=data))).feeds["x"]

    assert fed.dtype == np.float32 and fed.tolist() == [[1, 2.5], [3, 4]]


def test_two_inputs_come_in_any_order() -> None:
    b = {"name": "b", "datatype": "INT64", "shape": [1], "data": [2**63 - 1]}

    feeds = decode(a_body(b, an_input(name="a")), *PAIR).feeds

    assert feeds["a"].tolist() == [[1, 2]] and feeds["b"].tolist() == [2**63 - 1]


def test_a_scalar_is_a_tensor_without_sizes() -> None:
    assert decode(a_body(an_input(shape=[], data=[5])), spec("x", "FP32")).feeds["x"].shape == ()


@pytest.mark.parametrize("shape", [[1, 0, 2**27], [2**21, 0, 1], [2**11, 0, 2**10], [0, 2**15, 2**15]], ids=str)
@pytest.mark.parametrize("datatype", ["FP32", "BYTES"])
def test_a_zero_is_no_cover_for_sizes_without_bytes(shape: list[int], datatype: str) -> None:
    """A model that sums over the zero would answer 87 bytes with half a gigabyte."""
    body = a_body(an_input(shape=shape, datatype=datatype, data=[]))

    assert "send smaller sizes" in refusal(body, spec("x", datatype, None, None, None))


def test_sizes_that_the_model_fixes_may_stand_beside_a_zero() -> None:
    body = a_body(an_input(shape=[0, 3, 2048, 2048], data=[]))

    assert decode(body, spec("x", "FP32", None, 3, 2048, 2048)).feeds["x"].shape == (0, 3, 2048, 2048)


@pytest.mark.parametrize("datatype", ["FP32", "INT64", "BOOL", "BYTES"])
def test_a_size_of_zero_is_an_empty_tensor(datatype: str) -> None:
    fed = decode(a_body(an_input(datatype=datatype, shape=[0, 4], data=[])), spec("x", datatype, None, 4)).feeds["x"]

    assert fed.shape == (0, 4) and fed.dtype == datatypes.NUMPY[datatype]


@pytest.mark.parametrize("datatype", ["INT8", "UINT8", "INT16", "UINT16", "INT32", "UINT32", "INT64", "UINT64"])
def test_the_extremes_of_each_whole_number_are_exact_and_beyond_is_refused(datatype: str) -> None:
    n = spec("x", datatype, None)
    limits = np.iinfo(datatypes.NUMPY[datatype])

    fed = decode(a_body(an_input(datatype=datatype, shape=[3], data=[limits.min, limits.max, 0])), n).feeds["x"]

    assert fed.tolist() == [limits.min, limits.max, 0]
    for value in (limits.max + 1, limits.min - 1, 0.5, True, None, "1"):
        refusal(a_body(an_input(datatype=datatype, shape=[1], data=[value])), n)


@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_a_number_too_large_for_fp32_is_refused() -> None:
    refusal(a_body(an_input(data=[1e39, 1])))


@pytest.mark.parametrize(
    "data", [["1", "2"], [None, 1], [True, False], [{}, 1], [[1], [2, 3]], [[[1]], 2], "12", {"a": 1}, None, 5, [1], [1, 2, 3]]
)
def test_data_that_does_not_fill_the_tensor_is_refused_by_name(data: Any) -> None:
    assert "'x'" in refusal(a_body(an_input(data=data)))


@pytest.mark.parametrize("word", [b"NaN", b"Infinity", b"-Infinity", b"nan", b"0x10", b"1_000", b"01", b"+1", b".5"])
def test_numbers_that_json_does_not_know_are_refused(word: bytes) -> None:
    assert "JSON" in refusal(a_body(an_input(data=[7, 7])).replace(b"[7, 7]", b"[" + word + b", 1]"))


def test_half_precision_in_json_is_sent_to_the_binary_form() -> None:
    assert "binary" in refusal(a_body(an_input(datatype="FP16")), spec("x", "FP16", None, 2))


@pytest.mark.parametrize("text", ["", "plain", "größe ✓ 😀", "nul\0inside", "line\u2028"])
def test_texts_come_flat_or_nested(text: str) -> None:
    flat = decode(a_body(an_input(name="t", datatype="BYTES", shape=[2], data=[text, text])), TEXT)
    nested = decode(
        a_body(an_input(name="t", datatype="BYTES", shape=[2, 1], data=[[text], [text]])), spec("t", "BYTES", None, None)
    )

    assert texts(flat.feeds["t"]) == texts(nested.feeds["t"]) == [text, text]
    assert nested.feeds["t"].shape == (2, 1)


@pytest.mark.parametrize("value", [5, None, True, {"a": 1}, 1.5])
def test_what_is_no_text_is_refused_for_bytes(value: Any) -> None:
    assert "'t'" in refusal(a_body(an_input(name="t", datatype="BYTES", shape=[2], data=["fine", value])), TEXT)


@pytest.mark.parametrize("datatype", ["FP64", "fp32", "", None, [], "float32", "BYTES"])
def test_another_datatype_is_refused_with_the_right_one(datatype: Any) -> None:
    assert "FP32" in refusal(a_body(an_input(datatype=datatype)))


@pytest.mark.parametrize(
    "shape", [[1, 3], [2], [1, 2, 1], [], [-1, 2], [1.0, 2], [True, 2], ["1", 2], "12", None, [2**62, 2], [2**63, 2], [[1], 2], {}]
)
def test_another_shape_is_refused(shape: Any) -> None:
    assert "shape" in refusal(a_body(an_input(shape=shape)))


@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_sizes_whose_product_overflows_are_refused(*, binary: bool) -> None:
    shape = [0, 2**31 - 1, 2**31 - 1, 2**31 - 1]
    entry = an_input(shape=shape, data=[], **({"parameters": {"binary_data_size": 0}} if binary else {}))

    refusal(a_body(entry), spec("x", "FP32", None, None, None, None))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"5",
        b'"x"',
        b"{}",
        b'{"inputs": {}}',
        b'{"inputs": null}',
        b'{"inputs": []}',
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b'{"inputs": [], "id": "\\ud800"}',
        b'{"inputs": [], "id": "\xff"}',
        b"\x1f\x8b\x08gzip",
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_what_is_no_request_is_refused(body: bytes) -> None:
    refusal(body)


@pytest.mark.parametrize("entry", [5, None, "x", [], ["x"], {}, {"name": "other"}, {"name": None}, {"name": 5}])
def test_an_entry_that_is_no_input_is_refused(entry: Any) -> None:
    refusal(a_body(entry))


@pytest.mark.parametrize("name", [[], ["x"], {}, {"x": 1}])
@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_a_name_that_is_no_text_is_refused(name: Any, where: str) -> None:
    refusal(a_body(an_input(name=name)) if where == "inputs" else a_body(an_input(), outputs=[{"name": name}]))


@pytest.mark.parametrize("parameters", ["abc", [1], 5, True])
@pytest.mark.parametrize("where", ["inputs", "outputs"])
def test_parameters_that_are_no_object_are_refused_or_ignored(parameters: Any, where: str) -> None:
    body = (
        a_body(an_input(parameters=parameters))
        if where == "inputs"
        else a_body(an_input(), outputs=[{"name": "y", "parameters": parameters}])
    )

    try:
        assert decode(body).feeds["x"].tolist() == [[1, 2]]
    except RequestError as error:
        assert error.status is HTTPStatus.BAD_REQUEST  # noqa: PT017


@pytest.mark.parametrize(
    "parameters", ["abc", [1], 5, None, {"binary_data_output": "yes"}, {"binary_data_output": 1}, {"unknown": {}}]
)
def test_garbage_in_the_requests_parameters_is_harmless(parameters: Any) -> None:
    assert decode_formed(a_body(an_input(), parameters=parameters))[1].binary_all is False


def test_a_deep_nest_of_texts_is_refused() -> None:
    body = a_body(an_input(name="t", datatype="BYTES", shape=[1], data=["#"])).replace(b'["#"]', b"[" * 1015 + b'"a"' + b"]" * 1015)

    refusal(body, TEXT)


def test_a_deep_nest_of_numbers_is_refused() -> None:
    refusal(a_body(an_input(data=["#"])).replace(b'["#"]', b"[" * 1015 + b"1" + b"]" * 1015))


def test_an_input_given_twice_is_refused() -> None:
    assert "twice" in refusal(a_body(an_input(), an_input()))


def test_a_missing_input_is_named() -> None:
    assert "b" in refusal(a_body(an_input(name="a")), *PAIR)


def test_an_unknown_input_is_refused_with_those_that_there_are() -> None:
    message = refusal(a_body(an_input(name="c")), *PAIR)

    assert "'c'" in message and "a, b" in message


@pytest.mark.parametrize(("given_id", "kept"), [("abc", "abc"), ("", ""), ("é😀", "é😀"), (7, "7")])
def test_ids_are_kept(given_id: Any, kept: str) -> None:
    assert decode(a_body(an_input(), id=given_id)).id == kept


@pytest.mark.parametrize("given_id", [{"a": 1}, ["a"], [], True, False])
def test_an_id_that_is_no_text_is_refused_and_not_answered_in_pythons_spelling(given_id: Any) -> None:
    assert "id must be a string" in refusal(a_body(an_input(), id=given_id))


def test_an_id_of_null_is_no_id() -> None:
    assert decode(a_body(an_input(), id=None)).id == ""


@pytest.mark.parametrize("outputs", [None, []])
def test_without_outputs_all_are_asked_for(outputs: Any) -> None:
    assert decode(a_body(an_input(), outputs=outputs)).outputs == ()


def test_outputs_are_kept_in_order_and_once() -> None:
    wishes = [{"name": "z"}, {"name": "y", "parameters": {"binary_data": True}}, {"name": "z"}]

    ask, form = decode_formed(a_body(an_input(), outputs=wishes))

    assert ask.outputs == ("z", "y") and form.binary == {"y"}


@pytest.mark.parametrize("outputs", [[{"name": "w"}], [{}], [5], ["y"], "y", {}, False, 5, {"name": "y"}, [{"name": "y"}, None]])
def test_unknown_outputs_are_refused_with_those_that_there_are(outputs: Any) -> None:
    assert "y, z" in refusal(a_body(an_input(), outputs=outputs))


anything: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 2**65)
    | st.floats()
    | st.text(max_size=3)
    | st.sampled_from(["x", "FP32", "BYTES"]),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["name", "x", "binary_data_size"]), inner, max_size=2)
    ),
    max_leaves=5,
)


@given(
    entry=st.fixed_dictionaries(
        {},
        optional={
            "name": st.just("x") | st.text(max_size=2),
            "datatype": st.just("FP32") | anything,
            "shape": st.just([1, 2]) | anything,
            "data": st.just([1, 2]) | anything,
            "parameters": st.dictionaries(st.just("binary_data_size"), anything),
        },
    ),
    outputs=st.none() | st.lists(st.fixed_dictionaries({"name": st.text(max_size=2)}), max_size=2),
    tail=st.binary(max_size=12),
    header=st.none() | st.text(max_size=4) | st.integers(-1, 200).map(str),
)
@settings(STEADY, max_examples=200)
@pytest.mark.filterwarnings("ignore:overflow encountered")
def test_any_request_is_decoded_or_refused_with_400(entry: Any, outputs: Any, tail: bytes, header: str | None) -> None:
    body = json.dumps({"inputs": [entry], "outputs": outputs}).encode()
    for length in (header, str(len(body))):
        try:
            request = decode(body + tail, header=length)
        except RequestError as error:
            assert error.status is HTTPStatus.BAD_REQUEST  # noqa: PT017
        else:
            assert request.feeds["x"].dtype == np.float32 and request.feeds["x"].shape[1] == 2


@given(body=st.binary(max_size=64), header=st.none() | st.text(max_size=6))
@settings(STEADY, max_examples=100)
def test_any_bytes_are_refused_with_400(body: bytes, header: str | None) -> None:
    refusal(body, header=header)
