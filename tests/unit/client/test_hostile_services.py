"""What a hostile model server may answer to `predict`: each ends in bounded time and memory, with an error that says why."""

from __future__ import annotations

import gzip
import http.server
import json
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from tritonclient.grpc import service_pb2, service_pb2_grpc

from inference_client.errors import ClientError
from kubectl_inference import bounded
from kubectl_inference.inference import Way, ask
from tests.web import serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

METADATA = {
    "name": "m",
    "inputs": [{"name": "x", "datatype": "FP32", "shape": [-1, 1]}],
    "outputs": [{"name": "y", "datatype": "FP32", "shape": [-1, 1]}],
}
ANSWER = {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "data": [7]}]}
Handler = http.server.BaseHTTPRequestHandler
Play = "Callable[[Handler], None]"


@contextmanager
def served(metadata: Callable[[Handler], None], infer: Callable[[Handler], None]) -> Iterator[str]:
    """A server that answers as it is told."""

    class Hostile(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self._play(metadata)

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self._play(infer)

        def _play(self, what: Callable[[Handler], None]) -> None:
            self.close_connection = True
            try:
                what(self)
            except OSError:
                # Whoever asked has heard enough.
                pass

        def log_message(self, *_: object) -> None:
            pass

    with serving(Hostile) as port:
        yield f"127.0.0.1:{port}"


def told(body: Any, *, status: int = 200, **headers: str) -> Callable[[Handler], None]:
    """One that answers with a body."""
    data = body if isinstance(body, bytes) else json.dumps(body).encode()

    def play(handler: Handler) -> None:
        handler.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return play


def endless(handler: Handler) -> None:
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b"0" * (1 << 16))


def way(*, over_grpc: bool = False, timeout: float = 30.0) -> Way:
    return Way(grpc=over_grpc, tls=False, ca_file=None, insecure=False, headers={}, timeout=timeout)


def asked(metadata: Callable[[Handler], None], infer: Callable[[Handler], None], *, timeout: float = 30.0) -> dict[str, Any]:
    with served(metadata, infer) as address:
        return ask(address, "m", "", [1], way(timeout=timeout))


def test_a_right_answer_is_read() -> None:
    assert asked(told(METADATA), told(ANSWER)) == {"model": "m", "outputs": {"y": [[7.0]]}}


def test_a_right_answer_in_bytes_is_read() -> None:
    head = json.dumps(
        {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 1], "parameters": {"binary_data_size": 4}}]}
    ).encode()
    infer = told(head + b"\x00\x00\xe0@", Inference_Header_Content_Length=str(len(head)))

    assert asked(told(METADATA), infer)["outputs"] == {"y": [[7.0]]}


BOMB = gzip.compress(b"0" * (256 << 20))


@pytest.mark.parametrize(
    ("infer", "words"),
    [
        (told(BOMB, Content_Encoding="gzip"), "in the coding gzip, which was not asked for"),
        (told(BOMB, Content_Encoding="deflate"), "in the coding deflate"),
        (told(b"", status=307, Location="http://169.254.169.254/latest/meta-data/"), "HTTP 307"),
        (told(b"", status=204), "HTTP 204"),
        (told({"error": "no \x1b[2J"}, status=400), "HTTP 400"),
        (told(b"no JSON"), "its answer is none of the Open Inference Protocol"),
        (told(b"[" * 100_000), "its answer is none of"),
        (told([]), "its answer is none of"),
        (told({"outputs": 7}), "its answer is none of"),
        (told({"outputs": [{"name": "y"}]}), "its answer is none of"),
        (told({"outputs": [{"name": "y", "datatype": "?", "shape": [1], "data": ["x"]}]}), None),
        (told({"outputs": [{"name": "y", "datatype": "FP32", "shape": [9, 9], "data": [7]}]}), "its answer is none of"),
        (told(ANSWER, Inference_Header_Content_Length="many"), "its answer is none of"),
        (told(ANSWER, Inference_Header_Content_Length="-5"), "its answer is none of"),
        (
            told(
                {"outputs": [{"name": "y", "datatype": "FP32", "shape": [2_000_000_000, 0], "data": []}]},
            ),
            "empty lists",
        ),
        (lambda handler: handler.wfile.write(b"\x00" * 100_000), "answers no HTTP"),
        (lambda _: None, "doesn't answer|answers no HTTP"),
    ],
)
def test_an_answer_that_is_none_is_told(infer: Callable[[Handler], None], words: str | None) -> None:
    if words is None:
        assert asked(told(METADATA), infer)
        return
    with pytest.raises(ClientError, match=words):
        asked(told(METADATA), infer)


@pytest.mark.parametrize(
    "metadata",
    [
        b"no JSON",
        b"[" * 100_000,
        [],
        {"inputs": 7},
        {"inputs": [{"name": "x"}]},
        {"inputs": [{"name": ["x"], "datatype": "FP32", "shape": [1]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1e400]}]},
        {"inputs": [{"name": "x", "datatype": "FP32", "shape": "many"}]},
    ],
)
def test_metadata_that_is_none_is_told(metadata: object) -> None:
    with pytest.raises(ClientError, match="its metadata is none of the Open Inference Protocol"):
        asked(told(metadata), told(ANSWER))


def test_an_answer_without_end_is_read_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "ANSWER_BYTES", 1 << 20)

    with pytest.raises(ClientError, match="more than 1 MiB"):
        asked(told(METADATA), endless)
    with pytest.raises(ClientError, match="more than 1 MiB"):
        asked(endless, told(ANSWER))


def test_an_answer_by_drips_ends_with_the_time() -> None:
    """A timeout of a socket begins anew with each byte: the head alone may have 6 million of them."""
    over = threading.Event()

    def drip(handler: Handler) -> None:
        handler.wfile.write(b"HTTP/1.1 200 OK\r\nX: ")
        while not over.wait(0.05):
            handler.wfile.write(b"x")

    try:
        with pytest.raises(ClientError, match="has not answered within 1 s"):
            asked(drip, told(ANSWER), timeout=1.0)
    finally:
        over.set()


def test_a_server_that_says_nothing_ends_with_the_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        for over_grpc in (False, True):
            with pytest.raises(ClientError):
                ask(address, "m", "", [1], way(over_grpc=over_grpc, timeout=0.5))


class Hostile(service_pb2_grpc.GRPCInferenceServiceServicer):
    """By gRPC: answers with a given message."""

    def __init__(self, answer: Any, compression: grpc.Compression) -> None:
        self._answer = answer
        self._compression = compression

    def ModelMetadata(self, _: object, __: object) -> Any:
        x = service_pb2.ModelMetadataResponse.TensorMetadata(name="x", datatype="FP32", shape=[-1, 1])
        y = service_pb2.ModelMetadataResponse.TensorMetadata(name="y", datatype="FP32", shape=[-1, 1])
        return service_pb2.ModelMetadataResponse(name="m", inputs=[x], outputs=[y])

    def ModelInfer(self, _: object, context: grpc.ServicerContext) -> Any:
        context.set_compression(self._compression)
        return self._answer


def by_grpc(answer: Any, compression: grpc.Compression = grpc.Compression.NoCompression) -> dict[str, Any]:
    server = grpc.server(ThreadPoolExecutor(2), options=[("grpc.max_send_message_length", -1)])
    service_pb2_grpc.add_GRPCInferenceServiceServicer_to_server(Hostile(answer, compression), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        return ask(f"127.0.0.1:{port}", "m", "", [1], way(over_grpc=True))
    finally:
        server.stop(None)


def an_answer(raw: bytes, shape: list[int]) -> Any:
    output = service_pb2.ModelInferResponse.InferOutputTensor(name="y", datatype="FP32", shape=shape)
    return service_pb2.ModelInferResponse(model_name="m", outputs=[output], raw_output_contents=[raw])


def test_a_right_answer_by_grpc_is_read() -> None:
    assert by_grpc(an_answer(b"\x00\x00\xe0@", [1, 1]))["outputs"] == {"y": [[7.0]]}


@pytest.mark.parametrize("compression", [grpc.Compression.NoCompression, grpc.Compression.Gzip])
def test_a_large_answer_by_grpc_is_refused(compression: grpc.Compression, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compressed, it is a thousandth on the wire."""
    monkeypatch.setattr(bounded, "ANSWER_BYTES", 1 << 20)

    with pytest.raises(ClientError, match="larger than max"):
        by_grpc(an_answer(b"\x00" * (8 << 20), [1 << 21, 1]), compression)


@pytest.mark.parametrize(("raw", "shape"), [(b"\x00", [1, 1]), (b"\x00" * 4, [9, 9]), (b"", [2_000_000_000, 0])])
def test_an_answer_by_grpc_that_is_none_is_told(raw: bytes, shape: list[int]) -> None:
    with pytest.raises(ClientError, match=r"its answer is none of the Open|empty lists"):
        by_grpc(an_answer(raw, shape))
