"""The ports that the worker listens on, and how they are left in peace."""

import asyncio
import logging
import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from inference_protocol.messages import GRPC_PORT, HTTP_PORT
from inference_worker import cpu
from inference_worker.device import computes_on_device
from inference_worker.early import ADDRESS_VARIABLE, ALL_ADDRESSES, BACKLOG, HTTP_PORT_VARIABLE
from inference_worker.frontends.handover import Kind
from inference_worker.frontends.supervisor import Frontends, Limits, frontends_of
from inference_worker.serve.budget import Budget
from inference_worker.serve.connections import CONNECTION_LIMIT, Connections
from inference_worker.serve.grpc import GrpcService
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http2 import Http2Protocol
from inference_worker.serve.inference import Inference
from inference_worker.serve.routes import Routes
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.worker_state import WorkerState

log = logging.getLogger(__name__)

_START_SECONDS = 10.0
CONNECTIONS_VARIABLE = "INFERENCE_CONNECTIONS"


@dataclass(frozen=True, slots=True)
class Ports:
    """TCP ports, 0 for any free one, and the address that they are on: all of the pod's unless said otherwise.

    `opened` is the HTTP port where it is open already, `connections` how many callers may be connected to both.
    """

    http: int = HTTP_PORT
    grpc: int = GRPC_PORT
    address: str = ALL_ADDRESSES
    opened: socket.socket | None = None
    connections: int = CONNECTION_LIMIT

    @staticmethod
    def of(environment: Mapping[str, str], *, opened: socket.socket | None = None) -> "Ports":
        """As the environment says, else the usual ones."""
        return Ports(
            int(environment.get(HTTP_PORT_VARIABLE, HTTP_PORT)),
            int(environment.get("INFERENCE_GRPC_PORT", GRPC_PORT)),
            environment.get(ADDRESS_VARIABLE, ALL_ADDRESSES),
            opened,
            int(environment.get(CONNECTIONS_VARIABLE, CONNECTION_LIMIT)),
        )

    def sockets(self) -> tuple[socket.socket, socket.socket]:
        """The listening sockets, of HTTP and of gRPC. Raises OSError where a port is taken."""
        http = self.opened or socket.create_server((self.address, self.http), backlog=BACKLOG)
        return http, socket.create_server((self.address, self.grpc), backlog=BACKLOG)


class Listeners:
    """Both listening sockets, and all connections: this process's own, and those of its frontends where it has some."""

    def __init__(
        self,
        sockets: Mapping[Kind, socket.socket],
        servers: list[asyncio.Server],
        connections: Connections,
        frontends: Frontends | None,
    ) -> None:
        self._sockets = sockets
        self._servers = servers
        self._connections = connections
        self._frontends = frontends
        self._sweeping = asyncio.get_running_loop().create_task(connections.keep_swept())

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
        """Take no new connections."""
        self._sweeping.cancel()
        self._close_servers()
        if self._frontends is not None:
            self._frontends.close()
        for each in self._sockets.values():
            each.close()

    def end(self) -> None:
        """End what serves connections elsewhere."""
        self.close()
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
    """Open both ports."""
    budget = Budget()
    connections = Connections(budget, limit=ports.connections)
    shared = SharedMemory(allowed=state.config.shared_memory)
    routes, service = Routes(state, inference, budget, shared), GrpcService(state, inference, budget, shared)
    loop = asyncio.get_running_loop()
    http, grpc = ports.sockets()
    # Closing a server closes its socket, and frontends may go on with it.
    servers = [
        await loop.create_server(lambda: HttpProtocol(routes.handle, connections), sock=http.dup(), backlog=BACKLOG),
        await loop.create_server(lambda: Http2Protocol(service.handle, connections), sock=grpc.dup(), backlog=BACKLOG),
    ]
    number = _frontends_for(state)
    limits = Limits(budget.limit, ports.connections)
    frontends = Frontends(number, limits, budget, routes.handle, service.handle) if number else None
    return Listeners({Kind.HTTP: http, Kind.GRPC: grpc}, servers, connections, frontends)


def _frontends_for(state: WorkerState) -> int:
    """Those of a worker that serves from a device: a batch has hardly any callers."""
    on_device = state.config.task is None and computes_on_device(state.config)
    return frontends_of(os.environ, on_device=on_device, cpus=cpu.usable_cpus())
