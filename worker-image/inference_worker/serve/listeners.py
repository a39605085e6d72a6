"""The ports that the worker listens on, and how they are left in peace."""

import asyncio
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from inference_protocol.messages import GRPC_PORT, HTTP_PORT
from inference_worker.early import ADDRESS_VARIABLE, ALL_ADDRESSES, BACKLOG, HTTP_PORT_VARIABLE
from inference_worker.serve.budget import Budget
from inference_worker.serve.connections import CONNECTION_LIMIT, Connections
from inference_worker.serve.grpc import GrpcService
from inference_worker.serve.http import HttpProtocol
from inference_worker.serve.http2 import Http2Protocol
from inference_worker.serve.inference import Inference
from inference_worker.serve.routes import Routes
from inference_worker.serve.shared_memory import SharedMemory
from inference_worker.worker_state import WorkerState

_SWEEP_SECONDS = 15.0
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


class Listeners:
    """Both listeners and all their connections."""

    def __init__(self, servers: list[asyncio.Server], connections: Connections) -> None:
        self._servers = servers
        self._connections = connections
        self._sweeping = asyncio.get_running_loop().create_task(self._sweep())

    def announce_end(self) -> None:
        """Go on answering, but let callers know that they should go elsewhere for the next request."""
        self._connections.announce_end()

    async def drained(self, seconds: float) -> int:
        """Wait for callers to have their answers; how many did not get them in time."""
        return await self._connections.drained(seconds)

    def close(self) -> None:
        """Take no new connections."""
        self._sweeping.cancel()
        for server in self._servers:
            server.close()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_SECONDS)
            self._connections.sweep()


async def listen(state: WorkerState, inference: Inference, ports: Ports) -> Listeners:
    """Open both ports."""
    budget = Budget()
    connections = Connections(budget, limit=ports.connections)
    shared = SharedMemory(allowed=state.config.shared_memory)
    routes, service = Routes(state, inference, budget, shared), GrpcService(state, inference, budget, shared)
    loop = asyncio.get_running_loop()
    of_http, of_grpc = lambda: HttpProtocol(routes.handle, connections), lambda: Http2Protocol(service.handle, connections)
    if ports.opened is not None:
        http = await loop.create_server(of_http, sock=ports.opened, backlog=BACKLOG)
    else:
        http = await loop.create_server(of_http, ports.address, ports.http, backlog=BACKLOG)
    grpc = await loop.create_server(of_grpc, ports.address, ports.grpc, backlog=BACKLOG)
    return Listeners([http, grpc], connections)
