"""The TLS server that the aggregation layer talks to: who are you, may you, here it is."""

import logging
import socket
import ssl
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import unquote

from aiohttp import web

from inference_operator.autoscaling.metrics import METRICS, MetricError, MetricFault, Metrics
from inference_operator.autoscaling.metricsapi import documents
from inference_operator.autoscaling.metricsapi.authentication import FrontProxy, Identity, Tokens, trusting
from inference_operator.autoscaling.metricsapi.authorization import Access
from inference_operator.autoscaling.metricsapi.documents import StatusError
from inference_operator.autoscaling.metricsapi.queries import Discovery, MetricRequest, parse
from inference_operator.errors import OperatorError, OverloadedError

log = logging.getLogger(__name__)

_HEALTH = frozenset({"/healthz", "/livez", "/readyz"})
# A request that is under way when the trusted CA changes may end.
# The aggregator would send its next question down a connection to a dead replica that it has kept.
_IDLE_SECONDS = 1.0
_GRACE_SECONDS = 1.0
_RETRY_AFTER_SECONDS = "1"


_CODES = {
    MetricFault.INVALID: HTTPStatus.BAD_REQUEST,
    MetricFault.NOT_FOUND: HTTPStatus.NOT_FOUND,
    MetricFault.UNAVAILABLE: HTTPStatus.SERVICE_UNAVAILABLE,
}


class Front:
    """Answers requests that have come through TLS."""

    def __init__(self, metrics: Metrics, tokens: Tokens, *, proxied: Access, direct: Access) -> None:
        """`proxied` answers for whom the API server sends, `direct` for whoever comes with a token."""
        self._metrics = metrics
        self._tokens = tokens
        self._proxied = proxied
        self._direct = direct
        self.front_proxy: FrontProxy | None = None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Any request."""
        if request.path in _HEALTH:
            return web.Response(text="ok")
        try:
            return web.json_response(await self._answer(request))
        except StatusError as error:
            return web.json_response(error.document(), status=error.code)
        except OverloadedError as error:
            shed = StatusError(HTTPStatus.TOO_MANY_REQUESTS, str(error))
            return web.json_response(shed.document(), status=shed.code, headers={"Retry-After": _RETRY_AFTER_SECONDS})
        except OperatorError as error:
            log.warning("a request for metrics could not be checked: %s", error)
            text = "the API server could not be asked who may see this; try again"
            return web.json_response(StatusError(HTTPStatus.SERVICE_UNAVAILABLE, text).document(), status=503)
        except Exception:
            log.exception("a request for metrics failed")
            text = "the operator failed to answer; its log says why"
            return web.json_response(StatusError(HTTPStatus.INTERNAL_SERVER_ERROR, text).document(), status=500)

    async def _answer(self, request: web.Request) -> documents.Document:
        identity, access = self._sent(request), self._proxied
        if identity is None:
            identity, access = await self._tokens.identity(request.headers.get("Authorization", "")), self._direct
        if identity is None:
            raise StatusError(HTTPStatus.UNAUTHORIZED, "Unauthorized")
        if request.method != "GET":
            raise StatusError(HTTPStatus.METHOD_NOT_ALLOWED, "metrics can only be read")
        # Split before it is decoded: a name may hold an escaped slash, and must not become two parts by it.
        parts = tuple(unquote(part) for part in request.rel_url.raw_path.strip("/").split("/"))
        what = parse(parts, request.query)
        if not await access.allows(identity, what):
            raise StatusError(HTTPStatus.FORBIDDEN, f"{identity.name} may not get {request.path}")
        match what:
            case Discovery(version=None):
                return documents.group()
            case Discovery(version=version) if version is not None:
                return documents.resources(version, METRICS)
        assert isinstance(what, MetricRequest)
        query = what.query
        if what.resource != documents.RESOURCE or not query.namespace:
            missing = f"metric {query.metric} of {what.resource or 'objects'}"
            raise StatusError(HTTPStatus.NOT_FOUND, f"there is no {missing}; InferenceJobs have {', '.join(METRICS)}")
        try:
            return documents.values(what.version, self._metrics.values(query), query.series)
        except MetricError as error:
            raise StatusError(_CODES[error.fault], str(error)) from error

    def _sent(self, request: web.Request) -> Identity | None:
        """The user in whose name the API server asks; None when somebody else does."""
        transport = request.transport
        certificate = transport.get_extra_info("peercert") if transport is not None else None
        if self.front_proxy is None or not certificate:
            return None
        return self.front_proxy.identity(certificate, request.headers)


class Server:
    """One listening socket for the life of the process; behind it a server for each trusted CA in turn.

    A TLS context can't forget a CA, so a new one comes with a new context; connections that the old one let in are ended.
    """

    def __init__(self, front: Front, *, host: str, port: int) -> None:
        self._front = front
        self._socket = socket.create_server((host, port), family=_family(host), dualstack_ipv6=False)
        self._socket.setblocking(False)
        self._context: ssl.SSLContext | None = None
        self._runner: web.AppRunner | None = None
        self._ca: str | None = None

    @property
    def port(self) -> int:
        """Where it listens."""
        number: int = self._socket.getsockname()[1]
        return number

    async def use(self, load: Callable[[ssl.SSLContext], None], proxy: FrontProxy | None) -> None:
        """Serve with a certificate (`load` puts it into a context) and trust the CA of `proxy`; what is the same goes on."""
        ca = proxy.ca if proxy is not None else None
        # Tried first: a key that does not belong to its certificate must not spoil the context that answers.
        load(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        if self._context is not None and ca == self._ca:
            load(self._context)
            self._front.front_proxy = proxy
            return
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        load(context)
        if ca is not None:
            trusting(context, ca)
        runner = await self._start(context)
        old, self._runner = self._runner, runner
        self._context, self._ca, self._front.front_proxy = context, ca, proxy
        if old is not None:
            log.info("the cluster's request-header CA has changed; older connections are ended")
            await old.cleanup()

    async def close(self) -> None:
        """End it."""
        if self._runner is not None:
            await self._runner.cleanup()
        self._socket.close()

    async def _start(self, context: ssl.SSLContext) -> web.AppRunner:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._front.handle)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=_GRACE_SECONDS, keepalive_timeout=_IDLE_SECONDS)
        await runner.setup()
        # A duplicate: it closes with its server, and what waits in the queue of the socket stays for the next.
        await web.SockSite(runner, self._socket.dup(), ssl_context=context).start()
        return runner


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
