"""Kubernetes Events, in the form of events.k8s.io/v1."""

from datetime import datetime
from typing import Any

from inference_operator.api.job import KIND
from inference_operator.api.names import DOMAIN, short_hash
from inference_operator.api.schema import API_VERSION
from inference_operator.workers.actions import EmitEvent

# The API's own limit for a note.
_NOTE_LIMIT = 1000


def event_manifest(event: EmitEvent, *, now: datetime, reporter: str) -> dict[str, Any]:
    """A warning about one job. Its name follows from its content: telling twice is telling once."""
    tail = short_hash(f"{event.uid}{event.reason}{event.message}", 12)
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": f"{event.key.name[:200]}.{tail}", "namespace": event.key.namespace},
        "eventTime": now.strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"{DOMAIN}/operator",
        "reportingInstance": reporter[:128],
        "action": "Reconcile",
        "reason": event.reason[:128],
        "note": event.message[:_NOTE_LIMIT],
        "type": "Warning",
        "regarding": {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "namespace": event.key.namespace,
            "name": event.key.name,
            "uid": event.uid,
        },
    }
