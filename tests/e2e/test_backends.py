"""The same jobs on other back ends: what computes changes, and nothing that a user sees otherwise, whoever is killed."""

import os
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import numpy as np
import pytest

from dev.venv import all_engines
from examples.demo.cluster import load, wait_for
from examples.demo.steps import answers, ask, client_of
from examples.models.index import hash_file
from inference_operator.api.names import LABEL_ATTEMPT
from tests.e2e.conftest import Space
from tests.e2e.support import (
    Manifest,
    a_batch,
    a_job,
    a_slow_batch,
    assert_every_item_answered_once,
    condition,
    has_progressed,
    kill_leader,
    kill_worker,
    progress,
    reason,
    truth_of_slow_batches,
    wait_reason,
    workers,
)
from tests.e2e.test_warm_pool import pool
from tests.process import models

pytestmark = pytest.mark.skipif(not all_engines(), reason="INFERENCE_ENGINES=all builds the images of the other back ends")
# Each has kernels of its own: sums come in another order.
TOLERANCE = 1e-5
ONNX = "CPUExecutionProvider"
TRITON = "TritonServer 2.51.0 python/onnxruntime CPUExecutionProvider"


def kill_in_pod(uid: str, program: str) -> None:
    """SIGKILL a program in a pod, which is found by the pod's cgroup."""
    for entry in Path("/proc").iterdir():
        try:
            command, cgroup = (entry / "cmdline").read_bytes(), (entry / "cgroup").read_text()
        except OSError:
            continue
        if Path(command.split(b"\0")[0].decode()).name == program and uid in cgroup.replace("_", "-"):
            os.kill(int(entry.name), signal.SIGKILL)
            return
    raise AssertionError(f"no {program} runs in pod {uid}")


def kill_server(uid: str) -> None:
    kill_in_pod(uid, "tritonserver")


def kill_model_process(uid: str) -> None:
    kill_in_pod(uid, "triton_python_backend_stub")


def torchscript_models(space: Space) -> Iterator[Manifest]:
    """The InferenceModels of the examples in TorchScript, pinned to what lies in the volume."""
    for model in load("11-models-torchscript.yaml", namespace=space.name):
        (version,) = model["spec"]["versions"]
        version["digest"] = f"sha256:{hash_file(space.folder / version['uri'].removeprefix('pvc://data/'))}"
        yield model


@pytest.fixture(scope="module")
def scripts(space: Space) -> Space:
    """The space with the examples in TorchScript beside those in ONNX."""
    from examples.torchscript import write_all

    write_all(space.folder)
    space.kube.apply(*torchscript_models(space))
    return space


EXAMPLES: dict[str, dict[str, Any]] = {
    "digits": {"batchSize": 32, "input": {"uri": "pvc://data/digits/heldout.npz"}},
    "magika": {"batchSize": 8, "input": {"uri": "pvc://data/magika/files.npy"}},
    "lane": {"model": "lane-detection-v2", "batchSize": 4, "input": {"uri": "pvc://data/lane/road.npy"}},
}


def test_the_examples_have_equal_answers_on_every_back_end_that_takes_their_model(scripts: Space) -> None:
    kube = scripts.kube
    wanted = {name: ("onnx", "triton", *(("auto",) if name != "magika" else ())) for name in EXAMPLES}
    for name, backends in wanted.items():
        for backend in backends:
            spec = {"model": name, **EXAMPLES[name], "backend": backend}
            kube.apply(a_batch(f"{name}-{backend}", **(spec | ({"model": f"{name}-torchscript"} if backend == "auto" else {}))))

    for name, (first, *others) in wanted.items():
        status = kube.wait(f"{name}-{first}", "Succeeded", seconds=180)["status"]
        assert status["placement"]["executionProvider"] == ONNX
        truth = answers(scripts.folder, f"{name}-{first}")
        for backend in others:
            status = kube.wait(f"{name}-{backend}", "Succeeded", seconds=180)["status"]
            told = answers(scripts.folder, f"{name}-{backend}")
            assert told.keys() == truth.keys()
            for output, values in truth.items():
                np.testing.assert_allclose(told[output], values, atol=TOLERANCE, err_msg=f"{name} on {backend}")
            ran, why, provider = (
                status["model"]["backend"],
                status["model"]["backendReason"],
                status["placement"]["executionProvider"],
            )
            if backend == "triton":
                assert (ran, why, provider) == ("triton", "spec.backend", TRITON)
            else:
                assert (ran, why) == ("torchscript", "auto: the model's format is torchscript")
                assert provider.startswith("TorchScript ") and provider.endswith(" CPU")
    ended = [f"{name}-triton" for name in EXAMPLES]
    wait_for(lambda: all(p["status"]["phase"] == "Succeeded" for job in ended for p in workers(kube, job)), "the pods have ended")


@dataclass
class Caller:
    """Asks a service for the same rows until told to stop; a service without a ready worker is no wrong answer."""

    space: Space
    job: str
    rows: np.ndarray
    truth: np.ndarray
    answered: int = 0
    wrong: list[np.ndarray] = field(default_factory=list)
    stopping: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        client = client_of(self.space.kube, self.job)
        while not self.stopping.is_set():
            try:
                told = ask(client, "digits", {"pixels": self.rows}, "probabilities")
            except Exception:  # noqa: BLE001 -- 503, or nobody listens: told, and not answered
                self.stopping.wait(0.05)
                continue
            self.answered += 1
            if not np.allclose(told, self.truth, atol=TOLERANCE):
                self.wrong.append(told)

    def __enter__(self) -> Self:
        self._thread = threading.Thread(target=self.run)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stopping.set()
        self._thread.join()

    def wait_answered(self, why: str) -> None:
        before = self.answered
        wait_for(lambda: self.answered > before, f"answers {why}")


def test_a_service_answers_alike_and_is_ready_only_while_its_tritonserver_is(scripts: Space) -> None:
    kube = scripts.kube
    serve = {"batchSize": 8, "serve": {}}
    kube.apply(a_job("beside", backend="triton", **serve), a_job("direct", backend="onnx", **serve))
    kube.apply(a_job("scripted", model="digits-torchscript", **serve))
    for name in ("beside", "direct", "scripted"):
        kube.wait(name, "Ready")
    rows = np.load(scripts.folder / "digits" / "heldout.npz")["pixels"][:8]
    truth = ask(client_of(kube, "direct"), "digits", {"pixels": rows}, "probabilities")
    told = ask(client_of(kube, "scripted"), "digits-torchscript", {"pixels": rows}, "probabilities")
    np.testing.assert_allclose(told, truth, atol=TOLERANCE)
    (pod,) = workers(kube, "beside")
    uid = pod["metadata"]["uid"]

    with Caller(scripts, "beside", rows, truth) as caller:
        caller.wait_answered("at first")
        kill_leader(kube)
        caller.wait_answered("without an operator")
        kill_model_process(uid)
        caller.wait_answered("by a new model process")
        kill_server(uid)
        wait_for(lambda: reason(kube.get("inferencejob", "beside")) != "Serving", "not serving")
        kube.wait("beside", "Ready")
        caller.wait_answered("by a new tritonserver")

    assert caller.wrong == []
    (same,) = workers(kube, "beside")
    assert same["metadata"]["uid"] == uid


def test_a_batch_outlives_server_model_process_operator_worker_and_pod(space: Space) -> None:
    kube, name = space.kube, "struck"
    kube.apply(a_slow_batch(name, space.folder, repeat=6, backend="triton"))

    def goes_on(since: int = 0) -> int:
        wait_for(lambda: progress(space.folder, name) > since and bool(workers(kube, name)), f"{name} is beyond {since}")
        return progress(space.folder, name)

    def newest() -> Manifest:
        return max((pod["metadata"] for pod in workers(kube, name)), key=lambda meta: int(meta["labels"][LABEL_ATTEMPT]))

    done = goes_on()
    for strike in (kill_server, kill_model_process, lambda _: kill_leader(kube)):
        strike(newest()["uid"])
        done = goes_on(done)
    kill_worker(kube.get("inferencejob", name)["metadata"]["uid"])
    done = goes_on(done)
    kube.run("delete", "pod", newest()["name"], "--grace-period=0", "--force")

    status = kube.wait(name, "Succeeded", seconds=180)["status"]

    assert (status["attempts"], status["failedAttempts"]) == (3, 1)
    assert_every_item_answered_once(space.folder, name, truth_of_slow_batches(space.folder, repeat=6))


def test_a_warm_pool_on_triton_starts_from_zero_outlives_its_server_and_goes_back(space: Space) -> None:
    kube, name = space.kube, "warmed"
    model = kube.get("inferencemodel", "magika")
    keep = {"min": 0, "max": 1, "idleSeconds": 5, "accelerator": "cpu", "claims": ["data"], "backend": "triton"}
    spec = {"versions": model["spec"]["versions"], "warmPool": keep}
    kube.apply({"apiVersion": model["apiVersion"], "kind": model["kind"], "metadata": {"name": "kept"}, "spec": spec})
    kube.apply(a_slow_batch(name, space.folder, repeat=6, model="kept", backend="triton"))
    for strike in (kill_server, kill_model_process):
        done = progress(space.folder, name)
        wait_for(partial(has_progressed, space.folder, name, least=done + 1), f"{name} is beyond {done}")
        (pod,) = pool(space, "kept")
        strike(pod["metadata"]["uid"])

    status = kube.wait(name, "Succeeded", seconds=180)["status"]

    assert (status["attempts"], status["placement"]["executionProvider"]) == (1, TRITON)
    assert status["placement"]["pod"] == pod["metadata"]["name"]
    assert not workers(kube, name)
    assert_every_item_answered_once(space.folder, name, truth_of_slow_batches(space.folder, repeat=6))
    wait_for(lambda: not pool(space, "kept"), "the pool is given back")


def test_a_batch_in_torchscript_is_handed_to_a_warm_worker(scripts: Space) -> None:
    kube = scripts.kube
    model = kube.get("inferencemodel", "digits-torchscript")
    spec = {"versions": model["spec"]["versions"], "warmPool": {"accelerator": "cpu", "claims": ["data"]}}
    kube.apply({"apiVersion": model["apiVersion"], "kind": model["kind"], "metadata": {"name": "scripted-pool"}, "spec": spec})
    kube.apply(a_batch("handed-over", model="scripted-pool"))

    status = kube.wait("handed-over", "Succeeded", seconds=180)["status"]

    assert status["placement"]["executionProvider"].startswith("TorchScript ")
    assert status["placement"]["pod"] in {pod["metadata"]["name"] for pod in pool(scripts, "scripted-pool")}
    assert not workers(kube, "handed-over")


@dataclass(frozen=True)
class Case:
    """A model that a back end does not take, the reason that its job must get, and a part of what the message must say."""

    name: str
    model: str
    backend: str
    reason: str
    says: str


CASES = [
    Case("triton-refuses", "pvc://data/bad/nowhere.onnx", "triton", "ModelRefused", "Triton refuses the model: "),
    Case("nothing-to-feed", "pvc://data/bad/constant.onnx", "triton", "ModelRefused", "use backend: onnx"),
    Case("another-signature", "another-signature", "auto", "SignatureMismatch", "correct the signature"),
    Case("pickled", "pickled", "auto", "ModelCorrupt", "export the model with torch.jit.save"),
]


@pytest.fixture(scope="module")
def refused(scripts: Space) -> Space:
    import torch

    bad = scripts.folder / "bad"
    bad.mkdir()
    (bad / "nowhere.onnx").write_bytes(models.identity(shape=["N", 0]))
    (bad / "constant.onnx").write_bytes(models.constant())
    torch.save({"weights": torch.zeros(3)}, bad / "pickled.pt", _use_new_zipfile_serialization=False)
    digits, lane = torchscript_models(scripts)
    (of_digits,), (of_lane,) = digits["spec"]["versions"], lane["spec"]["versions"]
    pickled = {"uri": "pvc://data/bad/pickled.pt", "digest": f"sha256:{hash_file(bad / 'pickled.pt')}"}
    digits["metadata"]["name"], lane["metadata"]["name"] = "another-signature", "pickled"
    of_digits |= {"uri": of_lane["uri"], "digest": of_lane["digest"]}
    of_lane |= pickled
    scripts.kube.apply(digits, lane)
    scripts.kube.apply(*(a_job(case.name, model=case.model, backend=case.backend, serve={}) for case in CASES))
    return scripts


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_model_that_a_back_end_does_not_take_is_told_in_one_condition(case: Case, refused: Space) -> None:
    job = wait_reason(refused.kube, case.name, case.reason)

    assert case.says in condition(job, "Ready")["message"]
    assert condition(job, "Stalled")["status"] == "True"
