"""Caches on nodes: workers get their model from their node's, and a roll-out finds the new one there."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import replace

import pytest

from bench.nodecache.origin import asked, serve
from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, build_images, install, wait_for
from inference_protocol.node_cache import GRANT_VARIABLE
from tests.e2e.conftest import Space
from tests.e2e.support import a_job, condition, workers

CACHE = f"{RELEASE}-node-cache"


@pytest.fixture(scope="module")
def origin(kube: Kubectl, space: Space) -> Iterator[str]:
    images = build_images()
    install(kube, images, settings=("nodeCache.enabled=true", "settings.fetch.allowedHosts={*.svc}"))
    url = serve(space.kube, images["worker"])
    yield url
    install(kube, images)


def counts(kube: Kubectl, name: str) -> float:
    """A metric of all caches together."""
    system = replace(kube, namespace=SYSTEM)
    pods = json.loads(system.run("get", "pods", "-l", "app.kubernetes.io/component=node-cache", "-o", "json"))["items"]
    found = 0.0
    for pod in pods:
        path = f"/api/v1/namespaces/{SYSTEM}/pods/{pod['metadata']['name']}:8007/proxy/metrics"
        lines = system.run("get", "--raw", path).splitlines()
        found += sum(float(line.split()[1]) for line in lines if line.startswith(f"inference_node_cache_{name} "))
    return found


def test_workers_share_a_nodes_copy_and_a_roll_out_finds_its_model_there(kube: Kubectl, space: Space, origin: str) -> None:
    versions = {"1": "digits/model.onnx", "2": "magika/model.onnx"}
    model = {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceModel",
        "metadata": {"name": "remote"},
        "spec": {
            "versions": [
                {
                    "name": name,
                    "uri": f"{origin}/{path}",
                    "digest": f"sha256:{hashlib.sha256((space.folder / path).read_bytes()).hexdigest()}",
                }
                for name, path in versions.items()
            ]
        },
    }
    before = {name: counts(kube, name) for name in ("models", "hits_total", "misses_total", "prefetched_total")}

    def more(name: str) -> float:
        """By how much a metric has grown: other namespaces' workers ask too."""
        return counts(kube, name) - before[name]

    space.kube.apply(model, a_job("cached", model="remote", modelVersion="1", serve={"minReplicas": 1}))
    space.kube.wait("cached", "Ready")
    wait_for(lambda: more("models") == 1, "the model in a cache")
    (first,) = workers(space.kube, "cached")
    assert any(each["name"] == GRANT_VARIABLE for each in first["spec"]["containers"][0]["env"])

    node = {"kubernetes.io/hostname": first["spec"]["nodeName"]}
    space.kube.apply(a_job("beside", model="remote", modelVersion="1", nodeSelector=node, serve={"minReplicas": 1}))
    space.kube.wait("beside", "Ready")
    assert asked(space.kube, "/digits/model.onnx") == 1
    assert more("hits_total") == 1

    seen: set[str] = set()

    def rolled_out() -> bool:
        job = json.loads(space.kube.run("get", "ij", "cached", "-o", "json"))
        seen.add(condition(job, "Prefetched").get("reason", ""))
        return condition(job, "Ready").get("reason") == "Serving" and job["status"]["model"]["version"] == "2"

    space.kube.apply(a_job("cached", model="remote", modelVersion="2", serve={"minReplicas": 1}))
    wait_for(rolled_out, "the roll-out", seconds=120)

    assert more("prefetched_total") >= 1 and seen & {"Prefetching", "ModelCached"}
    assert more("misses_total") == 1, "the new version's worker found it there"
