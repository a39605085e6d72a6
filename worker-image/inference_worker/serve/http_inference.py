"""Inference over HTTP: a request's body to the model, and the answer to its caller."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from http import HTTPStatus

from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Tensors
from inference_worker.errors import RequestError, unforeseen
from inference_worker.model import Model
from inference_worker.serve import codec
from inference_worker.serve.ask import Ask, Extras, timeout_of_headers
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.codec import Form
from inference_worker.serve.compression import PLAIN_BYTES, accepted, deflate
from inference_worker.serve.extras import delivered, gathered, is_large_answer, is_large_request
from inference_worker.serve.http_messages import Request, Response, refusal
from inference_worker.serve.inference import CLIENT_GONE, LARGE_BYTES, Arrival, Inference, Mark
from inference_worker.serve.pieces import is_large
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.threads import parsed
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_HEADER = codec.HEADER.lower()
_NO_EXTRAS = Extras()

Refuse = Callable[[RequestError], None]


class HttpInference:
    """Answers inference requests from the worker's state."""

    def __init__(
        self, state: WorkerState, inference: Inference, background: Background, budget: Budget, shared: SharedMemory
    ) -> None:
        self._state = state
        self._inference = inference
        self._background = background
        self._budget = budget
        self._shared = shared

    def refusing(self, request: Request, name: str) -> Refuse:
        """What counts a request for this model as refused, and tells its caller."""
        count = self._state.metrics[name].answered

        def refuse(error: RequestError) -> None:
            count(error.status)
            request.reply(refusal(error))

        return refuse

    def answer_late(self, request: Request, name: str) -> None:
        """As `answer`, for a request whose caller may have left."""
        if request.abandoned:
            self._state.metrics[name].answered(CLIENT_GONE)
        else:
            self.answer(request, name)

    def answer(self, request: Request, name: str) -> None:
        """Answer a request for this model, now or later."""
        refuse = self.refusing(request, name)
        try:
            model = self._loaded(name)
            if len(request.body) > LARGE_BYTES and (model.signature.has_texts or _json_bytes(request) > LARGE_BYTES):
                self._background.spawn(self._answer_large(request, model, refuse))
                return
            ask, form = model.decoder.decode(request.body, request.headers.get(_HEADER))
            if ask.extras is not None:
                if is_large_request(ask.extras):
                    self._background.spawn(self._answer_large(request, model, refuse, (ask, form)))
                    return
                ask = gathered(ask, ask.extras, self._shared, self._budget, request)
            self._run(request, model, ask, form, refuse)
        except RequestError as error:
            refuse(error)
        except Exception:
            # Whatever we did not think of must end this request and no other, and must not leave its caller waiting.
            log.exception("a request failed")
            refuse(unforeseen())

    def _loaded(self, name: str) -> Model:
        entry = self._state.repository.entries[name]
        if entry.model is None:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, entry.absence)
        return entry.model

    async def _answer_large(self, request: Request, model: Model, refuse: Refuse, decoded: tuple[Ask, Form] | None = None) -> None:
        """As `answer`, with all that takes long in a thread; `decoded` where it is not the decoding that does."""
        try:
            header = request.headers.get(_HEADER)
            if decoded is None:
                decoded = await parsed(lambda: codec.decode(request.body, header, model.signature))
            ask, form = decoded
            if (extras := ask.extras) is not None:
                plain = ask
                ask = await parsed(lambda: gathered(plain, extras, self._shared, self._budget, request))
            if request.abandoned:
                model.metrics.answered(CLIENT_GONE)
                return
            # It may have been changed for another in the meantime, of the same name and signature.
            self._run(request, self._state.repository.get(model.name) or model, ask, form, refuse)
        except RequestError as error:
            refuse(error)
        except Exception:
            log.exception("a request failed")
            refuse(unforeseen())

    def _run(self, request: Request, model: Model, ask: Ask, form: Form, refuse: Refuse) -> None:
        metrics_of = model.metrics

        def done(answers: Tensors | RequestError, timing: Timing) -> None:
            if isinstance(answers, RequestError):
                refuse(answers)
                return
            if ask.extras is not None or is_large(answers, form.is_binary):
                self._deliver(request, model, (ask, form), answers, (timing, arrival.mark), refuse)
                return
            try:
                body, head = codec.encode(ask, form, answers, model=model.name, version=model.version)
            except Exception as error:  # noqa: BLE001 -- told and logged there
                refuse(_unwritten(error))
                return
            metrics_of.ran(timing, time.monotonic() - request.whole)
            metrics_of.answered(200)
            self._send(request, body, head, arrival.mark)

        headers = request.headers
        arrival = Arrival(request.arrived, timeout_of_headers(headers), headers=headers)
        cancel = self._inference.ask(model, ask, arrival, done)
        if cancel is not None:

            def abandoned() -> None:
                metrics_of.answered(CLIENT_GONE)
                cancel()

            request.on_abandoned = abandoned

    def _deliver(
        self, request: Request, model: Model, asked: tuple[Ask, Form], answers: Tensors, of: tuple[Timing, Mark], refuse: Refuse
    ) -> None:
        """Answer one that asks for much, or for more than tensors; in a thread where that takes long."""
        (ask, form), (timing, mark) = asked, of
        extras = ask.extras or _NO_EXTRAS

        def write() -> tuple[bytes, int | None]:
            made = delivered(extras, answers, self._shared, model)
            return codec.encode(ask, form, made.answers, model=model.name, version=model.version, placed=made.placed)

        def send(written: tuple[bytes, int | None]) -> None:
            model.metrics.ran(timing, time.monotonic() - request.whole)
            model.metrics.answered(200)
            self._send(request, *written, mark)

        apart = is_large(answers, form.is_binary) or is_large_answer(extras, answers)
        if apart:
            # Its run is over: who leaves now cancels nothing.
            request.on_abandoned = None
        self._background.make(write, send, lambda error: refuse(_unwritten(error)), apart=apart)

    def _send(self, request: Request, body: bytes, head: int | None, mark: Mark) -> None:
        response = _response(body, head, mark)
        coding = accepted(request.headers.get("accept-encoding", "")) if len(body) > PLAIN_BYTES else None
        if coding is not None:
            self._compressed(request, response, coding)
        else:
            request.reply(response)

    def _compressed(self, request: Request, response: Response, coding: str) -> None:
        """Answer with the body compressed, later. The request is counted already: it is not abandoned any more."""
        request.on_abandoned = None

        async def reply() -> None:
            request.reply(await parsed(lambda: _deflated(response, coding)))

        self._background.spawn(reply())


def _unwritten(error: Exception) -> RequestError:
    if isinstance(error, RequestError):
        return error
    log.error("an answer could not be written", exc_info=error)
    return RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be written; the worker's log says why")


def _response(body: bytes, head: int | None, mark: Mark) -> Response:
    if head is None:
        return Response(HTTPStatus.OK, body, headers=mark.headers)
    return Response(HTTPStatus.OK, body, "application/octet-stream", ((codec.HEADER, str(head)), *mark.headers))


def _deflated(response: Response, coding: str) -> Response:
    body = deflate(response.body, coding)
    if body is None:
        return response
    return Response(response.status, body, response.content_type, (*response.headers, ("Content-Encoding", coding)))


def _json_bytes(request: Request) -> int:
    """How much JSON a request begins with; all of it where the header that says so is missing or wrong."""
    length = request.headers.get(_HEADER, "")
    return int(length) if length.isdecimal() and len(length) < 12 else len(request.body)
