"""Inference over gRPC: a message to the model, and the answer to its caller."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from types import MappingProxyType

from google.protobuf.message import DecodeError

from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Tensors
from inference_worker.errors import RequestError, unforeseen
from inference_worker.model import Model
from inference_worker.serve import grpc_codec, grpc_raw
from inference_worker.serve.ask import Ask, Extras, bad
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.extras import delivered, gathered, is_large_answer, is_large_request
from inference_worker.serve.grpc_calls import Reply
from inference_worker.serve.grpc_codec import Form
from inference_worker.serve.grpc_documents import asked_model
from inference_worker.serve.grpc_raw import InferRequest
from inference_worker.serve.http_messages import Payload
from inference_worker.serve.inference import CLIENT_GONE, LARGE_BYTES, Arrival, Inference
from inference_worker.serve.messages import ModelInferResponse, ModelStreamInferResponse
from inference_worker.serve.pieces import is_large
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.threads import parsed
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_NO_EXTRAS = Extras()


class GrpcInference:
    """Answers ModelInferRequests from the worker's state."""

    def __init__(
        self, state: WorkerState, inference: Inference, background: Background, budget: Budget, shared: SharedMemory
    ) -> None:
        self._state = state
        self._inference = inference
        self._background = background
        self._budget = budget
        self._shared = shared

    def infer(self, payload: Payload, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        """Run one ModelInferRequest and tell `reply`, now or later. Returns what to call when the caller leaves."""
        arrival.whole = time.monotonic()
        request = self._parsed(payload, reply)
        return None if request is None else self._infer(request, arrival, reply)

    def infer_on_stream(self, payload: Payload, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        """As `infer`, for one of the many requests of a stream: `reply` is told a ModelStreamInferResponse, also of a refusal."""
        arrival.whole = time.monotonic()
        request = self._parsed(payload, reply)
        if request is None:
            return None
        # Not the request: its tensors would wait with it.
        message = request.message
        whose = {"id": message.id, "model_name": message.model_name, "model_version": message.model_version}
        return self._infer(request, arrival, lambda answer: reply(_stream_message(answer, whose)))

    def _parsed(self, payload: Payload, reply: Reply) -> InferRequest | None:
        try:
            return grpc_raw.parse(payload)
        except DecodeError as error:
            self._refuse_unread(bad(f"the message is no ModelInferRequest: {error}"), reply)
        except RequestError as error:
            # Kept in a name of this frame, its traceback would lead back here and hold the message until the collector came.
            self._refuse_unread(error, reply)
        return None

    def _refuse_unread(self, refused: RequestError, reply: Reply) -> None:
        # For which model it was is not known: it is counted with the worker's own.
        self._state.metrics[self._state.config.model.name].answered(refused.status)
        reply(refused)

    def _infer(self, request: InferRequest, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        try:
            model = asked_model(self._state, request.message.model_name, request.message.model_version)
        except RequestError as error:
            if (metrics := self._state.metrics.get(request.message.model_name)) is not None:
                metrics.answered(error.status)
            reply(error)
            return None
        return self._run(model, request, arrival, reply)

    def _run(self, model: Model, request: InferRequest, arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        if model.signature.has_texts and request.size > LARGE_BYTES:
            return self._run_apart(model, request, arrival, reply)
        try:
            ask, form = model.grpc_decoder.decode(request)
            if ask.extras is not None:
                if is_large_request(ask.extras):
                    return self._run_apart(model, request, arrival, reply)
                ask = gathered(ask, ask.extras, self._shared, self._budget, reply)
            return self._ask(model, (ask, form), arrival, reply)
        except Exception as error:  # noqa: BLE001 -- told and logged there
            _refuse(model, error, reply)
        return None

    def _ask(self, model: Model, asked: tuple[Ask, Form], arrival: Arrival, reply: Reply) -> Callable[[], None] | None:
        ask, form = asked
        count = model.metrics.answered
        delivering = False

        def done(answers: Tensors | RequestError, timing: Timing) -> None:
            nonlocal delivering
            if isinstance(answers, RequestError):
                _refuse(model, answers, reply)
                return
            if ask.extras is not None or is_large(answers, lambda _: form.raw):
                delivering = True
                self._deliver(model, asked, answers, timing, arrival, reply)
                return
            try:
                body = grpc_codec.encode(ask, form, answers, model=model.name, version=model.version)
            except Exception as error:  # noqa: BLE001 -- told and logged there
                _refuse(model, error, reply)
                return
            model.metrics.ran(timing, time.monotonic() - arrival.whole)
            count(200)
            reply(body + arrival.mark.parameters)

        cancel = self._inference.ask(model, ask, arrival, done)
        if cancel is None:
            return None

        def abandoned() -> None:
            # Once its answer is being written, it is counted as answered, and there is no run to end.
            if not delivering:
                count(CLIENT_GONE)
                cancel()

        return abandoned

    def _deliver(
        self, model: Model, asked: tuple[Ask, Form], answers: Tensors, timing: Timing, arrival: Arrival, reply: Reply
    ) -> None:
        """Answer one that asks for much, or for more than tensors; in a thread where that takes long."""
        ask, form = asked
        extras = ask.extras or _NO_EXTRAS

        def write() -> bytes:
            made = delivered(extras, answers, self._shared, model)
            return grpc_codec.encode(ask, form, made.answers, model=model.name, version=model.version, placed=made.placed)

        def send(body: bytes) -> None:
            model.metrics.ran(timing, time.monotonic() - arrival.whole)
            model.metrics.answered(200)
            reply(body + arrival.mark.parameters)

        apart = is_large(answers, lambda _: form.raw) or is_large_answer(extras, answers)
        self._background.make(write, send, lambda error: _refuse(model, error, reply), apart=apart)

    def _run_apart(self, model: Model, request: InferRequest, arrival: Arrival, reply: Reply) -> Callable[[], None]:
        """As `_run`, with the message taken apart in a thread, since so much of it would hold up everybody else."""
        left = False
        cancel: Callable[[], None] | None = None

        async def run() -> None:
            nonlocal cancel
            try:
                asked = await parsed(lambda: self._decoded(request, model, reply))
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

    def _decoded(self, request: InferRequest, model: Model, reply: Reply) -> tuple[Ask, Form]:
        ask, form = model.grpc_decoder.decode(request)
        return (gathered(ask, ask.extras, self._shared, self._budget, reply) if ask.extras is not None else ask), form


def _refuse(model: Model, error: Exception, reply: Reply) -> None:
    """Count a request that gets no answer, and tell its caller why."""
    if not isinstance(error, RequestError):
        log.error("a request failed", exc_info=error)
        error = unforeseen()
    model.metrics.answered(error.status)
    reply(error)


def refused_message(error: RequestError, whose: Mapping[str, str] = MappingProxyType({})) -> bytes:
    """The message of a stream that tells a refusal. `whose` says of which request, as far as that is known."""
    # One stream carries many requests: without the id its caller can't tell which of them failed.
    failed: bytes = ModelStreamInferResponse(
        error_message=error.message, infer_response=ModelInferResponse(**whose) if whose else None
    ).SerializeToString()
    return failed


def _stream_message(answer: bytes | RequestError, whose: Mapping[str, str]) -> bytes:
    if isinstance(answer, RequestError):
        return refused_message(answer, whose)
    response = ModelStreamInferResponse(infer_response=ModelInferResponse.FromString(answer))
    # Every request has one answer here, which is therefore its last; clients of models that give several wait for this.
    response.infer_response.parameters["triton_final_response"].bool_param = True
    sent: bytes = response.SerializeToString()
    return sent
