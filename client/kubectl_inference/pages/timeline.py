"""What has happened to a job, and what is to come, in order."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from inference_client.job_state import is_batch
from kubectl_inference.pages.parts import Line, Section, Table, Tone
from kubectl_inference.pages.words import instant, when
from kubectl_inference.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Moment:
    """An instant, and what happens then."""

    time: datetime
    text: str
    tone: Tone = Tone.PLAIN


def timeline(snapshot: Snapshot) -> Section:
    """The moments that the status tells of; those to come are dim."""
    moments = sorted((*_past(snapshot), *_to_come(snapshot)), key=lambda one: one.time)
    rows = []
    for one in moments:
        tone = Tone.DIM if one.time > snapshot.now and one.tone is Tone.PLAIN else one.tone
        rows.append((Line(instant(one.time), Tone.DIM), Line(when(one.time, snapshot.now), tone), Line(one.text, tone)))
    return Section("Timeline", (Table(("TIME", "WHEN", "WHAT"), tuple(rows)),))


def _past(snapshot: Snapshot) -> Iterator[Moment]:
    job, status = snapshot.job, snapshot.job.status
    if job.metadata.creation_timestamp is not None:
        yield Moment(job.metadata.creation_timestamp, "created")
    if status.start_time is not None:
        yield Moment(status.start_time, "first worker placed")
    if status.ready_time is not None:
        yield Moment(status.ready_time, "first ready")
    if status.last_preemption is not None:
        whom = status.last_preemption.namespace
        yield Moment(status.last_preemption.time, f"made room for urgent work of namespace {whom}", Tone.WARNING)
    last = status.last_attempt
    if last is not None and last.end_time is not None:
        bad = last.outcome == "Failed"
        reason = f" ({last.reason})" if last.reason else ""
        yield Moment(
            last.end_time,
            f"{'attempt' if is_batch(job) else 'worker'} {last.number} ended: {last.outcome}{reason}",
            Tone.BAD if bad else Tone.PLAIN,
        )
    for one in status.conditions:
        if one.type == "Stalled" and one.status == "True":
            yield Moment(one.last_transition_time, f"stalled: {one.reason}", Tone.BAD)
        if one.type == "Suspended" and one.status == "True":
            yield Moment(one.last_transition_time, "suspended", Tone.WARNING)
    if status.completion_time is not None:
        yield Moment(status.completion_time, "ended")


def _to_come(snapshot: Snapshot) -> Iterator[Moment]:
    """What is expected, and what was asked for even if it has passed."""
    job, status, now = snapshot.job, snapshot.job.status, snapshot.now
    if status.deadline is not None and (expected := status.deadline.estimated_completion_time) is not None and expected > now:
        yield Moment(expected, f"expected to be {'done' if is_batch(job) else 'ready'}")
    if status.queue is not None and status.queue.expected_start_time is not None:
        yield Moment(status.queue.expected_start_time, "expected to start")
    if job.spec.deadline is not None:
        yield Moment(job.spec.deadline, f"deadline ({job.spec.deadline_policy})", Tone.STRONG)
    if job.spec.serve is not None and job.spec.serve.until is not None:
        yield Moment(job.spec.serve.until, "serving ends")
