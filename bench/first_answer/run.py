"""From `helm install` to the first right answer on a cluster that never had the operator; then batches, beside a `batch/v1` Job.

Each step is a command that a user types, run as a process of its own. The images are on the nodes before, as in any second install.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnxruntime as ort

from bench.report import Result, Target, at_most
from dev.console import say
from examples.demo.cluster import ROOT, Kubectl, Manifest, build_images, copy_tree, install, local
from examples.models.index import build_all
from examples.models.magika_features import default_trees

_BUILT = ROOT / "build" / "examples"
_MODEL = "digits/model.onnx"
_ITEMS = "digits/heldout.npz"
# What a user would write who has no operator: load, run, save.
_PROGRAM = (
    "import sys, numpy, onnxruntime; model, items, answers = sys.argv[1:];"
    "session = onnxruntime.InferenceSession(model, providers=['CPUExecutionProvider']);"
    "rows = next(iter(numpy.load(items).values()));"
    "numpy.savez(answers, **dict(zip([one.name for one in session.get_outputs()],"
    " session.run(None, {session.get_inputs()[0].name: rows}))))"
)
_MOST_SECONDS = 600.0


@dataclass(frozen=True)
class Place:
    """A namespace with a volume, on a cluster that has the images."""

    kube: Kubectl
    volume: Path
    image: str
    folder: Path

    def plugin(self, *arguments: str) -> str:
        """`kubectl inference`, as a process of its own."""
        options = ("--kubeconfig", str(self.kube.kubeconfig), "-n", self.kube.namespace)
        command = [sys.executable, "-m", "kubectl_inference", *arguments, *options]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "client")}
        return subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, env=environment).stdout


def run(rounds: int) -> Result:
    """One install, and so many batches of each kind (5), by turns."""
    build_all(_BUILT, default_trees())
    subprocess.run([sys.executable, "-m", "dev.cluster", "down"], cwd=ROOT, check=True)
    subprocess.run([sys.executable, "-m", "dev.cluster", "up"], cwd=ROOT, check=True)
    images = build_images()
    kube = replace(local(), namespace=f"new-{uuid.uuid4().hex[:6]}")
    with tempfile.TemporaryDirectory() as folder:
        found = [_install_and_ask(kube, images, Path(folder))]
        at = Place(kube, kube.volume("data"), images["worker"], Path(folder))
        copy_tree(_BUILT, at.volume)
        for number in range(rounds or 5):
            found += [_submit(at, number), _create_job(at, number)]
            say(f"{found[-2:]}")
        kube.delete("namespace", kube.namespace, "--wait=false")
    return Result(found, _targets(found))


def _install_and_ask(kube: Kubectl, images: dict[str, str], folder: Path) -> dict[str, Any]:
    """The seconds of each step until a service has answered right."""
    at = Place(kube, folder, images["worker"], folder)
    rows = next(iter(np.load(_BUILT / _ITEMS).values()))[:3]
    np.save(folder / "rows.npy", rows)
    pushed = ("push", str(_BUILT / _MODEL), "data/first/model.onnx", "--image", images["worker"], "-o", "json")
    answers: list[str] = []

    def submit() -> None:
        model = folder / "model.json"
        model.write_text(json.dumps(_model(json.loads(answers[0]))))
        at.plugin("submit", "-f", str(model))
        at.plugin("submit", "first", "--model", "first", "--accelerator", "cpu", "--min-replicas", "1", "--wait")

    steps: list[tuple[str, Callable[[], object]]] = [
        ("helm install", lambda: install(kube, images)),
        ("kubectl apply a namespace and a claim", kube.create_namespace),
        ("kubectl inference push", lambda: answers.append(at.plugin(*pushed))),
        ("kubectl inference submit, twice", submit),
        ("kubectl inference predict", lambda: answers.append(at.plugin("predict", "first", "-d", f"@{folder}/rows.npy"))),
    ]
    seconds = {name: _timed(step) for name, step in steps}
    session = ort.InferenceSession(str(_BUILT / _MODEL), providers=["CPUExecutionProvider"])
    truth = session.run(None, {session.get_inputs()[0].name: rows})[0]
    right = np.allclose(json.loads(answers[1])["outputs"]["probabilities"], truth, atol=1e-5)
    found = {"part": "first answer", "steps": seconds, "seconds": round(sum(seconds.values()), 1), "right": bool(right)}
    say(f"{found}")
    return found


def _model(pushed: dict[str, str]) -> Manifest:
    version = {"name": "1", "uri": pushed["uri"], "digest": pushed["digest"]}
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceModel",
        "metadata": {"name": "first"},
        "spec": {"versions": [version]},
    }


def _submit(at: Place, number: int) -> dict[str, Any]:
    name = f"batch-{number}"
    where = ("--model", f"pvc://data/{_MODEL}", "--input", f"pvc://data/{_ITEMS}", "--output-uri", f"pvc://data/out/{name}")
    seconds = _timed(lambda: at.plugin("submit", name, "--accelerator", "cpu", *where, "--wait"))
    return {"part": "kubectl inference submit", "seconds": round(seconds, 2)}


def _create_job(at: Place, number: int) -> dict[str, Any]:
    name = f"job-{number}"
    file = at.folder / f"{name}.json"
    file.write_text(json.dumps(_job(name, at.image)))
    wait = ("wait", "--for=condition=complete", f"job/{name}", "--timeout=120s")

    def both() -> None:
        at.kube.run("create", "-f", str(file))
        at.kube.run(*wait)

    return {"part": "kubectl create job", "seconds": round(_timed(both), 2)}


def _job(name: str, image: str) -> Manifest:
    folder = "/volume"
    container = {
        "name": "main",
        "image": image,
        "command": ["python3", "-c", _PROGRAM, f"{folder}/{_MODEL}", f"{folder}/{_ITEMS}", f"{folder}/out/{name}.npz"],
        "volumeMounts": [{"name": "data", "mountPath": folder}],
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "runAsNonRoot": True,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
    }
    spec = {
        "restartPolicy": "Never",
        "containers": [container],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}],
    }
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": {"spec": spec}}}


def _timed(step: Callable[[], object]) -> float:
    begun = time.monotonic()
    step()
    return round(time.monotonic() - begun, 2)


def _targets(found: Sequence[dict[str, Any]]) -> list[Target]:
    def middle(part: str) -> float:
        return median(float(one["seconds"]) for one in found if one["part"] == part)

    first = found[0]
    ratio = middle("kubectl inference submit") / middle("kubectl create job")
    return [
        at_most("first-answer", "seconds from helm install to the first right answer", first["seconds"], _MOST_SECONDS),
        at_most("first-answer-right", "answers that are wrong", 0 if first["right"] else 1, 0),
        at_most("submit", "submit to result, over kubectl create and wait of a Job", ratio, 1.5),
    ]
