"""The worker's gRPC face: the Open Inference Protocol v2 and Triton's extensions over our HTTP/2 streams.

Framing, status codes and time-outs are gRPC's own (grpc/grpc, doc/PROTOCOL-HTTP2.md).
"""

import asyncio
import logging
import math
import re
import time
import zlib
from collections.abc import Callable
from http import HTTPStatus
from typing import Any
from urllib.parse import quote

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from inference_worker.engine import Tensors
from inference_worker.errors import RequestError, WorkerError
from inference_worker.life import Life
from inference_worker.model import Model
from inference_worker.serve import documents, grpc_codec
from inference_worker.serve.ask import bad
from inference_worker.serve.http import BODY_LIMIT_BYTES
from inference_worker.serve.http2_frames import block
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.inference import Arrival, Inference
from inference_worker.serve.messages import SERVICE, ModelInferRequest, ModelInferResponse, ModelStreamInferResponse, message
from inference_worker.serve.routes import CLIENT_GONE

log = logging.getLogger(__name__)

_CODES = {
    HTTPStatus.BAD_REQUEST: 3,
    HTTPStatus.FORBIDDEN: 7,
    HTTPStatus.NOT_FOUND: 5,
    HTTPStatus.GATEWAY_TIMEOUT: 4,
    HTTPStatus.TOO_MANY_REQUESTS: 8,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: 8,
    HTTPStatus.NOT_IMPLEMENTED: 12,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: 12,
    HTTPStatus.SERVICE_UNAVAILABLE: 14,
}
_INTERNAL = 13
_HEAD = block(200, [("content-type", "application/grpc"), ("grpc-accept-encoding", "identity,gzip,deflate")])
_OK = b"\x00\x0bgrpc-status\x010"
_TIMEOUT = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}
_STREAM_BACKLOG = 64

Reply = Callable[[bytes | RequestError], None]
Method = Callable[["Call", bytes], None]


def trailers(error: RequestError | None) -> list[tuple[str, str]]:
    """The status of a call."""
    if error is None:
        return [("grpc-status", "0")]
    # Percent-encoded, as the specification wants it; what callers may send back to us is cut to a sensible length.
    found = [
        ("grpc-status", str(_CODES.get(HTTPStatus(error.status), _INTERNAL))),
        ("grpc-message", quote(error.message[:2000], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~")),
    ]
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = error.retry_after_seconds or 0.0
        found += [("grpc-retry-pushback-ms", str(max(1, round(seconds * 1e3)))), ("retry-after", str(max(1, math.ceil(seconds))))]
    return found


class Call:
    """One call of a method: gathers messages from a stream's bytes and sends what comes back. Implements Receiver."""

    def __init__(self, stream: Stream, method: Method, arrival: Arrival, decompress: Callable[[bytes], bytes] | None) -> None:
        self._stream = stream
        self._method = method
        self._decompress = decompress
        self._buffer = b""
        self._chunks: list[bytes] = []
        self._size = 0
        self._wanted = 0
        self._message: bytes | None = None
        self.arrival = arrival
        self.on_abandoned: Callable[[], None] | None = None

    def data(self, chunk: bytes) -> None:
        """See Receiver."""
        self._chunks.append(chunk)
        self._size += len(chunk)
        if self._size < self._wanted:
            return
        data = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        try:
            position = self._messages(data)
        except RequestError as error:
            self.fail(error)
            return
        rest = data[position:]
        self._chunks, self._size = ([rest], len(rest)) if rest else ([], 0)
        self._stream.incomplete_since = self._stream.arrived if rest else None

    def _messages(self, data: bytes) -> int:
        position = 0
        self._wanted = 0
        while len(data) - position >= 5 and not self._stream.ended_here:
            length = int.from_bytes(data[position + 1 : position + 5], "big")
            if length > BODY_LIMIT_BYTES:
                raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message's limit is {BODY_LIMIT_BYTES} bytes")
            end = position + 5 + length
            if end > len(data):
                self._wanted = end - position
                break
            self._take(self._plain(data[position], data[position + 5 : end]))
            position = end
        return position

    def _plain(self, flag: int, payload: bytes) -> bytes:
        if flag == 0:
            return payload
        if flag != 1 or self._decompress is None:
            raise RequestError(HTTPStatus.NOT_IMPLEMENTED, "a compressed message in an encoding that was not announced")
        return self._decompress(payload)

    def _take(self, payload: bytes) -> None:
        if self._message is not None:
            raise bad("a second message in a call that takes one")
        self._message = payload

    def end(self) -> None:
        """See Receiver."""
        if self._message is None or self._size:
            self.fail(bad("the call ended before its message did"))
            return
        payload, self._message = self._message, b""
        self._method(self, payload)

    def abandoned(self) -> None:
        """See Receiver."""
        callback, self.on_abandoned = self.on_abandoned, None
        if callback is not None:
            callback()

    @property
    def gone(self) -> bool:
        """Whether nobody waits for the answer any more."""
        return self._stream.ended_here

    def answer(self, payload: bytes) -> None:
        """Send the one answer, and that all went well."""
        self.on_abandoned = None
        self._stream.respond(_HEAD, b"\x00" + len(payload).to_bytes(4, "big") + payload, _OK)

    def fail(self, error: RequestError) -> None:
        """Send that the call failed: a head that is all there is."""
        self.on_abandoned = None
        self._stream.finish(block(200, [("content-type", "application/grpc"), *trailers(error)]))


class StreamCall(Call):
    """A call that takes and gives messages one after another. Answers keep the order of their requests."""

    def __init__(
        self, service: "GrpcService", stream: Stream, arrival: Arrival, decompress: Callable[[bytes], bytes] | None
    ) -> None:
        super().__init__(stream, _no_single_message, arrival, decompress)
        self._service = service
        self._slots: list[list[bytes]] = []
        self._cancels: dict[int, Callable[[], None]] = {}
        self._ended = self._started = False

    def _take(self, payload: bytes) -> None:
        if len(self._slots) >= _STREAM_BACKLOG:
            raise RequestError(
                HTTPStatus.TOO_MANY_REQUESTS, f"{_STREAM_BACKLOG} requests of this stream wait already; read their answers first"
            )
        slot: list[bytes] = []
        self._slots.append(slot)

        def reply(answer: bytes | RequestError) -> None:
            self._cancels.pop(id(slot), None)
            slot.append(_stream_message(answer))
            self._send()

        cancel = self._service.infer(payload, self._arrival(), reply)
        if cancel is not None:
            self._cancels[id(slot)] = cancel

    def _arrival(self) -> Arrival:
        """Of one message: what its own parameters allow counts from now, the stream's time-out from the stream's beginning."""
        now, timeout = time.monotonic(), self.arrival.timeout_seconds
        left = None if timeout is None else self.arrival.instant + timeout - now
        return Arrival(now, left, self.arrival.traceparent)

    def end(self) -> None:
        """See Receiver."""
        self._ended = True
        self._send()

    def abandoned(self) -> None:
        """See Receiver."""
        cancels, self._cancels = list(self._cancels.values()), {}
        for cancel in cancels:
            cancel()

    def _send(self) -> None:
        if self.gone:
            return
        if not self._started:
            self._started = True
            self._stream.start(_HEAD)
        while self._slots and self._slots[0]:
            (payload,) = self._slots.pop(0)
            self._stream.write(b"\x00" + len(payload).to_bytes(4, "big") + payload)
        if self._ended and not self._slots:
            self._stream.finish(_OK)


def _no_single_message(call: Call, payload: bytes) -> None:
    raise AssertionError(f"a stream has no single message ({call}, {len(payload)} bytes)")


def _stream_message(answer: bytes | RequestError) -> bytes:
    if isinstance(answer, RequestError):
        failed: bytes = ModelStreamInferResponse(error_message=answer.message).SerializeToString()
        return failed
    sent: bytes = ModelStreamInferResponse(infer_response=ModelInferResponse.FromString(answer)).SerializeToString()
    return sent


class GrpcService:
    """The methods of the protocol's one service."""

    def __init__(self, life: Life, inference: Inference) -> None:
        self._life = life
        self._inference = inference
        self._tasks: set[asyncio.Task[None]] = set()
        self._methods: dict[str, Method] = {
            f"/{SERVICE}/ModelInfer": self._infer,
            **{f"/{SERVICE}/{name}": self._small(name, work) for name, work in self._documents().items()},
        }

    def handle(self, stream: Stream) -> None:
        """Give a new stream its receiver, or end it with the reason why it has none."""
        headers = stream.headers
        if headers[":method"] != "POST" or not headers.get("content-type", "").startswith("application/grpc"):
            stream.finish(block(415, [("content-type", "text/plain")]))
            return
        try:
            stream.receiver = self._call(stream, headers)
        except RequestError as error:
            stream.finish(block(200, [("content-type", "application/grpc"), *trailers(error)]))

    def _call(self, stream: Stream, headers: dict[str, str]) -> Call:
        arrival = Arrival(stream.arrived, _timeout(headers.get("grpc-timeout")), headers.get("traceparent"))
        decompress = _decompressor(headers.get("grpc-encoding", "identity"))
        if (method := self._methods.get(headers[":path"])) is not None:
            return Call(stream, method, arrival, decompress)
        if headers[":path"] == f"/{SERVICE}/ModelStreamInfer":
            return StreamCall(self, stream, arrival, decompress)
        raise RequestError(HTTPStatus.NOT_IMPLEMENTED, f"there is no method {headers[':path'][:200]}")

    def _infer(self, call: Call, payload: bytes) -> None:
        def reply(answer: bytes | RequestError) -> None:
            if isinstance(answer, RequestError):
                call.fail(answer)
            else:
                call.answer(answer)

        call.on_abandoned = self.infer(payload, call.arrival, reply)

    def infer(self, payload: bytes, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        """Run one ModelInferRequest and tell `reply`, now or later. Returns what to call when the caller leaves."""
        try:
            request = ModelInferRequest.FromString(payload)
        except DecodeError as error:
            reply(bad(f"the message is no ModelInferRequest: {error}"))
            return None
        try:
            model = self._model(request.model_name, request.model_version)
        except RequestError as error:
            if (metrics := self._life.metrics.get(request.model_name)) is not None:
                metrics.answered(error.status)
            reply(error)
            return None
        return self._run(model, request, arrival, reply)

    def _run(self, model: Model, request: Any, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        count = model.metrics.answered

        def done(answers: Tensors | RequestError) -> None:
            if isinstance(answers, RequestError):
                count(answers.status)
                reply(answers)
                return
            body = grpc_codec.encode(ask, answers, raw=raw, model=model.name, version=model.version)
            count(200)
            reply(body)

        try:
            ask, raw = grpc_codec.decode(request, model.signature)
            cancel = self._inference.ask(model, ask, arrival, done)
        except RequestError as error:
            done(error)
            return None
        except Exception:
            log.exception("a request failed")
            done(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the worker failed on this request; its log says why"))
            return None
        if cancel is None:
            return None

        def abandoned() -> None:
            count(CLIENT_GONE)
            cancel()

        return abandoned

    def _model(self, name: str, version: str) -> Model:
        entry = self._life.repository.entries.get(name)
        if entry is None:
            raise RequestError(
                HTTPStatus.NOT_FOUND, f"unknown model {name[:200]!r}; this worker serves {', '.join(self._life.repository.entries)}"
            )
        if version and version != entry.source.version:
            raise RequestError(
                HTTPStatus.NOT_FOUND, f"{name} has no version {version[:200]!r}; this worker serves {entry.source.version}"
            )
        if entry.model is None:
            raise RequestError(
                HTTPStatus.SERVICE_UNAVAILABLE, f"{name} is not loaded: {entry.reason or 'the model is still loading'}"
            )
        return entry.model

    # everything that is not inference

    def _documents(self) -> dict[str, Callable[[Any], documents.Document]]:
        life = self._life
        return {
            "ServerLive": lambda _: {"live": life.stuck is None},
            "ServerReady": lambda _: {"ready": life.ready},
            "ModelReady": lambda r: {"ready": self._is_ready(r)},
            "ServerMetadata": lambda _: documents.server(),
            "ModelMetadata": lambda r: documents.metadata(self._model(r.name, r.version)),
            "ModelConfig": lambda r: {"config": documents.configuration(self._model(r.name, r.version))},
            "ModelStatistics": lambda r: documents.statistics(self._model(r.name or life.config.model.name, r.version)),
            "RepositoryIndex": lambda r: {"models": documents.index(life.repository, ready=r.ready)},
            "RepositoryModelLoad": lambda r: {"load": r},
            "RepositoryModelUnload": lambda r: {"unload": r},
        }

    def _small(self, name: str, work: Callable[[Any], documents.Document]) -> Method:
        request_type, response_type = message(f"{name}Request"), message(f"{name}Response")
        changes = name.startswith("RepositoryModel")

        def method(call: Call, payload: bytes) -> None:
            try:
                request = request_type.FromString(payload)
                if changes:
                    self._change(call, request, load=name.endswith("ModelLoad"), done=response_type().SerializeToString())
                    return
                call.answer(json_format.ParseDict(work(request), response_type()).SerializeToString())
            except DecodeError as error:
                call.fail(bad(f"the message is no {name}Request: {error}"))
            except RequestError as error:
                call.fail(error)

        return method

    def _is_ready(self, request: Any) -> bool:
        life = self._life
        try:
            self._model(request.name, request.version)
        except RequestError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise
            return False
        return life.stuck is None and not life.draining

    def _change(self, call: Call, request: Any, *, load: bool, done: bytes) -> None:
        life = self._life
        if life.config.model_control != "explicit":
            raise RequestError(
                HTTPStatus.FORBIDDEN, "this worker's models are not loaded and unloaded by callers; the job would have to allow it"
            )
        if request.model_name not in life.repository.entries:
            raise RequestError(HTTPStatus.NOT_FOUND, f"unknown model {request.model_name[:200]!r}")
        if foreign := set(request.parameters) - {"unload_dependents"}:
            text = f"parameter {min(foreign)!r} is not supported: a model comes from where its job says, verified by digest"
            raise bad(text)

        async def change() -> None:
            try:
                await (life.repository.load if load else life.repository.unload)(request.model_name)
            except WorkerError as error:
                call.fail(bad(f"{error.reason}: {error.message}"))
            else:
                call.answer(done)

        task = asyncio.get_running_loop().create_task(change())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _timeout(text: str | None) -> float | None:
    """GRPC's time-out in seconds."""
    if text is None:
        return None
    match = _TIMEOUT.fullmatch(text)
    if match is None:
        raise bad(f"grpc-timeout {text[:32]!r} is no time-out")
    return int(match[1]) * _UNIT_SECONDS[match[2]]


def _decompressor(encoding: str) -> Callable[[bytes], bytes] | None:
    match encoding:
        case "identity":
            return None
        case "gzip":
            return lambda payload: _inflated(payload, 31)
        case "deflate":
            return lambda payload: _inflated(payload, 15)
    raise RequestError(HTTPStatus.NOT_IMPLEMENTED, f"grpc-encoding {encoding[:32]!r} is not supported; send it plain, or as gzip")


def _inflated(payload: bytes, window: int) -> bytes:
    """Decompressed, and never more than a message may have: a few bytes can be made to mean gigabytes."""
    inflater = zlib.decompressobj(window)
    try:
        plain = inflater.decompress(payload, BODY_LIMIT_BYTES + 1)
    except zlib.error as error:
        raise bad(f"a message can't be decompressed: {error}") from error
    if len(plain) > BODY_LIMIT_BYTES:
        raise RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, f"a message's limit is {BODY_LIMIT_BYTES} bytes")
    if not inflater.eof:
        raise bad("a compressed message is cut off")
    return plain
