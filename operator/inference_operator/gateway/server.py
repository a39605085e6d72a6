"""The gRPC server that Envoys are told by: Envoy's aggregated discovery service. Every replica of the operator serves it."""

import asyncio
import logging
import socket
from asyncio import BaseTransport
from collections.abc import Callable, Mapping
from typing import Any

from google.protobuf.message import DecodeError
from grpclib.const import Cardinality, Handler, Status
from grpclib.exceptions import GRPCError, StreamTerminatedError
from grpclib.protocol import H2Protocol
from grpclib.server import Server, Stream
from h2.events import DataReceived

from inference_operator.gateway import messages
from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.holding import Holding
from inference_operator.gateway.resources import Resource, Resources, without_door
from inference_operator.gateway.streams import Conversation, Request, Response
from inference_operator.observability import metrics

log = logging.getLogger(__name__)

_CHECK_PATH = "/envoy.service.auth.v3.Authorization/Check"
_PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
# Each Envoy has one stream, and a connection for each hundred requests that wait; a few more while pods are replaced.
_CONNECTIONS = 128
# The number of Envoy's enum.
_OVERWRITE = 2
# An acknowledgement names every cluster that its sender wants the endpoints of.
_REQUEST_BYTES = 1 << 22
_REASON_CHARACTERS = 500


_NO_ZONES: Mapping[str, Mapping[str, Resource]] = {}


class Word:
    """What is to be told now. Streams wait for the next one."""

    def __init__(self) -> None:
        self.resources: Resources | None = None
        self._of_zones: Mapping[str, Resources] = {}
        self._leaving: frozenset[str] = frozenset()
        self._changed = asyncio.Event()

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

    async def changed(self) -> None:
        """Wait until something else is told."""
        await self._changed.wait()


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
        conversation, node, zone = Conversation(), "", ""
        metrics.gateway_envoys.inc()
        hearing, changed = asyncio.ensure_future(stream.recv_message()), asyncio.ensure_future(self._word.changed())
        try:
            while True:
                changed.cancel()
                changed = asyncio.ensure_future(self._word.changed())
                if (resources := self._word.of(node, zone or self._zone_of(node))) is not None:
                    for response in conversation.due(resources):
                        await stream.send_message(_written(response))
                await asyncio.wait((hearing, changed), return_when=asyncio.FIRST_COMPLETED)
                if not hearing.done():
                    continue
                heard = _heard(hearing)
                if heard is None:
                    return
                node, zone = node or heard.node.id, zone or heard.node.locality.zone
                _take(conversation, heard, node)
                hearing = asyncio.ensure_future(stream.recv_message())
        finally:
            hearing.cancel()
            changed.cancel()
            metrics.gateway_envoys.dec()


def _heard(hearing: "asyncio.Future[Any]") -> Any:
    """The request; None at the stream's end. Raises GRPCError for what is no request."""
    try:
        return hearing.result()
    except StreamTerminatedError:
        return None
    except (DecodeError, NotImplementedError, AssertionError) as error:
        raise GRPCError(Status.INVALID_ARGUMENT, "the request can't be read") from error


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
        asked = await stream.recv_message()
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


class _Protocol(H2Protocol):
    """A connection within bounds that grpclib has no setting for."""

    def __init__(self, made: H2Protocol, open_: set["_Protocol"]) -> None:
        super().__init__(made.handler, made.config, made.h2_config)
        self._open = open_

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)
        # An empty frame of data says nothing; grpclib takes it for the end of the stream.
        take = self.processor.process_data_received
        self.processor.processors[DataReceived] = lambda event: take(event) if event.flow_controlled_length else None
        self._open.add(self)
        if len(self._open) > _CONNECTIONS:
            self.end("more than %d Envoys are connected; one more is turned away", _CONNECTIONS)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._open.discard(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        try:
            super().data_received(data)
        except Exception as error:  # noqa: BLE001 -- h2 raises what it likes at a header that is not ASCII
            self.end("an Envoy sent what can't be read (%s); its connection is ended", type(error).__name__)
            return
        streams = self.processor.streams.values()
        if self in self._open and any(s.buffer._acked_size > _REQUEST_BYTES for s in streams):  # noqa: SLF001
            self.end("a request of an Envoy was larger than %d bytes; its connection is ended", _REQUEST_BYTES)

    def end(self, why: str, bound: int | str) -> None:
        """End the connection, and say why."""
        log.warning(why, bound)
        self._open.discard(self)
        self.processor.close(why % bound)


class DiscoveryServer(Server):
    """Serves a Word, and holds requests."""

    def __init__(self, word: Word, holding: Holding | None, zone_of: Callable[[str], str]) -> None:
        super().__init__([Discovery(word, zone_of), *([Authorization(holding)] if holding is not None else [])])
        self._open: set[_Protocol] = set()

    def close(self) -> None:
        """End all: an Envoy that keeps its connection asks no other replica."""
        super().close()
        for one in tuple(self._open):
            one.end("an Envoy's connection is ended: %s", "this replica stops")

    def _protocol_factory(self) -> H2Protocol:
        return _Protocol(super()._protocol_factory(), self._open)


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
    server = DiscoveryServer(word, holding, zone_of)
    await server.start(sock=sock)
    log.info("the gateway's control plane listens on port %d", sock.getsockname()[1])
    try:
        await asyncio.Event().wait()
    finally:
        server.close()
