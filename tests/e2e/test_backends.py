"""The same jobs on another back end: `backend: triton` changes what computes, and nothing that a user sees otherwise."""

import os
import signal
from pathlib import Path

import numpy as np
import pytest

from dev.venv import all_engines
from examples.demo.cluster import wait_for
from examples.demo.steps import answers, ask, client_of
from tests.e2e.conftest import Space
from tests.e2e.support import a_batch, a_job, a_slow_batch, kill_worker, progress, reason, workers

pytestmark = pytest.mark.skipif(not all_engines(), reason="INFERENCE_ENGINES=all builds Triton's image")
# Both run ONNX Runtime, in builds of their own: sums may come in another order.
TOLERANCE = 1e-5


def kill_triton(uid: str) -> None:
    """SIGKILL the tritonserver in a pod, which is found by the pod's cgroup."""
    for entry in Path("/proc").iterdir():
        try:
            command, cgroup = (entry / "cmdline").read_bytes(), (entry / "cgroup").read_text()
        except OSError:
            continue
        if command.startswith(b"tritonserver\0") and uid in cgroup.replace("_", "-"):
            os.kill(int(entry.name), signal.SIGKILL)
            return
    raise AssertionError(f"no tritonserver runs in pod {uid}")


def test_a_batch_has_the_same_answers_on_either_back_end_and_its_pod_ends(space: Space) -> None:
    kube = space.kube
    kube.apply(a_batch("plain", backend="onnx"), a_batch("by-triton", backend="triton"))

    plain, beside = kube.wait("plain", "Succeeded"), kube.wait("by-triton", "Succeeded")

    one, other = answers(space.folder, "plain"), answers(space.folder, "by-triton")
    assert one.keys() == other.keys()
    for name, values in one.items():
        np.testing.assert_allclose(other[name], values, atol=TOLERANCE)
    assert plain["status"]["placement"]["executionProvider"] == "CPUExecutionProvider"
    assert beside["status"]["placement"]["executionProvider"] == "TritonServer 2.51.0 python/onnxruntime CPUExecutionProvider"
    assert (beside["status"]["model"]["backend"], beside["status"]["model"]["backendReason"]) == ("triton", "spec.backend")
    wait_for(lambda: all(p["status"]["phase"] == "Succeeded" for p in workers(kube, "by-triton")), "the pod has ended")


def test_a_service_loses_ready_with_its_tritonserver_and_has_it_back_with_equal_answers(space: Space) -> None:
    kube = space.kube
    kube.apply(a_job("beside", backend="triton", batchSize=8, serve={}), a_job("direct", backend="onnx", batchSize=8, serve={}))
    kube.wait("beside", "Ready")
    kube.wait("direct", "Ready")
    rows = np.load(space.folder / "digits" / "heldout.npz")
    feeds = {"pixels": rows["pixels"][:8]}

    def told(name: str) -> np.ndarray:
        return ask(client_of(kube, name), "digits", feeds, "probabilities")

    np.testing.assert_allclose(told("beside"), told("direct"), atol=TOLERANCE)
    (pod,) = workers(kube, "beside")

    kill_triton(pod["metadata"]["uid"])
    wait_for(lambda: reason(kube.get("inferencejob", "beside")) != "Serving", "not serving")
    kube.wait("beside", "Ready")

    np.testing.assert_allclose(told("beside"), told("direct"), atol=TOLERANCE)
    (same,) = workers(kube, "beside")
    assert same["metadata"]["uid"] == pod["metadata"]["uid"]


def test_a_batch_outlives_its_tritonserver_and_then_its_worker(space: Space) -> None:
    kube = space.kube
    kube.apply(a_slow_batch("twice-struck", space.folder, backend="triton"))
    wait_for(lambda: progress(space.folder, "twice-struck") > 0, "first part")
    (pod,) = workers(kube, "twice-struck")
    kill_triton(pod["metadata"]["uid"])
    before = progress(space.folder, "twice-struck")
    wait_for(lambda: progress(space.folder, "twice-struck") > before, "it goes on")

    kill_worker(kube.get("inferencejob", "twice-struck")["metadata"]["uid"])

    kube.wait("twice-struck", "Succeeded")
    first, *_ = answers(space.folder, "twice-struck").values()
    assert len(first) == 2048
