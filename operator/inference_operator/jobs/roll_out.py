"""Whether an old worker of a service has to make room for its successor, because there is none for both."""

from datetime import datetime

from inference_operator.api.conditions import Reason
from inference_operator.jobs.quota import has_room_without
from inference_operator.jobs.state import ServiceState
from inference_operator.scheduling.types import Decision
from inference_operator.settings import Settings
from inference_operator.state.objects import Pod
from inference_operator.state.observed import Observed
from inference_operator.workers.creation import is_held_up

# So often in a row a quota refuses a worker before another makes room while one is missing.
_REFUSALS = 3


def lacks_room(
    observed: Observed, service: ServiceState, decision: Decision | None, settings: Settings, now: datetime
) -> str | None:
    """Who has no room for another worker now, and would have by an old worker's end: what fits nowhere gains nothing by it."""
    state = service.replicas
    pending = decision.pending if decision is not None and not decision.assignments else None
    if pending is not None and pending.reason in (Reason.NO_FREE_CAPACITY, Reason.FAIR_SHARE):
        return "no node"
    if pending is not None and pending.reason is Reason.NAMESPACE_CAPPED and _counts_with(state.outdated[0], service, settings):
        return "no cap of its namespace"
    failure = observed.create_failure
    if failure is None or failure.reason is not Reason.QUOTA_EXCEEDED or not is_held_up(failure, settings, now):
        return None
    if not state.complete and failure.count < _REFUSALS:
        # A quota is counted again some time after a worker has left: its successor may be refused for that alone.
        return None
    # One that answers stays, unless the only one can be replaced.
    leaving = state.outdated[: max(1, len(state.serving) - 1)]
    return "no quota" if has_room_without(failure.message, leaving) else None


def _counts_with(old: Pod, service: ServiceState, settings: Settings) -> bool:
    """Whether an old worker counts against a cap of its namespace that its successor counts against."""
    if settings.namespace_limits.of(old.key.namespace).max_replicas is not None:
        return True
    options = service.request.options if service.request is not None else ()
    return old.worker is not None and any(option.accelerator == old.worker.accelerator for option in options)
