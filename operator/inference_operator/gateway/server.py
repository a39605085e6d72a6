"""The gRPC server that Envoys are told by: Envoy's aggregated discovery service. Every replica of the operator serves it."""

import asyncio
import logging
import socket
from collections.abc import Callable
from typing import Any

from grpclib.const import Cardinality, Handler
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Stream

from inference_operator.gateway import messages
from inference_operator.gateway.resources import Resources
from inference_operator.gateway.streams import Conversation, Request, Response
from inference_operator.observability import metrics
from inference_operator.observability.logs import OurFaults
from inference_operator.runtime.grpc_server import BoundedProtocol, BoundedServer, received

log = logging.getLogger(__name__)

_PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
# Each Envoy has one stream; a few more while pods are replaced.
_CONNECTIONS, _STREAMS = 64, 8
# An acknowledgement names every cluster that its sender wants the endpoints of. Of all requests of one connection.
_REQUEST_BYTES = 1 << 22
_REASON_CHARACTERS = 500


class Word:
    """What is to be told now. Streams wait for the next one."""

    def __init__(self) -> None:
        self.resources: Resources | None = None
        self._changed = asyncio.Event()

    def say(self, resources: Resources) -> None:
        """Replace what is told; whoever waits is woken."""
        self.resources = resources
        self._changed.set()
        self._changed = asyncio.Event()

    async def changed(self) -> None:
        """Wait until something else is told."""
        await self._changed.wait()


class Discovery:
    """The service's method, in grpclib's form."""

    def __init__(self, word: Word) -> None:
        self._word = word

    def __mapping__(self) -> dict[str, Handler]:
        """Methods by path."""
        return {_PATH: Handler(self._stream, Cardinality.STREAM_STREAM, messages.DiscoveryRequest, messages.DiscoveryResponse)}

    async def _stream(self, stream: Stream[Any, Any]) -> None:
        """Tell an Envoy what it asks for, now and whenever that changes, until it goes."""
        conversation, node = Conversation(), ""
        metrics.gateway_envoys.inc()
        hearing = asyncio.ensure_future(received(stream))
        try:
            while True:
                changed = asyncio.ensure_future(self._word.changed())
                if self._word.resources is not None:
                    for response in conversation.due(self._word.resources):
                        await stream.send_message(_written(response))
                await asyncio.wait((hearing, changed), return_when=asyncio.FIRST_COMPLETED)
                changed.cancel()
                if not hearing.done():
                    continue
                heard = _heard(hearing)
                if heard is None:
                    return
                node = node or heard.node.id
                _take(conversation, heard, node)
                hearing = asyncio.ensure_future(received(stream))
        finally:
            hearing.cancel()
            metrics.gateway_envoys.dec()


def _heard(hearing: "asyncio.Future[Any]") -> Any:
    """The request; None at the stream's end, and where the Envoy is gone. Raises GRPCError for what is no request."""
    try:
        return hearing.result()
    except StreamTerminatedError:
        return None


def _take(conversation: Conversation, heard: Any, node: str) -> None:
    refused = heard.error_detail.message if heard.HasField("error_detail") else ""
    kind = heard.type_url.rpartition("/")[2]
    if conversation.hear(Request(kind, heard.response_nonce, frozenset(heard.resource_names), refused)):
        metrics.gateway_refusals_total.inc()
        log.error("Envoy %s keeps what it had, and refuses the new %s: %s", node[:100], kind, refused[:_REASON_CHARACTERS])


def _written(response: Response) -> Any:
    url = messages.type_url(response.kind)
    resources = [{"type_url": url, "value": resource.data} for resource in response.resources]
    return messages.DiscoveryResponse(version_info=response.version, resources=resources, type_url=url, nonce=response.nonce)


class _Protocol(BoundedProtocol):
    caller = "an Envoy"
    connections = _CONNECTIONS
    streams = _STREAMS

    def excess(self) -> str:
        """See BoundedProtocol. What has been read of a stream is let go of."""
        held = sum(stream.buffer._acked_size for stream in self.processor.streams.values())  # noqa: SLF001
        return f"its requests, none complete, came to {_REQUEST_BYTES} bytes" if held > _REQUEST_BYTES else ""


async def serve(word: Word, port: int, listening: Callable[[int], None]) -> None:
    """Serve for ever, on `port`; where that is 0, on a free one. `listening` is told which."""
    sock = socket.create_server(("0.0.0.0", port))  # noqa: S104 -- Envoys come from outside the pod
    listening(sock.getsockname()[1])
    logging.getLogger("grpclib.server").addFilter(OurFaults((StreamTerminatedError,)))
    server = BoundedServer(Discovery(word), _Protocol)
    await server.start(sock=sock)
    log.info("the gateway's control plane listens on port %d", sock.getsockname()[1])
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
