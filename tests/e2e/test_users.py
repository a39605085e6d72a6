"""Pods under ids that the cluster chooses, as OpenShift does, and in user namespaces: the images' files and folders serve any user."""

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
import onnxruntime as ort
import pytest

from examples.demo.cluster import RELEASE, SYSTEM, Kubectl, build_images, install
from tests.e2e.conftest import Space
from tests.e2e.support import a_batch, a_job, assert_every_item_answered_once, condition, wait_reason, workers

# Of an OpenShift namespace's range, with the group that all its pods have.
USER, GROUP = 1000650000, 0


def _install(kube: Kubectl, images: Mapping[str, str], *settings: str) -> None:
    install(kube, images, settings=settings)
    replace(kube, namespace=SYSTEM).run("rollout", "status", f"deploy/{RELEASE}", "--timeout=60s")


@pytest.fixture(scope="module")
def images(kube: Kubectl) -> Iterator[dict[str, str]]:
    found = build_images()
    yield found
    _install(kube, found)


def truth(space: Space) -> np.ndarray:
    session = ort.InferenceSession(str(space.folder / "digits" / "model.onnx"), providers=["CPUExecutionProvider"])
    rows = next(iter(np.load(space.folder / "digits" / "heldout.npz").values()))
    (name,) = (one.name for one in session.get_inputs())
    answer: np.ndarray = session.run(None, {name: rows})[0]
    return answer


def test_operator_and_workers_run_as_any_user(kube: Kubectl, images: dict[str, str], space: Space) -> None:
    """The user is in no /etc/passwd and owns nothing: not a home, not a cache, not the code."""
    ids = f"runAsUser={USER},{{}}.runAsGroup={GROUP}"
    _install(
        kube,
        images,
        *(f"{where}.{ids.format(where)}" for where in ("worker.securityContext", "podSecurityContext")),
        f"worker.securityContext.fsGroup={USER}",
    )
    space.kube.apply(a_job("served", serve={"minReplicas": 1}), a_batch("once"))

    space.kube.wait("served", "Ready")
    space.kube.wait("once", "Succeeded")
    for name in ("served", "once"):
        for pod in workers(space.kube, name):
            assert pod["spec"]["securityContext"].items() >= {"runAsUser": USER, "runAsGroup": GROUP}.items()
    assert_every_item_answered_once(space.folder, "once", truth(space))
    assert {path.stat().st_uid for path in (space.folder / "out" / "once").iterdir()} == {USER}


def test_ids_that_are_left_out_are_the_images(kube: Kubectl, images: dict[str, str], space: Space) -> None:
    """What stands where OpenShift would fill them in: still restricted, and never root."""
    _install(kube, images, "worker.securityContext=null", "podSecurityContext.runAsUser=null,podSecurityContext.runAsGroup=null")
    space.kube.apply(a_batch("left-out"))

    space.kube.wait("left-out", "Succeeded")
    (pod,) = workers(space.kube, "left-out")
    assert pod["spec"]["securityContext"] == {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
    assert {path.stat().st_uid for path in (space.folder / "out" / "left-out").iterdir()} == {65532}


def test_user_namespaces_keep_workers_off_nodes_that_have_none(kube: Kubectl, images: dict[str, str], space: Space) -> None:
    """The local nodes' containerd is too old, and would pass over the wish in silence."""
    _install(kube, images, "worker.userNamespaces=true")
    space.kube.apply(a_batch("apart"))

    job = wait_reason(space.kube, "apart", "NoNodeFits")
    assert "container runtime without user namespaces" in condition(job, "Ready")["message"]
    assert workers(space.kube, "apart") == []
