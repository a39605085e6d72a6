"""The worker's HTTP face: Open Inference Protocol v2, telemetry for the operator, metrics for Prometheus."""

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus

import orjson
from prometheus_client import exposition

from inference_protocol.messages import STARTED_PATH, TASK_STOP_PATH, TASK_WAIT_PATH, TASKS_PATH, TELEMETRY_PATH, encode
from inference_worker import metrics
from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Tensors
from inference_worker.errors import RequestError, WorkerError, unforeseen
from inference_worker.model import Model
from inference_worker.serve import codec, documents, orders
from inference_worker.serve.ask import Ask, timeout_of_headers
from inference_worker.serve.codec import Form
from inference_worker.serve.http_messages import Request, Response, error_body
from inference_worker.serve.inference import Arrival, Inference
from inference_worker.threads import parsed
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_OK = Response(HTTPStatus.OK)
_NOT_READY = Response(HTTPStatus.SERVICE_UNAVAILABLE)
_HEADER = codec.HEADER.lower()
# Taking so much JSON or so many strings apart takes milliseconds, which probes and other callers should not wait for.
_LARGE_BYTES = 64 << 10
# Shorter than the probe waits, so that it hears a "not yet".
_HELD_SECONDS = 290.0
CLIENT_GONE = 499
"""How a request is counted whose caller left before the answer (nginx's number for it)."""


class Routes:
    """Answers requests from the worker's state. One instance a worker."""

    def __init__(self, state: WorkerState, inference: Inference) -> None:
        self._state = state
        self._inference = inference
        self._tasks: set[asyncio.Task[None]] = set()
        # Every path is known beforehand, so that routing is one look-up.
        self._infer: dict[str, str] = {}
        self._get: dict[str, Callable[[], Response]] = {
            "/v2": lambda: _json(documents.server()),
            "/v2/health/live": self._live,
            "/v2/health/ready": lambda: _OK if state.ready else _NOT_READY,
            TELEMETRY_PATH: lambda: Response(HTTPStatus.OK, encode(state.telemetry())),
            "/metrics": _metrics,
        }
        self._held: dict[str, Callable[[Request], None]] = {STARTED_PATH: lambda request: self._spawn(self._started(request))}
        self._post: dict[str, Callable[[Request], None]] = {
            "/v2/repository/index": self._index,
            TASKS_PATH: lambda request: self._told(request, lambda: orders.order(state, request)),
            TASK_STOP_PATH: lambda request: self._told(request, lambda: orders.stop(state, request)),
            TASK_WAIT_PATH: lambda request: self._spawn(self._wait(request)),
        }
        for name, entry in state.repository.entries.items():
            self._add_model(name, entry.source.version)

    def _add_model(self, name: str, version: str) -> None:
        self._post[f"/v2/repository/models/{name}/load"] = lambda request: self._control(request, name, load=True)
        self._post[f"/v2/repository/models/{name}/unload"] = lambda request: self._control(request, name, load=False)
        for base in (f"/v2/models/{name}", f"/v2/models/{name}/versions/{version}"):
            self._infer[f"{base}/infer"] = name
            self._get[base] = lambda: self._of_model(name, documents.metadata)
            self._get[f"{base}/ready"] = lambda: _OK if self._ready(name) else _NOT_READY
            self._get[f"{base}/config"] = lambda: self._of_model(name, documents.configuration)
            self._get[f"{base}/stats"] = lambda: self._of_model(name, documents.statistics)
        self._get["/v2/models/stats"] = lambda: self._of_model(name, documents.statistics)

    def handle(self, request: Request) -> None:
        """Answer one request, now or later."""
        name = self._infer.get(request.path)
        if name is not None:
            if request.method == "POST":
                self._answer(request, name)
            else:
                request.reply(_error(HTTPStatus.METHOD_NOT_ALLOWED, "infer wants POST"))
        elif (post := self._post.get(request.path)) is not None:
            if request.method == "POST":
                post(request)
            else:
                request.reply(_error(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} wants POST"))
        elif (held := self._held.get(request.path)) is not None:
            held(request)
        elif (get := self._get.get(request.path)) is None:
            known = ", ".join(self._state.repository.entries)
            request.reply(_error(HTTPStatus.NOT_FOUND, f"nothing at {request.path[:200]}; this worker serves {known}"))
        elif request.method in ("GET", "HEAD"):
            request.reply(get())
        else:
            request.reply(_error(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} wants GET"))

    # inference

    def _answer(self, request: Request, name: str) -> None:
        count = self._state.metrics[name].answered

        def refuse(error: RequestError) -> None:
            count(error.status)
            request.reply(_refusal(error))

        try:
            model = self._asked(name, request)
            if len(request.body) > _LARGE_BYTES and (model.signature.has_texts or _json_bytes(request) > _LARGE_BYTES):
                self._spawn(self._answer_large(request, model, refuse))
                return
            ask, form = model.decoder.decode(request.body, request.headers.get(_HEADER))
            self._run(request, model, ask, form, refuse)
        except RequestError as error:
            refuse(error)
        except Exception:
            # Whatever we did not think of must end this request and no other, and must not leave its caller waiting.
            log.exception("a request failed")
            refuse(unforeseen())

    def _asked(self, name: str, request: Request) -> Model:
        entry = self._state.repository.entries[name]
        if entry.model is None:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, entry.absence)
        if (coding := request.headers.get("content-encoding", "identity")) != "identity":
            text = f"Content-Encoding {coding[:32]!r} is not supported; send it plain"
            raise RequestError(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, text)
        return entry.model

    async def _answer_large(self, request: Request, model: Model, refuse: Callable[[RequestError], None]) -> None:
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

    def _run(self, request: Request, model: Model, ask: Ask, form: Form, refuse: Callable[[RequestError], None]) -> None:
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
            if head is None:
                request.reply(Response(HTTPStatus.OK, body))
            else:
                request.reply(Response(HTTPStatus.OK, body, "application/octet-stream", ((codec.HEADER, str(head)),)))

        headers = request.headers
        arrival = Arrival(request.arrived, timeout_of_headers(headers), headers.get("traceparent"))
        cancel = self._inference.ask(model, ask, arrival, done)
        if cancel is not None:

            def abandoned() -> None:
                metrics_of.answered(CLIENT_GONE)
                cancel()

            request.on_abandoned = abandoned

    # models

    async def _started(self, request: Request) -> None:
        """Answer a startup probe when the model is loaded: one question, no refusals, and no pause until the next."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._state.first_loaded.wait(), _HELD_SECONDS)
        request.reply(_OK if self._state.loaded else _NOT_READY)

    def _ready(self, name: str) -> bool:
        return self._state.repository.get(name) is not None and self._state.stuck is None and not self._state.draining

    def _of_model(self, name: str, document: Callable[[Model], documents.Document]) -> Response:
        model = self._state.repository.get(name)
        if model is None:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, self._state.repository.entries[name].absence)
        return _json(document(model))

    def _index(self, request: Request) -> None:
        try:
            wishes = orjson.loads(request.body) if request.body else {}
        except orjson.JSONDecodeError as error:
            request.reply(_error(HTTPStatus.BAD_REQUEST, f"the request is no JSON: {error}"))
            return
        ready = isinstance(wishes, dict) and wishes.get("ready") is True
        request.reply(_json(documents.index(self._state.repository, ready=ready)))

    def _control(self, request: Request, name: str, *, load: bool) -> None:
        if self._state.config.model_control != "explicit":
            text = "this worker's models are not loaded and unloaded by callers; the job would have to allow it"
            request.reply(_error(HTTPStatus.FORBIDDEN, text))
        elif request.body and (fault := _parameters_fault(request.body)):
            request.reply(_error(HTTPStatus.BAD_REQUEST, fault))
        else:
            self._spawn(self._change(request, name, load=load))

    async def _change(self, request: Request, name: str, *, load: bool) -> None:
        repository = self._state.repository
        try:
            if load:
                await repository.load(name)
            else:
                await repository.unload(name)
            request.reply(_OK)
        except WorkerError as error:
            request.reply(_error(HTTPStatus.BAD_REQUEST, f"{error.reason}: {error.message}"))

    # tasks

    def _told(self, request: Request, work: Callable[[], Response]) -> None:
        with _refusing(request):
            request.reply(work())

    async def _wait(self, request: Request) -> None:
        with _refusing(request):
            request.reply(await orders.wait(self._state, request))

    def _live(self) -> Response:
        stuck = self._state.stuck
        return _OK if stuck is None else _error(HTTPStatus.SERVICE_UNAVAILABLE, stuck)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


@contextmanager
def _refusing(request: Request) -> Iterator[None]:
    """Answer with the refusal that comes out of it."""
    try:
        yield
    except RequestError as error:
        request.reply(_refusal(error))


def _json_bytes(request: Request) -> int:
    """How much JSON a request begins with; all of it where the header that says so is missing or wrong."""
    length = request.headers.get(_HEADER, "")
    return int(length) if length.isdecimal() and len(length) < 12 else len(request.body)


def _parameters_fault(body: bytes) -> str | None:
    """Why a load or unload request can't be taken as it is; None when it can."""
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        return f"the request is no JSON: {error}"
    wishes = document.get("parameters") if isinstance(document, dict) else None
    if isinstance(wishes, dict) and (foreign := wishes.keys() - {"unload_dependents"}):
        return f"parameter {min(foreign)!r} is not supported: a model comes from where its job says, verified by digest"
    return None


def _metrics() -> Response:
    return Response(HTTPStatus.OK, exposition.generate_latest(metrics.REGISTRY), exposition.CONTENT_TYPE_PLAIN_0_0_4)


def _json(document: object) -> Response:
    return Response(HTTPStatus.OK, orjson.dumps(document))


def _refusal(error: RequestError) -> Response:
    headers: tuple[tuple[str, str], ...] = ()
    if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        # Whole seconds are all that the header has; half a second of waiting is told as one.
        headers = (("Retry-After", str(max(1, math.ceil(error.retry_after_seconds or 0)))),)
    return Response(error.status, error_body(error.message), headers=headers)


def _error(status: HTTPStatus, message: str) -> Response:
    return Response(status, error_body(message))
