"""The worker's gRPC face: the Open Inference Protocol v2 and Triton's extensions of it."""

import logging
from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Tensors
from inference_worker.errors import RequestError, WorkerError, unforeseen
from inference_worker.model import Model
from inference_worker.serve import documents, grpc_codec
from inference_worker.serve.ask import Ask, bad
from inference_worker.serve.background import Background
from inference_worker.serve.compression import Room
from inference_worker.serve.grpc_calls import Call, Method, Reply
from inference_worker.serve.grpc_compression import Compression
from inference_worker.serve.grpc_headers import is_grpc, message_coding, timeout_of
from inference_worker.serve.grpc_health import SERVICE as HEALTH
from inference_worker.serve.grpc_health import Health
from inference_worker.serve.grpc_reflection import REFLECTIONS, Reflection
from inference_worker.serve.grpc_status import refusal
from inference_worker.serve.grpc_streams import StreamCall, WatchCall, infer_message
from inference_worker.serve.http2_frames import block
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.inference import CLIENT_GONE, Arrival, Inference
from inference_worker.serve.messages import SERVICE, ModelInferRequest, message
from inference_worker.threads import parsed
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_LARGE_BYTES = 64 << 10


class GrpcService:
    """The methods of the protocol's one service, and of those by which gRPC's own tools find and watch it."""

    def __init__(self, state: WorkerState, inference: Inference, room: Room | None = None) -> None:
        """`room` is shared with whoever else inflates bodies in this worker."""
        self._state = state
        self._inference = inference
        self._room = room or Room()
        self._background = Background()
        health = Health(lambda: state.ready, self._background)
        self._methods: dict[str, Method] = {
            f"/{SERVICE}/ModelInfer": self._infer,
            **{f"/{SERVICE}/{name}": self._small(name, work) for name, work in self._documents().items()},
            **health.methods,
        }
        self._streams: dict[str, Callable[[Stream, Arrival, Compression | None], Call]] = {
            f"/{SERVICE}/ModelStreamInfer": lambda *opened: StreamCall(self.infer, *opened, told=infer_message),
            f"/{HEALTH}/Watch": lambda *opened: WatchCall(health.watch, *opened),
            **{reflection.path: _reflecting(reflection) for reflection in REFLECTIONS},
        }

    def handle(self, stream: Stream) -> None:
        """Give a new stream its receiver, or end it with the reason why it has none."""
        headers = stream.headers
        if headers[":method"] != "POST" or not is_grpc(headers.get("content-type", "")):
            stream.finish(block(415, [("content-type", "text/plain")]))
            return
        try:
            stream.receiver = self._call(stream, headers)
        except RequestError as error:
            stream.finish(refusal(error))

    def _call(self, stream: Stream, headers: dict[str, str]) -> Call:
        arrival = Arrival(stream.arrived, timeout_of(headers.get("grpc-timeout")), headers.get("traceparent"))
        coding = message_coding(headers.get("grpc-encoding", "identity"))
        compression = None
        if coding is not None:
            answers = coding in headers.get("grpc-accept-encoding", "")
            compression = Compression(coding, self._room, self._background, answers=answers)
        if (method := self._methods.get(headers[":path"])) is not None:
            return Call(stream, method, arrival, compression)
        if (opened := self._streams.get(headers[":path"])) is not None:
            return opened(stream, arrival, compression)
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
            # For which model it was can't be read: it is counted with the worker's own.
            self._state.metrics[self._state.config.model.name].answered(HTTPStatus.BAD_REQUEST)
            reply(bad(f"the message is no ModelInferRequest: {error}"))
            return None
        try:
            model = self._model(request.model_name, request.model_version)
        except RequestError as error:
            if (metrics := self._state.metrics.get(request.model_name)) is not None:
                metrics.answered(error.status)
            reply(error)
            return None
        return self._run(model, request, arrival, reply)

    def _run(self, model: Model, request: Any, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        if model.signature.has_texts and request.ByteSize() > _LARGE_BYTES:
            return self._run_apart(model, request, arrival, reply)
        try:
            return self._ask(model, grpc_codec.decode(request, model.signature), arrival, reply)
        except Exception as error:  # noqa: BLE001 -- told and logged there
            _refuse(model, error, reply)
        return None

    def _ask(self, model: Model, asked: tuple[Ask, bool], arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        ask, raw = asked
        count = model.metrics.answered

        def done(answers: Tensors | RequestError, timing: Timing) -> None:
            if isinstance(answers, RequestError):
                _refuse(model, answers, reply)
                return
            try:
                body = grpc_codec.encode(ask, answers, raw=raw, model=model.name, version=model.version)
            except Exception as error:  # noqa: BLE001 -- told and logged there
                _refuse(model, error, reply)
                return
            model.metrics.ran(timing)
            count(200)
            reply(body)

        cancel = self._inference.ask(model, ask, arrival, done)
        if cancel is None:
            return None

        def abandoned() -> None:
            count(CLIENT_GONE)
            cancel()

        return abandoned

    def _run_apart(self, model: Model, request: Any, arrival: Arrival, reply: Reply) -> Callable[[], None]:
        """As `_run`, with the message taken apart in a thread, since so many strings would hold up everybody else."""
        left = False
        cancel: Callable[[], None] | None = None

        async def run() -> None:
            nonlocal cancel
            try:
                asked = await parsed(lambda: grpc_codec.decode(request, model.signature))
                if left:
                    model.metrics.answered(CLIENT_GONE)
                    return
                cancel = self._ask(self._state.repository.get(model.name) or model, asked, arrival, reply)
            except Exception as error:  # noqa: BLE001 -- told and logged there
                _refuse(model, error, reply)

        def abandoned() -> None:
            nonlocal left
            left = True
            if cancel is not None:
                cancel()

        self._background.spawn(run())
        return abandoned

    def _model(self, name: str, version: str) -> Model:
        entry = self._state.repository.entries.get(name)
        if entry is None:
            raise RequestError(
                HTTPStatus.NOT_FOUND,
                f"Request for unknown model: {name[:200]!r} is not found; "
                f"this worker serves {', '.join(self._state.repository.entries)}",
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
        state = self._state
        return {
            "ServerLive": lambda _: {"live": state.stuck is None},
            "ServerReady": lambda _: {"ready": state.ready},
            "ModelReady": lambda r: {"ready": self._is_ready(r)},
            "ServerMetadata": lambda _: documents.server(),
            "ModelMetadata": lambda r: documents.metadata(self._model(r.name, r.version)),
            "ModelConfig": lambda r: {"config": documents.configuration(self._model(r.name, r.version))},
            "ModelStatistics": lambda r: documents.statistics(self._model(r.name or state.config.model.name, r.version)),
            "RepositoryIndex": lambda r: {"models": documents.index(state.repository, ready=r.ready)},
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
        state = self._state
        try:
            self._model(request.name, request.version)
        except RequestError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                raise
            return False
        return state.stuck is None and not state.draining

    def _change(self, call: Call, request: Any, *, load: bool, done: bytes) -> None:
        state = self._state
        if state.config.model_control != "explicit":
            raise RequestError(
                HTTPStatus.FORBIDDEN, "this worker's models are not loaded and unloaded by callers; the job would have to allow it"
            )
        failed = f"failed to {'load' if load else 'unload'} {request.model_name[:200]!r}"
        if request.model_name not in state.repository.entries:
            raise RequestError(HTTPStatus.NOT_FOUND, f"{failed}: this worker serves {', '.join(state.repository.entries)}")
        if foreign := set(request.parameters) - {"unload_dependents"}:
            why = "is not supported: a model comes from where its job says, verified by digest"
            raise bad(f"{failed}: parameter {min(foreign)!r} {why}")

        async def change() -> None:
            try:
                await (state.repository.load if load else state.repository.unload)(request.model_name)
            except WorkerError as error:
                call.fail(bad(f"{failed}: {error.reason}: {error.message}"))
            else:
                call.answer(done)

        self._background.spawn(change())


def _reflecting(reflection: Reflection) -> Callable[[Stream, Arrival, Compression | None], Call]:
    return lambda *opened: StreamCall(reflection.answer, *opened)


def _refuse(model: Model, error: Exception, reply: Reply) -> None:
    """Count a request that gets no answer, and tell its caller why."""
    if not isinstance(error, RequestError):
        log.error("a request failed", exc_info=error)
        error = unforeseen()
    model.metrics.answered(error.status)
    reply(error)
