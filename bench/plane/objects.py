"""The objects of both sides: the same work as an InferenceJob and as a `batch/v1` Job, on the same nodes."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import msgspec

from inference_operator.api.schema import API_VERSION

Manifest = dict[str, Any]

NAMESPACE = "default"
JOBS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/inferencejobs"
MODELS = f"/apis/{API_VERSION}/namespaces/{NAMESPACE}/inferencemodels"
BATCH_JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
PODS = f"/api/v1/namespaces/{NAMESPACE}/pods"
NODES = "/api/v1/nodes"

ANNOTATION_WORK = "bench.inference.myorg/work"
LABEL_CLASS = "bench.inference.myorg/class"
# What a batch/v1 Job asks for where ours asks for a device of either class: one place on a node of any class.
PLACE = "bench.inference.myorg/place"
GPU = "nvidia.com/gpu"
CLAIM = "answers"
DIGEST = "sha256:" + "a" * 64


class Work(msgspec.Struct, frozen=True):
    """What the simulated kubelets are told of a pod: seconds of run time by class of node, over so many items."""

    seconds: dict[str, float]
    items: int = 1


@dataclass(frozen=True, slots=True)
class Room:
    """A node's class and what it holds."""

    name: str
    device: str
    amounts: dict[str, str]


def rooms(count: int, *, device: str = "cpu", cpus: int = 8, gpus: int = 0) -> list[Room]:
    """Alike nodes of one class."""
    places = gpus if device == "gpu" else cpus
    amounts = {"cpu": str(cpus), "memory": "64Gi", "pods": "110", PLACE: str(places), **({GPU: str(gpus)} if gpus else {})}
    return [Room(f"{device}-{number}", device, amounts) for number in range(count)]


def node(room: Room) -> tuple[Manifest, Manifest]:
    """A node, and the same node with its status."""
    body: Manifest = {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": room.name, "labels": {LABEL_CLASS: room.device, "kubernetes.io/hostname": room.name}},
    }
    ready = {"type": "Ready", "status": "True", "reason": "Bench", "message": "an object only"}
    return body, {**body, "status": {"allocatable": room.amounts, "capacity": room.amounts, "conditions": [ready]}}


def model(name: str, work: Work) -> tuple[Manifest, Manifest]:
    """An InferenceModel, and the status that says how quick it is on each class."""
    body = {
        "apiVersion": API_VERSION,
        "kind": "InferenceModel",
        "metadata": {"name": name},
        "spec": {"versions": [{"name": "1", "uri": "https://models.example/model.onnx", "digest": DIGEST}]},
    }
    profiles = [
        {
            "digest": DIGEST,
            "accelerator": device,
            "backend": "onnx",
            "batchSize": 1,
            "itemsPerSecond": work.items / seconds,
            "loadSeconds": 0,
            "samples": 10,
            "observedTime": rfc3339(datetime.now(UTC)),
        }
        for device, seconds in work.seconds.items()
    ]
    status = {"apiVersion": API_VERSION, "kind": "InferenceModel", "metadata": {"name": name}, "status": {"profiles": profiles}}
    return body, status


def volume() -> tuple[Manifest, Manifest, Manifest]:
    """A volume, a claim on it, and the claim's status: bound by hand, since the controller that binds does not run here."""
    size, modes = {"storage": "1Gi"}, ["ReadWriteMany"]
    shared: Manifest = {"accessModes": modes, "storageClassName": "", "volumeMode": "Filesystem"}
    mine: Manifest = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": CLAIM}}
    whole: Manifest = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": CLAIM}}
    bound = {"name": CLAIM, "annotations": {"pv.kubernetes.io/bind-completed": "yes"}}
    where = {"hostPath": {"path": "/none"}, "claimRef": {"namespace": NAMESPACE, "name": CLAIM}}
    return (
        {**whole, "spec": {**shared, "capacity": size, **where}},
        {**mine, "metadata": bound, "spec": {**shared, "resources": {"requests": size}, "volumeName": CLAIM}},
        {**mine, "status": {"phase": "Bound", "accessModes": modes, "capacity": size}},
    )


def inference_job(name: str, work: Work, *, model: str, accelerator: str = "auto", deadline: datetime | None = None) -> Manifest:
    """A batch on that model; with a deadline it is Firm. Its output is kept, so that it may be stopped and go on elsewhere."""
    by = {"deadline": rfc3339(deadline), "deadlinePolicy": "Firm"} if deadline is not None else {}
    return {
        "apiVersion": API_VERSION,
        "kind": "InferenceJob",
        "metadata": {"name": name},
        "spec": {
            "model": model,
            "accelerator": accelerator,
            "input": {"data": "\n".join(['{"x": [1]}'] * work.items)},
            "output": {"uri": f"pvc://{CLAIM}/{name}"},
            "template": {"annotations": {ANNOTATION_WORK: _text(work)}},
            **by,
        },
    }


def batch_job(
    name: str,
    work: Work,
    *,
    requests: dict[str, str],
    node_selector: dict[str, str] | None = None,
    labels: dict[str, str] | None = None,
) -> Manifest:
    """The same work as a Job of one pod."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": name, "labels": labels or {}},
        "spec": {
            "backoffLimit": 100,
            "template": {
                "metadata": {"annotations": {ANNOTATION_WORK: _text(work)}},
                "spec": {
                    "restartPolicy": "Never",
                    "automountServiceAccountToken": False,
                    "nodeSelector": node_selector or {},
                    "containers": [
                        {"name": "worker", "image": "none", "resources": {"requests": requests, "limits": requests}},
                    ],
                },
            },
        },
    }


def rfc3339(instant: datetime) -> str:
    """With microseconds: a tick of these loads is a tenth of a second."""
    return instant.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _text(work: Work) -> str:
    return msgspec.json.encode(work).decode()
