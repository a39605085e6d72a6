"""Leader election by a coordination.k8s.io Lease.

The rules are client-go's: a holder renews well before others may take over, and others go by their own monotonic clock, from when
they last saw the Lease change, so that clocks that disagree can't make two leaders. The holder looks at its own time before each
write, since a process that was paused doesn't know of it. It is no fencing by the API server: a request that was on its way may
still arrive, which is why every action of ours can be done twice.
"""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from inference_operator.errors import ConflictError, NotFoundError, OperatorError
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient
from inference_operator.runtime.clock import Clock

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0


Epoch = tuple[int, int]


class LeadershipLostError(Exception):
    """Somebody else may lead now; this process must end."""


class Leads(Protocol):
    """What whoever acts for the leader asks before each act."""

    def seconds_left(self) -> float:
        """How long this process leads without another renewal, above 0. Raises LeadershipLostError."""
        ...


class Leadership:
    """Whether this process leads: for so long after its last renewal, by a clock in seconds that counts suspends.

    `epoch` orders the leaders: the Unix seconds of the Lease's creation, since a Lease that is made anew counts from 0, and its
    number of transitions.
    """

    def __init__(self, boottime: Callable[[], float]) -> None:
        self._boottime = boottime
        self._until = 0.0
        self.epoch: Epoch = (0, 0)

    def extend(self, asked: float, epoch: Epoch) -> None:
        """Take in a renewal that was `asked` for then: others may count from that instant."""
        self._until = asked + RENEW_DEADLINE_SECONDS
        self.epoch = epoch

    def end(self) -> None:
        """Lead no longer."""
        self._until = 0.0

    def seconds_left(self) -> float:
        """See Leads."""
        left = self._until - self._boottime()
        if left <= 0:
            raise LeadershipLostError("the Lease could not be renewed in time")
        return left


@dataclass(frozen=True, slots=True)
class Sight:
    """What was last seen of the Lease, and when (monotonic seconds)."""

    holder: str
    renewed: str
    since: float


def may_take(sight: Sight, me: str, now: float) -> bool:
    """Whether the Lease is ours, free, or has not changed for its whole duration while we watched."""
    return sight.holder in ("", me) or now - sight.since >= DURATION_SECONDS


class Lease:
    """One Lease. `acquire` waits for it, `hold` keeps it, `release` gives it back; `leadership` hears of each renewal."""

    def __init__(self, kube: KubeClient, clock: Clock, leadership: Leadership, *, namespace: str, name: str, identity: str) -> None:
        self._kube = kube
        self._clock = clock
        self._leadership = leadership
        self._namespace = namespace
        self._name = name
        self._me = identity
        self._sight = Sight("", "", clock.monotonic())
        self._document: dict[str, Any] | None = None

    async def acquire(self) -> None:
        """Wait until the Lease is ours."""
        while not await self._step():  # noqa: ASYNC110 -- the Lease lives in the API server, which rings no bell
            await asyncio.sleep(RETRY_SECONDS)
        log.info("leading as %s", self._me)

    async def hold(self) -> None:
        """Renew for ever. Raises LeadershipLostError when it can't be renewed in time or another has it."""
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with asyncio.timeout(self._leadership.seconds_left()):
                    ours = await self._step()
            except TimeoutError:
                raise LeadershipLostError("the Lease could not be renewed in time") from None
            if not ours and self._sight.holder != self._me:
                raise LeadershipLostError(f"{self._sight.holder!r} holds the Lease")

    async def release(self) -> None:
        """Give the Lease back, so that the next leader need not wait."""
        self._leadership.end()
        if self._document is None or self._document["spec"].get("holderIdentity") != self._me:
            return
        body = {**self._document, "spec": {**self._document["spec"], "holderIdentity": "", "leaseDurationSeconds": 1}}
        try:
            await self._kube.replace(paths.lease(self._namespace, self._name), body)
        except OperatorError as error:
            log.warning("the Lease could not be given back: %s", error)

    async def _step(self) -> bool:
        """Look, and take or renew where that is allowed. Whether the Lease is ours afterwards."""
        try:
            self._document = await self._kube.get(paths.lease(self._namespace, self._name))
        except NotFoundError:
            return await self._write(None)
        except OperatorError as error:
            log.warning("the Lease can't be read: %s", error)
            return False
        spec = self._document["spec"]
        holder, renewed = spec.get("holderIdentity") or "", spec.get("renewTime") or ""
        if (holder, renewed) != (self._sight.holder, self._sight.renewed):
            self._sight = Sight(holder, renewed, self._clock.monotonic())
        if not may_take(self._sight, self._me, self._clock.monotonic()):
            return False
        return await self._write(self._document)

    async def _write(self, seen: dict[str, Any] | None) -> bool:
        asked, stamp = self._clock.boottime(), self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        old = seen["spec"] if seen is not None else {}
        mine = old.get("holderIdentity") == self._me
        spec = {
            "holderIdentity": self._me,
            "leaseDurationSeconds": DURATION_SECONDS,
            "renewTime": stamp,
            "acquireTime": old.get("acquireTime", stamp) if mine else stamp,
            "leaseTransitions": old.get("leaseTransitions", 0) + (not mine and bool(seen)),
        }
        try:
            if seen is None:
                body = {
                    "apiVersion": "coordination.k8s.io/v1",
                    "kind": "Lease",
                    "metadata": {"name": self._name, "namespace": self._namespace},
                    "spec": spec,
                }
                self._document = await self._kube.create(paths.leases(self._namespace), body)
            else:
                self._document = await self._kube.replace(paths.lease(self._namespace, self._name), {**seen, "spec": spec})
        except OperatorError as error:
            if not isinstance(error, ConflictError):
                log.warning("the Lease can't be written: %s", error)
            return False
        self._sight = Sight(self._me, stamp, self._clock.monotonic())
        self._leadership.extend(asked, _epoch(self._document))
        return True


def _epoch(lease: dict[str, Any]) -> Epoch:
    created = datetime.fromisoformat(lease["metadata"]["creationTimestamp"])
    return int(created.timestamp()), lease["spec"].get("leaseTransitions") or 0
