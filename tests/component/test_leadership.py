"""Two operators, one Lease: who writes, and how the work changes hands."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path
from typing import TYPE_CHECKING

import aiohttp

from inference_operator.app import BEGIN_ANEW
from inference_operator.kube.leaderelection import TAKEN
from tests.component.objects import a_batch, a_model, a_node, succeeded
from tests.component.operators import Operator, Ward, until, until_status
from tests.loopback import free_ports

if TYPE_CHECKING:
    from tests.component.api_server import ApiServer, Call
    from tests.component.kubelet import Kubelet

LEASE_SECONDS = 2
# Where a test waits until the Lease is over.
BRIEF = {"leaseSeconds": LEASE_SECONDS}
LEASE = ("leases", "inference-operator", "operator-system")


async def test_of_two_operators_only_the_holder_of_the_lease_writes(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    await _two(server, ward)

    for name in ("a", "b", "c"):
        server.create(a_batch(name))
        await kubelet.play(name)
        await until_status(succeeded, server, name, f"{name}'s success")

    assert {c.who for c in server.writes()} == {"first"}


async def test_a_leader_that_is_told_to_stop_gives_the_lease_back_at_once(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    first, second = await _two(server, ward)

    first.send(signal.SIGTERM)
    await second.says("leading as")

    given_back = [c for c in server.calls("PUT", "/leases/") if c.who == "first" and c.body["spec"]["holderIdentity"] == ""]
    assert len(given_back) == 1
    server.create(a_batch())
    await kubelet.play("job")
    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")


async def test_when_a_leader_dies_the_other_takes_over_after_the_lease_has_expired(
    server: ApiServer, ward: Ward, kubelet: Kubelet
) -> None:
    first, second = await _two(server, ward, settings=BRIEF)
    server.create(a_batch())
    pod = await kubelet.worker("job")

    first.kill()
    last = [c.time for c in server.calls("PUT|POST", "/leases") if c.who == "first"][-1]
    await second.says("leading as")
    kubelet.run(pod)
    kubelet.end(pod)

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    taken = next(c for c in server.calls("PUT", "/leases/") if c.who == "second")
    assert taken.time - last >= TAKEN * LEASE_SECONDS
    assert len(kubelet.seen) == 1


async def test_a_leader_whose_process_dies_is_followed_at_once_though_its_lease_counts_on(server: ApiServer, ward: Ward) -> None:
    ports = free_ports(2)
    first, second = await _two(server, ward, settings={"httpPort": ports[1]}, first={"httpPort": ports[0]}, address="127.0.0.1")
    await until(lambda: _connected(first.pid, ports[0]), "the standby's connection")

    first.kill()
    await second.says("leading as")

    assert "has ended, which held the Lease" in second.log


async def test_a_leader_that_is_paused_is_not_taken_for_dead(server: ApiServer, ward: Ward) -> None:
    """Its kernel takes connections in its name: the Lease has to end."""
    ports = free_ports(2)
    settings = {**BRIEF, "httpPort": ports[1]}
    first, second = await _two(server, ward, settings=settings, first={"httpPort": ports[0]}, address="127.0.0.1")
    await until(lambda: _connected(first.pid, ports[0]), "the standby's connection")

    first.send(signal.SIGSTOP)
    await second.says("leading as")
    first.send(signal.SIGCONT)

    assert await first.ended() == BEGIN_ANEW
    assert "has ended, which held the Lease" not in second.log


async def test_an_operator_whose_lease_was_taken_ends_with_an_error_and_leaves_the_lease_alone(
    server: ApiServer, ward: Ward
) -> None:
    operator = ward.start(server.url)
    await operator.says("leading as")

    server.update(*LEASE[:2], lambda o: o["spec"].update(holderIdentity="thief", renewTime="2026-01-01T00:00:00.000000Z"), LEASE[2])

    assert await operator.ended() == BEGIN_ANEW
    assert "thief" in operator.log
    assert server.get(*LEASE)["spec"]["holderIdentity"] == "thief"


async def test_a_leader_that_wakes_up_after_another_took_over_writes_nothing(server: ApiServer, ward: Ward) -> None:
    # Few writes a second: whenever it is paused, many of its writes wait for their turn.
    first, second = await _two(server, ward, settings={**BRIEF, "requestsPerSecond": 5, "burst": 1})
    for number in range(20):
        server.create(a_batch(f"job-{number}"))
    await until(lambda: len(_of(server, "first")) > 2, "the first writes")

    first.send(signal.SIGSTOP)
    await second.says("leading as")
    before = len(_of(server, "first"))
    first.send(signal.SIGCONT)

    assert await first.ended() == BEGIN_ANEW
    assert "holds the Lease" in first.log
    assert len(_of(server, "first")) == before


async def test_an_operator_that_lost_its_lease_begins_anew_by_itself_and_leads_again(server: ApiServer, ward: Ward) -> None:
    """The kubelet would wait longer each time."""
    operator = ward.start_process(server.url)
    await operator.says("leading as")

    stolen = {"holderIdentity": "thief", "leaseDurationSeconds": 1, "renewTime": "2026-01-01T00:00:00.000000Z"}
    server.update(*LEASE[:2], lambda o: o["spec"].update(stolen), LEASE[2])
    await operator.says("leads no longer")
    await until(lambda: operator.log.count("leading as") == 2, "the second time")

    assert operator.code is None
    assert server.get(*LEASE)["spec"]["leaseTransitions"] == 1


async def test_a_leader_without_api_server_goes_on_when_it_is_back(server: ApiServer, ward: Ward, kubelet: Kubelet) -> None:
    for obj in (a_node(), a_model()):
        server.create(obj)
    operator = await ward.lead(server, settings=BRIEF)

    await server.stop()
    await asyncio.sleep(2 * LEASE_SECONDS)
    await server.start()
    server.create(a_batch())
    await kubelet.play("job")

    await until(lambda: succeeded(server.get("inferencejobs", "job")), "the job's success")
    assert (operator.code, operator.log.count("leading as")) == (None, 1)


async def test_a_standby_that_waits_for_long_stays_alive(server: ApiServer, ward: Ward) -> None:
    (port,) = free_ports(1)
    await _two(server, ward, settings={"resyncSeconds": 0.2, "httpPort": port}, first={"httpPort": 0})

    lists = len(server.calls("GET", "/inferencemodels$"))
    await until(lambda: len(server.calls("GET", "/inferencemodels$")) > lists + 6, "six resyncs of the leader")

    async with aiohttp.ClientSession() as session, session.get(f"http://127.0.0.1:{port}/healthz") as answer:
        assert answer.status == 200, await answer.text()


def _connected(pid: int, port: int) -> bool:
    """Whether somebody has a connection to this port of a process, as its kernel lists them."""
    rows = [line.split() for line in Path(f"/proc/{pid}/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(f":{port:04X}") and row[3] == "01" for row in rows)


def _of(server: ApiServer, who: str) -> list[Call]:
    """What an operator wrote, the Lease apart."""
    return [call for call in server.writes() if call.who == who and "/leases" not in call.path]


async def _two(
    server: ApiServer, ward: Ward, *, settings: dict | None = None, first: dict | None = None, address: str = ""
) -> tuple[Operator, Operator]:
    """A leader named first, and a standby named second that has everything in view."""
    for obj in (a_node(), a_model()):
        server.create(obj)
    leader = ward.start(server.url, who="first", settings={**(settings or {}), **(first or {})}, address=address)
    await leader.says("leading as")
    standby = ward.start(server.url, who="second", settings=settings, address=address)
    await standby.says("synced")
    return leader, standby
