"""The operator's API client with the few verbs more that a load generator and a kubelet's stand-in need."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import msgspec

from inference_operator.errors import NotFoundError, OperatorError
from inference_operator.kube.client import Kube
from inference_operator.kube.connection import from_kubeconfig
from inference_operator.kube.ports import Raw
from inference_operator.runtime.bucket import TokenBucket

_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=5)


class Client(Kube):
    """A client that merges patches, deletes whatever has a name, and follows a collection."""

    async def merge(self, path: str, body: Raw) -> Raw:
        """Apply a JSON merge patch. Raises OperatorError."""
        return await self._request("PATCH", path, body=body, kind="application/merge-patch+json")

    async def remove(self, path: str, *, grace_seconds: int | None = None) -> None:
        """Delete an object and, in the background, what it owns; one that is gone already is fine."""
        body: Raw = {"propagationPolicy": "Background"}
        if grace_seconds is not None:
            body["gracePeriodSeconds"] = grace_seconds
        try:
            await self._request("DELETE", path, body=body)
        except NotFoundError:
            return

    async def follow(self, path: str) -> AsyncIterator[tuple[str, Raw]]:
        """(type, object) of everything in a collection, and of every change from then on; ends never."""
        while True:
            try:
                listed = await self.get(path)
                for item in listed["items"]:
                    yield "ADDED", item
                async for event in self._stream(path, listed["metadata"]["resourceVersion"]):
                    yield event
            except (OperatorError, aiohttp.ClientError, OSError):
                await asyncio.sleep(0.05)

    async def _stream(self, path: str, version: str) -> AsyncIterator[tuple[str, Raw]]:
        query = {"watch": "true", "resourceVersion": version}
        connection = self._connection
        async with self._session.get(
            connection.server + path, params=query, ssl=connection.tls or False, timeout=_WATCH_TIMEOUT
        ) as response:
            response.raise_for_status()
            # Not line by line through aiohttp: its limit on a line's length is below the size of some objects.
            rest = b""
            async for chunk in response.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    event = msgspec.json.decode(line)
                    if event["type"] == "ERROR":
                        return
                    yield event["type"], event["object"]


@asynccontextmanager
async def client(
    kubeconfig: Path, *, agent: str = "bench", rate: float = 1e6, burst: int = 1_000_000, connections: int = 64
) -> AsyncIterator[Client]:
    """A client under a name of its own, by which the audit log tells it from others; by default without a rate limit."""
    connector = aiohttp.TCPConnector(limit=connections)
    async with aiohttp.ClientSession(connector=connector, headers={"User-Agent": agent}) as session:
        yield Client(from_kubeconfig(kubeconfig), session, TokenBucket(rate, burst, time.monotonic))
