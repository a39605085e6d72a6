"""The gRPC server that gateways of others ask for each request. Every replica of the operator serves it."""

import logging
import socket
import ssl
from collections.abc import Callable, Mapping
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Stream

from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.picker import messages
from inference_operator.gateway.picker.asked import Target
from inference_operator.gateway.picker.exchange import Exchange
from inference_operator.gateway.picker.picker import Picker
from inference_operator.observability.logs import OurFaults
from inference_operator.runtime.clock import Clock
from inference_operator.runtime.grpc_server import BoundedProtocol, BoundedServer, received
from inference_operator.state.store import Store

log = logging.getLogger(__name__)

# Each request that a gateway has under way is a stream. Its body passes by in pieces, and is not kept.
_CONNECTIONS, _STREAMS = 128, 1000
# Of what has come of all messages of one connection, none complete: a gateway that buffers sends a whole request as one.
_MESSAGE_BYTES = 1 << 24


class ExternalProcessor:
    """The services' methods, in grpclib's form."""

    def __init__(self, picker: Picker) -> None:
        self._picker = picker

    def __mapping__(self) -> dict[str, Handler]:
        """Methods by path."""
        processed = (Cardinality.STREAM_STREAM, messages.ProcessingRequest, messages.ProcessingResponse)
        checked = (Cardinality.UNARY_UNARY, messages.HealthCheckRequest, messages.HealthCheckResponse)
        return {
            f"/{messages.EXTERNAL_PROCESSOR}/Process": Handler(self._process, *processed),
            f"/{messages.HEALTH}/Check": Handler(_check, *checked),
        }

    async def _process(self, stream: Stream[Any, Any]) -> None:
        """Answer for one request until Envoy is done with it: so long the worker has it."""
        chosen: list[str] = []

        def decide(target: Target, headers: Mapping[str, str], subset: frozenset[str] | None) -> str | Refusal:
            decided = self._picker.decide(target, headers, subset)
            if isinstance(decided, Refusal):
                return decided
            chosen.append(decided.uid)
            self._picker.begun(decided.uid)
            return decided.endpoint

        exchange = Exchange(decide)
        try:
            while (heard := await received(stream)) is not None:
                for answer in exchange.hear(heard):
                    await stream.send_message(answer)
        except StreamTerminatedError:
            # The request is over, or its caller is gone.
            return
        finally:
            for uid in chosen:
                self._picker.ended(uid)


async def _check(stream: Stream[Any, Any]) -> None:
    """It serves from its first look on, whoever leads: liveness, readiness and the service itself are one."""
    if await received(stream) is not None:
        await stream.send_message(messages.HealthCheckResponse(status=messages.SERVING))


class _Protocol(BoundedProtocol):
    caller = "a gateway"
    connections = _CONNECTIONS
    streams = _STREAMS

    def excess(self) -> str:
        """See BoundedProtocol."""
        return f"its messages, none complete, came to {_MESSAGE_BYTES} bytes" if self.held_bytes > _MESSAGE_BYTES else ""


class EndpointPicker:
    """The whole of it, as the composition root sees it."""

    def __init__(self, store: Store, clock: Clock, port: int, context: Callable[[], ssl.SSLContext] | None = None) -> None:
        """`context` gives what it speaks TLS by; without it all is plain text."""
        self._context = context
        self._picker = Picker(store, clock)
        self.wake = self._picker.wake
        self.round = self._picker.round
        self.port = port

    async def serve(self) -> None:
        """Serve for ever, on `port`; where that is 0, on a free one, which it then is. The store has to be whole."""
        listening = socket.create_server(("0.0.0.0", self.port))  # noqa: S104 -- gateways come from outside the pod
        self.port = listening.getsockname()[1]
        logging.getLogger("grpclib.server").addFilter(OurFaults((StreamTerminatedError,)))
        server = BoundedServer(ExternalProcessor(self._picker), _Protocol)
        await server.start(sock=listening, ssl=self._context() if self._context is not None else None)
        log.info("the endpoint picker listens on port %d", self.port)
        try:
            await self._picker.run()
        finally:
            server.close()
