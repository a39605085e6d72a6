"""The page of one job, from which a user finds the cause: `kubectl inference status`."""

from collections.abc import Iterator

from inference_client.job_state import Goal, cause, condition, failed, is_batch, reached
from inference_client.texts import reason_text
from kubectl_inference.pages.advice import advice
from kubectl_inference.pages.conditions import conditions
from kubectl_inference.pages.deadline import slack_in_words
from kubectl_inference.pages.parts import Fact, Line, Page, Section, Table, Tone, cell
from kubectl_inference.pages.placement import placement
from kubectl_inference.pages.timeline import timeline
from kubectl_inference.pages.words import age, duration, number, when
from kubectl_inference.snapshot import Snapshot, pinned

_EVENTS = 12


def status_page(snapshot: Snapshot) -> Page:
    """The page: the cause first, then what to do, then what tells more."""
    sections = (
        _cause(snapshot),
        _to_do(snapshot),
        _deadline(snapshot),
        _work(snapshot),
        timeline(snapshot),
        placement(snapshot),
        _model(snapshot),
        conditions(snapshot),
        _pods(snapshot),
        _events(snapshot),
    )
    return Page(headline(snapshot), tuple(one for one in sections if one.body))


def headline(snapshot: Snapshot) -> Line:
    """How the job stands, in a line."""
    job, status = snapshot.job, snapshot.job.status
    what = f"{'batch' if is_batch(job) else 'service'} {job.metadata.namespace}/{job.metadata.name} on {_model_name(snapshot)}"
    if not status.conditions:
        return Line(f"{what}: not seen by the operator yet", Tone.WARNING)
    tone = Tone.GOOD if reached(job, Goal.FINISHED) else Tone.BAD if failed(job) or _stalled(snapshot) else Tone.WARNING
    why = cause(job)
    word = why.reason if why is not None else status.reason or status.phase or "Unknown"
    phase = f"{status.phase}, " if status.phase and status.phase != word else ""
    return Line(f"{what}: {phase}{word}", tone)


def _stalled(snapshot: Snapshot) -> bool:
    found = condition(snapshot.job.status.conditions, "Stalled")
    return found is not None and found.status == "True"


def _model_name(snapshot: Snapshot) -> str:
    version = snapshot.job.status.model.version if snapshot.job.status.model else snapshot.job.spec.model_version
    return f"{snapshot.job.spec.model}@{version}" if version else snapshot.job.spec.model


def _cause(snapshot: Snapshot) -> Section:
    why = cause(snapshot.job)
    if why is None:
        return Section("Cause", ())
    tone = Tone.BAD if failed(snapshot.job) or _stalled(snapshot) else Tone.WARNING
    text = reason_text(why.reason)
    meaning = (Fact("meaning", Line(text.meaning)),) if text else ()
    again = (
        (Fact("tried again", Line("no, not without a change", Tone.BAD)),) if text and text.final and failed(snapshot.job) else ()
    )
    return Section("Cause", (Line(f"{why.reason}: {why.message}", tone), *meaning, *again))


def _to_do(snapshot: Snapshot) -> Section:
    return Section("What to do", tuple(Line(f"{number_}. {text}") for number_, text in enumerate(advice(snapshot), 1)))


def _deadline(snapshot: Snapshot) -> Section:
    return Section("Deadline", (slack_in_words(snapshot.job, snapshot.now),))


def _work(snapshot: Snapshot) -> Section:
    """Progress of a batch, replicas of a service, and the latency of both."""
    return Section("Progress" if is_batch(snapshot.job) else "Service", tuple(_work_facts(snapshot)))


def _work_facts(snapshot: Snapshot) -> Iterator[Fact]:
    job, status = snapshot.job, snapshot.job.status
    if is_batch(job):
        if (done := status.progress) is not None:
            share = f" ({done.completed / done.total:.0%})" if done.total else ""
            yield Fact("items", Line(f"{done.completed} of {done.total}{share}"))
            if done.failed:
                yield Fact("refused items", Line(str(done.failed), Tone.WARNING))
        yield Fact("attempts", Line(_attempts(snapshot), Tone.WARNING if status.failed_attempts else Tone.PLAIN))
        if status.output is not None and status.output.uri:
            yield Fact("output", Line(status.output.uri))
    else:
        wanted = status.desired_replicas if status.desired_replicas is not None else job.spec.replicas
        short = status.ready_replicas < wanted
        yield Fact("workers", Line(f"{status.ready_replicas} of {wanted} ready", Tone.WARNING if short else Tone.GOOD))
        if status.endpoint:
            yield Fact("endpoint", Line(status.endpoint))
    if (latency := status.latency) is not None:
        yield Fact("latency", latency_in_words(snapshot))
        if latency.window_seconds:
            yield Fact("load", Line(f"{number(latency.count / latency.window_seconds)} requests a second"))
    if (energy := status.energy) is not None:
        yield Fact("energy", Line(f"{number(energy.joules)} J ({energy.source})"))


def _attempts(snapshot: Snapshot) -> str:
    status = snapshot.job.status
    text = f"{status.attempts} started, {status.failed_attempts} failed of at most {snapshot.job.spec.max_attempts}"
    return text + (f", {status.preemptions} preempted" if status.preemptions else "")


def latency_in_words(snapshot: Snapshot) -> Line:
    """The percentiles, beside the target if there is one."""
    latency, serve = snapshot.job.status.latency, snapshot.job.spec.serve
    if latency is None:
        return Line("not measured yet", Tone.DIM)
    target = serve.latency_target_milliseconds if serve else None
    text = f"p50 {number(latency.p50)} ms, p95 {number(latency.p95)} ms, p99 {number(latency.p99)} ms"
    if target is not None:
        text += f"; the target for p95 is {target} ms"
    text += f" ({latency.count} measured, {when(latency.observed_time, snapshot.now)})"
    return Line(text, Tone.PLAIN if target is None else Tone.GOOD if latency.p95 <= target else Tone.BAD)


def _model(snapshot: Snapshot) -> Section:
    return Section("Model", tuple(_model_facts(snapshot)))


def _model_facts(snapshot: Snapshot) -> Iterator[Fact]:
    found = snapshot.job.status.model
    wanted = pinned(snapshot)
    if wanted is not None:
        yield Fact("file", Line(wanted[0]))
        if wanted[1]:
            yield Fact("digest wanted", Line(wanted[1]))
    if found is None:
        return
    if found.digest:
        good = bool(wanted and wanted[1] == found.digest)
        yield Fact("digest loaded", Line(found.digest, Tone.GOOD if good else Tone.PLAIN))
    if found.backend:
        yield Fact("back end", Line(f"{found.backend} ({found.backend_reason})" if found.backend_reason else found.backend))
    if found.signature:
        yield Fact("signed by", Line(found.signature.signer))


def _pods(snapshot: Snapshot) -> Section:
    rows = tuple(
        (
            Line(one.name),
            Line("yes" if one.ready else "no", Tone.GOOD if one.ready else Tone.PLAIN),
            Line(one.phase, Tone.BAD if one.phase == "Failed" else Tone.PLAIN),
            cell(one.attempt),
            Line(str(one.restarts)),
            cell(one.node),
            Line(age(one.created, snapshot.now)),
        )
        for one in snapshot.pods
    )
    if not rows:
        return Section("Pods", ())
    # A service counts its workers: 15 of them are not 15 crashes.
    counted = "ATTEMPT" if is_batch(snapshot.job) else "WORKER"
    columns = ("NAME", "READY", "PHASE", counted, "RESTARTS", "NODE", "AGE")
    problems = tuple(Fact(one.name, Line(one.problem, Tone.BAD)) for one in snapshot.pods if one.problem)
    return Section("Pods", (Table(columns, rows), *problems))


def _events(snapshot: Snapshot) -> Section:
    newest = sorted(snapshot.events, key=lambda one: (one.time is not None, one.time or snapshot.now))[-_EVENTS:]
    rows = tuple(
        (
            Line(age(one.time, snapshot.now) + (f" (x{one.count})" if one.count > 1 else "")),
            Line(one.type, Tone.WARNING if one.type == "Warning" else Tone.PLAIN),
            Line(one.reason),
            Line(one.about),
            Line(one.note),
        )
        for one in newest
    )
    return Section("Events", (Table(("LAST-SEEN", "TYPE", "REASON", "OBJECT", "NOTE"), rows),) if rows else ())


def notes(snapshot: Snapshot) -> tuple[str, ...]:
    """What the page can't tell, because whoever asks may not read it."""
    return tuple(f"{what} can't be read, so the page says nothing of them" for what in snapshot.unread)


def brief(snapshot: Snapshot) -> str:
    """How the job stands, for a progress bar."""
    status, why = snapshot.job.status, cause(snapshot.job)
    word = why.reason if why is not None else status.reason or status.phase or "Pending"
    left = status.deadline.slack_seconds if status.deadline else None
    return word if left is None else f"{word}, slack {'-' if left < 0 else ''}{duration(left)}"
