"""Who a request is for: whose turn it is where several wait, what each may have, and what each has used.

Turns are those of start-time fair queueing (Goyal, Vin and Cheng, 1996), in rounds of a whole run: a round has places for so many
rows of each tenant by its weight, and within a round deadlines order. A tenant that waits alone has no rounds.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http import HTTPStatus

import msgspec

from inference_worker.errors import RequestError

MOST_WEIGHT = 1000

_TENANTS_KEPT = 64
"""Tenants that are counted apart. Callers may name any, so there must be an end."""

OTHERS = "other"
"""What all further tenants are counted as together."""

_BURST_SECONDS = 1.0
"""A quota saves up what was not used of this long."""


class Tenant(msgspec.Struct, frozen=True, cache_hash=True):
    """A tenant, its weight among others, and what it may have of one worker; None where nothing is said.

    `rows` and `device` are rows and seconds of runs in a second, `concurrent` requests that wait or run at once. No request is more
    urgent than `priority`, 1 being the most urgent and 100 that of one which says nothing: turns are among those of one priority.
    """

    name: str
    weight: int = 1
    rows: float | None = None
    device: float | None = None
    concurrent: int | None = None
    priority: int = 100


NOBODY = Tenant("", priority=1)
"""Of requests that name no tenant."""


class Turns:
    """In which round a request is. Keeps, by tenant, up to which virtual time it has taken its turns, in rows of weight 1."""

    def __init__(self, quantum: int) -> None:
        """`quantum` is how many rows of weight 1 a round has."""
        self._quantum = quantum
        self._now = 0.0
        self._taken: dict[str, float] = {}

    def start(self, tenant: Tenant) -> float:
        """When the turn of the tenant's next request begins."""
        return max(self._now, self._taken.get(tenant.name, 0.0))

    def round(self, start: float) -> int:
        """The round that a turn belongs to."""
        return int(start // self._quantum)

    def take(self, tenant: Tenant, rows: int) -> float:
        """Let a tenant have its next turn; return when that begins."""
        if len(self._taken) >= _TENANTS_KEPT:
            self._taken = {name: until for name, until in self._taken.items() if until > self._now}
        start = self.start(tenant)
        self._taken[tenant.name] = start + rows / tenant.weight
        return start

    def run(self, start: float) -> None:
        """A request is run whose turn began then: nobody's next turn is earlier."""
        self._now = max(self._now, start)


class Bucket:
    """So much a second, and what was not used of the last second. What is only known afterwards may take it below zero."""

    __slots__ = ("_at", "_level", "_rate")

    def __init__(self, rate: float, now: float) -> None:
        self._rate, self._level, self._at = rate, rate * _BURST_SECONDS, now

    def refuses(self, rate: float, now: float) -> float | None:
        """Seconds until there is something left; None where there is."""
        self._level = min(rate * _BURST_SECONDS, self._level + (now - self._at) * rate)
        self._rate, self._at = rate, now
        return None if self._level > 0 else -self._level / rate

    def use(self, amount: float) -> None:
        """Take so much out."""
        self._level -= amount


@dataclass(slots=True)
class Usage:
    """What a tenant has had since the start: requests let in and refused, rows and seconds of runs; and what it holds now."""

    requests: int = 0
    refused: int = 0
    rows: int = 0
    seconds: float = 0.0
    held: int = 0
    row_bucket: Bucket | None = None
    device_bucket: Bucket | None = None


@dataclass(slots=True)
class Ledger:
    """What each tenant of a model has used, and whether it may have more."""

    _usage: dict[str, Usage] = field(default_factory=dict)

    @property
    def usage(self) -> Mapping[str, Usage]:
        """By name."""
        return self._usage

    def of(self, tenant: Tenant) -> Usage:
        """What a tenant has used; shared by all who came after the first ones."""
        found = self._usage.get(tenant.name)
        if found is None:
            name = tenant.name if len(self._usage) < _TENANTS_KEPT else OTHERS
            found = self._usage.setdefault(name, Usage())
        return found

    def admit(self, tenant: Tenant, now: float) -> None:
        """Raise RequestError(429) for a tenant that has had what it may have."""
        usage = self.of(tenant)
        if tenant.concurrent is not None and usage.held >= tenant.concurrent:
            raise _spent(tenant, f"{tenant.concurrent} requests at once", 0.0)
        if tenant.rows is not None:
            usage.row_bucket = usage.row_bucket or Bucket(tenant.rows, now)
            if (seconds := usage.row_bucket.refuses(tenant.rows, now)) is not None:
                raise _spent(tenant, f"{tenant.rows:g} rows a second", seconds)
        if tenant.device is not None:
            usage.device_bucket = usage.device_bucket or Bucket(tenant.device, now)
            if (seconds := usage.device_bucket.refuses(tenant.device, now)) is not None:
                raise _spent(tenant, f"{tenant.device:g} device-seconds a second", seconds)

    def require(self, tenant: Tenant, now: float) -> None:
        """The same before anything is done for a request, which is counted where it is refused."""
        try:
            self.admit(tenant, now)
        except RequestError:
            self.refused(tenant)
            raise

    def spared(self, tenant: Tenant, rows: int) -> None:
        """Count a request that was answered without a run."""
        self.begin(tenant, rows)
        self.end(tenant)

    def refused(self, tenant: Tenant) -> None:
        """Count a request that was refused, for whatever reason."""
        self.of(tenant).refused += 1

    def begin(self, tenant: Tenant, rows: int) -> None:
        """Count a request that was let in."""
        usage = self.of(tenant)
        usage.requests += 1
        usage.held += 1
        if usage.row_bucket is not None:
            usage.row_bucket.use(rows)

    def ran(self, tenant: Tenant, rows: int, seconds: float) -> None:
        """Count a request's part of a run."""
        usage = self.of(tenant)
        usage.rows += rows
        usage.seconds += seconds
        if usage.device_bucket is not None:
            usage.device_bucket.use(seconds)

    def share(self, members: Iterable[tuple[Tenant, int]], rows: int, seconds: float) -> None:
        """Share a run of so many rows among its members, with theirs."""
        for tenant, own in members:
            if tenant is not NOBODY:
                self.ran(tenant, own, seconds * own / rows)

    def end(self, tenant: Tenant) -> None:
        """Count the end of a request that was let in, however it ended."""
        self.of(tenant).held -= 1


def _spent(tenant: Tenant, quota: str, seconds: float) -> RequestError:
    text = f"tenant {tenant.name} has used its quota of {quota} at this worker; ask again later, or ask for more"
    return RequestError(HTTPStatus.TOO_MANY_REQUESTS, text, retry_after_seconds=seconds)
