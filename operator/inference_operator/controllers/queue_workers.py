"""Requests off the queue, each to the reconciler of its kind. No business rule lives here."""

import asyncio
import logging
from collections.abc import Mapping
from typing import Protocol

from inference_operator.errors import ConflictError, NotFoundError, OperatorError, RetryableError
from inference_operator.observability import metrics
from inference_operator.runtime.queue import WorkQueue
from inference_operator.state.objects import Key
from inference_operator.state.request import Kind, Request

log = logging.getLogger(__name__)


# Callers wait for them: what an outage of the API server has put off must not come a minute after it.
_LIMIT_SECONDS = {Kind.ENDPOINTS: 5.0}


class Reconciler(Protocol):
    """Brings objects of one kind closer to what their specs want."""

    async def reconcile(self, key: Key) -> None:
        """Look at one object, decide, and carry it out. Raises OperatorError."""
        ...


class Workers:
    """Work requests off the queue by a table of reconcilers."""

    def __init__(self, queue: WorkQueue[Request], reconcilers: Mapping[Kind, Reconciler]) -> None:
        self._queue = queue
        self._reconcilers = reconcilers

    async def work(self) -> None:
        """Take requests for ever. Several of these run side by side."""
        while True:
            request = await self._queue.get()
            try:
                await self._try(request)
            finally:
                self._queue.done(request)
            # A look that awaits nothing would go on to the next, ten thousand times, with probes and the scheduling loop waiting.
            await asyncio.sleep(0)

    async def _try(self, request: Request) -> None:
        try:
            with metrics.reconcile_seconds.labels(request.kind.value).time():
                await self._reconcilers[request.kind].reconcile(request.key)
        except (ConflictError, NotFoundError) as error:
            log.info("%s: looked at again: %s", request, error)
            self._again(request, "conflict")
        except RetryableError as error:
            log.warning("%s: retried: %s", request, error)
            self._again(request, "unavailable", error.after_seconds)
        except OperatorError as error:
            log.error("%s: %s", request, error)
            self._again(request, "refused")
        except Exception:
            # One object's bug must not stop the others; the metric and the log tell.
            log.exception("%s: reconcile failed", request)
            self._again(request, "bug")
        else:
            self._queue.forget(request)

    def _again(self, request: Request, cause: str, after_seconds: float | None = None) -> None:
        metrics.reconcile_errors_total.labels(request.kind.value, cause).inc()
        self._queue.retry(request, after_seconds=after_seconds or 0.0, limit_seconds=_LIMIT_SECONDS.get(request.kind))
