"""The leader's own time: what it may still do, and when it finds out that it may not."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from inference_operator.errors import ConflictError, NotFoundError, RetryableError
from inference_operator.kube.client import Kube
from inference_operator.kube.connection import Connection
from inference_operator.kube.leaderelection import (
    HELD,
    LONGEST_SECONDS,
    TAKEN,
    Leadership,
    LeadershipLostError,
    Lease,
    Sight,
    lease_seconds,
    may_take,
)
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.settings import Settings
from tests.clock import Clock

CREATED = "2026-04-02T12:00:00Z"
BEGUN = round(Clock().now().timestamp() * 1000)
SECONDS = 2
HELD_SECONDS = HELD * SECONDS


@dataclass
class Suspended(Clock):
    """A machine that was suspended: its monotonic clock has not counted that time."""

    asleep: float = 0.0

    def boottime(self) -> float:
        return self.seconds + self.asleep


@dataclass
class LeaseServer:
    """An API server with one Lease."""

    lease: dict[str, Any] | None = None
    version: int = 0
    created: str = CREATED
    during_write: Callable[[], None] = field(default=lambda: None)
    during_read: Callable[[], None] = field(default=lambda: None)
    reads: int = 0

    async def get(self, path: str) -> dict[str, Any]:
        self.reads += 1
        self.during_read()
        if self.lease is None:
            raise NotFoundError(path)
        return self.lease

    async def create(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._keep({**body, "metadata": {**body["metadata"], "creationTimestamp": self.created}})

    async def replace(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        if self.lease is None or body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise ConflictError(path)
        return self._keep(body)

    def _keep(self, body: dict[str, Any]) -> dict[str, Any]:
        self.version += 1
        self.lease = {**body, "metadata": {**body["metadata"], "resourceVersion": str(self.version)}}
        self.during_write()
        return self.lease


def acquired(server: LeaseServer, clock: Clock, me: str = "me") -> Leadership:
    leadership = Leadership(clock.boottime)
    asyncio.run(a_lease(server, clock, leadership, me).acquire())
    return leadership


def a_lease(server: LeaseServer, clock: Clock, leadership: Leadership, me: str = "me") -> Lease:
    return Lease(server, clock, leadership, namespace="n", name="l", identity=me, seconds=SECONDS)  # type: ignore[arg-type]


def seconds_left(leadership: Leadership) -> float:
    """For how long it leads; 0 where it would wait."""

    async def ask() -> float:
        done, _ = await asyncio.wait([asyncio.ensure_future(leadership.sure())], timeout=0.01)
        return done.pop().result() if done else 0.0

    return asyncio.run(ask())


def test_a_standby_may_not_act() -> None:
    assert seconds_left(Leadership(Clock().boottime)) == 0


def test_a_machine_that_was_suspended_knows_that_it_leads_no_longer() -> None:
    clock = Suspended()
    leadership = acquired(LeaseServer(), clock)
    assert seconds_left(leadership) == HELD_SECONDS

    clock.asleep = HELD_SECONDS

    assert seconds_left(leadership) == 0


def test_a_renewal_counts_from_when_it_was_asked_for() -> None:
    """Others may have seen it right then; its answer may have been on its way for long."""
    clock = Clock()

    leadership = acquired(LeaseServer(during_write=lambda: setattr(clock, "seconds", 1.0)), clock)

    assert seconds_left(leadership) == HELD_SECONDS - 1.0


def test_who_gives_the_lease_back_leads_no_longer() -> None:
    server, clock = LeaseServer(), Clock()
    leadership = Leadership(clock.boottime)
    lease = a_lease(server, clock, leadership)

    async def lead_and_release() -> None:
        await lease.acquire()
        await lease.release()

    asyncio.run(lead_and_release())

    assert seconds_left(leadership) == 0


def test_each_leader_has_a_higher_epoch_than_the_one_before() -> None:
    server, clock = LeaseServer(), Clock()
    first = acquired(server, clock).epoch
    assert server.lease is not None
    server.lease["spec"]["holderIdentity"] = ""
    second = acquired(server, clock, "other").epoch

    assert (first, second) == ((BEGUN, 0), (BEGUN + 1, 1))


def test_a_lease_of_years_keeps_nobody_from_leading_for_long() -> None:
    clock = Clock()

    class Later(LeaseServer):
        async def get(self, path: str) -> dict[str, Any]:
            clock.seconds += LONGEST_SECONDS / 4
            return await super().get(path)

    server = Later()
    acquired(server, clock, "other")
    assert server.lease is not None
    server.lease["spec"]["leaseDurationSeconds"] = 2**31 - 1

    acquired(server, clock)

    assert clock.seconds <= 2 * LONGEST_SECONDS


def test_no_setting_makes_a_longer_lease() -> None:
    with pytest.raises(msgspec.ValidationError, match="leaseSeconds"):
        msgspec.convert({"leaseSeconds": LONGEST_SECONDS + 1}, Settings)
    assert msgspec.convert({"leaseSeconds": LONGEST_SECONDS}, Settings).lease_seconds == LONGEST_SECONDS


def test_a_lease_that_is_made_anew_has_a_higher_epoch_although_it_counts_from_nothing() -> None:
    server, clock = LeaseServer(), Clock()
    acquired(server, clock)
    assert server.lease is not None
    server.lease["spec"]["leaseTransitions"] = 7
    server.lease["spec"]["holderIdentity"] = ""
    before = acquired(server, clock).epoch
    server.lease, server.created, clock.seconds = None, "2026-04-02T12:00:09Z", 9.0

    assert acquired(server, clock, "other").epoch > before


def test_a_lease_from_a_backup_has_a_higher_epoch_although_it_counts_from_where_it_was() -> None:
    """Warm workers outlive a restore: they refused all orders until the Lease had changed hands as often as before."""
    server, clock = LeaseServer(), Clock()
    acquired(server, clock)
    backup = server.lease
    for number in range(3):
        assert server.lease is not None
        server.lease = {**server.lease, "spec": {**server.lease["spec"], "holderIdentity": ""}}
        clock.seconds += 60.0
        before = acquired(server, clock, f"other-{number}").epoch
    assert backup is not None
    server.lease = {**backup, "spec": {**backup["spec"], "holderIdentity": ""}}
    clock.seconds += 60.0

    assert acquired(server, clock, "last").epoch > before


def test_a_later_leader_has_a_higher_epoch_although_the_clock_went_back() -> None:
    server, clock = LeaseServer(), Clock(100.0)
    before = acquired(server, clock).epoch
    assert server.lease is not None
    server.lease["spec"]["holderIdentity"] = ""

    assert acquired(server, Clock(0.0), "other").epoch > before


WRITES: dict[str, Callable[[Kube], Awaitable[object]]] = {
    "create": lambda kube: kube.create("/x", {}),
    "apply": lambda kube: kube.apply("/x", {}),
    "merge": lambda kube: kube.merge("/x", {}),
    "replace": lambda kube: kube.replace("/x", {}),
    "delete": lambda kube: kube.delete("/x", uid="u"),
}


async def asked(ask: Callable[[Kube], Awaitable[object]], leadership: Leadership, heard: list[str], *, hang: bool = False) -> None:
    """Ask a real server, which notes what it hears."""

    async def answer(request: web.Request) -> web.Response:
        heard.append(request.method)
        if hang:
            await asyncio.Event().wait()
        return web.json_response({})

    app = web.Application()
    app.router.add_route("*", "/{path:.*}", answer)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    server = f"http://127.0.0.1:{runner.addresses[0][1]}"
    try:
        async with aiohttp.ClientSession() as session:
            kube = Kube(Connection(server, None), session, TokenBucket(100, 100, lambda: 0.0), leadership)
            await ask(kube)
    finally:
        await runner.cleanup()


@pytest.mark.parametrize("write", WRITES)
def test_a_leader_that_was_paused_past_its_lease_writes_nothing(write: str) -> None:
    clock = Suspended()
    leadership = acquired(LeaseServer(), clock)
    before: list[str] = []
    asyncio.run(asked(WRITES[write], leadership, before))
    clock.asleep = HELD_SECONDS

    after: list[str] = []
    asyncio.run(asked(lambda kube: waits(WRITES[write](kube)), leadership, after))

    assert (len(before), after) == (1, [])


async def waits(act: Awaitable[object]) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(act, 0.05)


def test_what_waited_for_a_renewal_that_was_late_goes_on_with_it() -> None:
    """A slow API server, or a loop that was late, is no reason to begin anew."""
    clock, heard = Clock(), list[str]()
    leadership = Leadership(clock.boottime)

    async def late(kube: Kube) -> None:
        writing = asyncio.ensure_future(kube.create("/x", {}))
        await asyncio.sleep(0.02)
        assert heard == []
        leadership.extend(clock.boottime(), SECONDS, (0, 0))
        await writing

    asyncio.run(asked(late, leadership, heard))

    assert heard == ["POST"]


def test_reads_need_no_lease() -> None:
    heard: list[str] = []

    asyncio.run(asked(lambda kube: kube.get("/x"), Leadership(Clock().boottime), heard))

    assert heard == ["GET"]


def test_a_write_is_not_waited_for_beyond_the_lease() -> None:
    leadership = Leadership(lambda: 0.0)
    leadership.extend(0.1 - HELD_SECONDS, SECONDS, (0, 0))

    with pytest.raises(RetryableError):
        asyncio.run(asked(WRITES["apply"], leadership, [], hang=True))


class StoppedError(Exception):
    """The test has seen enough."""


def held(server: LeaseServer, clock: Clock, moments: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> Leadership:
    """Acquire and hold; each pause passes at once, and `moments` is told its number before."""
    leadership = Leadership(clock.boottime)
    number = 0

    async def pause(seconds: float) -> None:
        nonlocal number
        moments(number)
        number += 1
        clock.seconds += seconds

    async def live() -> None:
        lease = a_lease(server, clock, leadership)
        await lease.acquire()
        await lease.hold()

    monkeypatch.setattr(asyncio, "sleep", pause)
    with pytest.raises(StoppedError):
        asyncio.run(live())
    return leadership


def stop_at(last: int) -> Callable[[int], None]:
    def moments(number: int) -> None:
        if number == last:
            raise StoppedError

    return moments


def test_a_dead_leader_is_followed_soon_after_it_would_have_ceased_to_lead() -> None:
    sight = Sight("other", "then", 2, since=10.0)

    assert 10.0 + HELD * 2 < sight.over < 12.0
    assert not may_take(sight, "me", sight.over - 0.01)
    assert may_take(sight, "me", sight.over)


def test_a_candidate_goes_by_the_duration_that_the_holder_wrote(monkeypatch: pytest.MonkeyPatch) -> None:
    """A holder of another version, or behind a slow API server, goes by its Lease for longer than we would by ours."""
    server, clock = LeaseServer(), Clock()
    acquired(server, clock, "other")
    assert server.lease is not None
    server.lease["spec"]["leaseDurationSeconds"] = 15

    async def pause(seconds: float) -> None:
        clock.seconds += seconds

    monkeypatch.setattr(asyncio, "sleep", pause)
    acquired(server, clock)

    assert clock.seconds == pytest.approx(TAKEN * 15, abs=0.01)


def test_a_lease_that_somebody_deletes_is_left_to_its_holder_for_as_long_as_that_goes_by_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    server, clock = LeaseServer(), Clock()
    holder = acquired(server, clock, "other")
    looks = 0

    async def pause(seconds: float) -> None:
        nonlocal looks
        looks += 1
        server.lease = None
        clock.seconds += seconds

    monkeypatch.setattr(asyncio, "sleep", pause)
    acquired(server, clock)

    monkeypatch.undo()
    assert looks > 1
    assert seconds_left(holder) == 0


def test_a_shorter_renewal_counts_from_when_it_was_asked_for_although_its_answer_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others go by what the API server has, and know nothing of the longer one before."""
    clock = Clock()
    server = LeaseServer(during_read=lambda: setattr(clock, "seconds", clock.seconds + (2.0 if server.version == 0 else 0.0)))

    def lose() -> None:
        if server.lease is not None and server.lease["spec"]["leaseDurationSeconds"] == SECONDS:
            raise RetryableError("the connection broke")

    server.during_write = lose
    leadership = held(server, clock, stop_at(9), monkeypatch)

    monkeypatch.undo()
    assert server.lease is not None and server.lease["spec"]["leaseDurationSeconds"] == SECONDS
    assert seconds_left(leadership) <= HELD_SECONDS


def test_a_lease_lasts_as_asked_for_while_the_api_server_is_quick_and_longer_while_it_is_slow() -> None:
    assert lease_seconds(2, ()) == lease_seconds(2, [0.25, 0.01]) == 2
    assert lease_seconds(2, [0.01, 1.0]) == 8
    assert lease_seconds(2, [30.0]) == LONGEST_SECONDS
    assert lease_seconds(60, [30.0]) == 60


def test_a_slow_api_server_does_not_cost_the_lease_that_was_just_acquired() -> None:
    """It answers after 2 s, which is longer than a holder goes by a Lease of 2 s."""
    clock = Clock()

    def slow() -> None:
        clock.seconds += 2.0

    leadership = acquired(LeaseServer(during_read=slow, during_write=slow), clock)

    assert seconds_left(leadership) == HELD * LONGEST_SECONDS - 2.0


def test_a_lease_is_short_again_once_the_api_server_is_quick(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    server = LeaseServer(during_read=lambda: setattr(clock, "seconds", clock.seconds + (2.0 if server.version == 0 else 0.0)))

    leadership = held(server, clock, stop_at(9), monkeypatch)

    assert clock.seconds < 10
    assert server.lease is not None
    assert server.lease["spec"]["leaseDurationSeconds"] == SECONDS
    assert leadership.epoch == (BEGUN + 2000, 0)


def test_a_holder_renews_without_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    server, clock = LeaseServer(), Clock()

    held(server, clock, stop_at(10), monkeypatch)

    assert (server.reads, server.version) == (1, 11)


def test_a_holder_looks_again_when_somebody_else_has_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """An annotation is no reason to give the Lease up."""
    server, clock = LeaseServer(), Clock()

    def moments(number: int) -> None:
        if number == 1:
            assert server.lease is not None
            server.lease = {**server.lease, "metadata": {**server.lease["metadata"], "resourceVersion": "99"}}
        stop_at(5)(number)

    leadership = held(server, clock, moments, monkeypatch)

    assert server.reads == 2
    assert seconds_left(leadership) > 0


def test_a_holder_that_was_late_goes_on_where_nobody_else_has_led(monkeypatch: pytest.MonkeyPatch) -> None:
    server, clock = LeaseServer(), Clock()

    def moments(number: int) -> None:
        if number == 1:
            clock.seconds += 60.0
        stop_at(3)(number)

    leadership = held(server, clock, moments, monkeypatch)

    assert (seconds_left(leadership) > 0, leadership.epoch) == (True, (BEGUN, 0))


def test_a_holder_that_was_late_and_was_followed_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    server, clock = LeaseServer(), Clock()

    def moments(number: int) -> None:
        if number == 1:
            clock.seconds += 60.0
            assert server.lease is not None
            spec = {**server.lease["spec"], "holderIdentity": "other", "renewTime": "2026-04-02T12:01:00.000000Z"}
            server.lease = {"spec": spec, "metadata": {**server.lease["metadata"], "resourceVersion": "99"}}
        stop_at(9)(number)

    with pytest.raises(LeadershipLostError, match="'other' holds the Lease"):
        held(server, clock, moments, monkeypatch)

    assert server.lease is not None and server.lease["spec"]["holderIdentity"] == "other"
