"""The worker's HTTP face: Open Inference Protocol v2, metrics for Prometheus, and without TLS the operator's calls."""

from __future__ import annotations

import re
from collections.abc import Callable
from http import HTTPStatus

import orjson
from prometheus_client import exposition

from inference_worker import metrics
from inference_worker.errors import RequestError, WorkerError
from inference_worker.model import Model
from inference_worker.serve import documents, shared_memory_routes
from inference_worker.serve.ask import load_fault, no_version
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.http_bodies import CODING, Bodies
from inference_worker.serve.http_inference import HttpInference
from inference_worker.serve.http_messages import Payload, Request, Response, error_body, plain_path, refusal
from inference_worker.serve.inference import Inference
from inference_worker.serve.message_size import small
from inference_worker.serve.model_config import configuration
from inference_worker.serve.operator_calls import OperatorCalls, refusing
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.worker_state import WorkerState

_OK = Response(HTTPStatus.OK)
_MODEL = re.compile("/v2/(?:models/|repository/models/)(?P<name>[^/]+)(?:/(?P<verb>load|unload)$|/|$)")
_VERSION = re.compile("/v2/models/(?P<name>[^/]+)/versions/(?P<version>[^/]+)")
# Probes read the status alone; KServe's client reads the documents of the protocol.
_LIVE = Response(HTTPStatus.OK, b'{"live":true}')
_READY = Response(HTTPStatus.OK, b'{"ready":true}')
_NOT_READY = Response(HTTPStatus.SERVICE_UNAVAILABLE, b'{"ready":false}')


class Routes:
    """Answers requests from the worker's state. One instance a worker."""

    def __init__(
        self, state: WorkerState, inference: Inference, budget: Budget | None = None, shared: SharedMemory | None = None
    ) -> None:
        """`budget` and `shared` are the worker's own: gRPC has the same."""
        budget = budget or Budget()
        self._state = state
        self._background = Background()
        self._shared = shared or SharedMemory(allowed=state.config.shared_memory)
        self._inference = HttpInference(state, inference, self._background, budget, self._shared)
        self._bodies = Bodies(budget, self._background)
        # Every path is known beforehand, so that routing is one look-up.
        self._infer: dict[str, str] = {}
        self._get: dict[str, Callable[[], Response]] = {
            "/v2": lambda: _json(documents.server(shared_memory=self._shared.allowed)),
            "/v2/models": lambda: _json(documents.models(state.repository)),
            "/v2/health/live": self._live,
            "/v2/health/ready": lambda: _READY if state.ready else _NOT_READY,
            "/metrics": _metrics,
        }
        self._post: dict[str, Callable[[Request], None]] = {"/v2/repository/index": self._index}
        if state.config.identity is None:
            # With one, the operator has a port of its own.
            calls = OperatorCalls(state, self._background)
            self._get |= calls.get
            self._post |= calls.post
        for name, entry in state.repository.entries.items():
            self._add_model(name, entry.source.version)

    def _add_model(self, name: str, version: str) -> None:
        self._post[f"/v2/repository/models/{name}/load"] = lambda request: self._control(request, name, load=True)
        self._post[f"/v2/repository/models/{name}/unload"] = lambda request: self._control(request, name, load=False)
        for base in (f"/v2/models/{name}", f"/v2/models/{name}/versions/{version}"):
            self._infer[f"{base}/infer"] = name
            self._get[base] = lambda: self._of_model(name, documents.metadata)
            self._get[f"{base}/ready"] = lambda: self._ready(name)
            self._get[f"{base}/config"] = lambda: self._of_model(name, configuration)
            self._get[f"{base}/stats"] = lambda: self._of_model(name, documents.statistics)
        self._get["/v2/models/stats"] = lambda: self._of_model(name, documents.statistics)

    def handle(self, request: Request) -> None:
        """Answer one request, now or later."""
        name = self._infer.get(request.path)
        if name is not None:
            if request.method != "POST":
                request.reply(_error(HTTPStatus.METHOD_NOT_ALLOWED, "infer wants POST"))
            elif CODING in request.headers:
                infer = self._inference
                self._bodies.inflate(request, lambda: infer.answer_late(request, name), infer.refusing(request, name))
            else:
                self._inference.answer(request, name)
        elif (post := self._post.get(request.path)) is not None:
            if request.method == "POST" and CODING in request.headers:
                self._bodies.inflate(request, lambda: post(request), lambda error: request.reply(refusal(error)))
            elif request.method == "POST":
                post(request)
            else:
                request.reply(_error(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} wants POST"))
        elif (get := self._get.get(request.path)) is None:
            self._elsewhere(request)
        elif request.method in ("GET", "HEAD"):
            request.reply(get())
        else:
            request.reply(_error(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} wants GET"))

    def _elsewhere(self, request: Request) -> None:
        """Answer a request whose path is written otherwise than ours are, or leads nowhere."""
        path = plain_path(request.path)
        if path != request.path and (path in self._infer or path in self._post or path in self._get):
            request.path = path
            self.handle(request)
        elif (asked := shared_memory_routes.PATH.fullmatch(path)) is not None:
            self._regions(request, asked)
        else:
            request.reply(_error(HTTPStatus.NOT_FOUND, self._absence(path)))

    def _regions(self, request: Request, asked: re.Match[str]) -> None:
        def answer() -> None:
            with refusing(request):
                request.reply(shared_memory_routes.answer(self._shared, request, asked))

        if CODING in request.headers:
            self._bodies.inflate(request, answer, lambda error: request.reply(refusal(error)))
        else:
            answer()

    def _absence(self, path: str) -> str:
        known = self._state.repository.entries
        asked = _MODEL.match(path)
        if (of_version := _VERSION.match(path)) and (entry := known.get(of_version["name"])):
            served = entry.source.version
            if of_version["version"] != served:
                return no_version(of_version["name"], of_version["version"], served)
        if asked is None or asked["name"] in known:
            return f"nothing at {path[:200]}; this worker serves {', '.join(known)}"
        # The beginnings are Triton's: its clients' examples look for them.
        begin = f"failed to {asked['verb']}" if asked["verb"] else "Request for unknown model:"
        return f"{begin} {asked['name'][:200]!r}: this worker serves {', '.join(known)}"

    # models

    def _ready(self, name: str) -> Response:
        ready = self._state.repository.get(name) is not None and self._state.stuck is None and not self._state.draining
        status = HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE
        return Response(status, orjson.dumps({"name": name, "ready": ready}))

    def _of_model(self, name: str, document: Callable[[Model], documents.Document]) -> Response:
        model = self._state.repository.get(name)
        if model is None:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, self._state.repository.entries[name].absence)
        return _json(document(model))

    def _index(self, request: Request) -> None:
        try:
            wishes = orjson.loads(small(request.body)) if request.body else {}
        except RequestError as error:
            request.reply(refusal(error))
            return
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
            request.reply(_error(HTTPStatus.BAD_REQUEST, f"failed to {'load' if load else 'unload'} {name!r}: {fault}"))
        else:
            self._background.spawn(self._change(request, name, load=load))

    async def _change(self, request: Request, name: str, *, load: bool) -> None:
        repository = self._state.repository
        try:
            if load:
                await repository.load(name)
            else:
                await repository.unload(name)
            request.reply(_OK)
        except WorkerError as error:
            failed = f"failed to {'load' if load else 'unload'} {name!r}"
            request.reply(_error(HTTPStatus.BAD_REQUEST, f"{failed}: {error.reason}: {error.message}"))

    def _live(self) -> Response:
        stuck = self._state.stuck
        if stuck is None:
            return _LIVE
        return Response(HTTPStatus.SERVICE_UNAVAILABLE, orjson.dumps({"live": False, "error": stuck}))


def _parameters_fault(body: Payload) -> str | None:
    """Why a load or unload request can't be taken as it is; None when it can."""
    try:
        document = orjson.loads(small(body))
    except RequestError as error:
        return error.message
    except orjson.JSONDecodeError as error:
        return f"the request is no JSON: {error}"
    wishes = (document.get("parameters") or {}) if isinstance(document, dict) else None
    if not isinstance(wishes, dict):
        return "the request must be an object, and its parameters one too"
    return load_fault(wishes)


def _metrics() -> Response:
    return Response(HTTPStatus.OK, exposition.generate_latest(metrics.REGISTRY), exposition.CONTENT_TYPE_PLAIN_0_0_4)


def _json(document: object) -> Response:
    return Response(HTTPStatus.OK, orjson.dumps(document))


def _error(status: HTTPStatus, message: str) -> Response:
    return Response(status, error_body(message))
