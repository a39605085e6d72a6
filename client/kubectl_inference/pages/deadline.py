"""How a job stands to its deadline, in words."""

from datetime import datetime

from inference_client.api import InferenceJob, Outlook
from inference_client.job_state import is_batch
from kubectl_inference.pages.parts import Line, Tone
from kubectl_inference.pages.words import duration, when

# By text: the word of a newer operator has neither.
_TONES: dict[str, Tone] = {
    Outlook.MET: Tone.GOOD,
    Outlook.ON_TIME: Tone.GOOD,
    Outlook.AT_RISK: Tone.WARNING,
    Outlook.MISSED: Tone.BAD,
}
_WORDS: dict[str, str] = {Outlook.ON_TIME: "on time", Outlook.AT_RISK: "at risk"}


def outlook_tone(outlook: str | None) -> Tone:
    """The tone of an outlook."""
    return _TONES.get(outlook or "", Tone.PLAIN)


def slack_in_words(job: InferenceJob, now: datetime) -> Line:
    """Whether the deadline will be, or was, kept, and by how much."""
    deadline, done = job.spec.deadline, "done" if is_batch(job) else "ready"
    if deadline is None:
        return Line("none is set, so the job is never late", Tone.DIM)
    status = job.status.deadline
    over = status is not None and status.outlook in {Outlook.MET, Outlook.MISSED} and _is_over(job)
    tone = outlook_tone(status.outlook if status else None)
    if status is None or status.outlook == Outlook.UNKNOWN:
        return Line(f"{when(deadline, now)}; when the job is {done} can't be told yet", tone)
    slack = status.slack_seconds
    if over and slack is not None:
        verb = "met" if status.outlook == Outlook.MET else "missed"
        return Line(f"{verb}: the job was {done} {_beside(slack)}", tone)
    if status.outlook == Outlook.MISSED:
        expected = f"; it is expected to be {done} {_beside(slack)}" if slack is not None and slack < 0 else ""
        passed = f"has passed ({when(deadline, now)})" if deadline <= now else f"can't be met (due {when(deadline, now)})"
        return Line(f"missed: it {passed}, and the job is not {done}{expected}", tone)
    word = _WORDS.get(status.outlook, status.outlook)
    if slack is None:
        return Line(f"{word}: {when(deadline, now)}", tone)
    return Line(f"{word}: {when(deadline, now)}, and the job is expected to be {done} {_beside(slack)}", tone)


def _is_over(job: InferenceJob) -> bool:
    return (job.status.completion_time if is_batch(job) else job.status.ready_time) is not None


def _beside(slack: float) -> str:
    if slack == 0:
        return "at the deadline"
    return f"{duration(slack)} {'before' if slack > 0 else 'after'} the deadline"
