"""gRPC's framing over a raw HTTP/2 connection: messages in pieces, in pairs, cut off, and with lies in their five bytes."""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from tests.process import callers, models
from tests.process.harness import a_config
from tests.process.scripted import Orders
from tests.process.wire2 import PING, WINDOW_UPDATE, Wire2, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.harness import Place, Worker

OK, INVALID, NOT_FOUND, EXHAUSTED, UNIMPLEMENTED, INTERNAL, UNAVAILABLE = 0, 3, 5, 8, 12, 13, 14
ASK = callers.rows_request([[1, 2]], id="a").SerializeToString()


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    return shared_place.start(a_config(shared_place.put("m.onnx", models.identity()), batch_size=4)).wait_ready()


@pytest.fixture
def wire2(worker: Worker) -> Iterator[Wire2]:
    with Wire2(worker) as made:
        yield made
        if made.goaway is None:
            assert made.call("ModelInfer", message(ASK)).grpc_status == OK, "the connection goes on"


def read(payload: bytes) -> list[list[float]]:
    return callers.answer(pb.ModelInferResponse.FromString(payload)).tolist()


@pytest.mark.parametrize("step", [1, 2, 3, 5, 7, 16384])
def test_a_message_in_pieces_is_put_together(wire2: Wire2, step: int) -> None:
    heard = wire2.call("ModelInfer", message(ASK), step=step)
    assert heard.grpc_status == OK and read(heard.messages[0]) == [[1, 2]]


def test_an_answer_is_a_head_a_message_and_trailers(wire2: Wire2) -> None:
    heard = wire2.call("ModelInfer", message(ASK))
    assert [dict(head).keys() & {":status", "content-type", "grpc-status"} for head in heard.heads] == [
        {":status", "content-type"},
        {"grpc-status"},
    ]


def test_a_failure_is_one_head_that_is_all_there_is(wire2: Wire2) -> None:
    heard = wire2.call("ModelInfer", message(b"\xff"))
    assert (len(heard.heads), bytes(heard.body), heard.headers[":status"], heard.grpc_status) == (1, b"", "200", INVALID)


def test_several_messages_in_one_frame_are_answered_in_order_on_a_stream(wire2: Wire2) -> None:
    asked = [callers.rows_request([[i, i]], id=str(i)).SerializeToString() for i in range(5)]
    heard = wire2.call("ModelStreamInfer", b"".join(map(message, asked)))
    answers = [pb.ModelStreamInferResponse.FromString(payload).infer_response for payload in heard.messages]
    assert [answer.id for answer in answers] == list("01234") and heard.grpc_status == OK


def test_an_empty_stream_ends_well(wire2: Wire2) -> None:
    stream = wire2.open("ModelStreamInfer", end=True)
    assert wire2.wait(stream).grpc_status == OK


def test_a_second_message_in_a_call_of_one_is_refused(wire2: Wire2) -> None:
    assert wire2.call("ModelInfer", message(ASK) * 2).grpc_status in (INVALID, UNIMPLEMENTED, INTERNAL)


@pytest.mark.parametrize(
    "body", [b"", message(ASK)[:3], message(ASK)[:-1], message(ASK) + b"\0\0"], ids=["none", "head", "cut", "more"]
)
@pytest.mark.parametrize("method", ["ModelInfer", "ServerLive"])
def test_a_call_that_ends_before_its_message_does_is_refused(wire2: Wire2, method: str, body: bytes) -> None:
    assert wire2.call(method, body).grpc_status in (INVALID, UNIMPLEMENTED, INTERNAL)


@pytest.mark.parametrize("body", [message(ASK)[:-1], message(ASK) + message(ASK)[:7]], ids=["first", "second"])
def test_a_stream_that_ends_within_a_message_is_refused(wire2: Wire2, body: bytes) -> None:
    assert wire2.call("ModelStreamInfer", body).grpc_status in (INVALID, INTERNAL)


@pytest.mark.parametrize("length", [BODY_LIMIT_BYTES + 1, 0x7FFFFFFF, 0xFFFFFFFF])
def test_a_length_beyond_the_limit_is_refused_before_it_comes(wire2: Wire2, length: int) -> None:
    stream = wire2.open("ModelInfer")
    wire2.send(stream, message(b"", length=length))
    assert wire2.wait(stream).grpc_status == EXHAUSTED


@pytest.mark.parametrize("flag", [1, 2, 255])
def test_a_flag_without_an_encoding_is_refused(wire2: Wire2, flag: int) -> None:
    assert wire2.call("ModelInfer", message(gzip.compress(ASK), flag=flag)).grpc_status in (UNIMPLEMENTED, INTERNAL)


@pytest.mark.parametrize(("encoding", "compress"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
def test_compressed_messages_are_read_and_plain_ones_beside_them(
    wire2: Wire2, encoding: str, compress: Callable[[bytes], bytes]
) -> None:
    for body in (message(compress(ASK), flag=1), message(ASK)):
        heard = wire2.call("ModelInfer", body, {"grpc-encoding": encoding})
        assert heard.grpc_status == OK and read(heard.messages[0]) == [[1, 2]]


@pytest.mark.parametrize("payload", [b"", b"garbage", gzip.compress(ASK)[:-4]], ids=["nothing", "garbage", "cut off"])
def test_a_message_that_does_not_decompress_is_refused(wire2: Wire2, payload: bytes) -> None:
    assert wire2.call("ModelInfer", message(payload, flag=1), {"grpc-encoding": "gzip"}).grpc_status in (INVALID, INTERNAL)


def test_a_few_bytes_that_mean_gigabytes_are_refused(wire2: Wire2) -> None:
    bomb = gzip.compress(bytes(BODY_LIMIT_BYTES + 1))
    assert wire2.call("ModelInfer", message(bomb, flag=1), {"grpc-encoding": "gzip"}).grpc_status == EXHAUSTED


def test_an_unknown_encoding_is_refused(wire2: Wire2) -> None:
    assert wire2.call("ModelInfer", message(ASK, flag=1), {"grpc-encoding": "snappy"}).grpc_status == UNIMPLEMENTED


def test_the_refusal_of_an_encoding_names_those_that_there_are(wire2: Wire2) -> None:
    heard = wire2.call("ModelInfer", message(ASK, flag=1), {"grpc-encoding": "snappy"})
    assert "gzip" in heard.headers["grpc-accept-encoding"]


@pytest.mark.parametrize("path", ["/", "/inference.GRPCInferenceService/Nothing", "/other.Service/ModelInfer", "/ModelInfer"])
def test_an_unknown_method_is_unimplemented(wire2: Wire2, path: str) -> None:
    assert wire2.call(path, message(ASK)).grpc_status == UNIMPLEMENTED


@pytest.mark.parametrize("kind", ["application/json", "text/plain", "application/octet-stream", ""])
def test_a_content_type_that_is_not_grpcs_is_refused_as_http_does(wire2: Wire2, kind: str) -> None:
    assert wire2.call("ModelInfer", message(ASK), {"content-type": kind}).headers[":status"] == "415"


@pytest.mark.parametrize("kind", ["application/grpc-web", "application/grpc-web-text", "application/grpcx"])
def test_a_relative_of_grpc_is_not_taken_for_it(wire2: Wire2, kind: str) -> None:
    assert wire2.call("ModelInfer", message(ASK), {"content-type": kind}).headers[":status"] == "415"


@pytest.mark.parametrize("kind", ["application/grpc", "application/grpc+proto", "application/grpc;charset=utf-8"])
def test_grpcs_own_content_types_are_taken(wire2: Wire2, kind: str) -> None:
    assert wire2.call("ModelInfer", message(ASK), {"content-type": kind}).grpc_status == OK


@pytest.mark.parametrize("timeout", ["", "1", "S", "1.5S", "-1S", "123456789S", "1s", "1 S", "\u0661S"])
def test_a_timeout_that_is_none_is_refused(wire2: Wire2, timeout: str) -> None:
    assert wire2.call("ModelInfer", message(ASK), {"grpc-timeout": timeout}).grpc_status in (INVALID, INTERNAL)


@pytest.mark.parametrize(("timeout", "status"), [("1H", OK), ("5M", OK), ("99999999S", OK), ("9000m", OK), ("0S", 4), ("1n", 4)])
def test_a_timeout_is_read_in_its_unit(wire2: Wire2, timeout: str, status: int) -> None:
    assert wire2.call("ModelInfer", message(ASK), {"grpc-timeout": timeout}).grpc_status == status


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_a_timeout_that_has_passed_is_named_with_its_unit(wire2: Wire2, method: str) -> None:
    """Callers take one unit for another, and nothing in the refusal said which deadline it was."""
    heard = wire2.call(method, message(ASK), {"grpc-timeout": "1u"})
    streamed = [pb.ModelStreamInferResponse.FromString(one).error_message for one in heard.messages]

    told = "the deadline of 0.001 ms (grpc-timeout) passed before the request was whole"
    assert (streamed or [heard.headers["grpc-message"]]) == [told]


@pytest.mark.parametrize("fault", [message(ASK, flag=1), message(b"", length=0xFFFFFFFF)], ids=["flag", "length"])
def test_a_stream_that_breaks_later_ends_with_trailers_and_not_with_a_second_head(wire2: Wire2, fault: bytes) -> None:
    stream = wire2.open("ModelStreamInfer")
    wire2.send(stream, message(ASK))
    assert len(wire2.wait_messages(stream, 1)) == 1
    wire2.send(stream, fault)
    heard = wire2.wait(stream)
    assert heard.grpc_status and ":status" not in dict(heard.heads[-1])


def test_an_error_in_many_foreign_letters_fits_a_frame_that_the_caller_takes(wire2: Wire2) -> None:
    asked = callers.rows_request([[1, 2]], name="✓" * 3000)
    assert wire2.call("ModelInfer", message(asked.SerializeToString())).grpc_status == INVALID
    assert wire2.largest_frame <= 16384


def test_a_caller_of_grpcio_reads_an_error_in_many_foreign_letters(worker: Worker) -> None:
    with callers.stub(worker) as stub:
        assert callers.code_of(lambda: stub.ModelInfer(callers.rows_request([[1, 2]], name="✓" * 3000))) == "INVALID_ARGUMENT"


def test_a_long_stream_may_ping_beside_each_message(wire2: Wire2) -> None:
    stream = wire2.open("ModelStreamInfer")
    for i in range(1100):
        wire2.send(stream, message(ASK))
        wire2.frame(PING, 0, 0, b"12345678")
        assert len(wire2.wait_messages(stream, i + 1)) == i + 1, wire2.goaway


def test_a_stream_may_send_more_than_is_answered_at_a_time(place: Place) -> None:
    orders = Orders(place)
    worker = place.start(a_config(place.put("m.onnx", models.identity())), patches=orders.patches()).wait_ready()
    orders.give("hold-1")
    with Wire2(worker) as wire2:
        stream = wire2.open("ModelStreamInfer")
        wire2.send(stream, message(ASK) * 200, end=True)
        wire2.ping()
        orders.take_back("hold-1")
        heard = wire2.wait(stream)
        assert (len(heard.messages), heard.grpc_status) == (200, OK)


def test_windows_of_one_byte_only_slow_an_answer_down(worker: Worker) -> None:
    with Wire2(worker, settings=b"\0\4" + (1).to_bytes(4, "big")) as wire2:
        stream = wire2.open("ModelInfer")
        wire2.send(stream, message(ASK), end=True)
        while not wire2.heard[stream].ended and wire2.step():
            wire2.frame(WINDOW_UPDATE, 0, stream, (1).to_bytes(4, "big"))
        assert read(wire2.heard[stream].messages[0]) == [[1, 2]]


def test_a_large_answer_keeps_to_the_windows_and_comes_whole(wire2: Wire2) -> None:
    x = np.arange(1 << 20, dtype=np.float32).reshape(-1, 2)
    heard = wire2.call("ModelInfer", message(callers.tensor_request(x[: 1 << 12]).SerializeToString()))
    assert read(heard.messages[0]) == x[: 1 << 12].tolist()
