"""A worker that falls silent leaves the endpoints, and comes back: real connections, a real operator.

How soon it leaves is measured by `make bench NAME=failures`.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Self

from inference_protocol.messages import HEALTH_PORT
from tests import loopback
from tests.component.objects import a_model, a_node, a_server
from tests.component.operators import Ward, until

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer
    from tests.component.kubelet import Kubelet

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


class Workers:
    """Two workers, each with an address of its own; those in `silent` take questions and answer none."""

    def __init__(self) -> None:
        self.addresses = [loopback.address(200 + number) for number in (1, 2)]
        self.silent: set[str] = set()
        self.answered: set[str] = set()
        # Questions that had no answer.
        self.unanswered: Counter[str] = Counter()
        self._servers: list[asyncio.Server] = []

    async def __aenter__(self) -> Self:
        for address in self.addresses:
            self._servers.append(await asyncio.start_server(self._answer, address, HEALTH_PORT))
        return self

    async def __aexit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        address = writer.get_extra_info("sockname")[0]
        while await reader.read(4096):
            if address in self.silent:
                self.unanswered[address] += 1
            else:
                writer.write(ANSWER)
                self.answered.add(address)
        writer.close()


def taking(server: ApiServer) -> set[str]:
    """The addresses where callers are sent."""
    found = [one for raw in server.all("endpointslices") for one in raw["endpoints"] if one["conditions"]["ready"]]
    return {one["addresses"][0] for one in found}


async def test_a_silent_worker_leaves_the_endpoints_and_comes_back(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    server.create(a_node())
    server.create(a_model())
    operator = await ward.lead(server, constants={})
    async with Workers() as workers:
        server.create(a_server(replicas=2))
        for number, address in enumerate(workers.addresses, 1):
            kubelet.run(await kubelet.worker("job", number), address=address)
        first, second = workers.addresses
        await until(lambda: taking(server) == workers.answered == {first, second}, "both")

        workers.silent = {first}
        await until(lambda: taking(server) == {second}, operator.log)
        workers.silent = set()
        await until(lambda: taking(server) == {first, second}, "its return")

        # Both at once: the operator may be the one that hears nobody.
        workers.silent = {first, second}
        workers.unanswered.clear()
        await until(lambda: min(workers.unanswered[one] for one in (first, second)) >= 2, "questions that are made anew")
        assert taking(server) == {first, second}
