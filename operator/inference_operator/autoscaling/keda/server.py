"""The gRPC server that KEDA asks. It tells what the operator's /metrics tell anybody, so it asks nobody who they are."""

import asyncio
import logging
import socket
import ssl
from asyncio import BaseTransport
from collections.abc import Awaitable, Callable
from typing import Any

from google.protobuf.message import DecodeError
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import AbstractHandler, H2Protocol
from grpclib.server import Server, Stream
from h2.events import DataReceived
from h2.settings import SettingCodes

from inference_operator.autoscaling.keda import messages
from inference_operator.autoscaling.keda.questions import Question, parse
from inference_operator.autoscaling.keda.scaler import Scaler
from inference_operator.autoscaling.metrics import MetricError, MetricFault, Metrics
from inference_operator.observability.logs import OurFaults
from inference_operator.runtime.clock import Clock
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
        reference, told = await _received(stream), None
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
        await stream.send_message(_answered(do, await _received(stream)))

    return handle


async def _received(stream: Stream[Any, Any]) -> Any:
    try:
        message = await asyncio.wait_for(stream.recv_message(), _REQUEST_SECONDS)
    except TimeoutError as error:
        raise GRPCError(Status.DEADLINE_EXCEEDED, f"no request came within {_REQUEST_SECONDS:g} s") from error
    except (DecodeError, NotImplementedError, AssertionError) as error:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request can't be read") from error
    if message is None:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request has no message")
    return message


def _answered(do: Callable[[Any], Any], request: Any) -> Any:
    try:
        return do(request)
    except MetricError as error:
        raise GRPCError(_STATUSES[error.fault], str(error)) from error


class _Protocol(H2Protocol):
    """A connection within bounds that grpclib has no setting for. `open_` are all of the server's, the longest silent first."""

    def __init__(self, made: H2Protocol, open_: dict["_Protocol", None]) -> None:
        super().__init__(made.handler, made.config, made.h2_config)
        self._open = open_

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        self.connection._connection.update_settings({SettingCodes.MAX_CONCURRENT_STREAMS: _STREAMS})  # noqa: SLF001
        self.connection.flush()
        # An empty frame of data says nothing; grpclib takes it for the end of the request.
        take = self.processor.process_data_received
        self.processor.processors[DataReceived] = lambda event: take(event) if event.flow_controlled_length else None
        self._open[self] = None
        if len(self._open) > _CONNECTIONS:
            # Who asks nothing goes before who does; KEDA's streams stay.
            goes = next((one for one in self._open if not one.processor.streams), self)
            goes.end("more than %d connections to the scaler are open; one that asks nothing is ended", _CONNECTIONS)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.pop(self, None)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 -- h2 raises what it likes at a header that is not ASCII
            self.end("a caller of the scaler sent what can't be read (%s); its connection is ended", type(error).__name__)
            return
        if self in self._open:
            # To the end of the line.
            del self._open[self]
            self._open[self] = None
        streams = self.processor.streams.values()
        if any(stream.data_received > _REQUEST_BYTES for stream in streams):
            self.end("a request to the scaler was larger than %d bytes; its connection is ended", _REQUEST_BYTES)
        elif sum(s.data_received for s in streams if not s.buffer._eof) > _UNFINISHED_BYTES:  # noqa: SLF001
            self.end("requests to the scaler, none complete, came to %d bytes; their connection is ended", _UNFINISHED_BYTES)

    def end(self, why: str, bound: int | str) -> None:
        """End the connection, and say why."""
        log.warning(why, bound)
        self._open.pop(self, None)
        self.processor.close(why % bound)


class _WithoutMetadata(AbstractHandler):
    """Hides binary metadata, which nobody here asks for: a value that is no base64 would leave the call without an answer."""

    def __init__(self, handler: AbstractHandler) -> None:
        self._handler = handler

    def accept(self, stream: Any, headers: Any, release_stream: Callable[[], Any]) -> None:
        """See AbstractHandler."""
        kept = [(name, value) for name, value in headers if not name.endswith("-bin")]
        self._handler.accept(stream, kept, release_stream)

    def cancel(self, stream: Any) -> None:
        """See AbstractHandler."""
        self._handler.cancel(stream)

    def close(self) -> None:
        """See AbstractHandler."""
        self._handler.close()


class _Server(Server):
    def __init__(self, service: ExternalScaler) -> None:
        super().__init__([service])
        self._open: dict[_Protocol, None] = {}

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        made.handler = _WithoutMetadata(made.handler)
        return _Protocol(made, self._open)


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
        server = _Server(self._service)
        await server.start(sock=listening, ssl=self._context() if self._context is not None else None)
        log.info("KEDA's scaler listens on port %d", self.port)
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
