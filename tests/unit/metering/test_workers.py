"""What workers say of their own devices: whose word counts as energy measured, and whose does not."""

from dataclasses import replace

import msgspec
import pytest

from inference_operator.api.job_status import EnergyMeter
from inference_operator.metering.workers import WorkerMeters
from inference_operator.state.node_caches import NodeAgent
from inference_operator.state.objects import Key, Pod, Reading
from inference_operator.state.store import Store
from inference_protocol.messages import DeviceReading, Telemetry
from tests.builders import GPU, NOW, a_job, a_node, a_pod
from tests.clock import Clock

DEVICE = DeviceReading("GPU-0", utilization=0.5)


class Bench:
    """A node whose devices no exporter watches, and a worker that has one of them."""

    def __init__(self) -> None:
        self.store, self.clock = Store(), Clock()
        self.meters = WorkerMeters(self.store, GPU)
        self.store.nodes["n"] = a_node("n", gpu=2)
        self.pod = self.worker("job")

    def worker(self, name: str, *, devices: int = 1) -> Pod:
        job = a_job(name, gpu=1)
        pod = a_pod(job, node="n", accelerator="gpu")
        pod = replace(pod, requests={**pod.requests, GPU: devices})
        self.store.put_job(job)
        self.store.put_pod(pod)
        return pod

    def round(self, joules: float | None, *, age: float = 0.0, beside: Pod | None = None, device: DeviceReading = DEVICE) -> None:
        """A second later the worker tells this of its device, and one `beside` it the same."""
        self.clock.seconds += 1
        told = Telemetry(ready=True, draining=False, device=msgspec.structs.replace(device, energy_joules=joules, age_seconds=age))
        pods = [self.pod] if beside is None else [self.pod, beside]
        for pod in pods:
            self.store.put_reading(pod, Reading(told, self.clock.now()))
        self.meters.round({pod.uid: told for pod in pods})

    def drawn(self) -> list[tuple[float, float]]:
        found = self.store.meters.get(self.pod.uid, {}).get("GPU-0", ())
        assert {sample.meter for sample in found} <= {EnergyMeter.WORKER}
        return [((sample.time - NOW).total_seconds(), sample.joules) for sample in found]


def test_what_a_worker_reads_of_its_device_is_kept() -> None:
    bench = Bench()
    for joules in (100.0, 400.0, 900.0):
        bench.round(joules)

    assert bench.drawn() == [(1, 100), (2, 400), (3, 900)]


def test_a_reading_counts_from_when_it_was_read() -> None:
    bench = Bench()
    bench.round(100.0, age=0.75)

    assert bench.drawn() == [(0.25, 100)]


def test_a_driver_that_hangs_adds_nothing() -> None:
    bench = Bench()
    for age in (0.0, 1.0, 2.0):
        bench.round(100.0, age=age)

    assert bench.drawn() == [(1, 100)]


def test_an_age_beyond_all_dates_ends_no_round() -> None:
    bench = Bench()
    bench.round(100.0, age=1e15)

    assert [joules for _, joules in bench.drawn()] == [100]


def test_a_worker_that_does_not_answer_adds_nothing() -> None:
    bench = Bench()
    bench.round(100.0)
    bench.meters.round({bench.pod.uid: None})

    assert bench.drawn() == [(1, 100)]


@pytest.mark.parametrize("lie", ["watched", "time-sliced", "two devices", "no device", "unknown node", "no value"])
def test_what_can_not_be_the_workers_own_is_not_kept(lie: str) -> None:
    bench = Bench()
    match lie:
        case "watched":
            bench.store.exporters[Key("gpu-operator", "dcgm-1")] = NodeAgent("n", "10.0.0.9")
        case "time-sliced":
            bench.store.nodes["n"] = a_node("n", gpu=2, labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"})
        case "two devices" | "no device":
            bench.pod = bench.worker("job", devices=2 if lie == "two devices" else 0)
        case "unknown node":
            del bench.store.nodes["n"]
    for joules in (100.0, 400.0):
        bench.round(None if lie == "no value" else joules)

    assert bench.drawn() == []


def test_a_node_that_says_that_nothing_is_shared_is_believed() -> None:
    bench = Bench()
    bench.store.nodes["n"] = a_node("n", gpu=2, labels={"nvidia.com/gpu.sharing-strategy": "none"})
    bench.round(100.0)

    assert bench.drawn() == [(1, 100)]


def test_a_device_that_two_workers_have_is_nobodys_from_then_on_anew() -> None:
    bench = Bench()
    neighbour = bench.worker("neighbour")
    bench.round(100.0)
    bench.round(400.0, beside=neighbour)
    assert bench.drawn() == []

    bench.round(900.0)
    assert bench.drawn() == [(3, 900)]
    assert neighbour.uid not in bench.store.meters
