"""Counters of energy to joules of an attempt, and devices to unmanaged users' use of a node."""

from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.api.job_status import EnergyMeter, EnergySource, EnergyStatus
from inference_operator.metering.energy import energy_status, joules_between, measured_joules, taken_in, watts
from inference_operator.metering.usage import busy_share, unmanaged_usage, usage
from inference_operator.scheduling.types import Usage
from inference_operator.state.objects import Pod, PodPhase, Reading
from inference_operator.state.power import Device, Drawn, PowerSample
from inference_operator.state.runner import own_attempt
from inference_protocol.messages import Telemetry
from tests.builders import GPU, NOW, SETTINGS, a_job, a_pod, a_reading

DECLARED = SETTINGS.accelerators["gpu"].watts_busy


def at(seconds: float) -> datetime:
    return NOW + timedelta(seconds=seconds)


def drawn(*samples: tuple[float, float]) -> Drawn:
    """A counter, by seconds and joules."""
    found: Drawn = ()
    for seconds, joules in samples:
        found = taken_in(found, PowerSample(at(seconds), joules))
    return found


# One device.


def test_what_lies_between_two_samples() -> None:
    assert joules_between(drawn((0, 1000), (50, 6000), (100, 26000)), at(0), at(100)) == 25000


def test_begin_and_end_between_samples_are_reckoned_evenly() -> None:
    assert joules_between(drawn((0, 0), (10, 1000), (20, 1000), (30, 3000)), at(5), at(25)) == pytest.approx(500 + 1000)


def test_a_little_that_nobody_watched_counts_as_the_rest() -> None:
    assert joules_between(drawn((5, 0), (95, 9000)), at(0), at(100)) == pytest.approx(10000)


@pytest.mark.parametrize(
    "samples", [(), ((50, 1),), ((0, 0), (89, 9)), ((11, 0), (100, 9)), ((101, 0), (200, 5)), ((-9, 0), (0, 5))]
)
def test_too_little_that_was_watched_is_no_measurement(samples: tuple[tuple[float, float], ...]) -> None:
    assert joules_between(drawn(*samples), at(0), at(100)) is None


def test_nothing_is_measured_of_no_time() -> None:
    assert joules_between(drawn((0, 0), (10, 5)), at(5), at(5)) is None


def test_a_counter_that_fell_begins_anew() -> None:
    found = drawn((0, 5000), (10, 6000), (20, 100), (30, 1100))

    assert found[0] == PowerSample(at(20), 100)
    assert joules_between(found, at(0), at(30)) is None
    assert joules_between(found, at(20), at(30)) == 1000


def test_a_clock_that_went_back_begins_anew() -> None:
    assert drawn((10, 5), (10, 6)) == (PowerSample(at(10), 6),)


steps = st.lists(st.tuples(st.floats(0.1, 60), st.floats(-1e4, 1e6)), max_size=600)


@given(steps)
def test_histories_stay_small_and_grow_only(found: list[tuple[float, float]]) -> None:
    seconds = joules = 0.0
    history: Drawn = ()
    for step, more in found:
        seconds, joules = seconds + step, max(0.0, joules + more)
        history = taken_in(history, PowerSample(at(seconds), joules))

        assert len(history) <= 250
        assert history[-1] == PowerSample(at(seconds), joules)
        assert all(a.time < b.time and a.joules <= b.joules for a, b in pairwise(history))


@given(st.integers(10, 5000), st.floats(1, 1000))
def test_an_even_draw_is_measured_however_long_it_was_watched(count: int, power: float) -> None:
    history: Drawn = ()
    for second in range(0, count * 10, 10):
        history = taken_in(history, PowerSample(at(second), power * second))
    end = count * 10 - 10

    assert joules_between(history, at(3), at(end)) == pytest.approx(power * (end - 3), rel=1e-6)
    # What ended a while ago, too: the gaps stay small beside their age.
    assert joules_between(history, at(end * 0.2), at(end * 0.8)) == pytest.approx(power * end * 0.6, rel=1e-6)


@given(st.integers(2, 3000))
def test_what_is_thinned_out_is_old_in_proportion(count: int) -> None:
    history: Drawn = ()
    for number in range(count):
        history = taken_in(history, PowerSample(at(10 * number), number))

    for before, after in pairwise(history):
        age = (history[-1].time - after.time).total_seconds()
        assert (after.time - before.time).total_seconds() <= max(10, 0.1 * age)


# A worker's devices.


def test_all_devices_together() -> None:
    meters = {"a": drawn((0, 0), (100, 5000)), "b": drawn((0, 10), (100, 2010))}

    assert measured_joules(meters, 2, at(0), at(100)) == 7000


def test_one_device_that_was_not_watched_spoils_the_sum() -> None:
    watched = drawn((0, 0), (100, 5000))

    assert measured_joules({"a": watched}, 2, at(0), at(100)) is None
    assert measured_joules({"a": watched, "b": drawn((90, 0), (100, 1))}, 2, at(0), at(100)) is None
    assert measured_joules({"a": watched, "b": watched}, 1, at(0), at(100)) is None
    assert measured_joules({}, 0, at(0), at(100)) is None


def test_watts_of_the_newest_samples() -> None:
    assert watts({"a": drawn((0, 0), (10, 999), (20, 3999)), "b": drawn((0, 0), (10, 100))}) == 310
    assert watts({"a": drawn((0, 0), (10, 999)), "b": drawn((0, 0))}) is None
    assert watts({}) is None


# The status.

HELD = 100.0


def a_gpu_pod(number: int = 1) -> Pod:
    pod = a_pod(a_job(gpu=1), number, accelerator="gpu", phase=PodPhase.SUCCEEDED)
    return replace(pod, started=at(0), requests={**pod.requests, GPU: 1})


def status(before: EnergyStatus | None = None, *, number: int = 1, samples: Drawn = ()) -> EnergyStatus | None:
    meters = {"a": samples} if samples else {}
    return energy_status(own_attempt(a_gpu_pod(number)), meters, before, None, SETTINGS, at(HELD))


WATCHED = drawn((0, 0), (HELD, 12000))
MEASURED = EnergyStatus(joules=500.0, source=EnergySource.MEASURED, meter=EnergyMeter.EXPORTER)
MODELLED = EnergyStatus(joules=500.0, source=EnergySource.MODELLED)


def test_an_attempt_that_was_watched_is_measured() -> None:
    assert status(samples=WATCHED) == replace(MEASURED, joules=12000.0)


def test_a_measured_attempt_names_its_meter() -> None:
    by_worker = tuple(replace(sample, meter=EnergyMeter.WORKER) for sample in WATCHED)

    assert status(MEASURED, number=2, samples=by_worker) == replace(MEASURED, joules=12500.0, meter=EnergyMeter.WORKER)


def test_what_another_meter_reads_has_begun_anew() -> None:
    sample = PowerSample(at(200), 20000.0, EnergyMeter.WORKER)

    assert taken_in(WATCHED, sample) == (sample,)


def test_an_attempt_that_was_not_is_modelled() -> None:
    assert status() == EnergyStatus(joules=HELD * DECLARED, source=EnergySource.MODELLED)


def test_measured_attempts_add_up() -> None:
    assert status(MEASURED, number=2, samples=WATCHED) == replace(MEASURED, joules=12500.0)


def test_one_modelled_attempt_makes_the_sum_modelled() -> None:
    assert status(MODELLED, number=2, samples=WATCHED) == EnergyStatus(joules=12500.0, source=EnergySource.MODELLED)
    assert status(MEASURED, number=2) == EnergyStatus(joules=500 + HELD * DECLARED, source=EnergySource.MODELLED)
    assert status(None, number=2, samples=WATCHED) == EnergyStatus(joules=12000.0, source=EnergySource.MODELLED)


# Unmanaged users.


def device(number: int, utilisation: float | None, pod: str = "") -> Device:
    return Device(f"GPU-{number}", utilisation, None, frozenset({("default", pod)} if pod else ()))


def test_devices_in_use_without_a_pod_are_unmanaged_usage() -> None:
    assert unmanaged_usage([device(0, 0.9), device(1, 0.3, "p"), device(2, 0.0), device(3, None)], held=1) == 0.9


def test_what_pods_have_and_the_meter_does_not_map_is_theirs() -> None:
    assert unmanaged_usage([device(0, 0.9), device(1, 0.6)], held=1) == 0.6
    assert unmanaged_usage([device(0, 0.9), device(1, 0.6)], held=2) == 0
    assert unmanaged_usage([device(0, 0.9)], held=3) == 0


def test_a_desktop_is_no_unmanaged_use() -> None:
    assert unmanaged_usage([device(0, 0.04)], held=0) == 0


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans())), st.integers(0, 20))
def test_unmanaged_usage_never_have_more_than_pods_leave(found: list[tuple[float, bool]], held: int) -> None:
    devices = [device(number, used, "p" if mapped else "") for number, (used, mapped) in enumerate(found)]
    free = max(0, len(devices) - max(held, sum(bool(d.pods) for d in devices)))

    assert 0 <= unmanaged_usage(devices, held) <= free + 0.05


# Our own workers.


def serving(busy: float, *, ago: float) -> Reading:
    return Reading(Telemetry(ready=True, draining=False, busy_seconds=busy), NOW - timedelta(seconds=ago))


@pytest.mark.parametrize(("before", "after", "share"), [(10.0, 10.5, 0.5), (10.0, 10.0, 0.0), (10.0, 99.0, 1.0), (10.0, 0.2, 0.0)])
def test_a_worker_is_as_busy_as_its_counter_grows(before: float, after: float, share: float) -> None:
    assert busy_share(serving(before, ago=1), serving(after, ago=0)) == share


def test_nothing_is_known_of_the_first_answer() -> None:
    assert busy_share(None, serving(10.0, ago=0)) == 0


def test_a_batch_computes_all_the_time() -> None:
    assert busy_share(None, a_reading(progress=(1, 10))) == 1


def test_a_node_of_which_only_one_is_known_is_not_used_otherwise() -> None:
    assert usage({"a": 2.0}, {"b": 0.26}, GPU) == {"a": Usage(GPU, 2.0, 0.0), "b": Usage(GPU, 0.0, 0.3)}


def test_old_samples_are_thinned_out_now_and_then() -> None:
    found: Drawn = ()
    for number in range(2_000):
        found = taken_in(found, PowerSample(NOW + timedelta(seconds=10 * number), 100.0 * number))

    assert len(found) < 200
    assert found[0].time == NOW
