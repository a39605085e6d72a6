"""What the picker makes of the operator's looks: whom it leads to, what it counts, and what it tells who can't be served."""

from dataclasses import replace

import pytest

from inference_operator.api.gateway import ServeGateway
from inference_operator.api.job import Serve
from inference_operator.gateway.hold import Refusal
from inference_operator.gateway.picker.asked import Target
from inference_operator.gateway.picker.picker import Choice, Picker
from inference_operator.state.objects import Job, Reading
from inference_operator.state.store import Store
from inference_protocol.messages import Telemetry
from inference_protocol.sketch import LatencySketch
from tests.builders import NOW, a_job, a_model, a_pod, a_version
from tests.unit.autoscaling.test_metrics import Clock

JOB = a_job(serve=True)
ASKED = Target("http", "default", "m")
ONE, TWO = "10.0.0.1:8000", "10.0.0.2:8000"


def with_workers(store: Store, job: Job, *numbers: int) -> None:
    store.put_job(job)
    for number in numbers:
        store.put_pod(replace(a_pod(job, number), uid=f"pod-{number}", address=f"10.0.0.{number}"))


def says(store: Store, number: int, *, queued: int = 0, sketch: LatencySketch | None = None) -> Telemetry:
    told = Telemetry(ready=True, draining=False, queued=queued, sketch=sketch.counts if sketch is not None else {})
    store.readings[f"pod-{number}"] = Reading(told, NOW)
    return told


@pytest.fixture
def store() -> Store:
    made = Store()
    with_workers(made, JOB, 1, 2)
    return made


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def picker(store: Store, clock: Clock) -> Picker:
    made = Picker(store, clock)
    made.look()
    return made


def first(picker: Picker, target: Target = ASKED, subset: frozenset[str] | None = None, timeout_ms: int = 0) -> str:
    headers = {"inference-timeout-ms": str(timeout_ms)} if timeout_ms else {}
    found = picker.decide(target, headers, subset)
    assert not isinstance(found, Refusal), found
    return found.endpoint


def refused(
    picker: Picker, target: Target = ASKED, subset: frozenset[str] | None = None, headers: dict[str, str] | None = None
) -> Refusal:
    found = picker.decide(target, headers or {}, subset)
    assert isinstance(found, Refusal), found
    return found


def measure(picker: Picker, store: Store, clock: Clock, seconds: float) -> None:
    """A window in which both workers answer a thousand requests, each in so many seconds."""
    before, after = LatencySketch(), LatencySketch()
    after.record(seconds, weight=1000)
    for sketch in (before, after):
        picker.round({f"pod-{number}": says(store, number, sketch=sketch) for number in (1, 2)})
        clock.seconds += 10.0
    picker.round({f"pod-{number}": says(store, number, sketch=after) for number in (1, 2)})


def test_a_worker_with_a_queue_is_passed_over(picker: Picker, store: Store) -> None:
    says(store, 1, queued=5)

    assert first(picker) == TWO


def test_what_was_sent_since_a_worker_spoke_counts_and_what_it_has_told_of_counts_once(picker: Picker, store: Store) -> None:
    picker.begun("pod-1")
    assert first(picker) == TWO

    # It tells of that request itself; the other has begun one since.
    picker.round({"pod-1": says(store, 1, queued=1), "pod-2": says(store, 2)})
    for _ in range(2):
        picker.begun("pod-2")
    assert first(picker) == ONE

    for _ in range(2):
        picker.ended("pod-2")
    assert first(picker) == TWO


def test_a_deadline_that_nobody_meets_is_refused_at_once_with_when_to_come_again(
    picker: Picker, store: Store, clock: Clock
) -> None:
    measure(picker, store, clock, 0.010)
    for number in (1, 2):
        says(store, number, queued=400)

    found = refused(picker, headers={"inference-timeout-ms": "100"})

    assert found.status == 429 and found.retry_seconds >= 1 and "in time" in found.text
    assert first(picker, timeout_ms=60_000) in (ONE, TWO)


def test_only_endpoints_that_the_gateway_allows_are_picked(picker: Picker, store: Store) -> None:
    says(store, 1, queued=5)

    assert first(picker, subset=frozenset({ONE})) == ONE
    assert refused(picker, subset=frozenset({"10.9.9.9:8000"})).status == 503
    assert refused(picker, subset=frozenset()).status == 503


def test_a_suspected_worker_gets_nothing_while_there_is_another(picker: Picker, store: Store) -> None:
    store.suspected = frozenset({"pod-1"})
    assert picker.decide(ASKED, {}, None) == Choice("pod-2", TWO)

    store.suspected = frozenset({"pod-1", "pod-2"})
    assert first(picker) in (ONE, TWO)


def test_a_grpc_request_goes_to_the_port_for_grpc(picker: Picker) -> None:
    assert first(picker, Target("grpc", "default", "m")).endswith(":8001")


def test_a_model_without_workers_is_unavailable_and_an_unknown_one_unknown(picker: Picker, store: Store) -> None:
    for pod in list(store.pods.values()):
        store.put_pod(replace(pod, ready=False, resource_version="99"))
    picker.look()

    assert refused(picker).status == 503
    assert refused(picker, Target("http", "default", "other")).status == 404


def test_a_canary_gets_its_share_of_those_who_name_no_version(store: Store, clock: Clock) -> None:
    model = a_model("m", a_version("1"), a_version("2"), default_version="1")
    store.models[model.key] = model
    for version, share, *numbers in (("1", None, 1, 2), ("2", 10, 3)):
        serve = Serve(gateway=ServeGateway(traffic_percent=share))
        job = a_job("job" if share is None else "canary", model="m", model_version=version, serve=serve)
        store.put_job(replace(job, resource_version="2"))
        for number in numbers:
            pod = replace(a_pod(job, number, model=model), uid=f"pod-{number}", address=f"10.0.0.{number}")
            store.put_pod(replace(pod, resource_version="99"))
    picker = Picker(store, clock)
    picker.look()
    versions = {version: first(picker, replace(ASKED, version=version)) for version in ("1", "2")}

    drawn = [first(picker) for _ in range(1000)]

    assert drawn.count(versions["2"]) == 100 and set(drawn) <= {ONE, TWO, "10.0.0.3:8000"}
