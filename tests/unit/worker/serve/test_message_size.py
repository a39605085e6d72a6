"""What a short text can say a great many of is refused before a parser makes memory and time of it."""

from __future__ import annotations

import json
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import RequestError
from inference_worker.serve import codec, grpc_raw, message_size
from inference_worker.serve.ask import Signature
from inference_worker.serve.messages import ModelInferRequest

SIGNATURE = Signature((TensorSpec("x", "FP32", np.dtype(np.float32), (None,), 0),), ())
MANY = 1 << 20


def within(number: int, body: bytes) -> bytes:
    """A message in a field of another."""
    length = len(body)
    head = bytearray([number << 3 | 2])
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes([*head, length]) + body


BOMBS = {
    "inputs": b"\x2a\x00" * MANY,
    "outputs": b"\x32\x00" * MANY,
    "raw contents": b"\x3a\x00" * MANY,
    "fields that nobody knows": b"\xf8\x07\x01" * MANY,
    "groups that nobody knows": b"\xfb\x07\xfc\x07" * MANY,
    "parameters": b"".join(within(4, within(1, b"%d" % each)) for each in range(message_size.MOST_FIELDS)),
    "parameters of an input": within(5, b"\x22\x00" * MANY),
    "contents of an input": within(5, b"\x2a\x00" * MANY),
    "texts": within(5, within(5, b"\x42\x00" * MANY)),
    "numbers that are not packed": within(5, within(5, b"\x18\x01" * MANY)),
    "packed numbers": within(5, within(5, within(3, b"\x01" * (message_size.MOST_VARINT_BYTES + 1)))),
    "packed numbers in pieces": within(5, within(5, within(4, b"\x01" * MANY)) * 9),
    "a shape": within(5, within(3, b"\x01" * (message_size.MOST_VARINT_BYTES + 1))),
    "inputs behind a tensor": within(7, bytes(1 << 20)) + b"\x2a\x00" * MANY,
    "inputs, and then no message": b"\x2a\x00" * MANY + b"\xff",
}


@pytest.mark.parametrize("payload", BOMBS.values(), ids=BOMBS)
def test_a_message_of_many_small_things_is_not_parsed(payload: bytes) -> None:
    """Protobuf made ninety bytes of two: 64 MiB took 2.8 GiB, and eight seconds of all callers."""
    with pytest.raises(RequestError) as refused:
        grpc_raw.parse(payload)

    assert refused.value.status == 413


@given(
    texts=st.lists(st.binary(max_size=20), max_size=50),
    numbers=st.lists(st.integers(0, 1 << 40), max_size=50),
    inputs=st.integers(1, 9),
)
def test_an_honest_message_is_parsed(texts: list[bytes], numbers: list[int], inputs: int) -> None:
    request = ModelInferRequest(model_name="net", id="x" * grpc_raw._WORTH_BYTES)
    for number in range(inputs):
        entry = request.inputs.add(name=f"x{number}", datatype="BYTES", shape=[len(texts)])
        entry.contents.bytes_contents.extend(texts)
        entry.contents.uint64_contents.extend(numbers)
        entry.parameters["wish"].string_param = "yes"

    assert grpc_raw.parse(request.SerializeToString()).message == request


def body(inner: bytes) -> bytes:
    return b'{"inputs":[' + inner + b"0]}"


@pytest.mark.parametrize(
    "inner",
    [b"[]," * 2 * MANY, b"{}," * 2 * MANY, b'{"":0},' * 2 * MANY, b"[" * 2 * MANY],
    ids=["lists", "objects", "full", "deep"],
)
def test_a_document_of_many_lists_is_not_parsed(inner: bytes) -> None:
    """64 MiB of `[],` took 1.3 GiB, and held the interpreter for sixteen seconds."""
    with pytest.raises(RequestError) as refused:
        codec.decode(body(inner), None, SIGNATURE)

    assert refused.value.status == 413


def test_brackets_in_texts_are_none() -> None:
    text = json.dumps('[{"' * (MANY // 2) + "\\").encode()

    assert message_size.of_few_lists(memoryview(body(text + b","))).nbytes == len(body(text + b","))


@pytest.mark.parametrize(
    "text", [b'"' + b'\\"' * 4 * MANY, b'"' * 8 * MANY, b'"' + b"\\" * 4 * MANY], ids=["escapes", "quotes", "ends"]
)
def test_texts_without_an_end_take_no_time(text: bytes) -> None:
    begun = time.process_time()
    with pytest.raises(RequestError):
        message_size.of_few_lists(memoryview(b"[" * 2 * MANY + text))

    assert time.process_time() - begun < 10


def test_a_message_that_asks_for_a_document_is_short() -> None:
    assert message_size.small(bytes(message_size.SMALL_BYTES)) == bytes(message_size.SMALL_BYTES)
    with pytest.raises(RequestError, match="at most"):
        message_size.small(bytes(message_size.SMALL_BYTES + 1))
