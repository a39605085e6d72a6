"""Whose output it is, where a later job of this name has claimed it: once etcd was restored, claims know more than the API server.

An output belongs to the job of its name that was created last. Names are unique, so the API server has that one, unless it has
gone back in time. A job that is still there once the claim of a later one was seen has outlived it, and may claim anew, as of now.
A write of its status that names the job's uid and version is the proof: without it no attempt claims so.
"""

from dataclasses import dataclass
from datetime import datetime

from inference_operator.api.job_status import AttemptOutcome
from inference_operator.api.schema import rfc3339
from inference_operator.state.objects import Job
from inference_operator.workers.ending import Ending
from inference_protocol.messages import TerminationReport
from inference_protocol.reasons import WorkerReason


def claims_since(job: Job) -> datetime:
    """Return as of when a job's attempts claim its output."""
    return job.status.output_claim_time or job.created


@dataclass(frozen=True, slots=True)
class Judged:
    """How an attempt ended whose output is another job's, and whether the next one may take that over."""

    ending: Ending
    takes_over: bool = False


def judge(job: Job, ending: Ending, report: TerminationReport | None, now: datetime) -> Judged:
    """Return what comes of an attempt that found another job's claim; of any other, what it came to.

    A job takes over once. Should a claim be there that is later still, somebody else writes whom this API server doesn't know, as
    another cluster does: they would take the output from each other without end.
    """
    rival = report.rival if report is not None and ending.reason is WorkerReason.OUTPUT_CLAIMED else None
    if rival is None or rival.uid == job.uid:
        return Judged(ending)
    if job.status.output_claim_time is None and rival.created < rfc3339(now):
        why = "this cluster doesn't have that job any more, as after a restore of etcd, so the next attempt takes the output over"
        return Judged(Ending(AttemptOutcome.DISRUPTED, ending.reason, f"{ending.message}; {why}"), takes_over=True)
    why = "this cluster doesn't have that job: find out which one does, and set another output.uri here or there"
    return Judged(Ending(AttemptOutcome.FAILED, ending.reason, f"{ending.message}; {why}"))
