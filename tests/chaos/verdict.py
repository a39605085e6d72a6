"""What a story came to: pure, from what callers heard and what is left behind."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from bench.autoscaling.load import Answered
from tests.chaos.story import Fault, Kind

# A caller may notice these, for as long as they last and a moment: of nothing else a request may be lost.
_NOTICED = frozenset({Kind.WORKER_KILLED, Kind.WORKER_FROZEN, Kind.NODE_SILENT, Kind.NODE_DEAD})
# Workers that are told to end stay until nobody comes, and no longer than their grace: whoever is blind may be so for longer.
_TOLD_TO_END = frozenset({Kind.POD_DELETED, Kind.NODE_DRAINED, Kind.SERVICE_ROLLED})
_GRACE_SECONDS = 30.0
_MOMENT_SECONDS = 2.3
# Until a worker that was the only one is back, or another has started.
_RETURN_SECONDS = 15.0

# From when to when (time.time()).
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Told:
    """A fault that was done: from when to when (time.time()), upon whom, and whether it left no worker of the service, or no operator."""

    fault: Fault
    begun: float
    ended: float
    whom: str = ""
    alone: bool = False

    def excuses(self, answer: Answered, blind: float = 0.0) -> bool:
        """Whether a request that was sent then may have failed because of it.

        What is silent longer than a moment is left out by then, unless nobody else is there, or who should act is `blind` for longer.
        """
        if self.fault.kind in _TOLD_TO_END:
            return self.begun <= answer.time <= blind
        until = self.ended + _RETURN_SECONDS if self.alone else self.begun + _MOMENT_SECONDS
        return self.fault.kind in _NOTICED and self.begun - 1.0 <= answer.time <= max(until, blind)


def lost(answers: Iterable[Answered], told: Sequence[Told], blind: Sequence[Span] = ()) -> list[Answered]:
    """Requests without a 200 that no fault excuses. In the spans of `blind` Kubernetes itself saw nothing of what was decided."""
    until = {one: _blind_until(one, blind) for one in told}
    return [answer for answer in answers if answer.status != 200 and not any(one.excuses(answer, until[one]) for one in told)]


def _blind_until(end: Told, blind: Iterable[Span]) -> float:
    """Until when a worker's end, or its successor, may not be seen: a while after a span that met it; 0 where none did."""
    last = end.ended + (_GRACE_SECONDS if end.fault.kind in _TOLD_TO_END else 0.0)
    return max((until + _RETURN_SECONDS for since, until in blind if since <= last and end.begun <= until), default=0.0)


def gaps(spans: Sequence[tuple[int, int]], total: int) -> str:
    """What is wrong with the spans of items that are answered; empty where each item is there once and in its place."""
    begin = 0
    for start, end in spans:
        if start != begin or end <= start:
            return f"items {start} to {end} stand behind {begin}"
        begin = end
    return "" if begin == total else f"{begin} of {total} items are answered"


def nearest(answer: Answered, told: Sequence[Told]) -> str:
    """Which fault came last before a request, for the story that is told."""
    before = [one for one in told if one.begun <= answer.time]
    if not before:
        return "before the first fault"
    last = max(before, key=lambda one: one.begun)
    return f"{answer.time - last.begun:.1f} s after {last.fault.kind} ({last.whom})"
