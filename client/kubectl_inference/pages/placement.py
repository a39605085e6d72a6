"""Where a job runs and why there, or why it has no place."""

from collections.abc import Iterator

from inference_client.api import Alternative, CostTerms, Placement
from inference_client.job_state import condition
from inference_client.texts import reason_text
from kubectl_inference.pages.parts import Fact, Line, Section, Table, Tone, cell
from kubectl_inference.pages.words import number, when
from kubectl_inference.snapshot import Snapshot


def placement(snapshot: Snapshot) -> Section:
    """The place and the places that were not taken."""
    return Section("Placement", tuple(_placement(snapshot)))


def _placement(snapshot: Snapshot) -> Iterator[Line | Fact | Table]:
    status, placed = snapshot.job.status, condition(snapshot.job.status.conditions, "Placed")
    if placed is not None and placed.status == "False":
        yield Line(f"No place: {placed.reason}: {placed.message}", Tone.WARNING)
        if (text := reason_text(placed.reason)) is not None:
            yield Line(f"{text.meaning} {text.cure}")
    if status.queue is not None:
        starts = status.queue.expected_start_time
        at = f", expected to start {when(starts, snapshot.now)}" if starts else ", and nothing known frees a place in time"
        yield Line(f"It is number {status.queue.position} of those that wait{at}.")
    if status.placement is not None:
        yield from place(status.placement)
        if status.placement.alternatives:
            yield alternatives(status.placement.alternatives)
    elif (accepted := condition(status.conditions, "Accepted")) is not None and accepted.status == "False":
        yield Line("None is looked for before the job is accepted.", Tone.DIM)
    elif status.completion_time is None and placed is None:
        yield Line("The scheduler has not decided yet.", Tone.DIM)


def place(found: Placement) -> Iterator[Fact]:
    """The place itself."""
    yield Fact("accelerator", Line(found.accelerator))
    yield Fact("node", cell(found.node))
    yield Fact("pod", cell(found.pod))
    if found.execution_provider is not None:
        yield Fact("computed by", Line(found.execution_provider))
    if found.slack is not None:
        yield Fact("in the slack of", Line(f"service {found.slack.service}, reckoned with {found.slack.share:.0%} of its time"))


def alternatives(found: tuple[Alternative, ...]) -> Table:
    """The places that were not taken."""
    rows = tuple(
        (Line(one.accelerator), cell(one.node), cell(None if one.cost is None else number(one.cost.total)), Line(one.reason))
        for one in found
    )
    return Table(("NOT-TAKEN", "NODE", "COST(S)", "WHY"), rows)


def cost_in_words(cost: CostTerms) -> str:
    """How the sum that placement minimises comes about."""
    terms = (
        f"{number(cost.latency_weight)} x {number(cost.latency_seconds)} s until done",
        f"{number(cost.energy_weight)} x {number(cost.energy_joules)} J",
        f"{number(cost.switch_weight)} x {number(cost.switch_seconds)} s to load",
    )
    basis = "assumed, since nothing is measured yet" if cost.estimated else "from measurements"
    return f"{number(cost.total)} = {' + '.join(terms)} ({basis})"


def explanation(snapshot: Snapshot) -> tuple[Section, ...]:
    """Why the job runs where it does, or waits: the whole story, as `explain` shows it."""
    spec, found = snapshot.job.spec, snapshot.job.status.placement
    asked: list[Line | Fact | Table] = [Fact("accelerator", Line(spec.accelerator))]
    if spec.node_selector:
        asked.append(Fact("nodes with", Line(", ".join(f"{key}={value}" for key, value in sorted(spec.node_selector.items())))))
    for name, amounts in (("requests", spec.resources.requests), ("limits", spec.resources.limits)) if spec.resources else ():
        if amounts:
            asked.append(Fact(name, Line(", ".join(f"{key}={value}" for key, value in sorted(amounts.items())))))
    asked.append(Fact("priority", Line(str(spec.priority))))
    sections = [Section("The job asks for", tuple(asked)), placement(snapshot)]
    if found is not None:
        why: list[Line | Fact | Table] = [
            Line("The place with the lowest cost is taken, among those that meet the deadline. The cost is a number of seconds."),
            Fact("cost", Line(cost_in_words(found.cost))),
            Fact("decided", Line(when(found.decision_time, snapshot.now))),
        ]
        sections.append(Section("Why there", tuple(why)))
    return tuple(sections)
