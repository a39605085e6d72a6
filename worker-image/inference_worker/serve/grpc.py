"""The worker's gRPC face: the Open Inference Protocol v2 and Triton's extensions of it."""

from __future__ import annotations

from collections.abc import Callable
from http import HTTPStatus
from typing import Any

from google.protobuf import json_format
from google.protobuf.message import DecodeError

from inference_worker.errors import RequestError, WorkerError
from inference_worker.serve.ask import bad, load_fault
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.documents import Document
from inference_worker.serve.grpc_calls import Call, Method
from inference_worker.serve.grpc_compression import Compression
from inference_worker.serve.grpc_documents import answers
from inference_worker.serve.grpc_headers import TIMEOUT, is_grpc, message_coding, timeout_of
from inference_worker.serve.grpc_health import SERVICE as HEALTH
from inference_worker.serve.grpc_health import Health
from inference_worker.serve.grpc_inference import GrpcInference, refused_message
from inference_worker.serve.grpc_reflection import REFLECTIONS, Reflection
from inference_worker.serve.grpc_status import refusal
from inference_worker.serve.grpc_streams import StreamCall, WatchCall
from inference_worker.serve.http2_frames import block
from inference_worker.serve.http2_stream import Stream
from inference_worker.serve.http_messages import Payload
from inference_worker.serve.inference import Arrival, Inference
from inference_worker.serve.message_size import small
from inference_worker.serve.messages import SERVICE, message
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.worker_state import WorkerState


class GrpcService:
    """The methods of the protocol's one service, and of those by which gRPC's own tools find and watch it."""

    def __init__(
        self, state: WorkerState, inference: Inference, budget: Budget | None = None, shared: SharedMemory | None = None
    ) -> None:
        """`budget` and `shared` are the worker's own: HTTP has the same."""
        self._state = state
        self._budget = budget or Budget()
        self._background = Background()
        shared = shared or SharedMemory(allowed=state.config.shared_memory)
        self._inference = GrpcInference(state, inference, self._background, self._budget, shared)
        health = Health(lambda: state.ready, self._background)
        self._methods: dict[str, Method] = {
            f"/{SERVICE}/ModelInfer": self._infer,
            **{f"/{SERVICE}/{name}": self._small(name, work) for name, work in answers(state, shared).items()},
            **{f"/{SERVICE}/RepositoryModel{verb}": self._changing(verb) for verb in ("Load", "Unload")},
            **health.methods,
        }
        self._streams: dict[str, Callable[[Stream, Arrival, Compression | None], Call]] = {
            f"/{SERVICE}/ModelStreamInfer": lambda *opened: StreamCall(
                self._inference.infer_on_stream, *opened, told=refused_message
            ),
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
        arrival = Arrival(stream.arrived, timeout_of(headers.get(TIMEOUT)), headers=headers)
        coding = message_coding(headers.get("grpc-encoding", "identity"))
        compression = None
        if coding is not None:
            both = coding in headers.get("grpc-accept-encoding", "")
            compression = Compression(coding, self._budget, self._background, answers=both)
        if (method := self._methods.get(headers[":path"])) is not None:
            return Call(stream, method, arrival, compression)
        if (opened := self._streams.get(headers[":path"])) is not None:
            return opened(stream, arrival, compression)
        raise RequestError(HTTPStatus.NOT_IMPLEMENTED, f"there is no method {headers[':path'][:200]}")

    def _infer(self, call: Call, payload: Payload) -> None:
        def reply(answer: bytes | RequestError) -> None:
            if isinstance(answer, RequestError):
                call.fail(answer)
            else:
                call.answer(answer)

        call.on_abandoned = self._inference.infer(payload, call.arrival, reply)

    @staticmethod
    def _small(name: str, work: Callable[[Any], Document]) -> Method:
        request_type, response_type = message(f"{name}Request"), message(f"{name}Response")

        def method(call: Call, payload: Payload) -> None:
            try:
                document = work(request_type.FromString(small(payload)))
                # HTTP's documents may say more than the protocol's messages have fields for.
                response = json_format.ParseDict(document, response_type(), ignore_unknown_fields=True)
                call.answer(response.SerializeToString())
            except DecodeError as error:
                call.fail(bad(f"the message is no {name}Request: {error}"))
            except RequestError as error:
                call.fail(error)

        return method

    def _changing(self, verb: str) -> Method:
        request_type, response_type = (message(f"RepositoryModel{verb}{way}") for way in ("Request", "Response"))

        def method(call: Call, payload: Payload) -> None:
            try:
                request = request_type.FromString(small(payload))
                self._change(call, request, load=verb == "Load", done=response_type().SerializeToString())
            except DecodeError as error:
                call.fail(bad(f"the message is no RepositoryModel{verb}Request: {error}"))
            except RequestError as error:
                call.fail(error)

        return method

    def _change(self, call: Call, request: Any, *, load: bool, done: bytes) -> None:
        state = self._state
        if state.config.model_control != "explicit":
            raise RequestError(
                HTTPStatus.FORBIDDEN, "this worker's models are not loaded and unloaded by callers; the job would have to allow it"
            )
        failed = f"failed to {'load' if load else 'unload'} {request.model_name[:200]!r}"
        if request.model_name not in state.repository.entries:
            raise RequestError(HTTPStatus.NOT_FOUND, f"{failed}: this worker serves {', '.join(state.repository.entries)}")
        if (fault := load_fault(request.parameters)) is not None:
            raise bad(f"{failed}: {fault}")

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
