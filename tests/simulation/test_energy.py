"""What a batch has cost, from an exporter's text to the job's status, in virtual time. The exporter is a stand-in."""

import pytest

from inference_operator.settings import Metering, Settings
from tests.simulation.cluster import Script
from tests.simulation.meter import SimulatedExporters
from tests.simulation.world import World

DECLARED = Settings().accelerators["gpu"].watts_busy
LONG = Script(work=300.0)


def a_world(script: Script = LONG, *, meter: SimulatedExporters | None = None, metering: Metering | None = None) -> World:
    world = World(scripts={"job": script}, settings=Settings(workers=4, metering=metering or Metering()))
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": script.work})
    exporters = world.exporters = meter or SimulatedExporters()
    world.at(0.0, lambda: exporters.install(world.api, "gpu-1"))
    return world


def ran(script: Script = LONG, **how: object) -> World:
    world = a_world(script, **how)  # type: ignore[arg-type]
    world.job("job", at=60, accelerator="gpu", output={"uri": "pvc://data/out"})
    world.run(until=60 + script.work * 4)
    assert world.status("job")["phase"] == "Succeeded"
    return world


def energy(world: World) -> tuple[str, object]:
    found = world.status("job")["energy"]
    assert found["joulesPerItem"] == pytest.approx(found["joules"] / 30, rel=1e-3)
    return found["source"], found["joules"]


@pytest.mark.parametrize("grain", [1.0, 10.0])
def test_a_batch_that_was_watched_is_measured(grain: float) -> None:
    source, joules = energy(ran(meter=SimulatedExporters(grain=grain)))

    # Loading takes two seconds; begin and end are known to ten.
    assert (source, joules) == ("Measured", pytest.approx(302 * 120, rel=0.05))


def test_an_exporter_that_looks_twice_a_minute_suffices_for_long_work_only() -> None:
    seldom = SimulatedExporters(grain=30.0)

    assert energy(ran(meter=seldom))[0] == "Modelled"
    assert energy(ran(Script(work=900.0), meter=SimulatedExporters(grain=30.0)))[0] == "Measured"


def test_a_batch_that_is_over_before_two_readings_is_modelled() -> None:
    assert energy(ran(Script(work=20.0))) == ("Modelled", pytest.approx(22 * DECLARED, rel=0.1))


def test_an_exporter_that_is_silent_at_the_end_leaves_it_modelled() -> None:
    assert energy(ran(meter=SimulatedExporters(silent=(250, 500)))) == ("Modelled", pytest.approx(302 * DECLARED, rel=0.05))


def test_a_silence_in_between_costs_nothing() -> None:
    assert energy(ran(meter=SimulatedExporters(silent=(100, 300)))) == ("Measured", pytest.approx(302 * 120, rel=0.05))


def test_without_metering_nobody_is_asked() -> None:
    assert energy(ran(metering=Metering(enabled=False))) == ("Modelled", pytest.approx(302 * DECLARED, rel=0.05))


def test_all_attempts_were_measured_or_the_sum_is_not() -> None:
    both = ran(Script(work=300.0, outcomes=("WorkerFailed", "Succeeded")))
    assert both.status("job")["attempts"] == 2
    assert energy(both)[0] == "Measured"

    one = ran(Script(work=300.0, outcomes=("WorkerFailed", "Succeeded")), meter=SimulatedExporters(silent=(0, 300)))
    assert one.status("job")["attempts"] == 2
    assert energy(one)[0] == "Modelled"


def test_an_operator_that_was_not_there_from_the_beginning_does_not_claim_to_have_measured() -> None:
    world = a_world()
    world.job("job", at=60, accelerator="gpu")
    world.at(200, world.crash)
    world.run(until=600)

    assert world.lives == 2
    assert energy(world)[0] == "Modelled"


def test_tasks_on_a_warm_worker_are_told_apart() -> None:
    world = World(scripts={"long": LONG, "short": Script(work=5.0)}, settings=Settings(workers=4))
    world.node("gpu-1", gpu=1)
    world.model(seconds={"gpu": 300.0}, pool={"accelerator": "gpu", "min": 1, "max": 1})
    exporters = world.exporters = SimulatedExporters()
    world.at(0.0, lambda: exporters.install(world.api, "gpu-1"))
    world.job("long", at=100, accelerator="gpu")
    world.job("short", at=600, accelerator="gpu", items=1)
    world.run(until=900)

    assert {world.status(name)["phase"] for name in ("long", "short")} == {"Succeeded"}
    assert not world.workers("long") and not world.workers("short")
    # The worker's container draws as much between tasks as in them, here: only the time tells.
    assert world.status("long")["energy"]["source"] == "Measured"
    assert world.status("long")["energy"]["joules"] == pytest.approx(300 * 120, rel=0.05)
    assert world.status("short")["energy"]["source"] == "Modelled"
