"""The gateway as the chart installs it: real Envoys in pods, before real workers, told by the operator's two replicas."""

import json
import urllib.error
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as over_grpc
import yaml

from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, build_images, install, wait_for
from tests.e2e.conftest import Space
from tests.e2e.load import load, post
from tests.e2e.support import a_job, workers

NAME = f"{RELEASE}-gateway"
# One of the two nodes has GPUs.
TOLERATIONS = [{"key": "nvidia.com/gpu", "operator": "Exists"}]
OF_GATEWAY = "app.kubernetes.io/component=gateway"
OF_OPERATOR = "app.kubernetes.io/component=operator"


@dataclass(frozen=True)
class Gateway:
    """Its Service's address, and kubectl in its namespace."""

    address: str
    system: Kubectl

    def url(self, space: Space, model: str = "digits") -> str:
        return f"http://{self.address}/{space.name}/v2/models/{model}/infer"

    def pods(self, label: str) -> set[str]:
        return set(self.system.run("get", "pods", "-l", label, "-o", "name").split())

    def replace_one(self, label: str, deployment: str) -> None:
        """Delete a pod as a drain does, and wait until another is ready."""
        one = min(self.pods(label))
        self.system.run("delete", one, "--wait=false")
        wait_for(lambda: self.pods(label) - {one} != set(), "another")
        self.system.run("rollout", "status", f"deploy/{deployment}", "--timeout=90s")


@pytest.fixture(scope="module")
def gateway(kube: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    repository, _, tag = build_images("--gateway")["gateway"].rpartition(":")
    file = tmp_path_factory.mktemp("values") / "values.yaml"
    image = {"registry": "", "repository": repository, "tag": tag}
    given = {"enabled": True, "image": image, "audit": True, "tolerations": TOLERATIONS}
    file.write_text(yaml.safe_dump({"gateway": given}))
    images = build_images()
    install(kube, images, values=[file])
    system = replace(kube, namespace=SYSTEM)
    try:
        yield Gateway(system.get("service", NAME)["spec"]["clusterIP"], system)
    finally:
        install(kube, images)


@pytest.fixture(scope="module")
def service(gateway: Gateway, space: Space) -> str:
    """Two workers, reached through the gateway."""
    space.kube.apply(a_job("served", serve={"minReplicas": 2}))
    space.kube.wait("served", "Ready")
    url = gateway.url(space)
    wait_for(lambda: _answers(url), "the gateway leads to the workers")
    return url


def test_envoys_listen_on_both_nodes_and_lead_to_the_workers(gateway: Gateway, service: str) -> None:
    assert post(service)["model_name"] == "digits"
    listed = json.loads(gateway.system.run("get", "pods", "-l", OF_GATEWAY, "-o", "json"))["items"]
    assert len({pod["spec"]["nodeName"] for pod in listed}) == 2


def test_grpc_is_answered_by_the_same_port(gateway: Gateway, service: str, space: Space) -> None:
    del service
    given = over_grpc.InferInput("pixels", [1, 64], "FP32")
    given.set_data_from_numpy(np.zeros((1, 64), np.float32))
    with over_grpc.InferenceServerClient(f"{gateway.address}:80") as server:
        answer = server.infer("digits", [given], headers={"inference-namespace": space.name}, client_timeout=30)

    assert answer.get_response().model_name == "digits"


def test_a_model_that_nobody_serves_is_told(gateway: Gateway, service: str, space: Space) -> None:
    del service
    with pytest.raises(urllib.error.HTTPError) as refused:
        post(gateway.url(space, "nothing"))

    assert refused.value.code == 404 and "no model is served" in json.load(refused.value)["error"]


def test_an_envoy_a_replica_of_the_operator_and_a_worker_go_under_load(gateway: Gateway, service: str, space: Space) -> None:
    """As they do in a drain or a roll-out: one after the other, and nothing is lost."""
    with load(service) as running:
        gateway.replace_one(OF_GATEWAY, NAME)
        gateway.replace_one(OF_OPERATOR, RELEASE)
        one = workers(space.kube, "served")[0]["metadata"]["name"]
        space.kube.run("delete", "pod", one, "--wait=true", "--timeout=90s")

    assert running.faults == []


def test_a_service_at_zero_is_woken_by_a_request(gateway: Gateway, space: Space) -> None:
    space.kube.apply(a_job("sleeper", model="magika", serve={"minReplicas": 0, "gateway": {"idleSeconds": 2}}))
    space.kube.run("wait", "ij/sleeper", "--for=jsonpath={.status.phase}=ScaledToZero", "--timeout=60s")
    wait_for(lambda: workers(space.kube, "sleeper") == [], "no worker is left")
    rows = np.load(Path(space.folder) / "magika" / "files.npy")[:1]
    body = {"inputs": [{"name": "bytes", "datatype": "INT32", "shape": list(rows.shape), "data": rows.tolist()}]}

    answer = post(gateway.url(space, "magika"), json.dumps(body).encode(), seconds=90)

    assert answer["model_name"] == "magika"


def test_each_request_has_a_line_in_the_audit_log(gateway: Gateway, service: str, space: Space) -> None:
    post(service, headers={"x-request-id": "7d7e8c5a-0000-4000-8000-000000000001"})

    def lines() -> list[str]:
        logs = [gateway.system.run("logs", pod, "--tail=200") for pod in gateway.pods(OF_GATEWAY)]
        return [line for text in logs for line in text.splitlines() if line.startswith("{") and space.name in line]

    wait_for(lambda: lines() != [], "a line")
    assert json.loads(lines()[-1])


def _answers(url: str) -> bool:
    try:
        return "outputs" in post(url)
    except OSError:
        return False
