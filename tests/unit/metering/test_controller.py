"""Rounds of questions to meters: what is kept of whose devices, and what is not believed."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from inference_operator.errors import ExporterError
from inference_operator.metering.controller import Meters
from inference_operator.settings import Metering
from inference_operator.state.node_caches import NodeAgent
from inference_operator.state.objects import Key, Pod
from inference_operator.state.power import Device
from inference_operator.state.store import Store
from tests.builders import GPU, NOW, a_job, a_node, a_pod, somebodys_pod
from tests.clock import Clock


@dataclass
class Exporters:
    """See ExporterClient. Says for each address what it was told to; who is not in is broken."""

    told: dict[str, tuple[Device, ...]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    # What an address does before it answers.
    before: dict[str, Callable[[], None]] = field(default_factory=dict)

    async def devices(self, address: str) -> tuple[Device, ...]:
        self.asked.append(address)
        self.before.get(address, lambda: None)()
        if address not in self.told:
            raise ExporterError(f"{address} is broken")
        return self.told[address]


class Bench:
    """A node with two devices, its exporter, and a worker that has one of them."""

    def __init__(self) -> None:
        self.store, self.exporters, self.clock = Store(), Exporters(), Clock()
        self.meters = Meters(self.store, self.exporters, self.clock, Metering())
        self.store.nodes["n"] = a_node("n", gpu=2)
        self.store.exporters[Key("gpu-operator", "dcgm-1")] = NodeAgent("n", "10.0.0.9")
        job = a_job(gpu=1)
        pod = a_pod(job, node="n", accelerator="gpu")
        self.pod: Pod = replace(pod, requests={**pod.requests, GPU: 1})
        self.store.put_job(job)
        self.store.put_pod(self.pod)

    def round(self, *devices: Device, address: str = "10.0.0.9") -> None:
        """Ten seconds later these devices are told."""
        self.clock.seconds += 10
        self.exporters.told = {address: devices}
        asyncio.run(self.meters.round())

    def mine(self, joules: float | None, *others: tuple[str, str], used: float = 1.0) -> Device:
        me = (self.pod.key.namespace, self.pod.key.name)
        return Device("GPU-0", used, joules, frozenset({me, *others}))

    def drawn(self) -> list[tuple[float, float]]:
        found = self.store.meters.get(self.pod.uid, {}).get("GPU-0", ())
        return [((sample.time - NOW).total_seconds(), sample.joules) for sample in found]


FREE = Device("GPU-1", 0.0, 77.0)


def test_what_a_workers_device_draws_is_kept() -> None:
    bench = Bench()
    for joules in (100.0, 400.0, 900.0):
        bench.round(bench.mine(joules), FREE)

    # The first value may be old: it has no time before it has moved once.
    assert bench.drawn() == [(20, 400), (30, 900)]


def test_a_slow_exporter_dates_nothing_but_its_own_answer() -> None:
    bench = Bench()
    bench.store.nodes["slow"] = a_node("slow", gpu=2)
    bench.store.exporters[Key("gpu-operator", "dcgm-2")] = NodeAgent("slow", "10.0.0.10")

    def wait() -> None:
        bench.clock.seconds += 3

    bench.exporters.before["10.0.0.10"] = wait
    for joules in (100.0, 400.0):
        bench.round(bench.mine(joules), FREE)

    # Rounds begin at 10 s and, after the slow one of three seconds, at 23 s.
    assert bench.drawn() == [(23, 400)]


def test_a_counter_that_stands_still_was_not_read_anew() -> None:
    bench = Bench()
    for joules in (100.0, 400.0, 400.0, 900.0):
        bench.round(bench.mine(joules), FREE)

    assert bench.drawn() == [(20, 400), (40, 900)]


def test_after_silence_the_first_value_is_of_no_known_time() -> None:
    bench = Bench()
    bench.round(bench.mine(100.0), FREE)
    bench.round(bench.mine(200.0), FREE, address="elsewhere")
    bench.round(bench.mine(300.0), FREE)
    bench.round(bench.mine(400.0), FREE)

    assert bench.drawn() == [(40, 400)]


@pytest.mark.parametrize("lie", ["shared", "sliced", "another node", "nobody", "no worker", "no value"])
def test_what_can_not_be_the_workers_own_is_not_kept(lie: str) -> None:
    bench = Bench()
    if lie == "sliced":
        bench.store.nodes["n"] = a_node("n", gpu=8)
    if lie == "another node":
        bench.store.exporters[Key("gpu-operator", "dcgm-1")] = NodeAgent("other", "10.0.0.9")
        bench.store.nodes["other"] = a_node("other", gpu=2)
    neighbour = a_pod(a_job("neighbour"), node="n")
    bench.store.put_pod(neighbour)
    for joules in (100.0, 400.0, 900.0):
        device = bench.mine(joules, ("default", neighbour.key.name)) if lie == "shared" else bench.mine(joules)
        if lie == "nobody":
            device = replace(device, pods=frozenset({("default", "unheard-of")}))
        if lie == "no worker":
            bench.store.put_pod(somebodys_pod("x", node="n"))
            device = replace(device, pods=frozenset({("elsewhere", "x")}))
        bench.round(replace(device, joules=None) if lie == "no value" else device, FREE)

    assert bench.store.meters == {}


def test_a_pod_that_is_gone_leaves_nothing_behind() -> None:
    bench = Bench()
    for joules in (100.0, 400.0):
        bench.round(bench.mine(joules), FREE)
    bench.store.drop_pod(bench.pod.key, bench.pod.uid)

    assert bench.store.meters == {}


def test_unmanaged_usage_are_those_that_no_pod_explains() -> None:
    bench = Bench()
    bench.round(bench.mine(1.0), replace(FREE, utilisation=0.8))
    assert bench.store.unmanaged_usage == {"n": 0.8}

    bench.store.put_pod(somebodys_pod("x", node="n", gpu=1))
    bench.round(bench.mine(1.0), replace(FREE, utilisation=0.8))
    assert bench.store.unmanaged_usage == {}


def test_what_was_said_of_unmanaged_usage_does_not_outlive_the_exporter() -> None:
    bench = Bench()
    bench.round(bench.mine(1.0), replace(FREE, utilisation=0.8))
    bench.round(address="elsewhere")

    assert bench.store.unmanaged_usage == {}


def test_of_two_exporters_on_a_node_none_is_believed() -> None:
    bench = Bench()
    bench.store.exporters[Key("monitoring", "dcgm-2")] = NodeAgent("n", "10.0.0.10")
    bench.round(bench.mine(1.0), FREE)

    assert bench.exporters.asked == []


def test_devices_that_are_not_there_any_more_take_no_room() -> None:
    bench = Bench()
    for number in range(20):
        me = (bench.pod.key.namespace, bench.pod.key.name)
        for joules in (1.0, 2.0, 3.0):
            bench.round(Device(f"GPU-of-{number}", 0.5, joules, frozenset({me})), FREE)

    assert list(bench.store.meters[bench.pod.uid]) == ["GPU-of-19"]


def test_more_devices_than_the_node_has_are_not_believed() -> None:
    bench = Bench()
    for joules in (1.0, 2.0, 3.0):
        bench.round(bench.mine(joules), FREE, Device("GPU-2", 0.0, 1.0))

    assert bench.store.meters == {}


async def test_a_round_that_breaks_is_told_and_the_next_one_comes(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, rounds = Bench(), asyncio.Queue[int]()
    settings = Metering(seconds=0.001)
    meters = Meters(bench.store, bench.exporters, bench.clock, settings)

    async def broken() -> None:
        rounds.put_nowait(1)
        raise OverflowError("a number of four hundred digits")

    monkeypatch.setattr(meters, "round", broken)
    task = asyncio.create_task(meters.run())
    await asyncio.wait_for(rounds.get(), 30)
    await asyncio.wait_for(rounds.get(), 30)
    task.cancel()

    assert "a round of the meters failed" in caplog.text


def test_a_broken_exporter_is_told_once_and_asked_again(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    with caplog.at_level(logging.WARNING):
        bench.round(address="elsewhere")
        bench.round(address="elsewhere")
        bench.round(bench.mine(1.0), FREE)
        bench.round(address="elsewhere")

    assert [record.getMessage() for record in caplog.records] == 2 * ["exporter gpu-operator/dcgm-1 on n: 10.0.0.9 is broken"]


def test_nobody_is_asked_where_there_is_no_exporter() -> None:
    bench = Bench()
    bench.store.exporters.clear()
    bench.round(bench.mine(1.0), FREE)

    assert bench.exporters.asked == []
    assert bench.store.unmanaged_usage == {}
