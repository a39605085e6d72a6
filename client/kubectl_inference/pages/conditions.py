"""The conditions, and what the reasons in them mean."""

from collections.abc import Iterator

from inference_client.api import Condition
from inference_client.errors import UnreadableError
from inference_client.texts import reason_text
from kubectl_inference.pages.parts import Fact, Line, Section, Table, Tone, cell
from kubectl_inference.pages.words import age
from kubectl_inference.snapshot import Snapshot

# Types whose True is out of the ordinary.
_ABNORMAL = frozenset({"Reconciling", "Stalled", "Suspended"})
_TEXTS = ("type", "status", "reason", "message")


def conditions(snapshot: Snapshot) -> Section:
    """All of them, and below the meaning and the cure of each reason that asks for something."""
    found = snapshot.job.status.conditions
    rows, told = [], set[str]()
    for one in found:
        # Ready, Reconciling and Stalled repeat what is in the way.
        message = "as above" if one.message in told else one.message
        told.add(one.message)
        since = age(one.last_transition_time, snapshot.now)
        rows.append((Line(one.type), Line(one.status, tone(one)), Line(one.reason), Line(since), cell(message)))
    if not rows:
        return Section("Conditions", (Line("none: the operator has not seen the job", Tone.WARNING),))
    table = Table(("TYPE", "STATUS", "REASON", "SINCE", "MESSAGE"), tuple(rows))
    return Section("Conditions", (table, *_meanings(found)))


def told_all_the_same(error: UnreadableError) -> tuple[Section, ...]:
    """What a job that this client can't read says all the same: its conditions."""
    status = error.raw.get("status")
    found = status.get("conditions") if isinstance(status, dict) else None
    told = [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    rows = tuple(tuple(Line(str(one.get(key, ""))) for key in _TEXTS) for one in told)
    return (Section("Conditions", (Table(tuple(key.upper() for key in _TEXTS), rows),)),) if rows else ()


def _meanings(found: tuple[Condition, ...]) -> Iterator[Fact]:
    for reason in dict.fromkeys(one.reason for one in found if tone(one) in {Tone.BAD, Tone.WARNING}):
        if (text := reason_text(reason)) is not None:
            yield Fact(reason, Line(f"{text.meaning} {text.cure}"))


def tone(one: Condition) -> Tone:
    """How a condition is to be taken."""
    if one.type == "Stalled":
        return Tone.BAD if one.status == "True" else Tone.GOOD
    if one.status == "Unknown":
        return Tone.DIM
    good = one.status == ("False" if one.type in _ABNORMAL else "True")
    return Tone.GOOD if good else Tone.WARNING
