"""How a serving job's workers stand, and how many it should have."""

from collections import Counter
from dataclasses import dataclass, replace
from datetime import datetime
from math import ceil, inf

from inference_operator.api.instants import EARLIEST, shift
from inference_operator.api.job import wanted_replicas
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus
from inference_operator.jobs.sleep import asleep_since
from inference_operator.settings import Settings
from inference_operator.state.objects import Key, Pod
from inference_operator.state.observed import Observed
from inference_operator.state.runner import is_running, own_attempt
from inference_operator.workers.attempts import (
    SETTLED_SECONDS,
    backoff_seconds,
    ended_at,
    ending_of,
    holds_back,
    not_answering,
    settles,
)
from inference_operator.workers.ending import Ending
from inference_operator.workers.options import planned_node
from inference_operator.workers.resolve import ResolvedJob

# The longest pause between workers that fail where they were to spread a service.
_SELDOM_SECONDS = 6 * 3600.0


@dataclass(frozen=True, slots=True)
class Replicas:
    """A serving job's workers, by what should become of them.

    `current` have the newest revision, `stale` an older one, or a node that is about to go or silent; all live. `failed` ended by
    a fault, or were turned away by their nodes.
    `fault` is what the newest of them ended by, until a later worker answers and the pause is over. `settles` is when a later one
    will have answered for long enough for the count of failures to be cleared.
    """

    wanted: int
    current: tuple[Pod, ...]
    stale: tuple[Pod, ...]
    failed: tuple[Pod, ...]
    ended: tuple[Pod, ...]
    fault: Ending | None
    retry: datetime | None
    next_number: int
    settles: datetime | None = None
    # Failed workers that no status counts yet: one that is counted is the last attempt, or is let go by the look that counts it.
    untold: int = 0
    # Since when none is wanted because nobody asks.
    asleep: datetime | None = None
    # Workers that can be there at a time: their claims may say one.
    most: int | None = None
    # Workers that were told to go and still hold their places.
    leaving: int = 0
    # The uids of workers that want a successor elsewhere: their node was announced to go, or the operator hears nothing of them.
    moving: frozenset[str] = frozenset()
    # Of these the silent ones. They may answer callers, or be dead.
    silent: frozenset[str] = frozenset()
    # When the first of the silent ones that are not among those may have a successor.
    moves: datetime | None = None
    # Those that have a batch in their slack.
    lending: frozenset[Key] = frozenset()
    # When one of its workers may get a successor on another node, because all that are wanted answer on one; None where they don't.
    spreads: datetime | None = None
    # When the next worker that comes to nothing gives its place back, and those that do so now, with how they end.
    gives_up: datetime | None = None
    given_up: tuple[tuple[Pod, Ending], ...] = ()

    @property
    def ready(self) -> tuple[Pod, ...]:
        """Workers of the newest revision that answer."""
        return tuple(pod for pod in self.current if is_running(pod))

    @property
    def answering(self) -> tuple[Pod, ...]:
        """Of these all but those that fell silent in their first minute: for them nobody else goes."""
        return tuple(pod for pod in self.ready if pod.uid not in self.silent)

    @property
    def serving(self) -> tuple[Pod, ...]:
        """Workers of any revision that are ready."""
        return tuple(pod for pod in (*self.current, *self.stale) if is_running(pod))

    @property
    def heard(self) -> tuple[Pod, ...]:
        """Of these all of whom the operator hears: ready for the kubelet isn't enough, a dead node says nothing new of its pods."""
        return tuple(pod for pod in self.serving if pod.uid not in self.silent)

    @property
    def outdated(self) -> tuple[Pod, ...]:
        """Workers of an older revision, whose end makes room for a successor; one that is to move makes none where it is."""
        return tuple(pod for pod in self.stale if pod.uid not in self.moving)

    @property
    def missing(self) -> int:
        """Workers that have still to be placed."""
        return max(0, self.wanted - len(self.current))

    @property
    def whole(self) -> bool:
        """Whether all workers that are wanted answer, and none of another revision is left."""
        return len(self.answering) >= self.wanted > 0 and not self.stale

    @property
    def stays(self) -> bool:
        """Whether all workers that are wanted answer, none is outdated, and some should move."""
        return len(self.heard) >= self.wanted > 0 and bool(self.stale) and not self.outdated

    @property
    def complete(self) -> bool:
        """Whether there are as many workers, of any revision, as there should be."""
        full = self.wanted if self.most is None else min(self.wanted, self.most)
        return len(self.current) + len(self.stale) >= full

    @property
    def may_make_room(self) -> bool:
        """Whether an old worker may go before its successor has a place: one at a time, and only while all others answer.

        Where there is room for fewer than are wanted, the last one that answers stays.
        """
        spare = sum(pod.uid not in self.silent for pod in self.serving) > 1 and not self.leaving and self.fault is None
        settled = len(self.answering) == len(self.current) and not self.superfluous
        return bool(self.missing and self.outdated and settled and (self.complete or spare))

    @property
    def superfluous(self) -> tuple[Pod, ...]:
        """Workers to take away: old revisions as new ones become ready, then the newest current ones over the number.

        Of those that answer, the ones go first whose nodes have others, and one with a batch in its slack stays if another can go.
        """
        keep_stale = max(0, self.wanted - len(self.answering))
        ranked = sorted(self.stale, key=lambda pod: (not is_running(pod), pod.uid in self.silent, pod.number))
        spreading = self.spreading
        return (*ranked[keep_stale:], *(pod for pod in self._over if pod is not spreading))

    @property
    def spreading(self) -> Pod | None:
        """The worker over the number that starts where no other is, while all others are on one node: it stays until it answers."""
        over = self._over
        kept = {planned_node(pod) for pod in self.current if pod not in over}
        if self.wanted < 2 or len(kept) != 1:
            return None
        return next((pod for pod in over if planned_node(pod) not in kept), None)

    @property
    def _over(self) -> tuple[Pod, ...]:
        """Current workers over the number: of those that answer, the ones whose nodes have others before them.

        Of those that don't answer the newest go, wherever they are: an older one may be ready again in a moment. One that takes
        requests and is only not heard stays while too few answer: it may be the last.
        """
        answering = sorted(self.answering, key=self._lends)
        before: Counter[str | None] = Counter()
        turns: dict[Key, int] = {}
        for pod in answering:
            turns[pod.key] = before[planned_node(pod)]
            before[planned_node(pod)] += 1
        others = sorted((pod for pod in self.current if pod.key not in turns), key=self._lends)
        ranked = (*sorted(answering, key=lambda pod: turns[pod.key]), *others)
        short = len(answering) < self.wanted
        return tuple(pod for pod in ranked[self.wanted :] if not (short and is_running(pod)))

    def _lends(self, pod: Pod) -> bool:
        """Whether it goes after those that have a batch in their slack."""
        return pod.key not in self.lending


def replicas(observed: Observed, resolved: ResolvedJob, settings: Settings, now: datetime) -> Replicas:
    """Return the job's pods, sorted."""
    pods = sorted(observed.pods, key=lambda pod: pod.number)
    live = sorted(observed.live, key=lambda pod: pod.number)
    newest = tuple(pod for pod in live if pod.worker is not None and resolved.revisions.make(pod.worker))
    asleep = asleep_since(observed, resolved.spec, settings, now)
    wanted = wanted_replicas(resolved.spec) if asleep is None else 0
    # A successor that a wrong suspicion started goes again. It took nobody's place: a service that was ready preempts nothing.
    held = {pod.uid: due for pod in live if pod.uid in observed.silent and (due := _moves(pod, wanted)) > now}
    moving = observed.moving | (observed.silent - held.keys())
    current = tuple(pod for pod in newest if pod.uid not in moving)
    stale = tuple(pod for pod in live if pod not in current)
    ended = tuple(pod for pod in pods if pod.over and not pod.deleting)
    faults = [
        (pod, ending)
        for pod in ended
        if pod.worker is not None
        and resolved.revisions.make(pod.worker)
        and (ending := ending_of(own_attempt(pod), pod.worker.revision)) is not None
    ]
    failed = tuple(pod for pod, ending in faults if holds_back(pod, ending))
    last = max(((p, e) for p, e in faults if p in failed), key=lambda pair: pair[0].number, default=None)
    settled = _settles(current, last[0].number if last is not None else 0, observed)
    told = observed.job.status.last_attempt
    untold = sum(_is_untold(pod, told, now) for pod in failed)
    retry = _retry(*last, untold, wanted, observed, settings, now) if last is not None else None
    # One too many that failed, which was to spread the service, holds nothing back once it is told: nobody waits for it.
    whole = sum(map(is_running, current)) >= wanted > 1
    spare = last is not None and whole and _are_together(current, before=last[0].number)
    is_over = (spare and not untold) or (settled is not None and (settled <= now or retry is None or retry <= now))
    fault = last[1] if last is not None and not is_over else None
    found = Replicas(
        wanted=wanted,
        current=current,
        stale=stale,
        failed=failed,
        ended=ended,
        fault=fault,
        retry=retry if fault is not None else None,
        next_number=max([pod.number for pod in pods] + [observed.job.status.attempts]) + 1,
        settles=settled,
        untold=untold if fault is not None and not spare else 0,
        asleep=asleep,
        most=1 if resolved.one_pod else None,
        moving=moving,
        silent=observed.silent,
        moves=min(held.values(), default=None),
        lending=frozenset(work.pod for work in observed.background),
        spreads=_spreads(current, told, settings) if len(current) == wanted and not stale and not fault else None,
        leaving=sum(pod.deleting and not pod.terminal and pod.uid not in observed.lost for pod in pods),
    )
    return _giving_up(found, settings, now)


def _is_untold(pod: Pod, told: AttemptStatus | None, now: datetime) -> bool:
    """Whether a failed worker came, or ended, after the last one that is told: an older one may be left that nobody may delete."""
    if told is None or told.end_time is None or pod.number >= told.number:
        return told is None or pod.number != told.number
    return ended_at(pod, now).replace(microsecond=0) > told.end_time


def _moves(pod: Pod, wanted: int) -> datetime:
    """When a silent worker may have a successor: at once, but for those that fall silent in turn as soon as they are there."""
    return shift(pod.created or EARLIEST, SETTLED_SECONDS if pod.number > wanted else 0.0)


def _spreads(current: tuple[Pod, ...], told: AttemptStatus | None, settings: Settings) -> datetime | None:
    """When a service whose workers all answer on one node may get one elsewhere: once that is no passing state.

    After one that failed there, the next comes when it has been so for twice as long.
    """
    if settings.spread_after_seconds <= 0 or len(current) < 2 or not all(map(is_running, current)):
        return None
    if not _are_together(current):
        return None
    since = max(pod.created or EARLIEST for pod in current)
    due = shift(since, settings.spread_after_seconds)
    if told is None or told.end_time is None or told.number < max(pod.number for pod in current):
        return due
    return max(due, min(told.end_time + (told.end_time - since), shift(told.end_time, _SELDOM_SECONDS)))


def _are_together(current: tuple[Pod, ...], before: float = inf) -> bool:
    """Whether all are on one node, and came before the worker of a number."""
    return len({planned_node(pod) for pod in current}) == 1 and all(pod.number < before for pod in current)


def _giving_up(found: Replicas, settings: Settings, now: datetime) -> Replicas:
    """The same without the workers that can't start, and without one that was to spread the service and comes to nothing."""
    due = {pod.uid: at for pod in found.current if (at := _gives_up(pod, found, settings)) is not None}
    over = [pod for pod in found.current if pod.uid in due and due[pod.uid] <= now]
    left = min((at for at in due.values() if at > now), default=None)
    if not over:
        return replace(found, gives_up=left)
    given_up = tuple((pod, not_answering(pod, (due[pod.uid] - (pod.created or now)).total_seconds())) for pod in over)
    # One too many, which was to spread the service, is missed by nobody.
    spare = (found.spreading, *found.superfluous)
    missed = sum(pod not in spare for pod in over)
    current = tuple(pod for pod in found.current if pod not in over)
    return replace(found, current=current, gives_up=left, given_up=given_up, untold=found.untold + missed, spreads=None)


def _gives_up(pod: Pod, found: Replicas, settings: Settings) -> datetime | None:
    """When a worker that does not answer is given up; None for one that may load for longer, until its startup probe ends it."""
    if is_running(pod):
        return None
    if pod.started is None:
        return shift(pod.created or EARLIEST, settings.start_timeout_seconds)
    if pod is not found.spreading:
        return None
    return shift(pod.created or EARLIEST, settings.start_timeout_seconds + settings.load_timeout_seconds)


def _settles(current: tuple[Pod, ...], failed: int, observed: Observed) -> datetime | None:
    """When the first worker that came after the newest failure will have answered for long enough; None while none answers."""
    told = observed.job.status.last_attempt
    return settles(current, after=max(failed, told.number if told is not None else 0))


def _retry(pod: Pod, fault: Ending, untold: int, wanted: int, observed: Observed, settings: Settings, now: datetime) -> datetime:
    # All workers may fail of one cause: a round of failures doubles the pause, not each worker.
    rounds = ceil((observed.job.status.failed_attempts + untold) / max(1, wanted))
    if fault.outcome is AttemptOutcome.DISRUPTED:
        # The first costs no time: the next node may take it.
        rounds -= 1
    return shift(ended_at(pod, now), backoff_seconds(rounds, settings, permanent=fault.permanent))
