"""The local cluster with the operator of this checkout in it, and a namespace with the digits model, cold and warm."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

import msgspec
import yaml

from bench.local.jobs import Manifest, warm_model
from bench.report import ROOT
from dev.cluster import Options, default_layout, down, full_control_plane, is_healthy
from examples.demo import steps
from examples.demo.cluster import Kubectl, build_images, copy_tree, install, wait_for
from examples.demo.cluster import local as local_kubectl
from examples.models.index import build_all
from examples.models.magika_features import default_trees
from inference_operator.accelerators import AcceleratorClass

NAMESPACE = "bench"
MODEL = "digits"
_BUILT = ROOT / "build" / "examples"
_VALUES = ROOT / "examples" / "local-values.yaml"


@dataclass(frozen=True, slots=True)
class Place:
    """Where the batches run."""

    kube: Kubectl
    model: Manifest
    image: str
    accelerator: AcceleratorClass


@contextmanager
def place(warm_workers: int) -> Iterator[Place]:
    """Bring everything up; a cluster that was not there before is taken down again."""
    layout = default_layout()
    was_up = is_healthy(full_control_plane(layout, Options()))
    try:
        subprocess.run([sys.executable, "-m", "dev.cluster", "up"], cwd=ROOT, check=True, stdout=sys.stderr)
        build_all(_BUILT, default_trees())
        images = build_images()
        kube = replace(local_kubectl(), namespace=NAMESPACE)
        install(kube, images)
        try:
            yield _furnish(kube, images["worker"], warm_workers)
        finally:
            kube.delete("namespace", NAMESPACE)
    finally:
        if not was_up:
            down(layout)


def _furnish(kube: Kubectl, image: str, warm_workers: int) -> Place:
    kube.create_namespace()
    copy_tree(_BUILT, kube.volume("data"))
    model = next(model for model in steps.pinned_models(_BUILT) if model["metadata"]["name"] == MODEL)
    model["metadata"]["namespace"] = NAMESPACE
    kube.apply(model, warm_model(model, warm_workers))
    values = yaml.safe_load(_VALUES.read_text())
    return Place(kube, model, image, msgspec.convert(values["accelerators"]["cpu"], AcceleratorClass))


def await_warm(at: Place, workers: int) -> None:
    """Wait until the model's own workers are ready. Raises RuntimeError when there are none after a minute."""

    def ready() -> bool:
        pods = json.loads(at.kube.run("get", "pods", "-o", "json"))["items"]
        return sum(map(_is_warm, pods)) >= workers

    wait_for(ready, f"{workers} warm workers of InferenceModel {MODEL}", seconds=60)


def _is_warm(pod: Manifest) -> bool:
    owned = any(owner["kind"] == "InferenceModel" for owner in pod["metadata"].get("ownerReferences", ()))
    conditions = pod["status"].get("conditions", ())
    return owned and any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
