"""The worker's HTTP face: Open Inference Protocol v2, telemetry for the operator, metrics for Prometheus."""

import logging
from http import HTTPStatus

import orjson
from prometheus_client import exposition

from inference_protocol.messages import TELEMETRY_PATH, encode
from inference_worker import __version__, metrics
from inference_worker.errors import RequestError
from inference_worker.life import Life
from inference_worker.serve import codec
from inference_worker.serve.http import Request, Response, error_body

log = logging.getLogger(__name__)

_OK = Response(HTTPStatus.OK)
_NOT_READY = Response(HTTPStatus.SERVICE_UNAVAILABLE)


class Routes:
    """Answers requests from the worker's state. One instance a worker."""

    def __init__(self, life: Life) -> None:
        self._life = life
        model = life.config.model
        self._labels = (life.config.namespace, life.config.job, model.name, model.version)
        self._latency = metrics.latency_ms.labels(*self._labels)
        self._queue = metrics.queue_ms.labels(*self._labels)
        self._compute = metrics.compute_ms.labels(*self._labels)
        self._codes = {code: metrics.requests_total.labels(*self._labels, str(code)) for code in (200, 400, 429, 500, 503)}
        base = f"/v2/models/{model.name}"
        # Every path is known beforehand, so that routing is one look-up.
        self._infer = frozenset({f"{base}/infer", f"{base}/versions/{model.version}/infer"})
        self._get = {
            "/v2": self._server_metadata,
            "/v2/health/live": self._live,
            "/v2/health/ready": self._ready,
            TELEMETRY_PATH: self._telemetry,
            "/metrics": self._metrics,
        }
        for path in (base, f"{base}/versions/{model.version}"):
            self._get[path] = self._model_metadata
            self._get[f"{path}/ready"] = self._ready
        self.requests = 0
        self.failed = 0

    async def handle(self, request: Request) -> Response:
        """Answer one request."""
        if request.path in self._infer:
            if request.method != "POST":
                return _error(HTTPStatus.METHOD_NOT_ALLOWED, "infer wants POST")
            return await self._answer(request)
        handler = self._get.get(request.path)
        if handler is None:
            return _error(
                HTTPStatus.NOT_FOUND, f"nothing at {request.path[:200]}; this worker serves {self._life.config.model.name}"
            )
        if request.method not in ("GET", "HEAD"):
            return _error(HTTPStatus.METHOD_NOT_ALLOWED, f"{request.path} wants GET")
        return handler()

    async def _answer(self, request: Request) -> Response:
        self.requests += 1
        try:
            response = await self._run(request)
        except RequestError as error:
            self.failed += 1
            response = _error(error.status, error.message)
            if error.status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
                response = Response(error.status, response.body, headers=(("Retry-After", "1"),))
        except Exception:
            # Whatever we did not think of must end this request and no other, and must not leave its caller waiting.
            log.exception("a request failed")
            self.failed += 1
            response = _error(HTTPStatus.INTERNAL_SERVER_ERROR, "the worker failed on this request; its log says why")
        counter = self._codes.get(response.status.value)
        (counter or metrics.requests_total.labels(*self._labels, str(response.status.value))).inc()
        return response

    async def _run(self, request: Request) -> Response:
        loaded = self._life.loaded
        if loaded is None:
            raise RequestError(HTTPStatus.SERVICE_UNAVAILABLE, "the model is still loading")
        if (coding := request.headers.get("content-encoding", "identity")) != "identity":
            raise RequestError(
                HTTPStatus.UNSUPPORTED_MEDIA_TYPE, f"Content-Encoding {coding[:32]!r} is not supported; send it plain"
            )
        decoded = codec.decode(request.body, request.headers.get(codec.HEADER.lower()), loaded.engine.inputs, loaded.engine.outputs)
        answers, timing = await loaded.runner.infer(decoded.feeds, decoded.outputs)
        model = self._life.config.model
        body, head = codec.encode(decoded, answers, model=model.name, version=model.version)
        self._queue.observe(timing.queue * 1e3)
        self._compute.observe(timing.compute * 1e3)
        self._latency.observe((timing.queue + timing.compute) * 1e3)
        if head is None:
            return Response(HTTPStatus.OK, body)
        return Response(HTTPStatus.OK, body, "application/octet-stream", ((codec.HEADER, str(head)),))

    def _server_metadata(self) -> Response:
        return _json({"name": "inference-worker", "version": __version__, "extensions": ["binary_tensor_data"]})

    def _model_metadata(self) -> Response:
        loaded = self._life.loaded
        if loaded is None:
            return _error(HTTPStatus.SERVICE_UNAVAILABLE, "the model is still loading")
        model = self._life.config.model
        return _json(
            {
                "name": model.name,
                "versions": [model.version],
                "platform": loaded.engine.platform,
                "inputs": [{"name": s.name, "datatype": s.datatype, "shape": s.wire_shape} for s in loaded.engine.inputs],
                "outputs": [{"name": s.name, "datatype": s.datatype, "shape": s.wire_shape} for s in loaded.engine.outputs],
            }
        )

    def _live(self) -> Response:
        return _OK

    def _ready(self) -> Response:
        return _OK if self._life.ready else _NOT_READY

    def _telemetry(self) -> Response:
        return Response(HTTPStatus.OK, encode(self._life.telemetry(requests=self.requests, failed=self.failed)))

    def _metrics(self) -> Response:
        metrics.ready.labels(*self._labels).set(1 if self._life.ready else 0)
        loaded = self._life.loaded
        metrics.queue_depth.labels(*self._labels).set(loaded.runner.waiting if loaded else 0)
        return Response(HTTPStatus.OK, exposition.generate_latest(metrics.REGISTRY), exposition.CONTENT_TYPE_PLAIN_0_0_4)


def _json(document: object) -> Response:
    return Response(HTTPStatus.OK, orjson.dumps(document))


def _error(status: HTTPStatus, message: str) -> Response:
    return Response(status, error_body(message))
