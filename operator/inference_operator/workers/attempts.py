"""How a batch's attempts stand: from its pods and what the status remembers of pods that are gone."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.conditions import AnyReason, Reason
from inference_operator.api.instants import EARLIEST, doubled, shift
from inference_operator.api.job import InferenceJobSpec
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus
from inference_operator.settings import Settings
from inference_operator.state.objects import Pod
from inference_operator.state.observed import Observed
from inference_operator.state.runner import Attempt, is_running
from inference_operator.workers.ending import Ending
from inference_operator.workers.output_claims import judge
from inference_operator.workers.pod_problems import problem_of
from inference_protocol.messages import MESSAGE_LENGTH, TerminationReport, cut
from inference_protocol.reasons import WorkerReason

# The longest pause after a fault that only a change cures: a missing model may have been uploaded since, and nobody tells us.
PERMANENT_RETRY_SECONDS = 300.0
# So long must a worker have answered before the failures ahead of it are forgiven: some end at their first request.
SETTLED_SECONDS = 60.0

# By so much a clock may be ahead and is gone by all the same.
_SKEW_SECONDS = 60.0

# What the kubelet or the control plane writes when a pod ends through no fault of its worker.
_DISRUPTIONS = frozenset(
    {"Evicted", "NodeLost", "NodeShutdown", "NodeAffinity", "Preempting", "Shutdown", "Terminated", "UnexpectedAdmissionError",
     "OutOfcpu", "OutOfmemory", "OutOfpods", "DeletionByTaintManager", "TerminationByKubelet",
     # Its node died: when it is back, the runtime or the kubelet knows no more than that the container is gone.
     "Unknown", "ContainerStatusUnknown"}
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Attempts:
    """How a batch stands. `newest` is its newest attempt, live or ended; `ending` is set once that is over.

    `outdated` says that it worked on what is no longer asked for, so that its progress is nobody's. `takes_over` says that the next
    one claims the output anew, once the status says so.
    """

    number: int
    failed: int
    newest: Attempt | None
    ending: Ending | None
    ended: datetime | None
    outdated: bool = False
    takes_over: bool = False

    def untold_by(self, told: AttemptStatus | None) -> bool:
        """Whether a status whose last attempt is `told` does not say yet how the newest one ended."""
        return told is None or told.number != self.number or told.outcome is AttemptOutcome.RUNNING

    @property
    def succeeded(self) -> bool:
        """Whether the work is done."""
        return self.ending is not None and self.ending.outcome is AttemptOutcome.SUCCEEDED


def attempts(observed: Observed, revision: str, now: datetime, *, start_timeout_seconds: float = float("inf")) -> Attempts:
    """Judge the newest attempt. Each failure counts once, however often it is looked at and whoever looks."""
    status = observed.job.status
    newest = max(observed.attempts, key=lambda attempt: attempt.number, default=None)
    remembered = status.last_attempt
    number = max(newest.number if newest else 0, status.attempts)
    if not number:
        return Attempts(0, 0, None, None, None)
    outdated = newest is not None and newest.revision not in (None, revision)
    if remembered is not None and remembered.number == number and remembered.outcome is not AttemptOutcome.RUNNING:
        reason = _reason_of(remembered.reason)
        ending = Ending(remembered.outcome, reason, remembered.message or "")
        # The pod of the attempt before may outlive that of the newest: what it has to tell is told, and old.
        told = newest if newest is not None and newest.number == number else None
        ended = remembered.end_time
        # No pause counts from a time that is still to come: the API server's clock was wrong then.
        ended = None if ended is not None and is_ahead(ended, now) else ended
        return Attempts(number, status.failed_attempts, told, ending, ended, outdated)
    if newest is None or newest.number < number:
        gone = Ending(AttemptOutcome.DISRUPTED, Reason.WORKER_LOST, "the worker pod is gone: deleted, or its node was lost")
        return Attempts(number, status.failed_attempts, None, gone, now)
    found = ending_of(newest, revision, lost=newest.pod.uid in observed.lost)
    found = found or not_started(newest, now, start_timeout_seconds)
    if found is None:
        return Attempts(number, status.failed_attempts, newest, None, None)
    judged = judge(observed.job, found, newest.report, now)
    failed = status.failed_attempts + (judged.ending.outcome is AttemptOutcome.FAILED)
    # A container's times are by its node's clock.
    ended = min(newest.ended or now, now)
    return Attempts(number, failed, newest, judged.ending, ended, outdated, takes_over=judged.takes_over)


def not_started(attempt: Attempt, now: datetime, timeout_seconds: float) -> Ending | None:
    """How one ends whose container has not started in time, whatever keeps it; None for all others."""
    if attempt.started is not None or attempt.created is None or (now - attempt.created).total_seconds() < timeout_seconds:
        return None
    return not_answering(attempt.pod, timeout_seconds)


def not_answering(pod: Pod, seconds: float) -> Ending:
    """Return the end of a pod that is given up, because it has not come to anything for so long."""
    problem = problem_of(pod)
    reason, words = problem if problem is not None else (Reason.STARTING, "the kubelet says no reason")
    what = "start" if pod.started is None else "answer"
    return Ending(AttemptOutcome.FAILED, reason, f"could not {what} within {seconds:.0f} s: {words}")


def ending_of(attempt: Attempt, revision: str, *, lost: bool = False) -> Ending | None:
    """Return how an attempt ended; None while it may still come to something."""
    if attempt.revision not in (None, revision):
        # Whatever it came to, it was the answer to another question.
        return Ending(
            AttemptOutcome.DISRUPTED, WorkerReason.TERMINATED, "the spec has changed; the work starts again with the new one"
        )
    if attempt.over:
        return _last_words(attempt) or _killed(attempt)
    if lost:
        text = f"node {attempt.pod.node} is out of reach; the work goes on elsewhere"
        return Ending(AttemptOutcome.DISRUPTED, Reason.WORKER_LOST, text)
    if attempt.leaving:
        return Ending(AttemptOutcome.DISRUPTED, WorkerReason.TERMINATED, "the worker was told to stop")
    return None


def _last_words(attempt: Attempt) -> Ending | None:
    """How it ended by its own report; None where it left none."""
    if attempt.hosted is not None and attempt.hosted.waited:
        return Ending(AttemptOutcome.DISRUPTED, Reason.WORKER_LOST, "its worker ended while it ran another task")
    if _lost_its_service(attempt):
        return _end_of_service(attempt)
    report = attempt.report
    if report is None:
        return None
    match report.outcome:
        case "Succeeded":
            return Ending(AttemptOutcome.SUCCEEDED, Reason.SUCCEEDED, report.message)
        case "Drained" if _was_too_slow(attempt, report):
            text = f"the kubelet ended the worker before its model was loaded (see loadTimeoutSeconds): {report.message}"
            return Ending(AttemptOutcome.FAILED, WorkerReason.INTERNAL, text)
        case "Drained":
            return _over_limit(attempt) or Ending(AttemptOutcome.DISRUPTED, WorkerReason.TERMINATED, report.message)
        case "Failed" if report.reason is WorkerReason.OUTPUT_CLAIMED:
            return Ending(AttemptOutcome.DISRUPTED, report.reason, report.message)
        case "Failed":
            return Ending(AttemptOutcome.FAILED, report.reason or WorkerReason.INTERNAL, _told_of(attempt.accelerator, report))


def _told_of(accelerator: str, report: TerminationReport) -> str:
    """A worker's last words, with its class where that is to be mended: it knows its providers, and not who asked for them."""
    if report.reason is not WorkerReason.PROVIDER_UNAVAILABLE:
        return report.message
    cure = f"accelerator class {accelerator} names image and providers (accelerators.{accelerator}.image in the chart's values)"
    return f"{cut(report.message, MESSAGE_LENGTH - len(cure))}; {cure}"


def _lost_its_service(attempt: Attempt) -> bool:
    """Whether its worker ended, which belongs to a service, and not the task itself."""
    task = attempt.hosted
    worker = task.pod.worker if task is not None else None
    if task is None or worker is None or worker.pool:
        return False
    return task.pod.over and (task.state is None or task.state.report is None)


def _end_of_service(attempt: Attempt) -> Ending:
    """The end of a service's worker, which is no failure of the batch behind it, however it came."""
    pod = attempt.pod
    disrupted = pod.problem is not None and pod.problem.reason in _DISRUPTIONS
    told = attempt.leaving or disrupted or (pod.report is not None and pod.report.outcome == "Drained")
    reason = WorkerReason.TERMINATED if told else Reason.WORKER_LOST
    text = "the worker of the service in whose slack it ran has ended; the work goes on elsewhere"
    return Ending(AttemptOutcome.DISRUPTED, reason, text)


def _was_too_slow(attempt: Attempt, report: TerminationReport) -> bool:
    """Whether its startup probe ended it: it was told to stop while it loaded, and neither its pod's end nor its node's was why."""
    problem = attempt.pod.problem
    disrupted = attempt.leaving or (problem is not None and problem.reason in _DISRUPTIONS)
    return attempt.hosted is None and report.model is None and report.progress is None and not disrupted


def _over_limit(attempt: Attempt) -> Ending | None:
    """The end of a worker by the kubelet, for the disk that it used itself: the next one would use as much."""
    problem = attempt.pod.problem
    if problem is None or not problem.over_limit:
        return None
    return Ending(
        AttemptOutcome.FAILED,
        WorkerReason.INTERNAL,
        f"the kubelet ended it for what it wrote to its node's disk: {problem.message}",
    )


def _killed(attempt: Attempt) -> Ending:
    """How it ended without a word, by what the kubelet says of its pod."""
    problem, exit_code = attempt.pod.problem, attempt.pod.exit_code
    reason = problem.reason if problem else ""
    if reason == "OOMKilled":
        text = "the kernel killed the worker for memory; raise resources.limits.memory, or lower batchSize"
        return Ending(AttemptOutcome.FAILED, WorkerReason.OUT_OF_MEMORY, text)
    if attempt.leaving:
        return Ending(AttemptOutcome.DISRUPTED, WorkerReason.TERMINATED, "the worker was told to stop")
    if (over := _over_limit(attempt)) is not None:
        return over
    if reason in _DISRUPTIONS:
        text = f"{reason}: {problem.message if problem else ''}".rstrip(": ")
        return Ending(AttemptOutcome.DISRUPTED, Reason.WORKER_LOST, text)
    if exit_code is None and problem is not None and problem.container:
        text = f"container {problem.container} failed before the worker could start: {reason}: {problem.message[-500:]}"
        return Ending(AttemptOutcome.FAILED, WorkerReason.INTERNAL, text)
    code = f"exit code {exit_code}" if exit_code is not None else "no exit code"
    said = f": {problem.message[-500:]}" if problem and problem.message else ""
    return Ending(AttemptOutcome.FAILED, WorkerReason.INTERNAL, f"the worker ended with {code} and left no report{said}")


def holds_back(pod: Pod, ending: Ending) -> bool:
    """Whether a worker that ended so has the next one wait: by a fault, or before it started, turned away by its node."""
    # A node that turns every pod away must not get them as fast as we can make them.
    return ending.outcome is AttemptOutcome.FAILED or (ending.outcome is AttemptOutcome.DISRUPTED and pod.started is None)


def backoff_seconds(failures: int, settings: Settings, *, permanent: bool = False) -> float:
    """How long to wait after so many failures in a row: doubling, up to the limit, or up to that of a `permanent` fault."""
    if failures <= 0:
        return 0.0
    limit = PERMANENT_RETRY_SECONDS if permanent else settings.backoff_limit_seconds
    return doubled(settings.backoff_seconds, failures, limit)


def ended_at(pod: Pod, now: datetime) -> datetime:
    """When a worker ended, as a pause counts from it: where its node's clock is ahead, or no container ran, when it was made."""
    return pod.ended if pod.ended is not None and not is_ahead(pod.ended, now) else pod.created or now


def is_ahead(instant: datetime, now: datetime) -> bool:
    """Whether a time was told by a clock that is ahead of ours, or was when it told."""
    return instant > shift(now, _SKEW_SECONDS)


def settles(workers: Iterable[Pod], *, after: int) -> datetime | None:
    """When the first of these workers that came after number `after` has answered for long enough to show that its failure is over.

    None while none answers.
    """
    later = (pod for pod in workers if is_running(pod) and pod.number > after)
    since = min((pod.ready_since or pod.started or pod.created or EARLIEST for pod in later), default=None)
    return shift(since, SETTLED_SECONDS) if since is not None else None


def is_lost(state: Attempts, spec: InferenceJobSpec) -> bool:
    """Return whether no further attempt is made after a failure."""
    return state.ending is not None and not state.succeeded and (state.ending.permanent or state.failed >= spec.max_attempts)


def retry_time(state: Attempts, settings: Settings) -> datetime | None:
    """When the next attempt may start; None while one is under way or before the first."""
    if state.ending is None or state.ended is None:
        return None
    if state.ending.outcome is not AttemptOutcome.DISRUPTED:
        return shift(state.ended, backoff_seconds(state.failed, settings))
    if state.ending.reason is Reason.PREEMPTED:
        # It did nothing wrong, and its budget bounds how often this happens.
        return state.ended
    # The first disruption costs no time. A node that turns every pod away must not get them as fast as we can make them.
    return shift(state.ended, backoff_seconds(state.number - state.failed - 1, settings))


def moves_at(state: Attempts, settings: Settings) -> datetime | None:
    """When the next attempt may start beside one that is silent; None without one. Those that fall silent in turn, ever later."""
    if state.newest is None or state.ending is not None:
        return None
    return shift(state.newest.created or EARLIEST, backoff_seconds(state.number - state.failed - 1, settings))


def _reason_of(text: str | None) -> AnyReason:
    for kind in (Reason, WorkerReason):
        try:
            return kind(text or "")
        except ValueError:
            continue
    return WorkerReason.INTERNAL
