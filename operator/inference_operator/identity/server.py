"""The HTTPS server that workers ask for certificates. Anybody in the cluster may connect, so each connection is bounded.

A request is one small POST. A connection lasts seconds, whatever is said on it. Whoever comes when all are taken has the place
of the oldest.
"""

import asyncio
import logging
import socket
import ssl
from collections.abc import Awaitable, Callable
from http import HTTPStatus

import msgspec
from aiohttp import web
from aiohttp.web_protocol import RequestHandler

from inference_operator.identity.issuer import IssueError
from inference_operator.observability import metrics
from inference_protocol.messages import CERTIFICATES_PATH, CertificateRequest, IssuedCertificate, encode

log = logging.getLogger(__name__)
# aiohttp would log what it can't parse, a token among it, as often as anybody sends it.
_unheard = logging.getLogger(f"{__name__}.malformed")
_unheard.disabled = True

_LONGEST_BODY_BYTES = 8192
_LONGEST_HEADER_BYTES = 16_384
_CONNECTION_SECONDS = 10.0
_HANDSHAKE_SECONDS = 5.0
_CONNECTIONS = 256
_BACKLOG = 512

Issue = Callable[[str, str, str], Awaitable[IssuedCertificate]]
"""From an address, a token and a request in PEM to a certificate. Raises IssueError."""


class _Handler(RequestHandler):
    """A connection that ends in time. `open_` are all of the server's, the oldest first."""

    __slots__ = ("_end", "_open")

    def __init__(self, manager: web.Server, open_: "dict[_Handler, None]", loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(
            manager,
            loop=loop,
            logger=_unheard,
            keepalive_timeout=_CONNECTION_SECONDS,
            lingering_time=0.0,
            max_line_size=1024,
            max_field_size=_LONGEST_HEADER_BYTES,
        )
        self._open = open_
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Begin, and count the time."""
        super().connection_made(transport)
        if len(self._open) >= _CONNECTIONS:
            oldest = next(iter(self._open))
            oldest.end()
        self._open[self] = None
        self._end = asyncio.get_running_loop().call_later(_CONNECTION_SECONDS, self.end)

    def connection_lost(self, exc: BaseException | None) -> None:
        """Count no more."""
        self._open.pop(self, None)
        if self._end is not None:
            self._end.cancel()
        super().connection_lost(exc)

    def end(self) -> None:
        """End now."""
        self._open.pop(self, None)
        if self.transport is not None:
            self.transport.abort()


class Server:
    """Listens from its start, and answers by the newest certificate that it was given."""

    def __init__(self, issue: Issue, context: ssl.SSLContext, *, port: int, address: str = "0.0.0.0") -> None:  # noqa: S104
        self._issue = issue
        self._context = context
        self._socket = socket.create_server((address, port), backlog=_BACKLOG)
        self._open: dict[_Handler, None] = {}

    @property
    def port(self) -> int:
        """Where it listens."""
        number: int = self._socket.getsockname()[1]
        return number

    async def serve(self) -> None:
        """Serve for ever."""
        application = web.Application(client_max_size=_LONGEST_BODY_BYTES)
        application.router.add_post(CERTIFICATES_PATH, self._handle)
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=1.0)
        await runner.setup()
        assert runner.server is not None
        manager, loop = runner.server, asyncio.get_running_loop()
        server = await loop.create_server(
            lambda: _Handler(manager, self._open, loop),
            sock=self._socket,
            ssl=self._context,
            ssl_handshake_timeout=_HANDSHAKE_SECONDS,
            ssl_shutdown_timeout=1.0,
        )
        try:
            await asyncio.Event().wait()
        finally:
            server.close()
            await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.Response:
        try:
            _, _, token = request.headers.get("Authorization", "").partition(" ")
            asked = msgspec.json.decode(await request.read(), type=CertificateRequest)
            issued = await self._issue(request.remote or "", token.strip(), asked.request)
        except IssueError as error:
            log.info("no certificate for %s: %s", request.remote, error)
            metrics.certificates_total.labels("refused" if error.retry_after_seconds is None else "later").inc()
            after = {"Retry-After": str(error.retry_after_seconds)} if error.retry_after_seconds is not None else {}
            return web.Response(status=error.status, text=str(error), headers=after)
        except (msgspec.DecodeError, RecursionError):
            return web.Response(status=HTTPStatus.BAD_REQUEST, text="the body is no CertificateRequest")
        except web.HTTPException:
            raise
        except Exception:
            log.exception("a certificate could not be made")
            metrics.certificates_total.labels("failed").inc()
            return web.Response(status=HTTPStatus.INTERNAL_SERVER_ERROR, text="the operator failed on this; its log says why")
        metrics.certificates_total.labels("issued").inc()
        return web.Response(body=encode(issued), content_type="application/json")
