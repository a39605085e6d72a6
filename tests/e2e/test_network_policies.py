"""The chart's NetworkPolicies, enforced: what may connect connects, and what may not is refused, for workers and the operator."""

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields, replace
from pathlib import Path

import pytest
import yaml

from dev.cluster.layout import API_SERVICE_ADDRESS, CONTROL_ADDRESS, DNS_PORT, KUBELET_PORT
from dev.cluster.policies import NODE
from examples.demo.cluster import RELEASE, ROOT, SYSTEM, Kubectl, Manifest, build_images, install
from tests.e2e.conftest import Space
from tests.e2e.probes import PORT, Probe, await_probes, make_namespace, make_probe, refused, the_pod
from tests.e2e.support import a_batch, a_job, wait_reason

pytestmark = pytest.mark.skipif(
    os.environ.get("INFERENCE_NETWORK") != "enforced",
    reason="INFERENCE_NETWORK=enforced builds kube-router's firewall (two minutes, once)",
)
HTTP, GRPC, METRICS, CUSTOM_METRICS, SCALER = 8000, 8001, 8080, 8443, 6000
WORKER_LABELS = {"app.kubernetes.io/name": "inference-worker", "app.kubernetes.io/managed-by": "inference-operator"}
OPERATOR_LABELS = {
    "app.kubernetes.io/name": RELEASE,
    "app.kubernetes.io/instance": RELEASE,
    "app.kubernetes.io/component": "operator",
}


@dataclass(frozen=True)
class Places:
    """The namespaces of a run, beside that of the jobs."""

    foreigners: str
    monitoring: str
    keda: str
    store: str


@dataclass(frozen=True)
class Scene:
    """Who is there: the workers of a service, the operator, and pods that try to reach them."""

    worker: Probe
    operator: Probe
    neighbour: Probe
    foreigner: Probe
    foreigner_elsewhere: Probe
    forged_worker: Probe
    forged_operator: Probe
    prometheus: Probe
    keda: Probe
    beside_keda: Probe
    store: Probe
    service: str


def _values(space: Space, places: Places, *, enabled: bool) -> Manifest:
    def namespaced(name: str) -> Manifest:
        return {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}}

    control = {"ipBlock": {"cidr": f"{CONTROL_ADDRESS}/32"}}
    store = {"to": [namespaced(places.store)], "ports": [{"port": PORT}]}
    return {
        "nodeSelector": {"kubernetes.io/hostname": NODE},
        "replicaCount": 1,
        "kedaScaler": {"enabled": True},
        "networkPolicy": {
            "enabled": enabled,
            "apiServer": {"from": [control], "to": [control], "ports": [6443]},
            "prometheus": {"from": [namespaced(places.monitoring)]},
            "keda": {"from": [{**namespaced(places.keda), "podSelector": {"matchLabels": {"app": "keda-operator"}}}]},
            # DNS is a process of the machine here, as it is on nodes with a cache of their own.
            "dns": {"to": [control], "ports": [DNS_PORT]},
            "workers": {"namespaces": [space.name], "egress": [store]},
        },
    }


def _install(kube: Kubectl, folder: Path, values: Manifest) -> None:
    file = folder / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    install(kube, build_images(), values=[file])
    replace(kube, namespace=SYSTEM).run("rollout", "status", f"deploy/{RELEASE}", "--timeout=60s")


def _cluster(policies: str) -> None:
    subprocess.run([sys.executable, "-m", "dev.cluster", "up", "--network-policies", policies], cwd=ROOT, check=True)


@pytest.fixture(scope="module")
def places() -> Places:
    run = uuid.uuid4().hex[:6]
    return Places(*(f"{field.name}-{run}" for field in fields(Places)))


@pytest.fixture(scope="module")
def scene(kube: Kubectl, space: Space, places: Places, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Built where no policy is, and shown to be open; then the policies come."""
    folder = tmp_path_factory.mktemp("values")
    _cluster("on")
    _install(kube, folder, _values(space, places, enabled=False))
    made = _scene(kube, space, places)
    for probe in (made.foreigner, made.foreigner_elsewhere, made.forged_worker, made.beside_keda):
        assert probe.reaches(made.worker.address, HTTP)
        assert probe.reaches(made.operator.address, METRICS)
    assert made.worker.reaches(made.foreigner.address, PORT)
    assert made.worker.reaches(API_SERVICE_ADDRESS, 443)
    _install(kube, folder, _values(space, places, enabled=True))
    try:
        yield replace(made, operator=_operator(kube))
    finally:
        for name in astuple(places):
            kube.delete("namespace", name, "--wait=false")
        install(kube, build_images())
        _cluster("off")


def _scene(kube: Kubectl, space: Space, places: Places) -> Scene:
    image = build_images()["worker"]
    foreigners = make_namespace(kube, places.foreigners)
    monitoring, keda, store = (make_namespace(kube, name) for name in (places.monitoring, places.keda, places.store))
    space.kube.apply(a_job("served", nodeSelector={"kubernetes.io/hostname": NODE}, serve={"minReplicas": 1}))
    probes = {
        "neighbour": make_probe(space.kube, "neighbour", image, NODE),
        "foreigner": make_probe(foreigners, "foreigner", image, NODE),
        "foreigner_elsewhere": make_probe(foreigners, "elsewhere", image, "gpu-1"),
        "forged_worker": make_probe(foreigners, "forged-worker", image, NODE, WORKER_LABELS),
        "forged_operator": make_probe(foreigners, "forged-operator", image, NODE, OPERATOR_LABELS),
        "prometheus": make_probe(monitoring, "prometheus", image, NODE),
        "keda": make_probe(keda, "keda", image, NODE, {"app": "keda-operator"}),
        "beside_keda": make_probe(keda, "beside", image, NODE),
        "store": make_probe(store, "store", image, NODE),
    }
    await_probes(*probes.values())
    space.kube.wait("served", "Ready")
    worker = Probe(space.kube, the_pod(space.kube, "inference.myorg/job=served"), "worker")
    service = space.kube.get("service", "served")["spec"]["clusterIP"]
    return Scene(worker=worker, operator=_operator(kube), service=service, **probes)


def _operator(kube: Kubectl) -> Probe:
    system = replace(kube, namespace=SYSTEM)
    return Probe(system, the_pod(system, f"app.kubernetes.io/name={RELEASE}"), "operator")


def test_a_worker_answers_its_own_namespace(scene: Scene) -> None:
    for port in (HTTP, GRPC):
        assert scene.neighbour.reaches(scene.worker.address, port)
        assert scene.neighbour.reaches(scene.service, port)


@pytest.mark.parametrize("who", ["foreigner", "foreigner_elsewhere", "forged_worker", "forged_operator", "keda"])
def test_a_worker_refuses_other_namespaces_whatever_labels_their_pods_have(scene: Scene, who: str) -> None:
    """By its address and behind its Service; from its own node and another."""
    probe: Probe = getattr(scene, who)
    for port in (HTTP, GRPC):
        assert refused(probe, scene.worker.address, port)
        assert refused(probe, scene.service, port)


def test_prometheus_reads_a_workers_metrics_and_calls_no_model_by_grpc(scene: Scene) -> None:
    assert scene.prometheus.reaches(scene.worker.address, HTTP)
    assert refused(scene.prometheus, scene.worker.address, GRPC)


def test_a_worker_gets_no_further_than_it_must(scene: Scene) -> None:
    """Not to the API server, not to a kubelet, not to other pods: with the model's code in it, it would try."""
    assert scene.worker.resolves(f"{RELEASE}-metrics-api.{SYSTEM}.svc.cluster.local")
    assert scene.worker.reaches(scene.store.address, PORT)

    for address, port in (
        (API_SERVICE_ADDRESS, 443),
        (CONTROL_ADDRESS, KUBELET_PORT),
        (scene.foreigner.address, PORT),
        (scene.foreigner_elsewhere.address, PORT),
        (scene.neighbour.address, PORT),
        (scene.store.address, PORT + 1),
        (scene.operator.address, METRICS),
    ):
        assert refused(scene.worker, address, port), (address, port)


@pytest.mark.parametrize(
    "who", ["foreigner", "foreigner_elsewhere", "neighbour", "forged_worker", "forged_operator", "beside_keda"]
)
def test_the_operator_refuses_who_has_no_business_with_it(scene: Scene, who: str) -> None:
    probe: Probe = getattr(scene, who)
    for port in (METRICS, CUSTOM_METRICS, SCALER):
        assert refused(probe, scene.operator.address, port), port


def test_the_operator_answers_each_source_on_its_own_port(scene: Scene) -> None:
    allowed = {"prometheus": METRICS, "keda": SCALER}
    for who, theirs in allowed.items():
        probe: Probe = getattr(scene, who)
        assert probe.reaches(scene.operator.address, theirs)
        for port in {METRICS, CUSTOM_METRICS, SCALER} - {theirs}:
            assert refused(probe, scene.operator.address, port), (who, port)


def test_the_api_server_still_asks_the_operator_for_metrics(kube: Kubectl, scene: Scene) -> None:
    kube.run("wait", "apiservice/v1beta2.custom.metrics.k8s.io", "--for=condition=Available", "--timeout=60s")
    assert "served" in kube.run(
        "get",
        "--raw",
        f"/apis/custom.metrics.k8s.io/v1beta2/namespaces/{scene.worker.kube.namespace}/inferencejobs.inference.myorg/*/inference_latency_ms",
    )


def test_the_operator_gets_no_further_than_it_must(scene: Scene) -> None:
    assert scene.operator.reaches(scene.worker.address, HTTP)
    assert scene.operator.reaches(API_SERVICE_ADDRESS, 443)

    for address, port in ((scene.worker.address, GRPC), (scene.foreigner.address, PORT), (CONTROL_ADDRESS, KUBELET_PORT)):
        assert refused(scene.operator, address, port), (address, port)
    assert not scene.operator.resolves(f"{RELEASE}-metrics-api.{SYSTEM}.svc.cluster.local")


def test_jobs_run_as_ever_behind_the_policies(scene: Scene, space: Space) -> None:
    space.kube.apply(a_batch("behind", nodeSelector={"kubernetes.io/hostname": NODE}))
    space.kube.wait("behind", "Succeeded")
    wait_reason(space.kube, "served", "Serving")
