"""Joules of a batch: the class's declared watts for as long as its workers were held, counted once for each attempt."""

from dataclasses import replace
from datetime import timedelta

from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, EnergyMeter, EnergySource, EnergyStatus
from inference_operator.state.objects import PodPhase
from inference_operator.state.observed import Observed
from tests.builders import NOW, SETTINGS, a_fact, a_job, a_pod, a_report, observed, whole
from tests.unit.jobs.situation import LOOKED
from tests.unit.scheduling.support import after, decide, status_of

WATTS = SETTINGS.accelerators["cpu"].watts_busy


def ended(job_status: object = LOOKED, *, held: float = 20.0, number: int = 1, outcome: str = "Succeeded") -> Observed:
    job = a_job(status=job_status, items=10)  # type: ignore[arg-type]
    phase = PodPhase.SUCCEEDED if outcome == "Succeeded" else PodPhase.FAILED
    report = a_report(outcome, completed=10 if outcome == "Succeeded" else 4, model=a_fact())  # type: ignore[arg-type]
    pod = a_pod(job, number, phase=phase, report=report, created_ago=held + 1.0, ended_ago=1.0)
    return observed(job, replace(pod, ended=whole(NOW) - timedelta(seconds=1), started=whole(NOW) - timedelta(seconds=held + 1)))


def test_a_batch_costs_its_watts_for_as_long_as_its_worker_was_held() -> None:
    energy = status_of(decide(ended(held=20.0))).energy

    assert energy == EnergyStatus(joules=20 * WATTS, joules_per_item=20 * WATTS / 10, source=EnergySource.MODELLED)


def test_work_within_one_second_of_the_kubelets_clock_is_not_free() -> None:
    energy = status_of(decide(ended(held=0.0))).energy

    assert energy is not None and energy.joules > 0


def test_failed_attempts_count_too_and_each_once() -> None:
    first = ended(held=10.0, outcome="Failed")
    seen = after(first, decide(first))
    told = seen.job.status.energy
    assert told is not None and told.joules == 10 * WATTS

    again = status_of(decide(seen), seen).energy

    assert again == told


def test_energy_adds_up_over_attempts() -> None:
    before = replace(
        LOOKED,
        attempts=1,
        failed_attempts=1,
        last_attempt=AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.FAILED, reason="WorkerFailed", end_time=whole(NOW)),
        energy=EnergyStatus(joules=100.0),
    )

    energy = status_of(decide(ended(before, held=20.0, number=2))).energy

    assert energy is not None and energy.joules == 100.0 + 20 * WATTS


def test_a_pod_that_never_started_costs_nothing() -> None:
    job = a_job(status=LOOKED)
    pod = replace(a_pod(job, phase=PodPhase.FAILED, exit_code=1), started=None)

    assert status_of(decide(observed(job, pod))).energy is None


def test_what_an_attempt_cost_that_is_gone_nobody_knows() -> None:
    before = replace(
        LOOKED,
        attempts=2,
        last_attempt=AttemptStatus(number=2, pod="p", outcome=AttemptOutcome.RUNNING),
        energy=EnergyStatus(joules=100.0, source=EnergySource.MEASURED, meter=EnergyMeter.WORKER),
    )

    energy = status_of(decide(observed(a_job(status=before, items=10)))).energy

    assert energy == EnergyStatus(joules=100.0, source=EnergySource.MODELLED)
