"""Bad input: one clear condition that names cause and cure, no crash loop, no effect on other jobs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from examples.demo.cluster import Kubectl
from tests.e2e.conftest import Space
from tests.e2e.support import Manifest, a_batch, a_job, condition, wait_reason, workers

ZERO = "sha256:" + "0" * 64


@dataclass(frozen=True)
class Case:
    """A bad job, the reason it must get, and a part of what its message must say."""

    name: str
    reason: str
    says: str
    spec: dict[str, Any] = field(default_factory=dict)
    retried: bool = False


CASES = [
    Case("unknown-model", "ModelUnknown", "there is no InferenceModel 'nope'", {"model": "nope"}, retried=True),
    Case("unknown-version", "ModelVersionUnknown", "it has 1", {"modelVersion": "9"}, retried=True),
    Case("digest-differs", "InvalidSpec", "correct modelDigest", {"modelDigest": ZERO}, retried=True),
    Case(
        "digest-mismatch",
        "ModelDigestMismatch",
        "restore the file, or update the digest",
        {"model": "pvc://data/digits/model.onnx", "modelDigest": ZERO},
    ),
    Case("model-missing", "ModelNotFound", "does not exist", {"model": "pvc://data/nothing.onnx"}),
    Case("model-empty", "ModelCorrupt", "empty", {"model": "pvc://data/bad/empty.onnx"}),
    Case("model-truncated", "ModelCorrupt", "is the file whole", {"model": "pvc://data/bad/truncated.onnx"}),
    Case("model-random", "ModelCorrupt", "is the file whole", {"model": "pvc://data/bad/random.onnx"}),
    Case("model-html", "ModelFormatUnsupported", "was an error page saved", {"model": "pvc://data/bad/page.onnx"}),
    Case("input-missing", "InputNotFound", "check claim and path", {"input": {"uri": "pvc://data/nothing.npy"}}),
    Case("input-shape", "InputInvalid", "but the model wants", {"input": {"uri": "pvc://data/bad/shape.npy"}}),
    Case("input-type", "InputInvalid", "but the model wants", {"input": {"uri": "pvc://data/bad/type.npy"}}),
    Case("input-empty", "InputInvalid", "holds no items", {"input": {"uri": "pvc://data/bad/none.npy"}}),
    Case("input-nan", "InputInvalid", "item 3", {"input": {"uri": "pvc://data/bad/nan.npy"}}),
    Case("input-symlink", "UriForbidden", "link out of its volume", {"input": {"uri": "pvc://data/bad/link.npy"}}),
    Case(
        "output-readonly", "OutputUnwritable", "must be allowed to write", {"output": {"uri": "pvc://data/bad/out"}}, retried=True
    ),
    Case("output-taken", "OutputConflict", "choose another output", {"output": {"uri": "pvc://data/out/taken"}}),
    Case("claim-missing", "VolumeUnavailable", "create the claim", {"output": {"uri": "pvc://nowhere/out"}}, retried=True),
    Case(
        "too-large",
        "NoNodeFits",
        "lower the request, change nodeSelector",
        {"resources": {"requests": {"cpu": "1000"}}},
        retried=True,
    ),
    Case(
        "metadata-address",
        "InvalidSpec",
        "link-local",
        {"model": "http://169.254.169.254/latest/meta-data", "modelDigest": ZERO},
    ),
    Case(
        "unreachable",
        "ModelUnreachable",
        "host 'models.invalid' is unknown",
        {"model": "http://models.invalid/model.onnx", "modelDigest": ZERO, "maxAttempts": 1},
    ),
    Case(
        "past-and-firm", "DeadlineExceeded", "set a later deadline", {"deadline": "2020-01-01T00:00:00Z", "deadlinePolicy": "Firm"}
    ),
    Case("no-backend", "BackendUnavailable", "use backend: auto", {"backend": "torchscript"}),
]


def prepare_bad_files(folder: Path) -> None:
    bad = folder / "bad"
    bad.mkdir()
    whole = (folder / "digits" / "model.onnx").read_bytes()
    (bad / "empty.onnx").write_bytes(b"")
    (bad / "truncated.onnx").write_bytes(whole[: len(whole) // 2])
    (bad / "random.onnx").write_bytes(np.random.default_rng(7).bytes(4096))
    (bad / "page.onnx").write_text("<html>404 Not Found</html>")
    np.save(bad / "shape.npy", np.zeros((4, 63), np.float32))
    np.save(bad / "type.npy", np.array([["a"] * 64]))
    np.save(bad / "none.npy", np.zeros((0, 64), np.float32))
    holey = np.zeros((8, 64), np.float32)
    holey[3, 5] = np.nan
    np.save(bad / "nan.npy", holey)
    (bad / "link.npy").symlink_to("/etc/passwd")
    (bad / "out").mkdir(mode=0o755)
    attempts = folder / "out" / "taken" / "attempts"
    attempts.mkdir(parents=True)
    for path in (attempts.parent, attempts):
        path.chmod(0o777)
    (attempts / "00000000-1.jsonl").write_text('{"job":"x/other","uid":"u","modelDigest":"d","input":"i","total":1}\n')


def restarts_of(kube: Kubectl) -> dict[str, str]:
    """How often each of the operator's pods was started anew."""
    path = "{range .items[*]}{.metadata.name}={.status.containerStatuses[0].restartCount} {end}"
    told = kube.run("get", "pods", "-n", "inference-system", "-o", f"jsonpath={path}")
    return dict(pair.split("=") for pair in told.split())


@pytest.fixture(scope="module")
def restarts(kube: Kubectl) -> dict[str, str]:
    """Before any of the jobs here: other tests kill operators."""
    return restarts_of(kube)


@pytest.fixture(scope="module")
def applied(restarts: dict[str, str], space: Space) -> Space:
    prepare_bad_files(space.folder)
    jobs: list[Manifest] = [a_batch(case.name, **case.spec) for case in CASES]
    space.kube.apply(*jobs, a_batch("good"))
    return space


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_bad_input_gets_one_clear_condition(case: Case, applied: Space) -> None:
    job = wait_reason(applied.kube, case.name, case.reason, seconds=90)

    assert case.says in condition(job, "Ready")["message"]
    if not case.retried:
        assert condition(job, "Stalled")["status"] == "True"
        assert condition(job, "Succeeded")["status"] == "False"


def test_a_good_job_among_the_bad_ones_succeeds(applied: Space) -> None:
    applied.kube.wait("good", "Succeeded")


def test_a_permanent_fault_is_tried_once(applied: Space) -> None:
    for case in CASES:
        if case.retried or case.name in ("metadata-address", "past-and-firm", "no-backend"):
            continue
        wait_reason(applied.kube, case.name, case.reason)
        assert len(workers(applied.kube, case.name)) == 1, case.name


def test_the_operator_has_not_restarted(restarts: dict[str, str], applied: Space) -> None:
    # One that was on its way out at the start may be gone by now.
    now = {pod: count for pod, count in restarts_of(applied.kube).items() if pod in restarts}

    assert now and now.items() <= restarts.items()


def test_a_missing_model_that_turns_up_lets_the_job_go_on(applied: Space) -> None:
    kube = applied.kube
    kube.apply(a_batch("early", model="late-model"))
    wait_reason(kube, "early", "ModelUnknown")
    kube.apply(
        {
            "apiVersion": "inference.myorg/v1",
            "kind": "InferenceModel",
            "metadata": {"name": "late-model"},
            "spec": {"versions": [{"name": "1", "uri": "pvc://data/digits/model.onnx"}]},
        }
    )

    kube.wait("early", "Succeeded")


def test_a_quota_in_the_way_is_named_and_waited_for(other_space: Space) -> None:
    kube = other_space.kube
    quota = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "tight"}, "spec": {"hard": {"pods": "0"}}}
    kube.apply(quota)
    kube.run("wait", "--for=jsonpath={.status.hard.pods}=0", "resourcequota/tight", "--timeout=60s")
    kube.apply(a_batch("held"))

    job = wait_reason(kube, "held", "QuotaExceeded")
    assert "exceeded quota: tight" in condition(job, "Ready")["message"]

    kube.delete("resourcequota", "tight")
    kube.wait("held", "Succeeded")


def test_a_service_of_somebody_else_is_left_alone(other_space: Space) -> None:
    kube = other_space.kube
    theirs = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "taken"}, "spec": {"ports": [{"port": 80}]}}
    kube.apply(theirs)
    kube.apply(a_job("taken", serve={}))

    job = wait_reason(kube, "taken", "NameTaken")
    assert "delete it or rename the job" in condition(job, "Ready")["message"]
    assert kube.get("service", "taken")["spec"]["ports"][0]["port"] == 80
