"""What is fuzzed: each target takes bytes and may raise nothing. `python -m tests.fuzz.run TARGET` feeds them by coverage (atheris),
the tests beside feed them by hypothesis.

A target holds what must be true of every input: an answer or a refusal in words, nothing that hangs, nothing answered wrong.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import io
import json
import tempfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.formats.opening import open_items
from inference_worker.datatypes import NUMPY
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import RequestError, WorkerError
from inference_worker.serve import codec, grpc_codec, grpc_raw
from inference_worker.serve.ask import Ask, Extras, Signature
from inference_worker.serve.budget import Budget
from inference_worker.serve.compression import CODINGS, inflate
from inference_worker.serve.connections import Connections
from inference_worker.serve.grpc_reflection import REFLECTIONS
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http2 import Http2Protocol
from inference_worker.serve.http2_frames import PREFACE, block, frame, settings_frame
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import Payload, Request, Response
from inference_worker.serve.inference import Arrival
from inference_worker.serve.messages import ModelInferRequest
from inference_worker.signing import bundle as bundles
from inference_worker.signing import manifest as manifests
from inference_worker.signing.certificates import certified
from inference_worker.signing.keyless import identified
from inference_worker.signing.keys import signed_by
from inference_worker.signing.strict import SignatureError
from tests.signers import CertificateSigner, KeySigner, Sigstore
from tests.transports import ReadTransport


def spec(name: str, datatype: str, *shape: int | None) -> TensorSpec:
    return TensorSpec(name, datatype, NUMPY[datatype], shape)


SIGNATURE = Signature(
    [spec("x", "FP32", None, 2), spec("t", "BYTES", None), spec("b", "BOOL", None), spec("n", "INT8", None, None)],
    [spec("y", "FP32", None), spec("z", "BYTES", None)],
)
BY_KEY, BY_CERTIFICATE, BY_LOG = KeySigner(), CertificateSigner(), Sigstore()
ONE = Signature([spec("x", "FP32", None, 2)], [spec("y", "FP32", None)])


def checked(ask: Ask, signature: Signature) -> None:
    """What was let in fits the model."""
    extras = ask.extras or Extras()
    assert sorted([*ask.feeds, *extras.reads]) == sorted(signature.inputs)
    assert extras.writes.keys() | extras.classes.keys() <= signature.outputs.keys()
    for name, array in ask.feeds.items():
        wanted = signature.inputs[name]
        assert array.dtype == wanted.dtype and array.ndim == len(wanted.shape)
        assert all(w is None or w == h for w, h in zip(wanted.shape, array.shape, strict=True))
    assert set(ask.outputs) <= signature.outputs.keys()
    assert ask.timeout_seconds is None or ask.timeout_seconds > 0
    assert ask.priority is None or ask.priority > 0


def json_body(data: bytes) -> None:
    """The whole body is JSON."""
    with contextlib.suppress(RequestError):
        ask, _ = codec.decode(data, None, SIGNATURE)
        checked(ask, SIGNATURE)


def binary_body(data: bytes) -> None:
    """JSON of a length that the first byte pair names, then tensors; through the memory of heads twice, which must not differ."""
    length, body = str(int.from_bytes(data[:2], "big")), data[2:]
    decoder = codec.Decoder(ONE)
    answers: list[Any] = []
    for _ in range(2):
        try:
            ask, form = decoder.decode(body, length)
            checked(ask, ONE)
            answers.append((ask.feeds["x"].tobytes(), ask.outputs, ask.timeout_seconds, ask.priority, form.binary, form.plain))
        except RequestError as error:
            answers.append(error.message)
    assert answers[0] == answers[1]


def grpc_contents(data: bytes) -> None:
    """A ModelInferRequest, or what calls itself one."""
    try:
        request = grpc_raw.parse(data)
    except Exception:  # noqa: BLE001 -- the library's business
        return
    for signature in (SIGNATURE, ONE):
        with contextlib.suppress(RequestError):
            ask, form = grpc_codec.decode(request, signature)
            checked(ask, signature)
            body = grpc_codec.encode(ask, form, {"y": np.ones((2,), np.float32)}, model="m", version="1")
            assert body


def compressed_body(data: bytes) -> None:
    """A coding by the first byte, then a body: inflated within its limit or refused, and no budget is kept by what is refused."""
    budget, size = Budget(1 << 16), 0
    with contextlib.suppress(RequestError):
        size = len(inflate(data[1:], CODINGS[len(data) and data[0] & 1], budget, limit=1 << 12))
    assert budget.taken == size <= 1 << 12


def reflection(data: bytes) -> None:
    """A message of server reflection, or what calls itself one: one answer or one refusal."""
    told: list[bytes | RequestError] = []
    REFLECTIONS[0].answer(data, Arrival(0.0), told.append)
    assert len(told) == 1


class _Transport(ReadTransport):
    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        super().__init__(protocol)
        self.written = b""
        self.closed = False

    def write(self, data: bytes | bytearray | memoryview) -> None:
        assert not self.closed, "written after the close"
        self.written += bytes(data)

    def close(self) -> None:
        self.closed = True

    def abort(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


def _in_loop(work: Callable[[], None]) -> None:
    async def run() -> None:
        work()

    asyncio.run(run())


def http_head(data: bytes) -> None:
    """Bytes on a connection, whole and cut in two: the same answers, every one a status line of ours."""

    def answer(request: Request) -> None:
        request.reply(Response(HTTPStatus.OK, request.method.encode() + b" " + request.path.encode() + b" " + request.body))

    def talk(*parts: bytes) -> bytes:
        protocol = HttpProtocol(answer, connections)
        transport = _Transport(protocol)
        protocol.connection_made(transport)
        for part in parts:
            if not transport.closed:
                transport.deliver(part)
        written = transport.written
        protocol.connection_lost(None)
        return written

    def both() -> None:
        whole = talk(data)
        assert not whole or whole.startswith(b"HTTP/1.1 ")
        # Once more over what the first connection taught, and once cut: the same bytes mean the same.
        assert talk(data) == whole
        cut = len(data) // 2
        assert _heads(talk(data[:cut], data[cut:])) == _heads(whole)

    connections = Connections()
    _in_loop(both)


def _heads(written: bytes) -> list[bytes]:
    return [line for line in written.split(b"\r\n") if line.startswith(b"HTTP/1.1 ")]


class _Echo:
    def __init__(self, stream: Stream) -> None:
        self._stream = stream

    def data(self, chunk: Payload) -> None:
        pass

    def end(self) -> None:
        self._stream.respond(block(200), b"ok", b"\x00\x0bgrpc-status\x010")

    def abandoned(self) -> None:
        pass

    def drain(self) -> None:
        pass

    def resume(self) -> None:
        pass


def http2_frames(data: bytes) -> None:
    """Frames behind a good beginning: the connection answers or ends, and keeps no stream that it has ended."""

    def handle(stream: Stream) -> None:
        stream.receiver = _Echo(stream)

    def talk() -> None:
        protocol = Http2Protocol(handle, Connections())
        transport = _Transport(protocol)
        protocol.connection_made(transport)
        protocol.data_received(PREFACE + settings_frame({}))
        head = b"\x83\x86\x84\x41\x01a"
        rest = data
        number = 1
        while rest and not transport.closed:
            # Each turn: a kind, flags and a length out of the input, or a good request.
            kind, flags, size, rest = rest[0] % 11, rest[1] if len(rest) > 1 else 0, rest[2] if len(rest) > 2 else 0, rest[3:]
            if kind == 10:
                protocol.data_received(frame(1, 5, number, head))
                number += 2
                continue
            payload, rest = rest[:size], rest[size:]
            protocol.data_received(frame(kind, flags, flags >> 4, payload))
        protocol.connection_lost(None)
        assert protocol.idle

    _in_loop(talk)


def signature(data: bytes) -> None:
    """A signature's bundle, or what calls itself one: by the first byte of a signer of each kind. Only what was signed is believed."""
    if not data:
        return
    try:
        bundle = bundles.parse(data[1:])
        manifest = manifests.parse(bundle.payload)
        if data[0] % 3 == 0:
            signed_by(bundle, BY_KEY.trust.keys)
        elif data[0] % 3 == 1:
            certified(bundle, BY_CERTIFICATE.trust.authorities, BY_CERTIFICATE.trust.subjects, datetime.now(UTC))
        else:
            identified(bundle, BY_LOG.trust.root, BY_LOG.trust.identities)
    except SignatureError:
        return
    assert (manifest.subject, dict(manifest.files)) == ("net@1", {"m.onnx": hashlib.sha256(b"1").hexdigest()})


_FORMS = ("in.npy", "in.npz", "in.jsonl", "in.csv", "in.jsonl.gz", "in.csv.gz")


def batch_file(data: bytes) -> None:
    """A file that a batch reads, of the form that the first byte names: items that fit the model, or a refusal."""
    if not data:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / _FORMS[data[0] % len(_FORMS)]
        path.write_bytes(data[1:])
        for inputs in (SIGNATURE.inputs, ONE.inputs):
            try:
                items = open_items(path, "auto", list(inputs.values()), missing=True)
            except WorkerError as error:
                assert error.reason is WorkerReason.INPUT_INVALID  # noqa: PT017
                continue
            feeds = items.rows(0, len(items))
            assert feeds.keys() == inputs.keys()
            assert all(array.dtype == inputs[name].dtype and len(array) == len(items) > 0 for name, array in feeds.items())


TARGETS: dict[str, Callable[[bytes], None]] = {
    "json-body": json_body,
    "binary-body": binary_body,
    "grpc-contents": grpc_contents,
    "compressed-body": compressed_body,
    "reflection": reflection,
    "http-head": http_head,
    "http2-frames": http2_frames,
    "batch-file": batch_file,
    "signature": signature,
}


def seeds() -> dict[str, list[bytes]]:
    """Good inputs to begin with."""
    entry = {"name": "x", "datatype": "FP32", "shape": [1, 2]}
    plain = json.dumps({"id": "1", "inputs": [{**entry, "data": [1.5, 2]}], "parameters": {"timeout": 5, "priority": 1}}).encode()
    region = {"shared_memory_region": "a", "shared_memory_byte_size": 8, "shared_memory_offset": 4}
    outputs = [{"name": "y", "parameters": {"classification": 3}}, {"name": "z", "parameters": region}]
    texts = {"name": "t", "datatype": "BYTES", "shape": [1], "parameters": region}
    truths = {"name": "b", "datatype": "BOOL", "shape": [1], "data": [True]}
    numbers = {"name": "n", "datatype": "INT8", "shape": [1, 1], "data": [1]}
    shared = json.dumps({"inputs": [{**entry, "parameters": region}, texts, truths, numbers], "outputs": outputs}).encode()
    head = json.dumps({"inputs": [{**entry, "parameters": {"binary_data_size": 8}}], "outputs": [{"name": "y"}]}).encode()
    request = ModelInferRequest(model_name="m")
    request.inputs.add(name="x", datatype="FP32", shape=[1, 2])
    request.raw_input_contents.append(b"\0" * 8)
    post = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n" % len(plain) + plain
    chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"
    array, archive = io.BytesIO(), io.BytesIO()
    np.save(array, np.ones((2, 2), np.float32))
    np.savez(archive, x=np.ones((2, 2), np.float32), t=np.array(["a", "b"]), b=np.array([True, False]), n=np.ones((2, 1), np.int8))
    lines = b'{"x": [1, null], "t": "a", "b": true, "n": [1, 2]}\n[1, 2]\n'
    table = b'x_0,x_1,t,b,n_0\r\n1,,"a, b",True,5\r\n'
    files = [array.getvalue(), archive.getvalue(), lines, table, gzip.compress(lines), gzip.compress(table)]
    signed = ("net@1", {"m.onnx": b"1"})
    return {
        "batch-file": [bytes([form]) + file for form, file in enumerate(files)],
        "json-body": [plain, shared],
        "compressed-body": [b"\0" + gzip.compress(plain), b"\1" + zlib.compress(plain), b"\0" + gzip.compress(bytes(1 << 14))],
        "reflection": [b"\x3a\x01*", b"\x22\x1einference.GRPCInferenceService", b"\x1a\x04a.pb", b"\x2a\x02\x0a\x00"],
        "binary-body": [len(head).to_bytes(2, "big") + head + b"\0" * 8],
        "grpc-contents": [request.SerializeToString()],
        "http-head": [post, post + post, chunked, b"GET / HTTP/1.0\r\n\r\n"],
        "signature": [b"\0" + BY_KEY.sign(*signed), b"\1" + BY_CERTIFICATE.sign(*signed), b"\2" + BY_LOG.sign(*signed)],
        "http2-frames": [b"\x0a\0\0" * 3, b"\x08\x10\x04\0\0\0\1", b"\x06\0\x08abcdefgh"],
    }
