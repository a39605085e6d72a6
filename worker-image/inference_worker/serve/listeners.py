"""The ports that the worker listens on, and how they are left in peace."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from inference_protocol.messages import CONTROL_PORT, GRPC_PORT, HEALTH_PORT, HTTP_PORT, IDENTITY_ROOT
from inference_protocol.spiffe import only_uri
from inference_worker import cpu
from inference_worker.device import computes_on_device
from inference_worker.early import ADDRESS_VARIABLE, ALL_ADDRESSES, BACKLOG, HEALTH_PORT_VARIABLE
from inference_worker.frontends.handover import Kind
from inference_worker.frontends.supervisor import Frontends, Limits, frontends_of
from inference_worker.serve.background import Background
from inference_worker.serve.budget import Budget
from inference_worker.serve.certificates import Certificates, TlsPorts
from inference_worker.serve.connections import CONNECTION_LIMIT, Connections
from inference_worker.serve.grpc import GrpcService
from inference_worker.serve.health import Health, ProbeConnections
from inference_worker.serve.http import Handler as HttpHandler
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http2 import Handler as Http2Handler
from inference_worker.serve.http2 import Http2Protocol
from inference_worker.serve.inference import Inference
from inference_worker.serve.operator_calls import OperatorCalls
from inference_worker.serve.routes import Routes
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.serve.tls import TLS_CONNECTION_BYTES, Caller, TlsPort
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_START_SECONDS = 10.0
CONNECTIONS_VARIABLE = "INFERENCE_CONNECTIONS"
# The operator has few: a poll, and one for each task whose end it waits for.
_CONTROL_CONNECTIONS = 512


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports, 0 for any free one, and the address that they are on: all of the pod's unless said otherwise.

    `opened` is the health port where it is open already, `connections` how many callers may be connected to HTTP and gRPC.
    `identity` is the folder of what the worker proves itself by.
    """

    http: int = HTTP_PORT
    grpc: int = GRPC_PORT
    health: int = HEALTH_PORT
    control: int = CONTROL_PORT
    address: str = ALL_ADDRESSES
    opened: socket.socket | None = None
    connections: int = CONNECTION_LIMIT
    identity: Path = Path(IDENTITY_ROOT)

    @staticmethod
    def of(environment: Mapping[str, str], *, opened: socket.socket | None = None) -> "Ports":
        """As the environment says, else the usual ones."""
        return Ports(
            int(environment.get("INFERENCE_HTTP_PORT", HTTP_PORT)),
            int(environment.get("INFERENCE_GRPC_PORT", GRPC_PORT)),
            int(environment.get(HEALTH_PORT_VARIABLE, HEALTH_PORT)),
            int(environment.get("INFERENCE_CONTROL_PORT", CONTROL_PORT)),
            environment.get(ADDRESS_VARIABLE, ALL_ADDRESSES),
            opened,
            int(environment.get(CONNECTIONS_VARIABLE, CONNECTION_LIMIT)),
            Path(environment.get("INFERENCE_IDENTITY_ROOT", IDENTITY_ROOT)),
        )

    def listening(self, port: int) -> socket.socket:
        """A listening socket. Raises OSError where the port is taken."""
        return socket.create_server((self.address, port), backlog=BACKLOG)


class Closable(Protocol):
    """What takes connections until it is closed."""

    def close(self) -> None:
        """Take no new connections."""
        ...


@dataclass(frozen=True, slots=True)
class _Inside:
    """What is for the kubelet and the operator: it listens to the worker's end, whatever callers are told."""

    servers: list[Closable] = field(default_factory=list)
    connections: list[Connections] = field(default_factory=list)


class Listeners:
    """All listening sockets, and all connections: this process's own, and those of its frontends where it has some."""

    def __init__(
        self,
        sockets: Mapping[Kind, socket.socket],
        servers: list[Closable],
        connections: Connections,
        frontends: Frontends | None,
        inside: _Inside,
        certificates: Certificates,
    ) -> None:
        self._sockets = sockets
        self._servers = servers
        self._connections = connections
        self._frontends = frontends
        self._inside = inside
        work = (*(each.keep_swept() for each in (connections, *inside.connections)), certificates.run())
        self._tasks = [asyncio.get_running_loop().create_task(each) for each in work]

    def announce_end(self) -> None:
        """Go on answering, but let callers know that they should go elsewhere for the next request."""
        self._connections.announce_end()
        if self._frontends is not None:
            self._frontends.announce_end()

    async def drained(self, seconds: float) -> int:
        """Wait for callers to have their answers; how many did not get them in time."""
        if self._frontends is None:
            return await self._connections.drained(seconds)
        return sum(await asyncio.gather(self._connections.drained(seconds), self._frontends.drained(seconds)))

    def close(self) -> None:
        """Take no new connections of callers."""
        self._close_servers()
        if self._frontends is not None:
            self._frontends.close()
        for each in self._sockets.values():
            each.close()

    def end(self) -> None:
        """End what serves connections elsewhere, and what the kubelet and the operator ask."""
        self.close()
        for task in self._tasks:
            task.cancel()
        for server in self._inside.servers:
            server.close()
        if self._frontends is not None:
            self._frontends.end()

    def _close_servers(self) -> None:
        for server in self._servers:
            server.close()
        self._servers = []

    async def settle(self) -> None:
        """Leave new connections to the frontends, once they can serve them. This process keeps those that it has."""
        if self._frontends is None:
            return
        try:
            await asyncio.wait_for(self._frontends.wait_ready(), _START_SECONDS)
        except TimeoutError:
            log.error("not all frontends have started within %.0f s; the others have more to do", _START_SECONDS)
        self._close_servers()
        self._frontends.listen(self._sockets)


async def listen(state: WorkerState, inference: Inference, ports: Ports) -> Listeners:
    """Open the ports: that of health, those of callers, and that of the operator where the worker has an identity."""
    budget, inside = Budget(), _Inside()
    connections = Connections(budget, limit=_most_connections(state, ports, budget))
    shared = SharedMemory(allowed=state.config.shared_memory)
    routes, service = Routes(state, inference, budget, shared), GrpcService(state, inference, budget, shared)
    await _open_health(state, ports, inside)
    control = _open_control(state, ports, inside, budget)
    http, grpc = ports.listening(ports.http), ports.listening(ports.grpc)
    # Closing a server closes its socket, and frontends may go on with it.
    of_http, of_grpc = http.dup(), grpc.dup()
    servers: list[Closable] = []
    tls = TlsPorts()
    if state.config.serving_tls is None:
        loop = asyncio.get_running_loop()
        servers += (
            await loop.create_server(lambda: HttpProtocol(routes.handle, connections), sock=of_http, backlog=BACKLOG),
            await loop.create_server(lambda: Http2Protocol(service.handle, connections), sock=of_grpc, backlog=BACKLOG),
        )
    else:
        tls = _secure(state, connections, (of_http, routes.handle), (of_grpc, service.handle))
        servers += tls.callers
    number = _frontends_for(state)
    limits = Limits(budget.limit, ports.connections)
    frontends = Frontends(number, limits, budget, routes.handle, service.handle) if number else None
    certificates = Certificates(state.config, ports.identity, TlsPorts(tls.callers, control, tls.tokens), state.set_certified)
    return Listeners({Kind.HTTP: http, Kind.GRPC: grpc}, servers, connections, frontends, inside, certificates)


def _frontends_for(state: WorkerState) -> int:
    """Those of a worker that serves from a device: a batch has hardly any callers. TLS is spoken by this process alone."""
    if state.config.serving_tls is not None:
        return 0
    on_device = state.config.task is None and computes_on_device(state.config)
    return frontends_of(os.environ, on_device=on_device, cpus=cpu.usable_cpus())


def _most_connections(state: WorkerState, ports: Ports, budget: Budget) -> int:
    """How many callers may be connected: by TLS as many as take the memory that bodies may, since each takes some for good."""
    if state.config.serving_tls is None:
        return ports.connections
    return min(ports.connections, budget.limit // TLS_CONNECTION_BYTES)


async def _open_health(state: WorkerState, ports: Ports, inside: _Inside) -> None:
    probes, health = ProbeConnections(), Health(state)
    opened = ports.opened or ports.listening(ports.health)
    made = asyncio.get_running_loop().create_server(lambda: HttpProtocol(health.handle, probes), sock=opened, backlog=BACKLOG)
    inside.servers.append(await made)
    inside.connections.append(probes)


def _open_control(state: WorkerState, ports: Ports, inside: _Inside, budget: Budget) -> TlsPort | None:
    """The operator's port: its certificate alone opens it, which is no worker's, though one authority signs for all."""
    identity = state.config.identity
    if identity is None:
        return None
    calls, connections = OperatorCalls(state, Background()), Connections(budget, limit=_CONTROL_CONNECTIONS)

    def choose(caller: Caller) -> asyncio.Protocol | None:
        return HttpProtocol(calls.handle, connections) if only_uri(caller.certificate) == identity.operator else None

    port = TlsPort(ports.listening(ports.control), "http/1.1", choose, required=True)
    inside.servers.append(port)
    inside.connections.append(connections)
    return port


def _secure(
    state: WorkerState,
    connections: Connections,
    http: tuple[socket.socket, HttpHandler],
    grpc: tuple[socket.socket, Http2Handler],
) -> TlsPorts:
    """Callers' ports by TLS, and who checks their tokens. A certificate admits as a token does, where both are asked for."""
    told = state.config.serving_tls
    assert told is not None
    (of_http, http_handler), (of_grpc, grpc_handler) = http, grpc
    tokens, guarded_http, guarded_grpc = None, http_handler, grpc_handler
    if told.jwt is not None:
        # PyJWT and its cryptography take time and memory that only those pay whose callers show tokens.
        from inference_worker.serve.jwt import Tokens, guarded, guarded_streams

        tokens = Tokens(told.jwt)
        guarded_http, guarded_grpc = guarded(tokens, http_handler), guarded_streams(tokens, grpc_handler)

    def speaks_http(caller: Caller) -> asyncio.Protocol:
        return HttpProtocol(http_handler if caller.certificate else guarded_http, connections)

    def speaks_grpc(caller: Caller) -> asyncio.Protocol:
        return Http2Protocol(grpc_handler if caller.certificate else guarded_grpc, connections)

    required = told.client_certificates and told.jwt is None
    callers = (
        TlsPort(of_http, "http/1.1", speaks_http, required=required),
        TlsPort(of_grpc, "h2", speaks_grpc, required=required),
    )
    return TlsPorts(callers, tokens=tokens)
