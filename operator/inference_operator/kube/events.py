"""Kubernetes Events, in the form of events.k8s.io/v1."""

from datetime import datetime
from typing import Any

from inference_operator.api.events import EventType
from inference_operator.api.job import KIND
from inference_operator.api.names import DOMAIN, short_hash
from inference_operator.api.schema import API_VERSION
from inference_operator.state.objects import Key

# The API's own limits.
_NOTE_LIMIT = 1000
_REASON_LIMIT = 128
_REPORTER_LIMIT = 128


def event_manifest(
    job: Key, uid: str, *, event_type: EventType, reason: str, message: str, now: datetime, reporter: str
) -> dict[str, Any]:
    """The manifest of an event about one job. Its name follows from its content: telling twice is telling once."""
    tail = short_hash(f"{uid}{reason}{message}", 12)
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
