"""Inference over HTTP: a request's body to the model, and the answer to its caller."""

import logging
from collections.abc import Callable
from http import HTTPStatus

from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Tensors
from inference_worker.errors import RequestError, unforeseen
from inference_worker.model import Model
from inference_worker.serve import codec
from inference_worker.serve.ask import Ask, timeout_of_headers
from inference_worker.serve.background import Background
from inference_worker.serve.codec import Form
from inference_worker.serve.compression import INLINE_DEFLATE_BYTES, accepted, deflate
from inference_worker.serve.http_messages import Request, Response, refusal
from inference_worker.serve.inference import CLIENT_GONE, Arrival, Inference
from inference_worker.threads import parsed
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_HEADER = codec.HEADER.lower()
# Taking so much JSON or so many strings apart takes milliseconds, which probes and other callers should not wait for.
_LARGE_BYTES = 64 << 10

Refuse = Callable[[RequestError], None]


class HttpInference:
    """Answers inference requests from the worker's state."""

    def __init__(self, state: WorkerState, inference: Inference, background: Background) -> None:
        self._state = state
        self._inference = inference
        self._background = background

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
            if len(request.body) > _LARGE_BYTES and (model.signature.has_texts or _json_bytes(request) > _LARGE_BYTES):
                self._background.spawn(self._answer_large(request, model, refuse))
                return
            ask, form = model.decoder.decode(request.body, request.headers.get(_HEADER))
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

    async def _answer_large(self, request: Request, model: Model, refuse: Refuse) -> None:
        try:
            header = request.headers.get(_HEADER)
            ask, form = await parsed(lambda: codec.decode(request.body, header, model.signature))
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
            try:
                body, head = codec.encode(ask, form, answers, model=model.name, version=model.version)
            except RequestError as error:
                refuse(error)
                return
            except Exception:
                log.exception("an answer could not be written")
                refuse(RequestError(HTTPStatus.INTERNAL_SERVER_ERROR, "the answer could not be written; the worker's log says why"))
                return
            metrics_of.ran(timing)
            metrics_of.answered(200)
            if (wishes := request.headers.get("accept-encoding")) is not None and (coding := accepted(wishes)) is not None:
                self._compressed(request, _response(body, head), coding)
            else:
                request.reply(_response(body, head))

        headers = request.headers
        arrival = Arrival(request.arrived, timeout_of_headers(headers), headers.get("traceparent"))
        cancel = self._inference.ask(model, ask, arrival, done)
        if cancel is not None:

            def abandoned() -> None:
                metrics_of.answered(CLIENT_GONE)
                cancel()

            request.on_abandoned = abandoned

    def _compressed(self, request: Request, response: Response, coding: str) -> None:
        """Answer with the body compressed, now or later. The request is counted already: it is not abandoned any more."""
        request.on_abandoned = None
        if len(response.body) <= INLINE_DEFLATE_BYTES:
            request.reply(_deflated(response, coding))
            return

        async def reply() -> None:
            request.reply(await parsed(lambda: _deflated(response, coding)))

        self._background.spawn(reply())


def _response(body: bytes, head: int | None) -> Response:
    if head is None:
        return Response(HTTPStatus.OK, body)
    return Response(HTTPStatus.OK, body, "application/octet-stream", ((codec.HEADER, str(head)),))


def _deflated(response: Response, coding: str) -> Response:
    body = deflate(response.body, coding)
    if body is None:
        return response
    return Response(response.status, body, response.content_type, (*response.headers, ("Content-Encoding", coding)))


def _json_bytes(request: Request) -> int:
    """How much JSON a request begins with; all of it where the header that says so is missing or wrong."""
    length = request.headers.get(_HEADER, "")
    return int(length) if length.isdecimal() and len(length) < 12 else len(request.body)
