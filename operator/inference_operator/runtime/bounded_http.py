"""Asks those that are not trusted over HTTP: worker pods, and exporters. Whatever they answer costs a bounded amount.

Nothing is inflated, no redirect is followed, no cookie is kept, and reading ends at the cap, not after it. Everything in the
operator that talks to pods goes through here: `make lint` forbids other sessions of aiohttp.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Self

import aiohttp
from yarl import URL

# 64 tasks wait on one warm worker, and one runs; each has a call that waits for its end. The rest is for telemetry.
_CONNECTIONS_EACH = 96
# Ours have six headers of less than 100 bytes. The largest head is then 128 KiB.
_MOST_HEADERS = 32
_LONGEST_HEADER_BYTES = 4096
# What one answer may have in memory before it is read: aiohttp stops its peer at twice that.
_BUFFER_BYTES = 1 << 16
_IDENTITY = "identity"


class HttpFaultError(Exception):
    """No answer, or one that is not taken; the message says which and why."""


@dataclass(frozen=True, slots=True)
class HttpAnswer:
    """An answer that was read to its end."""

    status: int
    body: bytes


@dataclass(frozen=True, slots=True)
class Secured:
    """How a request goes by TLS: a context, and the server name that its handshake carries and its connection is kept by."""

    context: ssl.SSLContext
    server_name: str


class BoundedHttp:
    """One session for everybody who asks pods. Use it as a context, which closes the connections."""

    def __init__(self) -> None:
        """Needs a running event loop."""
        # Each task on a warm worker has a call that waits for its end: nothing may bound all of them together but the workers.
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, limit_per_host=_CONNECTIONS_EACH),
            cookie_jar=aiohttp.DummyCookieJar(),
            headers={"Accept-Encoding": _IDENTITY},
            auto_decompress=False,
            trust_env=False,
            read_bufsize=_BUFFER_BYTES,
            max_line_size=_LONGEST_HEADER_BYTES,
            max_field_size=_LONGEST_HEADER_BYTES,
            max_headers=_MOST_HEADERS,
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        await self._session.close()

    async def get(self, url: URL, *, seconds: float, most_bytes: int, secured: Secured | None = None) -> HttpAnswer:
        """Ask. `seconds` count from the call to the last byte of the answer. Raises HttpFaultError."""
        return await self._ask("GET", url, seconds, most_bytes, secured)

    async def post(
        self,
        url: URL,
        body: bytes,
        *,
        headers: Mapping[str, str],
        seconds: float,
        most_bytes: int,
        secured: Secured | None = None,
    ) -> HttpAnswer:
        """Hand over `body`; the rest is as for `get`. Raises HttpFaultError."""
        return await self._ask("POST", url, seconds, most_bytes, secured, body, headers)

    async def _ask(
        self,
        method: str,
        url: URL,
        seconds: float,
        most_bytes: int,
        secured: Secured | None,
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> HttpAnswer:
        timeout = aiohttp.ClientTimeout(total=seconds)
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=headers,
                timeout=timeout,
                allow_redirects=False,
                ssl=secured.context if secured is not None else True,
                server_hostname=secured.server_name if secured is not None else None,
            ) as response:
                try:
                    return HttpAnswer(response.status, await _read(response, most_bytes))
                except HttpFaultError:
                    # Otherwise whatever else it sends is still waited for.
                    response.close()
                    raise
        except (TimeoutError, aiohttp.ClientError, OSError, ValueError) as error:
            raise HttpFaultError(f"{type(error).__name__}: {error}"[:_LONGEST_HEADER_BYTES]) from error


async def _read(response: aiohttp.ClientResponse, most_bytes: int) -> bytes:
    encoding = response.headers.get("Content-Encoding", _IDENTITY)
    if encoding.strip().lower() != _IDENTITY:
        raise HttpFaultError(f"the answer is encoded ({encoding[:32]}), which was not asked for")
    if (response.content_length or 0) > most_bytes:
        raise HttpFaultError(f"the answer is longer than {most_bytes} bytes")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > most_bytes:
            raise HttpFaultError(f"the answer is longer than {most_bytes} bytes")
    return bytes(body)
