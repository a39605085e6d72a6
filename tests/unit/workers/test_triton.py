"""The pod of `backend: triton`: the server as a sidecar that has the device, and the worker in front with little."""

from __future__ import annotations

import msgspec

from inference_operator.api.job import Backend
from inference_operator.settings import Backends, TorchScriptBackend, TritonBackend
from inference_operator.state.parse_pods import parse_pod
from inference_operator.state.resources import PODS
from tests.builders import SETTINGS, a_job
from tests.unit.workers.test_pod import config_of, container_of, created, pod_of

WITH = msgspec.structs.replace(
    SETTINGS, backends=Backends(TritonBackend("localhost/triton:1", "python"), TorchScriptBackend("localhost/torch:1"))
)
TRITON = a_job(serve=True, backend=Backend.TRITON)


def test_triton_is_a_sidecar_so_that_batch_pods_end() -> None:
    pod = pod_of(a_job(backend=Backend.TRITON), settings=WITH)
    (sidecar,) = pod["spec"]["initContainers"]

    assert sidecar["restartPolicy"] == "Always"
    assert sidecar["image"] == "localhost/triton:1"
    assert "--model-control-mode=explicit" in sidecar["command"]
    assert "--http-address=127.0.0.1" in sidecar["command"]
    assert container_of(pod)["securityContext"] == sidecar["securityContext"]


def test_worker_and_server_share_the_repository_that_the_worker_is_told_of() -> None:
    pod = pod_of(TRITON, settings=WITH)
    (sidecar,) = pod["spec"]["initContainers"]
    config = config_of(pod)

    assert config.backend == "triton"
    assert config.triton is not None
    assert config.triton.platform == "python"
    for mounts in (sidecar["volumeMounts"], container_of(pod)["volumeMounts"]):
        assert {"name": "triton", "mountPath": config.triton.repository} in mounts
    assert {v["name"] for v in pod["spec"]["volumes"]} >= {"triton", "triton-shm", "tmp"}


def test_the_device_goes_to_the_server_and_the_whole_pod_is_counted() -> None:
    made = created(TRITON, accelerator="gpu", settings=WITH)
    (sidecar,) = made.manifest["spec"]["initContainers"]
    front = container_of(made.manifest)["resources"]

    assert "nvidia.com/gpu" in sidecar["resources"]["limits"]
    assert set(front["requests"]) <= {"cpu", "memory"}
    raw = {**made.manifest, "metadata": {**made.manifest["metadata"], "uid": "u"}}
    assert dict(made.assumed.requests) == {**parse_pod(raw).requests, PODS: 1}


def test_other_back_ends_have_no_sidecar_and_their_own_image() -> None:
    assert "initContainers" not in pod_of(a_job(), settings=WITH)["spec"]
    assert config_of(pod_of(a_job(), settings=WITH)).triton is None


def test_a_sidecar_whose_image_does_not_come_is_the_pods_problem() -> None:
    pod = pod_of(TRITON, settings=WITH)
    waits = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    raw = {
        **pod,
        "metadata": {**pod["metadata"], "uid": "u"},
        "status": {"initContainerStatuses": [{"name": "tritonserver", "state": waits}]},
    }

    problem = parse_pod(raw).problem

    assert problem is not None
    assert (problem.reason, problem.message) == ("ImagePullBackOff", "no such image")
