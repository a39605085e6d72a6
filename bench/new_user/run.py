"""A model from a laptop, signed, into a bucket, a registry and a hub; from each it is served, and run as a batch.

Each step is a command of a page of the docs, run as a process of its own and timed. The programs that a user has are there before:
kubectl, the plug-in, openssl, the AWS CLI, ORAS and model-signing. So are the operator and its images.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import yaml

from bench.new_user.places import TOKEN, Places, opened
from bench.report import Result, Target, at_most
from dev.cache import cache_root, digest, locked, published
from dev.console import say
from dev.tools import ensure
from examples.demo.cluster import ROOT, Kubectl, Manifest, build_images, install, local
from examples.models.index import build_all
from examples.models.magika_features import default_trees
from tests.process.stores import KEY, PASSWORD, SECRET, USER

_BUILT = ROOT / "build" / "examples"
_TOOLS = ("awscli==1.46.3", "model-signing==1.1.1", "pyopenssl==26.4.0")
_SECRETS = ("models", "registry", "hub", "rows-reader", "answers-writer")
_MOST_SECONDS = 300.0
_NAME = "digits"


@dataclass
class Laptop:
    """A user's machine: a folder, the programs in it, and a cluster."""

    kube: Kubectl
    places: Places
    folder: Path
    python: Path
    steps: list[tuple[str, str, float]] = field(default_factory=list)
    environment: Mapping[str, str] = field(default_factory=dict)

    def run(self, *command: str) -> str:
        """Run a program in the folder."""
        environment = {**os.environ, **self.environment}
        done = subprocess.run(command, cwd=self.folder, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{' '.join(command)}: {done.stderr[-2000:]}{done.stdout[-2000:]}")
        return done.stdout

    def plugin(self, *arguments: str) -> str:
        """`kubectl inference`."""
        options = ("--kubeconfig", str(self.kube.kubeconfig), "-n", self.kube.namespace)
        return self.run(sys.executable, "-m", "kubectl_inference", *arguments, *options)

    def aws(self, *arguments: str) -> str:
        """The AWS CLI, which is told where the store is."""
        server = f"https://{self.places.seen_by_laptop('s3')}"
        return self.run(str(self.python), "-m", "awscli", "--endpoint-url", server, "s3", *arguments)

    def secret(self, name: str, *files: str, **literals: str) -> None:
        """`kubectl create secret generic`."""
        given = (*(f"--from-file={one}" for one in files), *(f"--from-literal={key}={text}" for key, text in literals.items()))
        self.kube.run("create", "secret", "generic", name, f"--from-file=ca.crt={self.places.authorities}", *given)

    def timed(self, part: str, what: str, step: Callable[[], object]) -> None:
        """Carry out a step, and keep its seconds."""
        begun = time.monotonic()
        step()
        self.steps.append((part, what, round(time.monotonic() - begun, 2)))
        say(f"{self.steps[-1]}")


def run(rounds: int) -> Result:
    """The three ways, so many times (once)."""
    build_all(_BUILT, default_trees())
    images = build_images()
    python = _python()
    found = [_round(images, python) for _ in range(rounds or 1)]
    for part, what, seconds in found[0]["steps"]:
        print(f"{part:10} {seconds:7.2f} s  {what}")
    return Result(found, list(_targets(found)))


def _round(images: dict[str, str], python: Path) -> dict[str, Any]:
    kube = replace(local(), namespace=f"new-{uuid.uuid4().hex[:6]}")
    settings = ("settings.fetch.allowedHosts={*.svc}", f"admissionPolicy.secrets={{{','.join(_SECRETS)}}}")
    install(kube, images, settings=settings)
    kube.create_namespace()
    try:
        with tempfile.TemporaryDirectory() as name, opened(kube, Path(name)) as places:
            laptop = _laptop(kube, places, Path(name) / "laptop", python)
            answers = [*_sign(laptop, images, settings), *_bucket(laptop), *_registry(laptop), *_hub(laptop)]
    finally:
        kube.delete("namespace", kube.namespace, "--wait=false")
        install(kube, images)
    parts = {part for part, _, _ in laptop.steps}
    seconds = {part: round(sum(each[2] for each in laptop.steps if each[0] == part), 1) for part in parts}
    return {"steps": laptop.steps, "seconds": seconds, "wrong": answers.count(False), "answers": len(answers)}


def _laptop(kube: Kubectl, places: Places, folder: Path, python: Path) -> Laptop:
    folder.mkdir()
    (folder / "model.onnx").write_bytes((_BUILT / _NAME / "model.onnx").read_bytes())
    (folder / "heldout.npz").write_bytes((_BUILT / _NAME / "heldout.npz").read_bytes())
    np.save(folder / "rows.npy", _rows()[:3])
    environment = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_CA_BUNDLE": str(places.authorities),
        "AWS_REQUEST_CHECKSUM_CALCULATION": "when_required",
        "PYTHONPATH": str(ROOT / "client"),
    }
    laptop = Laptop(kube, places, folder, python, environment=environment)
    for bucket in ("rows", "answers"):
        laptop.aws("mb", f"s3://{bucket}")
    return laptop


def _sign(at: Laptop, images: dict[str, str], settings: tuple[str, ...]) -> Iterator[bool]:
    """docs/tasks/sign-models.md."""
    part, folder = "sign", f"{_NAME}@1"
    signature = ("--private_key", "release.key", "--signature", f"{folder}/model.sig")

    def made() -> None:
        at.run("openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "release.key")
        at.run("openssl", "ec", "-in", "release.key", "-pubout", "-out", "release.pub")

    at.timed(part, "openssl ecparam, openssl ec: a key", made)
    at.run("mkdir", folder)
    at.run("cp", "model.onnx", f"{folder}/")
    sign = (str(at.python), "-m", "model_signing", "sign", "key", folder, *signature)
    at.timed(part, "model_signing sign key", lambda: at.run(*sign))
    rule = {"namespaces": [at.kube.namespace], "keys": {"release": (at.folder / "release.pub").read_text()}}
    values = at.folder / "values.yaml"
    values.write_text(yaml.safe_dump({"settings": {"modelSignatures": [rule]}}))
    at.timed(part, "helm upgrade: signatures are required", lambda: install(at.kube, images, values=[values], settings=settings))
    yield (at.folder / folder / "model.sig").is_file()


def _bucket(at: Laptop) -> Iterator[bool]:
    """docs/tasks/get-your-model-in.md and docs/tasks/batches-in-buckets.md."""
    part, folder = "bucket", f"{_NAME}@1"
    keys = {
        "AWS_ACCESS_KEY_ID": KEY,
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_ENDPOINT_URL": f"https://{at.places.seen_by_pods('s3')}",
    }
    at.timed(part, "aws s3 cp: model and signature", lambda: at.aws("cp", "--recursive", folder, "s3://models/digits/1"))
    at.timed(part, "kubectl create secret", lambda: at.secret("models", **keys))
    yield from _served(at, part, "s3://models/digits/1/model.onnx", "models")
    at.timed(part, "aws s3 cp: the input", lambda: at.aws("cp", "heldout.npz", "s3://rows/digits/heldout.npz"))
    for name in ("rows-reader", "answers-writer"):
        at.timed(part, f"kubectl create secret: {name}", partial(at.secret, name, **keys))
    yield from _batch(at, part)


def _registry(at: Laptop) -> Iterator[bool]:
    part, folder, pods = "registry", f"{_NAME}@1", at.places.seen_by_pods("registry")
    told = f"{at.places.seen_by_laptop('registry')}/team/digits:1"
    push = ("push", "--ca-file", str(at.places.authorities), "-u", USER, "-p", PASSWORD, "--disable-path-validation", told)
    oras = str(ensure("oras") / "oras")
    login = json.dumps({"auths": {pods: {"username": USER, "password": PASSWORD}}})
    config = at.folder / "config.json"
    config.write_text(login)

    def pushed() -> None:
        replace(at, folder=at.folder / folder).run(oras, *push, "model.onnx", "model.sig")

    at.timed(part, "oras push: model and signature", pushed)
    at.timed(part, "kubectl create secret", lambda: at.secret("registry", f".dockerconfigjson={config}"))
    yield from _served(at, part, f"oci://{pods}/team/digits:1#model.onnx", "registry")
    yield from _batch(at, part)


def _hub(at: Laptop) -> Iterator[bool]:
    """The model is on the hub already, and its signature beside it."""
    part = "hub"
    target = at.places.hub / "org" / "digits" / "v1.0" / "onnx"
    target.mkdir(parents=True)
    for file in ("model.onnx", "model.sig"):
        (target / file).write_bytes((at.folder / f"{_NAME}@1" / file).read_bytes())
    keys = {"HF_TOKEN": TOKEN, "HF_ENDPOINT": f"https://{at.places.seen_by_pods('hub')}"}
    at.timed(part, "kubectl create secret", lambda: at.secret("hub", **keys))
    yield from _served(at, part, "hf://org/digits@v1.0/onnx/model.onnx", "hub")
    yield from _batch(at, part)


def _served(at: Laptop, part: str, uri: str, secret: str) -> Iterator[bool]:
    """Apply the model, serve it, and ask. Whether the answer is right, and whether the status names who signed."""
    # What is signed bears the model's name, so each way's model has it, one after the other.
    at.kube.delete("inferencemodel", _NAME)
    file = at.folder / f"{part}.yaml"
    file.write_text(yaml.safe_dump(_model(uri, secret, at.run("sha256sum", "model.onnx").split()[0])))
    at.timed(part, "kubectl apply: an InferenceModel", lambda: at.kube.run("apply", "-f", str(file)))
    service = f"serve-{part}"
    flags = ("--model", _NAME, "--accelerator", "cpu", "--min-replicas", "1", "--wait")
    at.timed(part, "kubectl inference submit --wait: a service", lambda: at.plugin("submit", service, *flags))
    told: list[str] = []
    at.timed(part, "kubectl inference predict", lambda: told.append(at.plugin("predict", service, "-d", "@rows.npy")))
    yield bool(np.allclose(json.loads(told[0])["outputs"]["probabilities"], _truth(_rows()[:3]), atol=1e-5))
    yield bool(at.kube.get("inferencejob", service)["status"]["model"].get("signature"))
    at.kube.delete("inferencejob", service)


def _batch(at: Laptop, part: str) -> Iterator[bool]:
    name, out = f"batch-{part}", f"answers-{part}"
    where = ("--input", "s3://rows/digits/heldout.npz", "--input-secret", "rows-reader", "--items", str(len(_rows())))
    to = ("--output-uri", f"s3://answers/digits/{name}", "--output-secret", "answers-writer")
    flags = ("--model", _NAME, "--accelerator", "cpu", "--deadline", "30m", *where, *to, "--wait")
    at.timed(part, "kubectl inference submit --wait: a batch", lambda: at.plugin("submit", name, *flags))
    at.timed(part, "aws s3 sync: the answers", lambda: at.aws("sync", f"s3://answers/digits/{name}", out))
    chunks = json.loads((at.folder / out / "manifest.json").read_bytes())["chunks"]
    answers = np.concatenate([np.load(at.folder / out / chunk["file"])["probabilities"] for chunk in chunks])
    yield bool(np.allclose(answers, _truth(_rows()), atol=1e-5))


def _model(uri: str, secret: str, sha256: str) -> Manifest:
    version = {"name": "1", "uri": uri, "digest": f"sha256:{sha256}", "storage": {"secretRef": {"name": secret}}}
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceModel",
        "metadata": {"name": _NAME},
        "spec": {"versions": [version]},
    }


def _rows() -> np.ndarray:
    return np.asarray(next(iter(np.load(_BUILT / _NAME / "heldout.npz").values())))


def _truth(rows: np.ndarray) -> np.ndarray:
    session = ort.InferenceSession(str(_BUILT / _NAME / "model.onnx"), providers=["CPUExecutionProvider"])
    return np.asarray(session.run(["probabilities"], {session.get_inputs()[0].name: rows})[0])


def _python() -> Path:
    """An interpreter that has the AWS CLI and model-signing."""
    place = cache_root() / f"new-user-{digest([tool.encode() for tool in _TOOLS])}"
    with locked("new-user"):
        if not place.is_dir():
            with published(place) as scratch:
                subprocess.run([sys.executable, "-m", "venv", "--copies", str(scratch)], check=True)
                subprocess.run([str(scratch / "bin" / "pip"), "install", "-q", *_TOOLS], check=True)
    return place / "bin" / "python"


def _targets(found: list[dict[str, Any]]) -> Iterator[Target]:
    for part in ("bucket", "registry", "hub"):
        yield at_most(part, f"seconds from a file to a service and a batch, by a {part}", found[0]["seconds"][part], _MOST_SECONDS)
    yield at_most("right", "answers that are wrong, or of a model that nobody signed", found[0]["wrong"], 0)
