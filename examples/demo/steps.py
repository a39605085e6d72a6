"""One function an example: apply it, wait for it, judge its answers. Each returns a row of the final table."""

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import tritonclient.http as triton

from examples.demo.cluster import Kubectl, Manifest, copy_tree, load
from examples.models import digits, draw, file_types, lane

Array = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Row:
    """What one example came to."""

    job: str
    what: str
    status: Manifest

    @property
    def cells(self) -> tuple[str, ...]:
        """The table's columns."""
        placement = self.status.get("placement", {})
        deadline = self.status.get("deadline", {})
        latency = self.status.get("latency", {})
        slack = deadline.get("slackSeconds")
        return (
            self.job,
            self.status.get("reason", ""),
            deadline.get("outlook", ""),
            f"{slack} s" if slack is not None else "",
            f"{latency['p95']:g} ms" if latency else "",
            placement.get("node", ""),
            placement.get("executionProvider", "").removesuffix("ExecutionProvider"),
            self.what,
        )


COLUMNS = ("JOB", "REASON", "OUTLOOK", "SLACK", "P95", "NODE", "PROVIDER", "RESULT")


def prepare(kube: Kubectl, built: Path) -> Path:
    """Namespace, volume, files, and the models pinned to what was built. Returns the volume's folder."""
    kube.apply(*load("00-namespace.yaml", namespace=None))
    folder = kube.volume("data")
    copy_tree(built, folder)
    kube.apply(*pinned_models(built))
    return folder


def pinned_models(built: Path) -> Iterator[Manifest]:
    """The InferenceModels with the digests of the files that were built here."""
    index = json.loads((built / "index.json").read_text())
    by_path = {entry["path"]: entry["sha256"] for entry in index["models"].values()}
    for model in load("10-models.yaml"):
        for version in model["spec"]["versions"]:
            version["digest"] = f"sha256:{by_path[version['uri'].removeprefix('pvc://data/')]}"
        yield model


def answers(folder: Path, output: str) -> dict[str, Array]:
    """All chunks of a batch's output, joined, as its manifest lists them."""
    where = folder / "out" / output
    manifest = json.loads((where / "manifest.json").read_text())
    chunks = [np.load(where / chunk["file"]) for chunk in manifest["chunks"]]
    return {name: np.concatenate([chunk[name] for chunk in chunks]) for name in chunks[0].files}


def digits_batch(kube: Kubectl, folder: Path) -> Row:
    """Handwritten digits in a batch, judged by their labels."""
    kube.apply(*load("20-digits-batch.yaml", deadline_in=120))
    job = kube.wait("digits-batch", "Succeeded")
    truth = np.load(folder / "digits" / "labels.npy")
    score = digits.accuracy(answers(folder, "digits-batch")["label"], truth)
    if score < 0.95:
        raise RuntimeError(f"the accuracy is only {score:.3f}")
    return Row("digits-batch", f"{len(truth)} digits, accuracy {score:.3f}", job["status"])


def digits_serve(kube: Kubectl, folder: Path) -> Row:
    """The same model as a service, asked through tritonclient."""
    kube.apply(*load("30-digits-serve.yaml", deadline_in=60))
    job = kube.wait("digits", "Ready")
    client = client_of(kube, "digits")
    pixels = np.load(folder / "digits" / "heldout.npz")["pixels"]
    truth = np.load(folder / "digits" / "labels.npy")
    told = np.concatenate([ask(client, "digits", {"pixels": pixels[i : i + 8]}, "label") for i in range(0, len(pixels), 8)])
    score = digits.accuracy(told, truth)
    if score < 0.95:
        raise RuntimeError(f"the accuracy is only {score:.3f}")
    return Row("digits", f"{-(-len(truth) // 8)} requests over tritonclient, accuracy {score:.3f}", job["status"])


def client_of(kube: Kubectl, name: str) -> triton.InferenceServerClient:
    """A client of a serving job, once the way to it is there: kube-proxy opens a Service a moment after its pods are ready."""
    client = triton.InferenceServerClient(f"{service_address(kube, name)}:8000")
    give_up = time.monotonic() + 30
    while True:
        try:
            if client.is_server_ready():
                return client
        except OSError:
            if time.monotonic() > give_up:
                raise
        time.sleep(0.1)


def service_address(kube: Kubectl, name: str) -> str:
    """A Service's cluster address, which this machine reaches as the nodes do."""
    address: str = kube.get("service", name)["spec"]["clusterIP"]
    return address


def ask(client: Any, model: str, feeds: dict[str, Array], output: str) -> Array:
    """One request of the Open Inference Protocol; one output."""
    inputs = []
    for name, array in feeds.items():
        one = triton.InferInput(name, list(array.shape), triton_type(array))
        one.set_data_from_numpy(array)
        inputs.append(one)
    result: Array = client.infer(model, inputs).as_numpy(output)
    return result


def triton_type(array: Array) -> str:
    """The protocol's name of an array's type."""
    return {"float32": "FP32", "int32": "INT32", "int64": "INT64"}[array.dtype.name]


def magika_batch(kube: Kubectl, folder: Path) -> Row:
    """File types of real files, judged roughly by their extensions."""
    kube.apply(*load("40-magika-batch.yaml", deadline_in=180))
    job = kube.wait("magika-batch", "Succeeded", seconds=180)
    scores = next(iter(answers(folder, "magika-batch").values()))
    labels = json.loads((folder / "magika" / "labels.json").read_text())
    names = [entry["path"] for entry in json.loads((folder / "magika" / "files.json").read_text())]
    found = file_types.agreement([labels[i] for i in scores.argmax(axis=1)], names)
    return Row("magika-batch", f"{len(names)} files, {found.share:.0%} as their extension says", job["status"])


def lane_gpu(kube: Kubectl, folder: Path) -> Row:
    """Lane markings on the accelerator class gpu, judged by the truth that drew the images."""
    kube.apply(*load("50-lane-gpu.yaml", deadline_in=120))
    job = kube.wait("lane-gpu", "Succeeded")
    lanes = answers(folder, "lane-gpu")["lanes"]
    score = lane.iou(lanes, np.load(folder / "lane" / "truth.npy"))
    return Row("lane-gpu", f"{len(lanes)} images, IoU {score:.2f}", job["status"])


def digits_auto(kube: Kubectl, _: Path) -> Row:
    """A job that may run anywhere: cpu is in time, so it does not take a GPU."""
    kube.apply(*load("51-digits-auto.yaml", deadline_in=60))
    job = kube.wait("digits-auto", "Succeeded")
    told = json.loads(job["status"]["output"]["data"])
    why = job["status"]["placement"]["alternatives"][0]
    return Row("digits-auto", f"the digit is {told['label']}; not {why['accelerator']}: {why['reason']}", job["status"])


def lane_detection(kube: Kubectl, folder: Path) -> Row:
    """The mission's manifest, unchanged, served; its answer drawn."""
    kube.apply(*load("60-lane-detection-001.yaml"))
    job = kube.wait("lane-detection-001", "Ready")
    client = client_of(kube, "lane-detection-001")
    images, truth = np.load(folder / "lane" / "road.npy")[:4], np.load(folder / "lane" / "truth.npy")[:4]
    lanes = ask(client, "lane-detection-v2", {"image": images}, "lanes")
    picture = Path("build") / "lane-detection-001.png"
    picture.parent.mkdir(exist_ok=True)
    draw.write_contact_sheet(images, truth, lanes, picture)
    return Row("lane-detection-001", f"IoU {lane.iou(lanes, truth):.2f}, drawn in {picture}", job["status"])


def too_late(kube: Kubectl, _: Path) -> Row:
    """A deadline that can't be met is told at once, with the earliest that could."""
    kube.apply(*load("70-too-late.yaml", deadline_in=30))
    job = kube.wait("too-late", "Stalled")
    words = next(c["message"] for c in job["status"]["conditions"] if c["type"] == "Stalled")
    return Row("too-late", words, job["status"])


STEPS = (digits_batch, digits_serve, magika_batch, lane_gpu, digits_auto, lane_detection, too_late)
