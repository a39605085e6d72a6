"""What the end-to-end tests share: jobs by their difference, processes by what they run, kstatus's verdict."""

import itertools
import json
import os
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, wait_for
from tests.outputs import committed_chunks, committed_items

Manifest = dict[str, Any]


def a_job(name: str, **spec: Any) -> Manifest:
    return {
        "apiVersion": "inference.myorg/v1",
        "kind": "InferenceJob",
        "metadata": {"name": name},
        "spec": {"model": "digits", "accelerator": "cpu", **spec},
    }


def a_batch(name: str, **spec: Any) -> Manifest:
    given = {
        "batchSize": 32,
        "input": {"uri": "pvc://data/digits/heldout.npz"},
        "output": {"uri": f"pvc://data/out/{name}"},
    }
    return a_job(name, **(given | spec))


def a_slow_batch(name: str, folder: Path, *, repeat: int = 4, **spec: Any) -> Manifest:
    """Magika over its files several times: some ten seconds of real work, committed second by second."""
    tiled = folder / f"tiled-{repeat}.npy"
    if not tiled.exists():
        np.save(tiled, np.tile(np.load(folder / "magika" / "files.npy"), (repeat, 1)))
    given = {"model": "magika", "batchSize": 8, "input": {"uri": f"pvc://data/{tiled.name}"}}
    return a_batch(name, **(given | spec))


def truth_of_slow_batches(folder: Path, *, repeat: int = 4) -> np.ndarray:
    """What the bare runtime says of every item of a_slow_batch."""
    session = ort.InferenceSession(str(folder / "magika" / "model.onnx"), providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    rows = np.load(folder / "magika" / "files.npy")
    scores = np.concatenate([session.run(None, {name: rows[i : i + 8]})[0] for i in range(0, len(rows), 8)])
    return np.tile(scores, (repeat, 1))


def assert_every_item_answered_once(folder: Path, name: str, truth: np.ndarray) -> None:
    where = folder / "out" / name
    chunks = committed_chunks(where)
    ranges = [(chunk["start"], chunk["end"]) for chunk in chunks]
    assert ranges[0][0] == 0
    assert ranges[-1][1] == len(truth)
    assert all(left[1] == right[0] for left, right in itertools.pairwise(ranges))
    assert chunks == json.loads((where / "manifest.json").read_text())["chunks"]
    told = np.concatenate([next(iter(np.load(where / chunk["file"]).values())) for chunk in chunks])
    np.testing.assert_allclose(told, truth, atol=1e-5)


def condition(job: Manifest, kind: str) -> Manifest:
    return next((c for c in job.get("status", {}).get("conditions", []) if c["type"] == kind), {})


def reason(job: Manifest, kind: str = "Ready") -> str:
    return condition(job, kind).get("reason", "")


def wait_reason(kube: Kubectl, name: str, wanted: str, *, kind: str = "Ready", seconds: float = 60) -> Manifest:
    found: Manifest = {}

    def there() -> bool:
        nonlocal found
        found = kube.get("inferencejob", name)
        return reason(found, kind) == wanted

    try:
        wait_for(there, f"{name}: {kind} with reason {wanted}", seconds=seconds)
    except RuntimeError as error:
        raise AssertionError(f"{error}; it is {found.get('status')}") from error
    return found


def workers(kube: Kubectl, name: str) -> list[Manifest]:
    """The job's worker pods."""
    listed = json.loads(kube.run("get", "pods", "-l", f"inference.myorg/job={name}", "-o", "json"))
    return list(listed["items"])


def progress(folder: Path, name: str) -> int:
    """Items committed so far, by the manifests in the volume."""
    return committed_items(folder / "out" / name)


def has_progressed(folder: Path, name: str, *, least: int) -> bool:
    return progress(folder, name) >= least


def kill_process(text: str, variable: str, number: signal.Signals = signal.SIGKILL) -> int:
    """Signal the one process whose environment has `variable` with `text` in it; its pid."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
        except OSError:
            continue
        if any(item.startswith(f"{variable}=".encode()) and text.encode() in item for item in environment):
            os.kill(int(entry.name), number)
            return int(entry.name)
    raise AssertionError(f"no process has {text!r} in {variable}")


def leader(kube: Kubectl) -> str:
    """The operator's pod that leads."""
    holder = replace(kube, namespace=SYSTEM).get("lease", RELEASE)["spec"]["holderIdentity"]
    return str(holder.rpartition("-")[0])


def kill_leader(kube: Kubectl, number: signal.Signals = signal.SIGKILL) -> int:
    return kill_process(leader(kube), "HOSTNAME", number)


def kill_worker(uid: str) -> int:
    return kill_process(uid, "INFERENCE_WORKER_CONFIG")
