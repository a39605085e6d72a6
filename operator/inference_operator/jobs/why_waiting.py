"""Why no attempt of a batch runs: a pause, a worker that still ends, no room, no quota, or what the API server refuses."""

from datetime import datetime
from typing import NamedTuple

from inference_operator.api.conditions import AnyReason, Reason
from inference_operator.api.job_status import AttemptOutcome
from inference_operator.api.schema import rfc3339
from inference_operator.jobs.queued import why_not_admitted
from inference_operator.jobs.state import BatchState
from inference_operator.jobs.status import doubt, waiting_words
from inference_operator.scheduling.types import Decision
from inference_operator.settings import Settings
from inference_operator.state.observed import Observed
from inference_operator.workers.attempts import retry_time
from inference_operator.workers.creation import create_retry_time, told


class WhyWaiting(NamedTuple):
    """Why no attempt runs, when to look again, and whether none ever will."""

    reason: AnyReason
    message: str
    recheck: datetime | None = None
    final: bool = False
    stalled: bool = False


def why_waiting(observed: Observed, batch: BatchState, decision: Decision | None, settings: Settings, now: datetime) -> WhyWaiting:
    """Return why no attempt of a batch runs."""
    tried = batch.attempts
    ending, retry = tried.ending, retry_time(tried, settings)
    if ending is not None and retry is not None and retry > now:
        what = f"was cut short ({ending.message})"
        if ending.outcome is AttemptOutcome.FAILED:
            what = f"failed ({ending.reason}: {ending.message})"
        text = f"attempt {tried.number} {what}; the next starts at {rfc3339(retry)}"
        return WhyWaiting(Reason.BACKING_OFF, text, retry)
    live = next((a for a in observed.attempts if not a.terminal and a.pod.uid not in observed.lost), None)
    if live is not None and ending is not None and ending.reason is Reason.PREEMPTED:
        return WhyWaiting(Reason.PREEMPTED, ending.message)
    if live is not None:
        return WhyWaiting(Reason.PENDING, f"worker {live.pod.key.name} of the attempt before is still ending")
    if decision is not None and (pending := decision.pending) is not None:
        return WhyWaiting(pending.reason, waiting_words(pending) + doubt(observed, pending), None, pending.final)
    unmade = observed.kueue.workload is None and observed.create_failure is not None
    if (unadmitted := why_not_admitted(batch.admission)) is not None and not unmade:
        return WhyWaiting(*unadmitted)
    # What the API server has refused is asked of the scheduler again only once it may be tried.
    if (failure := observed.create_failure) is not None:
        invalid = failure.reason is Reason.POD_INVALID
        return WhyWaiting(failure.reason, told(failure), create_retry_time(failure, settings), stalled=invalid)
    return WhyWaiting(Reason.PENDING, "the scheduler has not decided yet")
