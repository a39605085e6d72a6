"""The tritonserver beside a worker: a sidecar that starts before the worker and ends after it, so that batch pods end."""

from typing import Any

from inference_operator.api.resources import Resources
from inference_operator.api.template import PodTemplate
from inference_operator.settings import Settings
from inference_operator.state.resources import amounts
from inference_operator.workers.security import container_security
from inference_operator.workers.template_pod import with_containers
from inference_protocol.messages import TRITON_PORT, TRITON_REPOSITORY

Manifest = dict[str, Any]

CONTAINER = "tritonserver"
_VOLUME = "triton"
_SHARED_MEMORY = "triton-shm"
# The worker only passes tensors on. It holds the model while it verifies it, though, so it keeps the memory of a worker.
_FRONT_CPU = "100m"


def sidecar(resources: Resources, settings: Settings) -> Manifest:
    """The container: it has the device and the resources that the worker would have, and listens for the pod alone."""
    return {
        "name": CONTAINER,
        "image": settings.backends.triton.image,
        "imagePullPolicy": settings.image_pull_policy,
        # What makes an init container a sidecar: the kubelet starts it anew, and does not wait for its end.
        "restartPolicy": "Always",
        "command": ["tritonserver", *arguments()],
        "resources": {"requests": resources.requests, "limits": resources.limits},
        "securityContext": container_security(),
        "volumeMounts": [
            {"name": _VOLUME, "mountPath": TRITON_REPOSITORY},
            {"name": "tmp", "mountPath": "/tmp", "subPath": CONTAINER},  # noqa: S108
            # The Python back end hands tensors to its process by shared memory; a container's own has 64 MiB.
            {"name": _SHARED_MEMORY, "mountPath": "/dev/shm"},  # noqa: S108
        ],
    }


def arguments() -> list[str]:
    """How tritonserver is started: empty, its models loaded and unloaded by the worker only, for callers in the pod only."""
    return [
        f"--model-repository={TRITON_REPOSITORY}",
        "--model-control-mode=explicit",
        "--http-address=127.0.0.1",
        f"--http-port={TRITON_PORT}",
        "--allow-grpc=false",
        "--allow-metrics=false",
        "--exit-on-error=false",
        "--log-info=false",
    ]


def mount() -> Manifest:
    """Where the worker writes the models."""
    return {"name": _VOLUME, "mountPath": TRITON_REPOSITORY}


def volumes() -> list[Manifest]:
    """What the two containers share, and what the sidecar needs for itself."""
    return [{"name": _VOLUME, "emptyDir": {}}, {"name": _SHARED_MEMORY, "emptyDir": {"medium": "Memory"}}]


def front_resources(resources: Resources) -> Resources:
    """What the worker itself asks for where another container computes: no device, and little of a CPU."""
    memory = {name: {k: v for k, v in part.items() if k == "memory"} for name, part in _parts(resources)}
    return Resources(requests={"cpu": _FRONT_CPU, **memory["requests"]}, limits=memory["limits"])


def _parts(resources: Resources) -> tuple[tuple[str, dict[str, str]], ...]:
    return ("requests", resources.requests), ("limits", resources.limits)


def pod_amounts(resources: Resources, template: PodTemplate, *, with_sidecar: bool) -> dict[str, int]:
    """What a worker's pod takes from its node."""
    computing = amounts({**resources.limits, **resources.requests})
    total = dict(computing)
    if with_sidecar:
        front = front_resources(resources)
        for name, value in amounts({**front.limits, **front.requests}).items():
            total[name] = total.get(name, 0) + value
    return with_containers(total, template, before=computing if with_sidecar else {})
