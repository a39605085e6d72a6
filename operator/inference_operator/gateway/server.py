"""The gRPC server that Envoys are told by: Envoy's aggregated discovery service. Every replica of the operator serves it."""

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import StreamTerminatedError
from grpclib.server import Stream

from inference_operator.gateway import messages
from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.holding import Holding
from inference_operator.gateway.resources import Resource, Resources, without_door
from inference_operator.gateway.streams import Conversation, Request, Response
from inference_operator.observability import metrics
from inference_operator.observability.logs import OurFaults
from inference_operator.runtime.grpc_server import BoundedProtocol, BoundedServer, received

log = logging.getLogger(__name__)

_CHECK_PATH = "/envoy.service.auth.v3.Authorization/Check"
_PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
# Each Envoy has one stream, and a connection for each hundred requests that wait; a few more while pods are replaced.
_CONNECTIONS, _STREAMS = 128, 100
# The number of Envoy's enum.
_OVERWRITE = 2
# An acknowledgement names every cluster that its sender wants the endpoints of. Of all requests of one connection.
_REQUEST_BYTES = 1 << 22
_REASON_CHARACTERS = 500
# One Envoy that hangs holds no request of the others up for longer.
_TAKEN_SECONDS = 1.0


_NO_ZONES: Mapping[str, Mapping[str, Resource]] = {}


class Word:
    """What is to be told now. Streams wait for the next one."""

    def __init__(self) -> None:
        self.resources: Resources | None = None
        self._of_zones: Mapping[str, Resources] = {}
        self._leaving: frozenset[str] = frozenset()
        self._changed = asyncio.Event()
        self._hearers: set[Hearer] = set()
        self._answered = asyncio.Event()

    def say(
        self,
        resources: Resources,
        zones: Mapping[str, Mapping[str, Resource]] = _NO_ZONES,
        leaving: frozenset[str] = frozenset(),
    ) -> None:
        """Replace what is told; whoever waits is woken.

        `zones` has endpoints that are others for Envoys of a zone, `leaving` the ids of Envoys that are to send their callers away.
        """
        self.resources = resources
        self._leaving = leaving
        told = resources[messages.ENDPOINTS]
        self._of_zones = {zone: {**resources, messages.ENDPOINTS: {**told, **others}} for zone, others in zones.items()}
        self._changed.set()
        self._changed = asyncio.Event()

    def of(self, envoy: str, zone: str) -> Resources | None:
        """What an Envoy in a zone is told; None while nothing is known."""
        found = self._of_zones.get(zone, self.resources)
        return without_door(found) if found is not None and envoy in self._leaving else found

    def changed(self) -> Coroutine[None, None, object]:
        """Wait until something else is told than when this was called, however much later the wait begins."""
        return self._changed.wait()

    @contextmanager
    def heard_by(self, hearer: "Hearer") -> Iterator[None]:
        """Have one more to wait for."""
        self._hearers.add(hearer)
        try:
            yield
        finally:
            self._hearers.discard(hearer)
            self.answered()

    def answered(self) -> None:
        """An Envoy has answered, or has gone."""
        self._answered.set()
        self._answered = asyncio.Event()

    async def taken(self) -> None:
        """Wait until all Envoys that listen here have answered to what is told now, but no longer than a second."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_TAKEN_SECONDS):
                while not all(hearer.told is self.resources and hearer.conversation.answered for hearer in self._hearers):
                    await self._answered.wait()


@dataclass(slots=True, eq=False)
class Hearer:
    """An Envoy's stream; `told` is the word as of which it has heard all that it asked for."""

    conversation: Conversation = field(default_factory=Conversation)
    told: Resources | None = None


class Discovery:
    """The service's method, in grpclib's form."""

    def __init__(self, word: Word, zone_of: Callable[[str], str]) -> None:
        """`zone_of` gives the zone of an Envoy by its id, which is its pod's name; empty where nobody knows."""
        self._word = word
        self._zone_of = zone_of

    def __mapping__(self) -> dict[str, Handler]:
        """Methods by path."""
        return {_PATH: Handler(self._stream, Cardinality.STREAM_STREAM, messages.DiscoveryRequest, messages.DiscoveryResponse)}

    async def _stream(self, stream: Stream[Any, Any]) -> None:
        """Tell an Envoy what it asks for, now and whenever that changes, until it goes."""
        hearer = Hearer()
        metrics.gateway_envoys.inc()
        try:
            with self._word.heard_by(hearer):
                await self._tell(stream, hearer)
        finally:
            metrics.gateway_envoys.dec()

    async def _tell(self, stream: Stream[Any, Any], hearer: Hearer) -> None:
        conversation, node, zone = hearer.conversation, "", ""
        hearing, changed = asyncio.ensure_future(received(stream)), asyncio.ensure_future(self._word.changed())
        try:
            while True:
                changed.cancel()
                changed = asyncio.ensure_future(self._word.changed())
                now = self._word.resources
                if (resources := self._word.of(node, zone or self._zone_of(node))) is not None:
                    for response in conversation.due(resources):
                        await stream.send_message(_written(response))
                hearer.told = now
                self._word.answered()
                await asyncio.wait((hearing, changed), return_when=asyncio.FIRST_COMPLETED)
                if not hearing.done():
                    continue
                heard = _heard(hearing)
                if heard is None:
                    return
                node, zone = node or heard.node.id, zone or heard.node.locality.zone
                _take(conversation, heard, node)
                hearing = asyncio.ensure_future(received(stream))
        finally:
            hearing.cancel()
            changed.cancel()


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


class Authorization:
    """Envoy's question whether a held request may go on, in grpclib's form."""

    def __init__(self, holding: Holding) -> None:
        self._holding = holding

    def __mapping__(self) -> dict[str, Handler]:
        """Methods by path."""
        return {_CHECK_PATH: Handler(self._check, Cardinality.UNARY_UNARY, messages.CheckRequest, messages.CheckResponse)}

    async def _check(self, stream: Stream[Any, Any]) -> None:
        asked = await received(stream)
        if asked is None:
            return
        headers = {entry.key: entry.value for entry in asked.attributes.request.http.headers}
        await stream.send_message(_verdict(await self._holding.check(headers)))


def _verdict(found: Refusal | Mapping[str, str]) -> Any:
    if isinstance(found, Refusal):
        denied = {
            "status": {"code": found.status},
            "body": found.text,
            "headers": _options({"retry-after": str(found.retry_seconds)}),
        }
        return messages.CheckResponse(status={"code": Status.UNAVAILABLE.value}, denied_response=denied)
    return messages.CheckResponse(status={"code": Status.OK.value}, ok_response={"headers": _options(found)})


def _options(headers: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"header": {"key": key, "value": value}, "append_action": _OVERWRITE} for key, value in headers.items()]


class _Services:
    """Several services as the one that a server has."""

    def __init__(self, *services: Discovery | Authorization) -> None:
        self._services = services

    def __mapping__(self) -> dict[str, Handler]:
        """Methods by path."""
        return {path: handler for service in self._services for path, handler in service.__mapping__().items()}


class _Protocol(BoundedProtocol):
    caller = "an Envoy"
    connections = _CONNECTIONS
    streams = _STREAMS

    def excess(self) -> str:
        """See BoundedProtocol."""
        return f"its requests, none complete, came to {_REQUEST_BYTES} bytes" if self.held_bytes > _REQUEST_BYTES else ""


async def serve(
    word: Word,
    port: int,
    listening: Callable[[int], None],
    holding: Holding | None = None,
    zone_of: Callable[[str], str] = lambda _: "",
) -> None:
    """Serve for ever, on `port`; where that is 0, on a free one. `listening` is told which."""
    sock = socket.create_server(("0.0.0.0", port))  # noqa: S104 -- Envoys come from outside the pod
    listening(sock.getsockname()[1])
    logging.getLogger("grpclib.server").addFilter(OurFaults((StreamTerminatedError,)))
    services: list[Discovery | Authorization] = [Discovery(word, zone_of)]
    if holding is not None:
        services.append(Authorization(holding))
    server = BoundedServer(_Services(*services), _Protocol)
    await server.start(sock=sock)
    log.info("the gateway's control plane listens on port %d", sock.getsockname()[1])
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
