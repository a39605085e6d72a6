"""The Service in front of a serving job."""

from inference_operator.api import names
from inference_operator.workers.service import endpoint, service_manifest
from tests.builders import a_job


def test_a_service_has_no_selector_and_belongs_to_its_job() -> None:
    job = a_job(serve=True)

    assert "selector" not in service_manifest(job)["spec"]
    assert service_manifest(job)["metadata"]["ownerReferences"][0]["uid"] == job.uid
    assert service_manifest(job)["metadata"]["labels"][names.LABEL_MANAGED_BY] == names.MANAGED_BY


def test_the_endpoint_is_the_services_address() -> None:
    job = a_job("lane.detection", namespace="cars", serve=True)
    name = service_manifest(job)["metadata"]["name"]

    assert endpoint(job) == f"http://{name}.cars.svc:8000"
    assert service_manifest(job)["spec"]["ports"][0]["port"] == 8000


def test_both_protocols_have_a_port_that_proxies_can_tell() -> None:
    ports = {
        port["name"]: (port["port"], port["targetPort"], port["appProtocol"])
        for port in service_manifest(a_job(serve=True))["spec"]["ports"]
    }

    assert ports == {"http": (8000, "http", "http"), "grpc": (8001, "grpc", "kubernetes.io/h2c")}


def test_a_headless_service_has_a_name_of_its_own_and_no_address() -> None:
    for name in ("job", "a.b", "j" * 63, "k" * 200):
        job = a_job(name, serve=True)
        plain, headless = service_manifest(job), service_manifest(job, headless=True)
        assert headless["metadata"]["name"] != plain["metadata"]["name"] and len(headless["metadata"]["name"]) <= 63
        assert headless["metadata"]["name"].endswith("-headless")
        assert (headless["spec"]["clusterIP"], "clusterIP" in plain["spec"]) == ("None", False)
