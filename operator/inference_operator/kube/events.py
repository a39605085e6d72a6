"""Kubernetes Events: their form in events.k8s.io/v1, and a recorder that keeps them from slowing anything else down."""

import logging
from asyncio import Event
from collections import deque
from datetime import datetime
from typing import Any

from inference_operator.api.events import EventType
from inference_operator.api.job import KIND
from inference_operator.api.names import DOMAIN, short_hash
from inference_operator.api.schema import API_VERSION
from inference_operator.errors import ConflictError, OperatorError
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient
from inference_operator.observability import metrics
from inference_operator.runtime.clock import Clock
from inference_operator.state.objects import Key

log = logging.getLogger(__name__)

# The API's own limits.
_NOTE_LIMIT = 1000
_REASON_LIMIT = 128
_REPORTER_LIMIT = 128
# More events than this wait for nobody: as with client-go's broadcaster, what is told late is told to no use.
_WAITING = 1000
_WARNINGS_WAITING = 2 * _WAITING


class EventRecorder:
    """Writes events beside all other work, by an allowance of its own. An event is a courtesy: conditions say the same."""

    def __init__(self, kube: KubeClient, clock: Clock, *, reporter: str) -> None:
        self._kube = kube
        self._clock = clock
        self._reporter = reporter
        self._waiting: deque[tuple[str, dict[str, Any]]] = deque()
        self._news = Event()

    def record(self, job: Key, uid: str, *, event_type: EventType, reason: str, message: str, occasion: str) -> None:
        """Have an event written soon. In a flood of them those of type Normal are dropped first."""
        if len(self._waiting) >= (_WAITING if event_type is EventType.NORMAL else _WARNINGS_WAITING):
            metrics.events_dropped_total.inc()
            return
        manifest = event_manifest(
            job,
            uid,
            event_type=event_type,
            reason=reason,
            message=message,
            occasion=occasion,
            now=self._clock.now(),
            reporter=self._reporter,
        )
        self._waiting.append((job.namespace, manifest))
        self._news.set()

    async def run(self) -> None:
        """Write events for ever."""
        while True:
            await self._news.wait()
            while self._waiting:
                await self._write(*self._waiting.popleft())
            self._news.clear()

    async def _write(self, namespace: str, manifest: dict[str, Any]) -> None:
        try:
            await self._kube.create(paths.events(namespace), manifest)
        except ConflictError:
            # It was told already, by this operator or the one before it.
            return
        except OperatorError as error:
            log.warning("event %s is lost: %s", manifest["metadata"]["name"], error)
            metrics.events_dropped_total.inc()
        except Exception:
            # Whatever an answer holds, an event that can't be written must not end the operator.
            log.exception("event %s is lost", manifest["metadata"]["name"])
            metrics.events_dropped_total.inc()


def event_manifest(
    job: Key, uid: str, *, event_type: EventType, reason: str, message: str, occasion: str, now: datetime, reporter: str
) -> dict[str, Any]:
    """Return the manifest of an event about one job. Its name follows from its content: telling twice is telling once."""
    tail = short_hash(f"{uid}{reason}{message}{occasion}", 12)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{job.name[:200]}.{tail}", "namespace": job.namespace},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"{DOMAIN}/operator",
        "reportingInstance": reporter[:_REPORTER_LIMIT],
        "action": "Reconcile",
        "reason": reason[:_REASON_LIMIT],
        "note": message[:_NOTE_LIMIT],
        "type": event_type.value,
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": job.namespace,
            "name": job.name,
            "uid": uid,
        },
    }
