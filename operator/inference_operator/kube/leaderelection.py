"""Leader election by a coordination.k8s.io Lease.

The rules are client-go's: a holder renews well before others may take over, and others go by their own monotonic clock, from when
they last saw the Lease change, so that clocks that disagree can't make two leaders. The holder looks at its own time before each
write, since a process that was paused doesn't know of it. It is no fencing by the API server: a request that was on its way may
still arrive, which is why every action of ours can be done twice.

The Lease is short, so that a dead leader is soon followed; at once where its kernel says that it has ended (`holder.py`). The
holder writes into it for how long it counts, and others go by that: where renewals take long, a short one would be lost again and
again.
"""

import asyncio
import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Protocol, TypeVar

from inference_operator.api import names
from inference_operator.errors import ConflictError, NotFoundError, OperatorError
from inference_operator.kube import paths
from inference_operator.kube.holder import Holder, HolderWatch
from inference_operator.kube.ports import KubeClient
from inference_operator.runtime.clock import Clock

log = logging.getLogger(__name__)

_T = TypeVar("_T")

# The longest that a Lease of ours is. One that says more, or nothing, is somebody's mistake: it would keep all from leading.
LONGEST_SECONDS = 15
# For how much of its duration a holder goes by its Lease, from when it asked; after how much others take it, from when they saw it.
HELD, TAKEN = 3 / 4, 7 / 8
# Parts of the shortest Lease: when it is renewed, and how often others look.
RENEWED, LOOKED = 1 / 4, 1 / 8
# A Lease is at least so many times as long as the slowest of the last requests for it: a renewal and its repetition fit in.
_ROOM = 8
_REMEMBERED = 8
# A look that takes longer is begun anew, on another connection: the API server behind this one may be dead.
_LOOK_SECONDS = 5.0
_STAMP = "%Y-%m-%dT%H:%M:%S.%fZ"


Epoch = tuple[int, int]


class LeadershipLostError(Exception):
    """Somebody else leads; this process must begin anew."""


class Leads(Protocol):
    """What whoever acts for the leader asks before each act."""

    async def sure(self) -> float:
        """Wait until this process is sure to lead, and return for how many seconds it does without another renewal, above 0."""
        ...


class Leadership:
    """Whether this process leads: for so long after its last renewal, by a clock in seconds that counts suspends.

    `epoch` orders the leaders: when this one took the Lease, in Unix milliseconds, and how often it has changed hands. That count
    alone goes back where a Lease is made anew, or comes from a backup.
    """

    def __init__(self, boottime: Callable[[], float]) -> None:
        self._boottime = boottime
        self._until = 0.0
        self._renewed = asyncio.Event()
        self.epoch: Epoch = (0, 0)

    def extend(self, asked: float, duration: int, epoch: Epoch) -> None:
        """Take in a renewal for `duration` seconds that was `asked` for then: others may count from that instant."""
        self._until = asked + HELD * duration
        self.epoch = epoch
        self._renewed.set()

    def ask(self, asked: float, duration: int) -> None:
        """A renewal is on its way: others may go by it at once, and its answer may never come. It may be shorter than the last."""
        self._until = min(self._until, asked + HELD * duration)

    def end(self) -> None:
        """Lead no longer."""
        self._until = 0.0

    async def sure(self) -> float:
        """See Leads. Who has lost the Lease to another waits here until its process begins anew."""
        while (left := self._until - self._boottime()) <= 0:
            self._renewed.clear()
            await self._renewed.wait()
        return left


@dataclass(frozen=True, slots=True)
class Sight:
    """What was last seen of the Lease: who holds it, for how many seconds, and since when we see that (monotonic seconds)."""

    holder: str
    renewed: str
    duration: int
    since: float

    @property
    def over(self) -> float:
        """When others may take it, if it doesn't change (monotonic seconds)."""
        return self.since + TAKEN * self.duration


def may_take(sight: Sight, me: str, now: float) -> bool:
    """Whether the Lease is ours, free, or has not changed for so long that its holder doesn't go by it any more."""
    return sight.holder in ("", me) or now >= sight.over


def lease_seconds(least: int, took: Iterable[float]) -> int:
    """Return for how many seconds to hold the Lease, by what the last requests took: `least`, and longer where they are slow."""
    return max(least, min(math.ceil(_ROOM * max(took, default=0.0)), LONGEST_SECONDS))


class Lease:
    """One Lease. `acquire` waits for it, `hold` keeps it, `release` gives it back; `leadership` hears of each renewal."""

    def __init__(
        self,
        kube: KubeClient,
        clock: Clock,
        leadership: Leadership,
        *,
        namespace: str,
        name: str,
        identity: str,
        seconds: int,
        listens: tuple[str, int] | None = None,
    ) -> None:
        """`listens` is the address where this process does so from before it asks for the Lease until it has given it back."""
        self._kube = kube
        self._clock = clock
        self._leadership = leadership
        self._path = paths.lease(namespace, name)
        self._namespace = namespace
        self._name = name
        self._me = identity
        self._least = seconds
        self._own = Holder(identity, *listens) if listens is not None else None
        self._watch = HolderWatch()
        self._sight = Sight("", "", LONGEST_SECONDS, clock.monotonic())
        self._took: deque[float] = deque(maxlen=_REMEMBERED)
        # As the API server has it; None where that is not known.
        self._document: dict[str, Any] | None = None

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        try:
            while not await self._try_to_take():
                await self._watch.wait(self._until_next_look())
        finally:
            self._watch.stop()
        log.info("leading as %s", self._me)

    async def hold(self) -> None:
        """Renew for ever. Raises LeadershipLostError when another has it.

        One that was late is a renewal too: it has the version that was read last, so nobody else has led.
        """
        while True:
            # However long the Lease is: what was slow is soon forgotten then.
            pause = RENEWED * self._least
            due = self._clock.monotonic() + pause
            await asyncio.sleep(pause)
            # A loop that is late here is late with answers too.
            self._took.append(self._clock.monotonic() - due)
            try:
                # Not longer than it counts: the API server behind this connection may be dead.
                async with asyncio.timeout(HELD * lease_seconds(self._least, self._took)):
                    ours = await self._renew()
            except TimeoutError:
                log.warning("the Lease can't be renewed in time")
                continue
            if not ours and self._sight.holder != self._me:
                raise LeadershipLostError(f"{self._sight.holder!r} holds the Lease")

    async def release(self) -> None:
        """Give the Lease back, so that the next leader need not wait."""
        self._leadership.end()
        if self._document is None or self._document["spec"].get("holderIdentity") != self._me:
            return
        body = {**self._document, "spec": {**self._document["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await self._kube.replace(self._path, body)
        except OperatorError as error:
            log.warning("the Lease could not be given back: %s", error)

    async def _timed(self, request: Awaitable[_T]) -> _T:
        """What a request answers; how long it takes decides for how long the Lease is asked next."""
        began = self._clock.monotonic()
        try:
            return await request
        finally:
            self._took.append(self._clock.monotonic() - began)

    def _until_next_look(self) -> float:
        """Seconds until a candidate looks again: sooner where the Lease ends before."""
        left = self._sight.over - self._clock.monotonic()
        look = LOOKED * self._least
        return min(look, left) if left > 0 else look

    async def _try_to_take(self) -> bool:
        try:
            async with asyncio.timeout(_LOOK_SECONDS):
                # Asked after the look: whoever takes the Lease in between has it changed, and our write is refused.
                free = await self._look() or await self._has_ended()
        except TimeoutError:
            log.warning("the Lease can't be read in %g s", _LOOK_SECONDS)
            return False
        return free and await self._write(self._document)

    async def _has_ended(self) -> bool:
        """Whether the process ended that the API server has as the holder."""
        if self._document is None:
            return False
        holder = self._sight.holder
        told = self._document["metadata"].get("annotations", {}).get(names.ANNOTATION_HOLDER, "")
        self._watch.follow(Holder.parse(told, holder))
        if not await self._watch.has_ended():
            return False
        log.info("the process of %s has ended, which held the Lease", holder)
        return True

    async def _renew(self) -> bool:
        """Write without a look while nobody else has written; else look first."""
        return (self._document is not None or await self._look()) and await self._write(self._document)

    async def _look(self) -> bool:
        """Whether we may take or renew it, by what the API server has."""
        try:
            self._document = await self._timed(self._kube.get(self._path))
        except NotFoundError:
            self._document = None
            # Somebody has deleted it, and its holder may not know yet.
            return may_take(self._sight, self._me, self._clock.monotonic())
        except OperatorError as error:
            log.warning("the Lease can't be read: %s", error)
            return False
        spec = self._document["spec"]
        holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        if (holder, renewed) != (self._sight.holder, self._sight.renewed):
            lasts = min(spec.get("leaseDurationSeconds") or LONGEST_SECONDS, LONGEST_SECONDS)
            self._sight = Sight(holder, renewed, lasts, self._clock.monotonic())
        return may_take(self._sight, self._me, self._clock.monotonic())

    async def _write(self, seen: dict[str, Any] | None) -> bool:
        asked, stamp = self._clock.boottime(), self._clock.now().strftime(_STAMP)
        old = seen["spec"] if seen is not None else {}
        mine = old.get("holderIdentity") == self._me
        seconds = lease_seconds(self._least, self._took)
        # Until it is answered nobody knows what the API server has.
        self._document = None
        self._leadership.ask(asked, seconds)
        spec = {
            "holderIdentity": self._me,
            "leaseDurationSeconds": seconds,
            "renewTime": stamp,
            "acquireTime": old.get("acquireTime", stamp) if mine else _after(old.get("acquireTime"), stamp),
            "leaseTransitions": old.get("leaseTransitions", 0) + (not mine and bool(seen)),
        }
        known: dict[str, Any] = seen["metadata"] if seen is not None else {"name": self._name, "namespace": self._namespace}
        metadata = {**known, "annotations": {**known.get("annotations", {}), names.ANNOTATION_HOLDER: str(self._own or "")}}
        body = {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": spec}
        try:
            if seen is None:
                self._document = await self._timed(self._kube.create(paths.leases(self._namespace), body))
            else:
                self._document = await self._timed(self._kube.replace(self._path, body))
        except OperatorError as error:
            if not isinstance(error, ConflictError):
                log.warning("the Lease can't be written: %s", error)
            return False
        if seconds != self._sight.duration:
            log.info("the Lease counts for %d s", seconds)
        self._sight = Sight(self._me, stamp, seconds, self._clock.monotonic())
        self._leadership.extend(asked, seconds, _epoch(self._document))
        return True


def _after(before: str | None, stamp: str) -> str:
    """When the Lease is taken: later than by the holder before, whatever the clocks say."""
    if before is None:
        return stamp
    least = datetime.fromisoformat(before) + timedelta(milliseconds=1)
    return max(datetime.fromisoformat(stamp), least).strftime(_STAMP)


def _epoch(lease: dict[str, Any]) -> Epoch:
    taken = datetime.fromisoformat(lease["spec"]["acquireTime"])
    return round(taken.timestamp() * 1000), lease["spec"].get("leaseTransitions") or 0
