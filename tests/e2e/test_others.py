"""The page on autoscaling with the real KEDA, the real Prometheus adapter and the real Prometheus: its examples as they stand there."""

import json
import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from bench.autoscaling.others import PROMETHEUS_URL, Others, others
from bench.autoscaling.service import job, metric
from examples.demo.cluster import RELEASE, ROOT, SYSTEM, Kubectl, Manifest, build_images, install, wait_for
from tests.e2e.conftest import Space
from tests.e2e.support import condition, wait_reason
from tests.e2e.test_autoscaling import faults, hpa, overload, replicas

pytestmark = pytest.mark.skipif(
    os.environ.get("INFERENCE_OTHERS") != "all",
    reason="INFERENCE_OTHERS=all builds KEDA and the Prometheus adapter (ten minutes, once)",
)


def example(begins: str, has: str = "") -> str:
    """The example of the page that begins so, and has this in it."""
    page = (ROOT / "docs" / "tasks" / "autoscaling.md").read_text()
    blocks = re.findall(r"```\w*\n(.*?)```", page, re.DOTALL)
    (found,) = (block for block in blocks if block.startswith(begins) and has in block)
    return str(found)


def scaled_object(namespace: str, name: str, trigger: str, **addresses: str) -> Manifest:
    """The page's, for a job of another name in another namespace; `addresses` are parts of it and what they are here."""
    text = example("apiVersion: keda.sh", f"type: {trigger}\n").replace("magika", name).replace("demo", namespace)
    for theirs, ours in addresses.items():
        assert theirs in text
        text = text.replace(theirs, ours)
    made: Manifest = yaml.safe_load(text)
    return made


@pytest.fixture(scope="module")
def beside(kube: Kubectl, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Others]:
    with others(kube, tmp_path_factory.mktemp("others")) as made:
        made.prometheus(scrape_seconds=2)
        yield made


@pytest.fixture(scope="module")
def keda(beside: Others) -> None:
    beside.keda()


@pytest.fixture
def scaler(kube: Kubectl) -> Iterator[str]:
    """The operator's scaler, by an address that KEDA, which runs beside the cluster, can reach."""
    install(kube, build_images(), settings=("kedaScaler.enabled=true",))
    service = replace(kube, namespace=SYSTEM).get("service", f"{RELEASE}-keda-scaler")["spec"]
    yield f"{service['clusterIP']}:{service['ports'][0]['port']}"
    install(kube, build_images())


def test_keda_scales_by_what_the_operator_tells_it_and_to_zero_and_back(
    space: Space, keda: None, scaler: str, tmp_path: Path
) -> None:
    kube, name = space.kube, "pushed"
    kube.apply(job(name, mode="External", least=0))
    kube.wait(name, "Ready")
    made = scaled_object(space.name, name, "external-push", **{f"{RELEASE}-keda-scaler.{SYSTEM}:6000": scaler})
    # Only so that the test need not wait as long as users like it.
    made["spec"] |= {"cooldownPeriod": 10, "pollingInterval": 5}

    with overload(kube, name, tmp_path) as busy:
        kube.apply(made)
        kube.run("wait", f"scaledobject/{name}", "--for=condition=Ready", "--timeout=60s")
        kube.run("wait", f"scaledobject/{name}", "--for=condition=Active", "--timeout=60s")
        wait_for(lambda: replicas(kube, name) >= 2, "KEDA's HPA asks for more", seconds=90)
        wait_for(lambda: (metric(kube, name) or 1e9) <= 300, "the breach is over", seconds=240)
    assert faults(busy) == []

    wait_for(lambda: replicas(kube, name) == 0, "nobody asks, so nobody is kept", seconds=120)
    wait_for(lambda: not workers(kube, name), "the last worker goes")
    # Rest is no fault: KEDA goes on being told.
    kube.run("wait", f"scaledobject/{name}", "--for=condition=Active=False", "--timeout=60s")
    kube.run("wait", f"scaledobject/{name}", "--for=condition=Ready", "--timeout=60s")
    kube.run("patch", "ij", name, "--type=merge", "-p", '{"spec":{"serve":{"minReplicas":1}}}')
    wait_for(lambda: replicas(kube, name) == 1, "KEDA wakes it")
    kube.wait(name, "Ready")
    kube.run("delete", "scaledobject", name)
    kube.run("delete", "ij", name)


def workers(kube: Kubectl, name: str) -> list[str]:
    return kube.run("get", "pods", "-l", f"inference.myorg/job={name}", "-o", "name").split()


def test_keda_scales_by_the_number_that_prometheus_tells_it(space: Space, beside: Others, keda: None, tmp_path: Path) -> None:
    kube, name = space.kube, "followed"
    beside.find_operator()
    kube.apply(job(name, mode="External"))
    kube.wait(name, "Ready")
    wait_reason(kube, name, "LeftToOthers", kind="Autoscaled")
    kube.apply(scaled_object(space.name, name, "prometheus", **{"http://prometheus.monitoring:9090": PROMETHEUS_URL}))
    kube.run("wait", f"scaledobject/{name}", "--for=condition=Ready", "--timeout=60s")

    with overload(kube, name, tmp_path) as busy:
        wait_for(lambda: replicas(kube, name) >= 2, "KEDA's HPA asks for more", seconds=90)
        wait_for(lambda: (metric(kube, name) or 1e9) <= 300, "the breach is over", seconds=240)
    assert faults(busy) == []
    assert "keda-hpa-followed" in condition(kube.get("inferencejob", name), "Autoscaled")["message"]

    # An HPA of ours would be a second writer: none is made, and who is in the way is said.
    kube.run("patch", "ij", name, "--type=merge", "-p", '{"spec":{"autoscaling":{"mode":"HPA"}}}')
    found = wait_reason(kube, name, "OtherAutoscaler", kind="Autoscaled")
    assert "ScaledObject 'followed'" in condition(found, "Autoscaled")["message"]
    assert hpa(kube, name) is None
    kube.run("delete", "scaledobject", name)
    wait_for(lambda: hpa(kube, name) is not None, "ours takes over")
    kube.run("delete", "ij", name)


@pytest.fixture
def adapter(kube: Kubectl, beside: Others) -> Iterator[None]:
    """The adapter in the slot that the operator has given up."""
    install(kube, build_images(), settings=("customMetrics.enabled=false",))
    rule = yaml.safe_load(example("rules:"))
    beside.prometheus_adapter(rule)
    yield
    kube.delete("apiservice", "v1beta1.custom.metrics.k8s.io", "v1beta2.custom.metrics.k8s.io")
    install(kube, build_images())


def test_the_prometheus_adapter_serves_the_same_latency(space: Space, adapter: None, tmp_path: Path) -> None:
    kube, name = space.kube, "adapted"
    kube.apply(job(name, mode="External"), by_latency(name))
    kube.wait(name, "Ready")

    with overload(kube, name, tmp_path):
        wait_for(lambda: (metric(kube, name) or 0) > 300, "the adapter tells the breach", seconds=60)
        wait_for(lambda: replicas(kube, name) >= 2, "the HPA asks for more", seconds=90)
    status: dict[str, Any] = json.loads(kube.run("get", "hpa", name, "-o", "json"))["status"]
    assert {c["type"]: c["status"] for c in status["conditions"]}["ScalingActive"] == "True"
    kube.run("delete", "ij,hpa", name)


def by_latency(name: str) -> Manifest:
    """An HPA of the user's own, by the plain p95."""
    target = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": name}
    value = {"type": "Value", "value": "300"}
    by = {"type": "Object", "object": {"describedObject": target, "metric": {"name": "inference_latency_ms"}, "target": value}}
    spec = {"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 4, "metrics": [by]}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": name}, "spec": spec}
