"""The gRPC server that KEDA asks. It tells what the operator's /metrics tell anybody, so it asks nobody who they are."""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.server import Stream

from inference_operator.autoscaling.keda import messages
from inference_operator.autoscaling.keda.questions import Question, parse
from inference_operator.autoscaling.keda.scaler import Scaler
from inference_operator.autoscaling.metrics import MetricError, MetricFault, Metrics
from inference_operator.observability.logs import OurFaults
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.grpc_server import BoundedProtocol, BoundedServer, received
from inference_operator.settings import Settings
from inference_operator.state.store import Store

log = logging.getLogger(__name__)

# KEDA has one connection for all, and on it a stream that stays for every ScaledObject with external-push. At the default of h2,
# a hundred, the next one would keep all values of all jobs from being asked for.
_STREAMS = 10_000
# A request is some names; grpclib itself would take in four gigabytes.
_REQUEST_BYTES = 1 << 14
_REQUEST_SECONDS = 5.0
# Of all requests of one connection that are not complete yet; and KEDA has one connection for each replica of it.
_UNFINISHED_BYTES = 1 << 18
_CONNECTIONS = 32

_STATUSES = {
    MetricFault.INVALID: Status.INVALID_ARGUMENT,
    MetricFault.NOT_FOUND: Status.NOT_FOUND,
    MetricFault.UNAVAILABLE: Status.UNAVAILABLE,
}


class ExternalScaler:
    """The service's methods, in grpclib's form."""

    def __init__(self, scaler: Scaler, *, seconds: float) -> None:
        """`seconds` is how often streams look whether something has changed."""
        self._scaler = scaler
        self._seconds = seconds

    def __mapping__(self) -> dict[str, Handler]:
        """Methods by path."""
        unary = {
            "IsActive": (self._is_active, messages.ScaledObjectRef, messages.IsActiveResponse),
            "GetMetricSpec": (self._metric_spec, messages.ScaledObjectRef, messages.GetMetricSpecResponse),
            "GetMetrics": (self._metrics, messages.GetMetricsRequest, messages.GetMetricsResponse),
        }
        found = {name: Handler(_once(do), Cardinality.UNARY_UNARY, takes, gives) for name, (do, takes, gives) in unary.items()}
        pushed = Handler(self._stream_is_active, Cardinality.UNARY_STREAM, messages.ScaledObjectRef, messages.IsActiveResponse)
        return {f"/{messages.SERVICE}/{name}": handler for name, handler in {**found, "StreamIsActive": pushed}.items()}

    def _is_active(self, reference: Any) -> Any:
        return messages.IsActiveResponse(result=self._scaler.active(_question(reference)))

    def _metric_spec(self, reference: Any) -> Any:
        question = _question(reference)
        spec = messages.MetricSpec(metricName=question.metric, targetSizeFloat=question.target)
        return messages.GetMetricSpecResponse(metricSpecs=[spec])

    def _metrics(self, request: Any) -> Any:
        question = _question(request.scaledObjectRef)
        value = messages.MetricValue(metricName=question.metric, metricValueFloat=self._scaler.value(question))
        return messages.GetMetricsResponse(metricValues=[value])

    async def _stream_is_active(self, stream: Stream[Any, Any]) -> None:
        """Tell it at once, and whenever it changes; end with an error as soon as it is not known."""
        reference, told = await _asked(stream), None
        while True:
            now = _answered(self._is_active, reference)
            if now != told:
                await stream.send_message(now)
                told = now
            await asyncio.sleep(self._seconds)


def _question(reference: Any) -> Question:
    return parse(reference.namespace, reference.scalerMetadata)


def _once(do: Callable[[Any], Any]) -> Callable[[Stream[Any, Any]], Awaitable[None]]:
    async def handle(stream: Stream[Any, Any]) -> None:
        await stream.send_message(_answered(do, await _asked(stream)))

    return handle


async def _asked(stream: Stream[Any, Any]) -> Any:
    try:
        message = await asyncio.wait_for(received(stream), _REQUEST_SECONDS)
    except TimeoutError as error:
        raise GRPCError(Status.DEADLINE_EXCEEDED, f"no request came within {_REQUEST_SECONDS:g} s") from error
    if message is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request has no message")
    return message


def _answered(do: Callable[[Any], Any], request: Any) -> Any:
    try:
        return do(request)
    except MetricError as error:
        raise GRPCError(_STATUSES[error.fault], str(error)) from error


class _Protocol(BoundedProtocol):
    caller = "a caller of the scaler"
    connections = _CONNECTIONS
    streams = _STREAMS

    def excess(self) -> str:
        """See BoundedProtocol. Each stream has one request."""
        streams = self.processor.streams.values()
        if any(stream.data_received > _REQUEST_BYTES for stream in streams):
            return f"a request was larger than {_REQUEST_BYTES} bytes"
        if sum(s.data_received for s in streams if not s.buffer._eof) > _UNFINISHED_BYTES:  # noqa: SLF001
            return f"its requests, none complete, came to {_UNFINISHED_BYTES} bytes"
        return ""


class KedaScaler:
    """The whole of it, as the composition root sees it. Every replica serves, from its own looks at the workers."""

    def __init__(self, store: Store, clock: Clock, settings: Settings, context: Callable[[], ssl.SSLContext] | None = None) -> None:
        """`context` gives what it speaks TLS by; without it all is plain text."""
        self._context = context
        answers = Metrics(store, clock, round_seconds=settings.telemetry_seconds)
        self._service = ExternalScaler(Scaler(store, answers), seconds=settings.telemetry_seconds)
        self.port = settings.keda_scaler.port

    async def serve(self) -> None:
        """Serve for ever, on `port`; where that is 0, on a free one, which it then is."""
        listening = socket.create_server(("0.0.0.0", self.port))  # noqa: S104 -- KEDA comes from outside the pod
        self.port = listening.getsockname()[1]
        logging.getLogger("grpclib.server").addFilter(OurFaults((StreamTerminatedError, TimeoutError)))
        server = BoundedServer(self._service, _Protocol)
        await server.start(sock=listening, ssl=self._context() if self._context is not None else None)
        log.info("KEDA's scaler listens on port %d", self.port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
