"""What a job wants from the fleet: workers of a shape, when it is time, and nothing otherwise."""

from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.accelerators import AcceleratorClass
from inference_operator.api.conditions import Condition, Truth
from inference_operator.api.job import Input, Serve
from inference_operator.api.job_status import AttemptOutcome, AttemptStatus, InferenceJobStatus, ProgressStatus
from inference_operator.api.model import AcceleratorResources
from inference_operator.api.quantity import parse_quantity
from inference_operator.api.resources import Resources
from inference_operator.api.template import Toleration
from inference_operator.settings import Settings
from inference_operator.state.objects import Job, Pod, PodPhase, PodProblem
from inference_operator.state.observed import Observed
from inference_operator.state.request import job_request
from inference_operator.workers.creation import create_retry_time
from inference_operator.workers.options import items_left, worker_resources
from tests.builders import (
    GPU,
    LIMITS,
    NOW,
    SETTINGS,
    a_create_failure,
    a_job,
    a_model,
    a_pod,
    a_profile,
    a_report,
    observed,
    whole,
)
from tests.unit.jobs.situation import LOOKED
from tests.unit.scheduling.support import in_seconds, wanted

FAILED = PodPhase.FAILED


def finished(job: Job, truth: Truth) -> Job:
    done = Condition(type="Succeeded", status=truth, reason="r", message="", last_transition_time=NOW)
    return replace(job, status=replace(job.status, conditions=[done], start_time=NOW, observed_generation=job.generation))


def a_failure(job: Job, *, ago: float = 60.0, number: int = 1) -> Observed:
    return observed(job, a_pod(job, number, phase=FAILED, report=a_report("Failed"), ended_ago=ago))


# When.


def wants_nothing() -> dict[str, Observed]:
    job, serving = a_job(), a_job(serve=True)
    lost = AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.SUCCEEDED, reason="Succeeded", end_time=NOW)
    return {
        "it is going away": observed(a_job(deleting=True)),
        "it is suspended": observed(a_job(suspend=True)),
        "it may not run": observed(a_job(model="unknown")),
        "it has succeeded": observed(finished(job, Truth.TRUE)),
        "it has failed": observed(finished(job, Truth.FALSE)),
        "its worker lives": observed(job, a_pod(job)),
        "its worker does not answer, and an older one still lives": observed(
            job, a_pod(job, 1, deleting=True), a_pod(job, 2), silent=frozenset({a_pod(job, 2).uid})
        ),
        "its worker is on its way out": observed(job, a_pod(job, deleting=True)),
        "an older worker still lives": observed(job, a_pod(job, 1, deleting=True), a_pod(job, 2, phase=FAILED)),
        "its work is done": observed(job, a_pod(job, phase=PodPhase.SUCCEEDED, report=a_report())),
        "its work was done by a worker that is gone": observed(a_job(status=InferenceJobStatus(attempts=1, last_attempt=lost))),
        "it backs off": a_failure(job, ago=1),
        "its attempts are used up": a_failure(a_job(max_attempts=1)),
        "it was refused a moment ago": observed(job, create_failure=a_create_failure()),
        "all its workers are there": observed(serving, a_pod(serving)),
        "its time to serve is over": observed(a_job(serve=Serve(until=NOW))),
        "it is scaled to zero": observed(a_job(serve=Serve(min_replicas=0), replicas=0)),
        "its serving worker failed a moment ago": observed(
            serving, a_pod(serving, phase=FAILED, report=a_report("Failed"), ended_ago=1)
        ),
    }


@pytest.mark.parametrize("why", wants_nothing())
def test_a_job_wants_nothing_when(why: str) -> None:
    assert wanted(wants_nothing()[why]) is None


def wants_workers() -> dict[str, tuple[Observed, int]]:
    job, two = a_job(), a_job(serve=True, replicas=2)
    return {
        "it is new": (observed(job), 1),
        "its success is not known yet": (observed(finished(job, Truth.UNKNOWN)), 1),
        "its backoff is over": (a_failure(job), 1),
        "its worker does not answer": (observed(job, a_pod(job), silent=frozenset({a_pod(job).uid})), 1),
        "its worker was lost": (observed(a_job(status=InferenceJobStatus(attempts=1))), 1),
        "the refusal is some time ago": (observed(job, create_failure=a_create_failure(ago=3)), 1),
        "it serves and is new": (observed(two), 2),
        "one of its workers is missing": (observed(two, a_pod(two)), 1),
        "its workers are old": (observed(two, a_pod(two, 1, revision="old"), a_pod(two, 2, revision="old")), 2),
        "its time to serve is not over": (observed(a_job(serve=Serve(until=in_seconds(1)))), 1),
    }


@pytest.mark.parametrize("why", wants_workers())
def test_a_job_wants_workers_when(why: str) -> None:
    seen, workers = wants_workers()[why]
    asked = wanted(seen)

    assert asked is not None and asked.workers == workers


def test_a_refused_autoscaler_keeps_no_worker_from_being_made() -> None:
    assert wanted(replace(observed(a_job(serve=True, status=LOOKED)), autoscaler_failure=a_create_failure())) is not None


def test_a_refusal_is_tried_again_ever_later() -> None:
    waits = [create_retry_time(a_create_failure(count=n), SETTINGS) - NOW for n in (0, 1, 2, 50)]

    assert waits == [timedelta(seconds=s) for s in (2, 4, 8, 120)]


def test_a_need_carries_what_ranks_it() -> None:
    job = a_job(deadline_in=60, firm=True, priority=7)
    asked = wanted(observed(job))

    assert asked is not None
    assert (asked.key, asked.uid, asked.priority, asked.deadline, asked.firm) == (
        job_request(job.key),
        job.uid,
        7,
        in_seconds(60),
        True,
    )


# Which classes, and what of them.


def test_a_service_that_was_ready_once_is_neither_late_nor_refused_when_it_wants_another_worker() -> None:
    job = a_job(serve=True, deadline_in=-60, firm=True, status=replace(LOOKED, start_time=NOW, ready_time=NOW))
    found = wanted(observed(job))

    assert found is not None
    assert (found.deadline, found.firm) == (None, False)


def options_of(seen: Observed, settings: Settings = SETTINGS) -> dict[str, dict[str, int]]:
    asked = wanted(seen, settings=settings)
    assert asked is not None
    return {option.accelerator: dict(option.requirements.amounts) for option in asked.options}


def test_auto_may_run_on_every_class_and_gpu_on_gpus_alone() -> None:
    assert set(options_of(observed(a_job()))) == {"cpu", "gpu"}
    assert set(options_of(observed(a_job(accelerator="cpu")))) == {"cpu"}
    assert options_of(observed(a_job(gpu=1))) == {"gpu": {"cpu": 500, "memory": 2**30, GPU: 1, "pods": 1}}


def test_the_jobs_resources_go_over_its_models_and_those_over_the_classes() -> None:
    of_model = AcceleratorResources(accelerator="cpu", resources=Resources(requests={"cpu": "2", "memory": "1Gi"}))
    job = a_job(model="m", accelerator="cpu", resources=Resources(requests={"cpu": "3"}))

    assert options_of(observed(job, model=a_model(resources=[of_model]))) == {"cpu": {"cpu": 3000, "memory": 2**30, "pods": 1}}


def test_tolerations_and_selectors_of_class_and_job_come_together() -> None:
    classes = {"cpu": AcceleratorClass(execution_providers=("C",), node_selector={"a": "1", "b": "2"})}
    settings = Settings(accelerators=classes, pod_template=LIMITS)
    job = a_job(node_selector={"b": "2", "c": "3"}, tolerations=[Toleration(key="k", operator="Exists")])

    asked = wanted(observed(job), settings=settings)

    assert asked is not None
    assert asked.options[0].requirements.node_selector == (("a", "1"), ("b", "2"), ("c", "3"))
    assert [t.key for t in asked.options[0].requirements.tolerations] == ["k"]


def test_a_service_goes_to_no_node_that_would_end_it_after_some_seconds() -> None:
    """It was placed there again and again, a pod every second, and the status said that it starts."""
    tolerations = [Toleration(key="k", operator="Exists", effect="NoExecute", toleration_seconds=seconds) for seconds in (0, None)]

    found = [wanted(observed(a_job(serve=serve, tolerations=[t]))) for serve in (True, False) for t in tolerations]

    assert [len(one.options[0].requirements.tolerations) for one in found if one is not None] == [0, 1, 1, 1]


quantities = st.sampled_from(["100m", "250m", "1", "2", "64Mi", "512Mi", "1Gi", "8Gi"])
given_amounts = st.dictionaries(st.sampled_from(["memory", "cpu"]), quantities, max_size=2)
KNOWN_LIMIT = (
    "need.py worker_resources: a limit that the user sets below the class's request makes a pod that the API server refuses"
)


@pytest.mark.parametrize(
    ("name", "given_resources"),
    [
        ("memory", Resources(requests={"memory": "8Gi"})),
        ("memory", Resources(requests={"memory": "64Mi"})),
        ("memory", Resources(requests={"memory": "2Gi"}, limits={"memory": "3Gi"})),
        pytest.param("memory", Resources(limits={"memory": "256Mi"})),
        pytest.param("cpu", Resources(limits={"cpu": "250m"})),
    ],
)
@pytest.mark.parametrize("accelerator", ["cpu", "gpu"])
def test_no_request_is_above_its_limit(accelerator: str, name: str, given_resources: Resources) -> None:
    spec = a_job(resources=given_resources).spec
    assert spec is not None
    resources = worker_resources(spec, None, accelerator, SETTINGS.accelerators[accelerator])
    request, limit = resources.requests.get(name), resources.limits.get(name)

    assert request is None or limit is None or parse_quantity(request, milli=True) <= parse_quantity(limit, milli=True)


@given(given_amounts, st.sampled_from(["cpu", "gpu"]))
def test_devices_are_asked_for_and_limited_alike(requests: dict[str, str], accelerator: str) -> None:
    settings = SETTINGS.accelerators[accelerator]
    spec = a_job(resources=Resources(requests=requests)).spec
    assert spec is not None
    resources = worker_resources(spec, None, accelerator, settings)

    assert resources.requests.get(GPU) == resources.limits.get(GPU) == ("1" if accelerator == "gpu" else None)


# How long it will take.


def seconds(seen: Observed) -> dict[str, tuple[float, float, bool]]:
    asked = wanted(seen)
    assert asked is not None
    return {o.accelerator: (o.estimate.load_seconds, o.estimate.work_seconds, o.estimate.measured) for o in asked.options}


def test_without_a_measurement_the_time_is_assumed() -> None:
    assert seconds(observed(a_job(gpu=1))) == {"gpu": (3.0, 30.0, False)}
    assert seconds(observed(a_job(gpu=1, serve=True))) == {"gpu": (3.0, 0.0, False)}


def test_a_measured_class_is_estimated_and_the_other_assumed() -> None:
    seen = observed(a_job(model="m", items=100), model=a_model(profiles=[a_profile("cpu", items_per_second=2, load_seconds=5)]))

    assert seconds(seen) == {"cpu": (5.0, 50.0, True), "gpu": (3.0, 30.0, False)}


def test_a_serving_job_is_there_once_it_is_loaded() -> None:
    seen = observed(a_job(model="m", serve=True, gpu=1), model=a_model(profiles=[a_profile("gpu", load_seconds=9)]))

    assert seconds(seen) == {"gpu": (9.0, 0.0, True)}


@pytest.mark.parametrize(("asked", "rate"), [(1, 10.0), (7, 80.0), (64, 80.0)])
def test_the_profile_at_the_nearest_batch_size_counts(asked: int, rate: float) -> None:
    profiles = [a_profile("gpu", items_per_second=10), a_profile("gpu", items_per_second=80, batch_size=8)]
    seen = observed(a_job(model="m", items=800, gpu=1, batch_size=asked), model=a_model(profiles=profiles))

    assert seconds(seen)["gpu"][1] == 800 / rate


def test_only_profiles_of_the_pinned_file_count() -> None:
    profiles = [a_profile("gpu", digest="sha256:" + "c" * 64)]

    assert seconds(observed(a_job(model="m", gpu=1, items=1), model=a_model(profiles=profiles)))["gpu"][2] is False


def left(job: Job) -> int | None:
    assert job.spec is not None
    return items_left(job, job.spec)


def test_what_is_done_already_is_not_counted_again() -> None:
    status = InferenceJobStatus(progress=ProgressStatus(total=100, completed=60))

    assert left(a_job(items=100, status=status)) == 40
    assert left(a_job(items=100)) == 100
    assert left(a_job(input=Input(data='{"x":1}\n\n{"x":2}\n'))) == 2
    assert left(a_job(serve=True)) is None


def test_a_changed_input_has_all_its_items_left() -> None:
    status = InferenceJobStatus(
        observed_generation=1,
        attempts=1,
        progress=ProgressStatus(total=10, completed=10),
        last_attempt=AttemptStatus(number=1, pod="p", outcome=AttemptOutcome.DISRUPTED, end_time=whole(NOW)),
    )

    assert left(a_job(items=500, generation=2, status=status)) == 500


# Where not.


def asked_after(told: AttemptStatus | None, *pods: Pod, failed: int = 1) -> tuple[str, ...]:
    job = a_job(status=InferenceJobStatus(attempts=1, failed_attempts=failed, last_attempt=told))
    asked = wanted(observed(job, *pods))
    assert asked is not None
    return asked.failed_on


def an_end(outcome: AttemptOutcome, reason: str = "WorkerFailed", *, number: int = 1) -> AttemptStatus:
    return AttemptStatus(number=number, pod="p", outcome=outcome, reason=reason, end_time=in_seconds(-60), node="node-2")


def test_a_batch_goes_last_to_the_node_where_its_last_attempt_failed_or_was_lost() -> None:
    job = a_job()
    turned_away = a_pod(job, phase=FAILED, problem=PodProblem("OutOfcpu", "no"), node="node-3", ended_ago=60)

    assert asked_after(an_end(AttemptOutcome.FAILED)) == ("node-2",)
    assert asked_after(an_end(AttemptOutcome.DISRUPTED, "WorkerLost")) == ("node-2",)
    assert asked_after(None, turned_away, failed=0) == ("node-3",)
    # To make room for others, or to be told to stop, is no fault of a node.
    assert asked_after(an_end(AttemptOutcome.DISRUPTED, "Preempted")) == ()
    assert asked_after(an_end(AttemptOutcome.DISRUPTED, "Terminated")) == ()


def test_a_service_goes_last_to_the_node_where_a_worker_did_not_start_until_a_later_one_has_answered_for_long() -> None:
    def asked(failed: int, *numbers: int, reason: str = "Starting") -> tuple[str, ...]:
        end = an_end(AttemptOutcome.FAILED, reason, number=2)
        status = InferenceJobStatus(attempts=9, failed_attempts=failed, last_attempt=end)
        job = a_job(serve=True, replicas=3, status=status)
        found = wanted(observed(job, *(a_pod(job, number, created_ago=1e6) for number in numbers)))
        assert found is not None
        return found.failed_on

    assert asked(1, 1) == asked(1, 1, 3) == asked(0, 1) == ("node-2",)
    assert asked(0, 1, 3) == ()
    # It failed by itself: its node is better than that of the others.
    assert asked(1, 1, reason="WorkerFailed") == ()


def test_a_service_goes_last_to_the_node_that_turned_a_worker_away() -> None:
    job = a_job(serve=True, replicas=2)
    turned_away = a_pod(job, 2, phase=FAILED, problem=PodProblem("OutOfcpu", "no"), node="node-2", ended_ago=60)
    asked = wanted(observed(job, a_pod(job), replace(turned_away, started=None)))

    assert asked is not None and asked.failed_on == ("node-2",)


def test_a_service_goes_last_to_the_node_where_a_worker_is_given_up() -> None:
    job = a_job(serve=True, replicas=2)
    stuck = a_pod(job, 2, phase=PodPhase.PENDING, node="node-2", created_ago=SETTINGS.start_timeout_seconds)
    asked = wanted(observed(job, a_pod(job), stuck))

    assert asked is not None and (asked.workers, asked.beside, asked.failed_on) == (1, ("node-1",), ("node-2",))
