"""Leader election by a coordination.k8s.io Lease.

The rules are client-go's: a holder renews well before others may take over, and others go by their own monotonic clock, from when
they last saw the Lease change, so that clocks that disagree can't make two leaders. It is no fencing: two may overlap for a
moment, which is why every action of ours can be done twice.
"""

import asyncio
import logging
from dataclasses import dataclass
from typing import Any

from inference_operator.errors import ConflictError, NotFoundError, OperatorError
from inference_operator.kube import paths
from inference_operator.kube.ports import KubeClient
from inference_operator.runtime.clock import Clock

log = logging.getLogger(__name__)

DURATION_SECONDS = 15
RENEW_DEADLINE_SECONDS = 10.0
RETRY_SECONDS = 2.0


class LeadershipLostError(Exception):
    """Somebody else may lead now; this process must end."""


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
    """One Lease. `acquire` waits for it, `hold` keeps it, `release` gives it back."""

    def __init__(self, kube: KubeClient, clock: Clock, *, namespace: str, name: str, identity: str) -> None:
        self._kube = kube
        self._clock = clock
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
        renewed = self._clock.monotonic()
        while True:
            await asyncio.sleep(RETRY_SECONDS)
            try:
                async with asyncio.timeout(RENEW_DEADLINE_SECONDS - (self._clock.monotonic() - renewed)):
                    ours = await self._step()
            except TimeoutError:
                raise LeadershipLostError("the Lease could not be renewed in time") from None
            if ours:
                renewed = self._clock.monotonic()
            elif self._sight.holder != self._me:
                raise LeadershipLostError(f"{self._sight.holder!r} holds the Lease")

    async def release(self) -> None:
        """Give the Lease back, so that the next leader need not wait."""
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
        stamp = self._clock.now().strftime("%Y-%m-%dT%H:%M:%S.%fZ")
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
        return True
