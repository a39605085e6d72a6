"""Whether a service has no workers for want of requests. Who wakes it is the gateway; spec.replicas stays as it is."""

from datetime import datetime, timedelta

from inference_operator.api.job import InferenceJobSpec
from inference_operator.settings import Settings
from inference_operator.state.observed import Observed

ASLEEP = "nobody asks, so no worker is kept; the next request through the gateway brings one back"


def sleeps_at(observed: Observed, spec: InferenceJobSpec, settings: Settings) -> datetime | None:
    """When the service falls asleep if no request comes; None where it never does, or where nobody knows when the last one came."""
    seconds = _idle_seconds(spec, settings)
    if seconds is None or observed.idle_since is None:
        return None
    return observed.idle_since + timedelta(seconds=seconds)


def asleep_since(observed: Observed, spec: InferenceJobSpec, settings: Settings, now: datetime) -> datetime | None:
    """Since when it sleeps; None while it is awake.

    A sleep is named by its beginning, and a request ends the one that it names: no two clocks are compared, and a late word about
    an earlier sleep wakes nobody.
    """
    if _idle_seconds(spec, settings) is None:
        # Without the gateway nobody would wake it.
        return None
    status = observed.job.status
    if status.asleep_since is not None:
        return status.asleep_since if status.woken_from != status.asleep_since else None
    due = sleeps_at(observed, spec, settings)
    return now.replace(microsecond=0) if due is not None and due <= now else None


def _idle_seconds(spec: InferenceJobSpec, settings: Settings) -> int | None:
    if not settings.gateway.enabled or spec.serve is None or spec.serve.gateway is None or spec.serve.min_replicas:
        return None
    return spec.serve.gateway.idle_seconds
