"""Messages whose raw tensors are taken from where they lie say what protobuf says they do."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import RequestError
from inference_worker.serve import grpc_codec, grpc_raw
from inference_worker.serve.ask import Signature
from inference_worker.serve.messages import ModelInferRequest, ModelInferResponse

LONG = grpc_raw._WORTH_BYTES
SPEC = TensorSpec("x", "UINT8", np.dtype(np.uint8), (None, 3), 0)
SIGNATURE = Signature((SPEC,), (TensorSpec("y", "FP32", np.dtype(np.float32), (None, 2), 0),))


@given(
    identity=st.text(max_size=20), raw=st.lists(st.binary(max_size=40), max_size=5), inputs=st.integers(0, 3), view=st.booleans()
)
def test_a_message_is_what_protobuf_makes_of_it(*, identity: str, raw: list[bytes], inputs: int, view: bool) -> None:
    request = ModelInferRequest(model_name="net", id=identity, raw_input_contents=[*raw, bytes(LONG)])
    for number in range(inputs):
        request.inputs.add(name=f"x{number}", datatype="FP32", shape=[number, 300])
    payload = request.SerializeToString()

    parsed = grpc_raw.parse(memoryview(payload) if view else payload)

    assert list(map(bytes, parsed.raw)) == list(request.raw_input_contents) and parsed.size == len(payload)
    request.ClearField("raw_input_contents")
    assert parsed.message == request


@given(st.binary(min_size=1, max_size=200), st.integers(0, 200))
def test_what_is_no_message_is_refused_as_protobuf_refuses_it(junk: bytes, at: int) -> None:
    payload = bytearray(ModelInferRequest(model_name="net", raw_input_contents=[bytes(LONG)]).SerializeToString())
    payload[at : at + len(junk)] = junk
    try:
        expected = ModelInferRequest.FromString(bytes(payload))
    except DecodeError:
        with pytest.raises(DecodeError):
            grpc_raw.parse(bytes(payload))
        return
    parsed = grpc_raw.parse(bytes(payload))

    assert list(map(bytes, parsed.raw)) == list(expected.raw_input_contents)
    assert (parsed.message.model_name, parsed.message.id) == (expected.model_name, expected.id)


def test_a_message_of_a_thousand_fields_is_left_to_protobuf() -> None:
    """Field by field it would hold up everybody else."""
    parsed = grpc_raw.parse(b"\x1a\x00" * 10_000)

    assert parsed.head is None and parsed.message.id == ""


def infer_request(rows: int, *, identity: str = "", contents: int | None = None) -> grpc_raw.InferRequest:
    size = 3 * rows if contents is None else contents
    request = ModelInferRequest(model_name="net", id=identity, raw_input_contents=[bytes(range(256)) * (size // 256 + 1)])
    request.raw_input_contents[0] = request.raw_input_contents[0][:size]
    request.inputs.add(name="x", datatype="UINT8", shape=[rows, 3])
    return grpc_raw.parse(request.SerializeToString())


def test_a_request_that_comes_again_is_read_as_the_first_one() -> None:
    decoder, rows = grpc_codec.Decoder(SIGNATURE), 6000
    first, again = decoder.decode(infer_request(rows)), decoder.decode(infer_request(rows))

    assert np.array_equal(first[0].feeds["x"], again[0].feeds["x"]) and first[1] is again[1]
    answers = {"y": np.arange(2 * rows, dtype=np.float32).reshape(rows, 2)}
    sent = [
        ModelInferResponse.FromString(grpc_codec.encode(ask, form, answers, model="net", version="1"))
        for ask, form in (first, again, grpc_codec.decode(infer_request(rows), SIGNATURE))
    ]
    assert sent[0] == sent[1] == sent[2] and sent[0].raw_output_contents[0] == answers["y"].tobytes()


def test_a_remembered_head_takes_no_tensor_of_another_length() -> None:
    decoder, rows = grpc_codec.Decoder(SIGNATURE), 6000
    decoder.decode(infer_request(rows))

    with pytest.raises(RequestError, match=r"bytes|fill|shape"):
        decoder.decode(infer_request(rows, contents=3 * rows - 1))


def test_each_caller_has_its_own_identity_back() -> None:
    decoder = grpc_codec.Decoder(SIGNATURE)

    assert [decoder.decode(infer_request(6000, identity=each))[0].id for each in ("a", "b", "")] == ["a", "b", ""]
