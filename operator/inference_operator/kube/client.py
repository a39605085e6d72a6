"""The API server over aiohttp: server-side apply, one rate limit, and the one border where HTTP turns into our errors."""

import contextlib
import json
import uuid
from collections.abc import AsyncIterator
from email.utils import parsedate_to_datetime
from types import SimpleNamespace
from typing import Any

import aiohttp
import msgspec

from inference_operator.api.names import FIELD_MANAGER
from inference_operator.errors import ConflictError, NotFoundError, RefusedError, RetryableError
from inference_operator.kube.connection import Connection
from inference_operator.kube.leaderelection import Leads
from inference_operator.kube.ports import Raw
from inference_operator.observability import metrics
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.runtime.clock import ServerClock

_PAGE = 500
_TIMEOUT = aiohttp.ClientTimeout(total=30, connect=5)
_CONNECTIONS = 64
_WATCH_SECONDS = 300
# The API server speaks every minute on each watch.
_WATCH_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=10, sock_read=70)

ApiSession = aiohttp.ClientSession


def api_session(clock: ServerClock) -> ApiSession:
    """A session for the API server alone: what it answers is believed, also the time, which `clock` is told.

    Pods are asked by `runtime/bounded_http.py`.
    """
    return ApiSession(connector=aiohttp.TCPConnector(limit=_CONNECTIONS), trace_configs=[_telling(clock)])


def _telling(clock: ServerClock) -> aiohttp.TraceConfig:
    async def asked(_: ApiSession, request: SimpleNamespace, __: aiohttp.TraceRequestStartParams) -> None:
        request.asked = clock.boottime()

    async def answered(_: ApiSession, request: SimpleNamespace, found: aiohttp.TraceRequestEndParams) -> None:
        # What stands between may leave it out, or write what is none.
        with contextlib.suppress(KeyError, ValueError):
            clock.told(parsedate_to_datetime(found.response.headers["Date"]), request.asked)

    telling = aiohttp.TraceConfig()
    telling.on_request_start.append(asked)
    telling.on_request_end.append(answered)
    return telling


class Kube:
    """A KubeClient. With `leads` it is the leader's: a write waits while somebody else may lead."""

    def __init__(self, connection: Connection, session: ApiSession, bucket: TokenBucket, leads: Leads | None = None) -> None:
        self._leads = leads
        self._connection = connection
        self._session = session
        self._bucket = bucket

    async def get(self, path: str) -> Raw:
        """See KubeClient."""
        return await self._request("GET", path)

    async def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[Raw]]:
        """See KubeClient. A page token that has expired is a RetryableError: list again from the start."""
        token = ""
        while True:
            query = {
                "limit": str(_PAGE),
                **({"continue": token} if token else {}),
                **({"labelSelector": selector} if selector else {}),
            }
            page = await self._request("GET", path, query=query)
            yield page["items"]
            token = page["metadata"].get("continue", "")
            if not token:
                return

    async def watch(self, path: str, *, selector: str = "") -> AsyncIterator[Raw]:
        """See WatchingClient. A stream that says nothing for longer than bookmarks take is ended too."""
        query = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": str(_WATCH_SECONDS)}
        await self._bucket.take()
        rest = b""
        try:
            async with self._session.get(
                self._connection.server + path,
                params={**query, **({"labelSelector": selector} if selector else {})},
                headers=self._headers("application/json"),
                ssl=self._connection.tls or False,
                timeout=_WATCH_TIMEOUT,
            ) as response:
                if response.status >= 300:
                    raise _error(response.status, await response.read(), response.headers.get("Retry-After"), f"watch {path}")
                # Not line by line: a line may be longer than the stream's buffer.
                async for part in response.content.iter_any():
                    *lines, rest = (rest + part).split(b"\n")
                    for line in lines:
                        event: Raw = msgspec.json.decode(line)
                        if event["type"] == "ERROR":
                            return
                        if event["type"] != "BOOKMARK":
                            yield event
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise RetryableError(f"watch {path}: {str(error) or type(error).__name__}") from error

    async def create(self, path: str, body: Raw) -> Raw:
        """See KubeClient. A name that is taken is a ConflictError."""
        return await self._request("POST", path, body=body, query={"fieldManager": FIELD_MANAGER})

    async def apply(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._request("PATCH", path, body=body, query=query, kind="application/apply-patch+yaml")

    async def claim(self, path: str, body: Raw) -> Raw:
        """See ClaimingClient. A POST names the object in its body alone, so RBAC can't bind it to a name; an apply it can."""
        # A manager of its own: what another replica or release has applied is not taken for ours to change.
        query = {"fieldManager": f"{FIELD_MANAGER}-{uuid.uuid4().hex[:12]}", "force": "false"}
        return await self._request("PATCH", path, body=body, query=query, kind="application/apply-patch+yaml")

    async def merge(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        return await self._request(
            "PATCH", path, body=body, query={"fieldManager": FIELD_MANAGER}, kind="application/merge-patch+json"
        )

    async def replace(self, path: str, body: Raw) -> Raw:
        """See KubeClient."""
        return await self._request("PUT", path, body=body, query={"fieldManager": FIELD_MANAGER})

    async def delete(self, path: str, *, uid: str) -> None:
        """See KubeClient. Another object under the same name is left alone."""
        body = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        try:
            await self._request("DELETE", path, body=body)
        except (NotFoundError, ConflictError):
            return

    def _headers(self, kind: str) -> dict[str, str]:
        token = self._connection.bearer()
        return {"Accept": "application/json", "Content-Type": kind, **({"Authorization": f"Bearer {token}"} if token else {})}

    async def _request(
        self,
        method: str,
        path: str,
        *,
        body: Raw | None = None,
        query: dict[str, str] | None = None,
        kind: str = "application/json",
    ) -> Raw:
        with metrics.api_wait_seconds.time():
            await self._bucket.take()
        # After all else that waits: a process that was paused there finds out here.
        timeout = _TIMEOUT if method == "GET" or self._leads is None else _within(await self._leads.sure())
        headers = self._headers(kind)
        status = 0
        try:
            with metrics.api_request_seconds.labels(method).time():
                async with self._session.request(
                    method,
                    self._connection.server + path,
                    params=query,
                    data=msgspec.json.encode(body) if body is not None else None,
                    headers=headers,
                    ssl=self._connection.tls or False,
                    timeout=timeout,
                ) as response:
                    data = await response.read()
                    status = response.status
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise RetryableError(f"{method} {path}: {str(error) or type(error).__name__}") from error
        finally:
            metrics.api_requests_total.labels(method, str(status)).inc()
        if status >= 300:
            raise _error(status, data, response.headers.get("Retry-After"), f"{method} {path}")
        decoded: Raw = msgspec.json.decode(data)
        return decoded


def _within(seconds: float) -> aiohttp.ClientTimeout:
    """A write that outlives the leadership would arrive beside those of the next leader."""
    return aiohttp.ClientTimeout(total=min(_TIMEOUT.total or seconds, seconds), connect=_TIMEOUT.connect)


def _error(status: int, data: bytes, retry_after: str | None, what: str) -> Exception:
    reason, message = "", data[:500].decode(errors="replace")
    try:
        document: dict[str, Any] = json.loads(data)
        reason, message = str(document.get("reason", "")), str(document.get("message", message))
    except ValueError:
        pass
    text = f"{what}: {status} {message}"
    if status == 404:
        return NotFoundError(text)
    if status in (409, 412):
        return ConflictError(text)
    if status in (408, 410, 425, 429) or status >= 500:
        after = float(retry_after) if retry_after is not None and retry_after.isdigit() else None
        return RetryableError(text, after_seconds=after)
    if status == 401:
        # Tokens rotate: the next request reads the new one.
        return RetryableError(text)
    return RefusedError(status, reason, message)
