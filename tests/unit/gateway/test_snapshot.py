"""Which services and workers the door leads to."""

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from inference_operator.api.callers import Authentication, ClientCertificates, Jwt, ServeTls
from inference_operator.api.gateway import ServeGateway
from inference_operator.api.job import Serve
from inference_operator.gateway.snapshot import Backend, services
from inference_operator.state.objects import Job, Key, Pod, PodPhase, Reading
from inference_protocol.messages import ModelFacts, Telemetry
from tests.builders import NOW, a_job, a_model, a_pod, a_version

MODEL = a_model("m", a_version("1"), a_version("2"), default_version="1")
MODELS = {MODEL.key: MODEL}


def a_service(name: str = "job", *, version: str | None = None, **more: Any) -> Job:
    return a_job(name, serve=True, model="m", model_version=version, **more)


def a_worker(job: Job, number: int = 1, **changes: Any) -> Pod:
    pod = a_pod(job, number, model=MODEL, uid=f"{job.key.name}-{number}")
    return replace(pod, **{"address": f"10.0.0.{number}", **changes})


def backends(*pods: Pod, readings: dict[str, Reading] | None = None) -> tuple[Backend, ...]:
    (service,) = services([a_service()], MODELS, {"uid-of-job": pods}, readings or {})
    return service.backends


def test_ready_workers_are_led_to() -> None:
    assert backends(a_worker(a_service())) == (Backend("10.0.0.1", "job-1"),)


def test_of_a_service_that_sleeps_the_oldest_that_takes_requests_is_the_first() -> None:
    job = a_job("job", model="m", serve=Serve(min_replicas=0, gateway=ServeGateway(idle_seconds=60)))
    old, young = (a_worker(job, number, created=NOW + timedelta(seconds=number)) for number in (1, 2))

    def firsts(*pods: Pod) -> list[bool]:
        (service,) = services([job], MODELS, {job.uid: pods}, {})
        return [one.first for one in service.backends]

    assert firsts(young, old) == [True, False]
    assert firsts(young, replace(old, deleting=True)) == [False, True]
    assert firsts(young, replace(old, ready=False)) == [True]
    assert firsts(replace(old, deleting=True)) == [False]
    assert [one.first for one in backends(a_worker(a_service(), created=NOW))] == [False]


@pytest.mark.parametrize(
    "changes",
    [
        {"ready": False},
        {"phase": PodPhase.FAILED},
        {"exit_code": 1},
        {"address": None},
        {"address": "not an address"},
        {"key": Key("another", "pod")},
    ],
    ids=str,
)
def test_no_request_goes_to_who_can_not_take_it(changes: dict[str, Any]) -> None:
    assert backends(a_worker(a_service(), **changes)) == ()


def test_a_worker_that_is_told_to_go_drains_whether_it_is_ready_or_not() -> None:
    for ready in (True, False):
        assert backends(a_worker(a_service(), deleting=True, ready=ready)) == (
            Backend("10.0.0.1", "job-1", draining=True, last=True),
        )


def test_a_worker_that_says_that_it_drains_is_believed_before_the_kubelet() -> None:
    drains = {"job-1": Reading(Telemetry(ready=False, draining=True), NOW)}

    assert backends(a_worker(a_service()), readings=drains) == (Backend("10.0.0.1", "job-1", draining=True, last=True),)


def test_one_that_was_told_to_go_is_not_the_last_while_another_takes_requests_or_none_is_wanted() -> None:
    job = a_service()
    going, other = a_worker(job, deleting=True), replace(a_worker(job), uid="job-2", address="10.0.0.2")
    none = a_job("job", model="m", serve=Serve(min_replicas=0), replicas=0)

    assert [(one.draining, one.last) for one in backends(going, other)] == [(True, False), (False, False)]
    (service,) = services([none], MODELS, {none.uid: [a_worker(none, deleting=True)]}, {})
    assert [one.last for one in service.backends] == [False]


def test_the_order_of_jobs_and_pods_means_nothing() -> None:
    one, other = a_service("one"), a_service("other", version="2")
    pods = {job.uid: [a_worker(job, 2), a_worker(job, 1)] for job in (one, other)}
    turned = {uid: found[::-1] for uid, found in pods.items()}

    assert services([one, other], MODELS, pods, {}) == services([other, one], MODELS, turned, {})


def test_jobs_on_one_version_share_its_workers_and_the_models_default_answers_those_who_name_none() -> None:
    first, second, other = a_service("first"), a_service("second", version="1"), a_service("other", version="2")
    pods = {job.uid: [a_worker(job, number)] for number, job in enumerate((first, second, other), 1)}

    found = services([first, second, other], MODELS, pods, {})

    assert [(s.version, s.default, len(s.backends)) for s in found] == [("1", True, 2), ("2", False, 1)]
    (alone,) = services([other], MODELS, pods, {})
    assert alone.default


@pytest.mark.parametrize(
    "job",
    [
        a_job(model="m"),
        a_service(suspend=True),
        a_service(deleting=True),
        a_service(version="9"),
        a_job(serve=True, model="absent"),
        a_job(serve=Serve(tls=ServeTls()), model="m"),
        a_job(serve=True, model="file:///models/a%20b.onnx"),
    ],
    ids=["batch", "suspended", "deleting", "no such version", "no such model", "TLS", "a name that no path has"],
)
def test_the_door_does_not_lead_to(job: Job) -> None:
    assert services([job], MODELS, {}, {}) == ()


def test_a_model_by_uri_is_called_as_its_workers_call_it() -> None:
    (service,) = services([a_job(serve=True)], {}, {}, {})

    assert (service.model, service.version, service.backends) == ("m", "1", ())


def test_of_jobs_on_one_version_the_first_by_name_that_says_something_to_the_gateway_is_heard() -> None:
    silent, first, second = (
        a_job(name, serve=Serve(gateway=given), model="m")
        for name, given in (("a", None), ("b", ServeGateway(traffic_percent=10)), ("c", ServeGateway(traffic_percent=20)))
    )
    for order in ([silent, first, second], [second, first, silent]):
        (service,) = services(order, MODELS, {}, {})
        assert service.options.traffic_percent == 10


TLS = ServeTls()
MIXED = Authentication(
    client_certificates=ClientCertificates(ca_secret_name="a"), jwt=Jwt(issuer="i", audiences=["a"], jwks_secret_name="b")
)


@pytest.mark.parametrize(
    ("serve", "led_to"),
    [
        (Serve(tls=TLS), True),
        (Serve(tls=TLS, authentication=MIXED), True),
        (Serve(tls=TLS, authentication=Authentication(client_certificates=ClientCertificates(ca_secret_name="a"))), False),
        (Serve(tls=ServeTls(secret_name="own")), False),
    ],
    ids=["the operator's certificate", "a token is enough", "a certificate is asked for", "a certificate of somebody else"],
)
def test_jobs_with_tls_are_led_to_where_the_door_can_know_their_workers(serve: Serve, led_to: bool) -> None:  # noqa: FBT001
    found = services([a_job(serve=serve, model="m")], MODELS, {}, {}, tls=True)

    assert [service.tls for service in found] == ([True] if led_to else [])


def test_no_request_for_a_version_goes_in_plain_text_because_another_job_allows_it() -> None:
    plain, secured = a_service("a"), a_job("b", serve=Serve(tls=TLS), model="m")
    pods = {plain.uid: [a_worker(plain)], secured.uid: [a_worker(a_service("b"), 2)]}

    (service,) = services([plain, secured], MODELS, pods, {}, tls=True)

    assert service.tls and [backend.uid for backend in service.backends] == ["b-2"]


def test_a_worker_has_the_digest_of_the_file_that_it_has_loaded() -> None:
    """The log says which file answered; while a version is rolled out, workers of one service have loaded two."""
    facts = ModelFacts("sha256:" + "a" * 64, "CPUExecutionProvider", 0.1, 0.1, 1, 1)
    told = {"job-1": Reading(Telemetry(ready=True, draining=False, model=facts), NOW)}
    workers = (a_worker(a_service()), a_worker(a_service(), 2))

    assert [backend.digest for backend in backends(*workers, readings=told)] == [facts.digest, ""]
