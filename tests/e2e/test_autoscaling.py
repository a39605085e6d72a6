"""Latency drives the real HPA: up in a breach, down again after it, no request lost; and whoever else writes the job's spec."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from bench.autoscaling.load import Plan, read
from bench.autoscaling.service import job, metric, plan
from dev.tools import ensure
from examples.demo.cluster import ROOT, Kubectl, Manifest, wait_for
from tests.e2e.conftest import Space
from tests.e2e.support import condition, kill_leader, wait_reason

# Of what one worker answers here and now: machines differ by more than this.
_BREACH = 1.4
_LONG = 600.0


def restart_api_server() -> None:
    """It dies without a word, and is started again as a supervisor would; whoever talks to it has to try again."""
    found = subprocess.run([sys.executable, "-m", "dev.cluster", "status", "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=True)
    os.kill(json.loads(found.stdout)["processes"]["kube-apiserver"]["pid"], signal.SIGKILL)
    subprocess.run([sys.executable, "-m", "dev.cluster", "up"], cwd=ROOT, check=True)


def helm_upgrade(kube: Kubectl, folder: Path, manifest: Manifest, label: str) -> None:
    """A release of the user's own whose only object is the job; what changes is a label of it."""
    chart = folder / "mine"
    (chart / "templates").mkdir(parents=True, exist_ok=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: mine\nversion: 1.0.0\n")
    labelled = {**manifest, "metadata": {**manifest["metadata"], "labels": {"release": label}}}
    (chart / "templates" / "job.yaml").write_text(yaml.safe_dump(labelled))
    helm = [str(ensure("helm") / "helm"), "upgrade", "--install", "mine", str(chart), "--take-ownership"]
    done = subprocess.run(
        [*helm, "-n", kube.namespace, "--kubeconfig", str(kube.kubeconfig)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert kube.get("inferencejob", manifest["metadata"]["name"])["metadata"]["labels"]["release"] == label


def hpa(kube: Kubectl, name: str) -> Manifest | None:
    text = kube.run("get", "hpa", name, "-o", "json", "--ignore-not-found")
    return json.loads(text) if text.strip() else None


def replicas(kube: Kubectl, name: str) -> int:
    found: int = kube.get("inferencejob", name)["spec"]["replicas"]
    return found


def ready(kube: Kubectl, name: str) -> int:
    found: int = kube.get("inferencejob", name)["status"].get("readyReplicas", 0)
    return found


def answered_by_one(asked: Plan, *, seconds: float = 5.0) -> float:
    """Requests a second of a single worker, asked one after another: no more than it can do, so it breaches nothing."""
    url, headers = f"http://{asked.host}:{asked.port}{asked.path}", {"Content-Type": "application/json"}
    count, begun = 0, time.monotonic()
    while (spent := time.monotonic() - begun) < seconds:
        with urllib.request.urlopen(urllib.request.Request(url, asked.body.encode(), headers), timeout=30) as response:
            response.read()
        count += 1
    return count / spent


@contextmanager
def overload(kube: Kubectl, name: str, folder: Path) -> Iterator[Plan]:
    """More than the job's one worker can answer, for longer than any test waits."""
    asked = plan(kube, name, [], folder)
    able = max(answered_by_one(asked) for _ in range(2))
    # What one worker has gathered while nobody could start another takes its time, and is answered all the same.
    wanted = replace(asked, rates=[(_LONG, _BREACH * able)], patience_seconds=240.0)
    file = folder / f"{name}.json"
    wanted.save(file)
    running = subprocess.Popen([sys.executable, "-m", "bench.autoscaling.load", str(file)], cwd=ROOT)
    try:
        wait_for(lambda: len(read(Path(wanted.result))) > 20, "the load runs")
        yield wanted
        assert running.poll() is None, "the load was over before the test"
    finally:
        running.terminate()
        running.wait(30)


def faults(wanted: Plan) -> list[int]:
    return [one.status for one in read(Path(wanted.result)) if one.status != 200]


def test_a_breach_is_answered_by_workers_and_calm_takes_them_away(space: Space, tmp_path: Path) -> None:
    kube = space.kube
    kube.apply(job("elastic"))
    kube.wait("elastic", "Ready")
    found = wait_reason(kube, "elastic", "FollowingLatency", kind="Autoscaled")
    assert condition(found, "Autoscaled")["status"] == "True"
    wait_for(lambda: hpa(kube, "elastic") is not None, "the HPA")

    with overload(kube, "elastic", tmp_path) as busy:
        wait_for(lambda: (metric(kube, "elastic") or 0) > 300, "the breach is measured", seconds=60)
        wait_for(lambda: replicas(kube, "elastic") >= 2, "the HPA asks for more", seconds=90)
        more = replicas(kube, "elastic")
        # A leader that dies in the middle, an API server that is started anew, and whoever applies the manifest without replicas
        # change nothing about the number.
        kill_leader(kube)
        restart_api_server()
        kube.apply(job("elastic"))
        kube.apply(job("elastic"), server_side=True)
        for label in ("one", "two"):
            helm_upgrade(kube, tmp_path, job("elastic"), label)
        assert replicas(kube, "elastic") >= more
        wait_for(lambda: ready(kube, "elastic") >= 2, "more workers answer", seconds=90)
        wait_for(lambda: (metric(kube, "elastic") or 1e9) <= 300, "the breach is over", seconds=240)
        assert replicas(kube, "elastic") >= more
        writers = {
            entry["manager"]
            for entry in json.loads(kube.run("get", "ij", "elastic", "-o", "json", "--show-managed-fields"))["metadata"][
                "managedFields"
            ]
            if "f:replicas" in entry["fieldsV1"].get("f:spec", {})
        }
    assert writers == {"kube-controller-manager"}
    # What was under way when the callers were ended is not counted: it has no line.
    assert faults(busy) == []

    peak = replicas(kube, "elastic")
    wait_for(lambda: replicas(kube, "elastic") < peak, "fewer are asked for", seconds=120)
    wait_for(lambda: ready(kube, "elastic") < peak, "a worker goes")
    wait_for(lambda: metric(kube, "elastic") == 0, "no request in the window")
    status = hpa(kube, "elastic")
    assert status is not None
    assert {c["type"]: c["status"] for c in status["status"]["conditions"]}["ScalingActive"] == "True"

    kube.run("patch", "ij", "elastic", "--type=merge", "-p", '{"spec":{"autoscaling":{"mode":"None"}}}')
    wait_for(lambda: hpa(kube, "elastic") is None, "the HPA goes with the mode")
    kube.run("delete", "ij", "elastic")


def test_an_hpa_of_somebody_else_is_respected_and_named(space: Space) -> None:
    kube = space.kube
    target = {"apiVersion": "inference.myorg/v1", "kind": "InferenceJob", "name": "claimed"}
    mine: Manifest = {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "mine"},
        "spec": {
            "scaleTargetRef": target,
            "maxReplicas": 2,
            "metrics": [
                {
                    "type": "Object",
                    "object": {
                        "describedObject": target,
                        "metric": {"name": "inference_queue_depth"},
                        "target": {"type": "Value", "value": "5"},
                    },
                }
            ],
        },
    }
    kube.apply(mine, job("claimed"))

    found = wait_reason(kube, "claimed", "OtherAutoscaler", kind="Autoscaled")
    assert "'mine'" in condition(found, "Autoscaled")["message"]
    assert hpa(kube, "claimed") is None

    kube.run("delete", "hpa", "mine")
    wait_reason(kube, "claimed", "FollowingLatency", kind="Autoscaled")
    wait_for(lambda: hpa(kube, "claimed") is not None, "ours takes over")
    made = (hpa(kube, "claimed") or {})["spec"]
    kube.run("patch", "hpa", "claimed", "--type=merge", "-p", '{"spec":{"maxReplicas":40,"behavior":null}}')
    wait_for(lambda: (hpa(kube, "claimed") or {})["spec"] == made, "what somebody else writes into ours is taken back")
    kube.run("delete", "ij", "claimed")
    wait_for(lambda: hpa(kube, "claimed") is None, "the HPA goes with its job")


@pytest.mark.parametrize("version", ["v1beta1", "v1beta2"])
def test_both_versions_of_the_api_are_discovered_and_available(kube: Kubectl, version: str) -> None:
    name = f"{version}.custom.metrics.k8s.io"
    kube.run("wait", "apiservice", name, "--for=condition=Available", "--timeout=60s")
    resources = json.loads(kube.run("get", "--raw", f"/apis/custom.metrics.k8s.io/{version}"))["resources"]

    assert "inferencejobs.inference.myorg/inference_latency_ms" in [one["name"] for one in resources]
    owners = kube.get("apiservice", name)["metadata"]["ownerReferences"]
    assert [(owner["kind"], owner["name"]) for owner in owners] == [("ClusterRole", "inference-operator-custom-metrics")]
