"""How the kubelet learns that a worker has started, is ready, and lives."""

import math
from typing import Any

from inference_operator.settings import Settings
from inference_protocol.messages import LIVE_PATH, READY_PATH, STARTED_PATH

Manifest = dict[str, Any]

_PROBE_SECONDS = 5
_STARTUP_SECONDS = 300


def probes(settings: Settings) -> Manifest:
    """Return the probes of the worker container, by the fields of its manifest."""
    return {
        "startupProbe": {
            # One question, which is answered when the model is loaded. Each "not yet" would be a warning event, and a pause.
            "httpGet": {"path": STARTED_PATH, "port": "health"},
            # The worker listens a tenth of a second after its start: an earlier probe only makes a warning event.
            "initialDelaySeconds": 1,
            "periodSeconds": 1,
            "timeoutSeconds": _STARTUP_SECONDS,
            # A large model over a slow line takes hours; what hangs must not hold its device for ever.
            "failureThreshold": max(1, math.ceil(settings.load_timeout_seconds / _STARTUP_SECONDS)),
        },
        "readinessProbe": {
            "httpGet": {"path": READY_PATH, "port": "health"},
            "periodSeconds": 1,
            # The first "not ready" counts. A worker that has more to do than its CPU can is slow to say anything, and still serves.
            "failureThreshold": 1,
            "timeoutSeconds": _PROBE_SECONDS,
        },
        "livenessProbe": {
            "httpGet": {"path": LIVE_PATH, "port": "health"},
            "periodSeconds": 10,
            "failureThreshold": 6,
            "timeoutSeconds": _PROBE_SECONDS,
        },
    }
