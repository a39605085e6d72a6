"""The example of quotas and limits on a real API server: jobs of all kinds fit, and whoever wants more is told what is in the way."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.cluster.client import jobs, models, pods
from tests.cluster.objects import a_batch, a_job, a_model, condition
from tests.cluster.operators import REPOSITORY, SUCCESS, until

if TYPE_CHECKING:
    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

EXAMPLE = REPOSITORY / "examples" / "quotas.yaml"


def restrict(cluster: Cluster, namespace: str, *objects: Raw) -> None:
    """Apply quotas and limits. No quota controller runs here: what it would set is set."""
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=yaml.safe_dump_all(objects))
    for one in objects:
        if one["kind"] == "ResourceQuota":
            hard = one["spec"]["hard"]
            path = f"/api/v1/namespaces/{namespace}/resourcequotas/{one['metadata']['name']}/status"
            cluster.client.merge(path, {"status": {"hard": hard, "used": dict.fromkeys(hard, "0")}})


def example() -> list[Raw]:
    return list(yaml.safe_load_all(EXAMPLE.read_text()))


def used(cluster: Cluster, namespace: str) -> dict[str, str]:
    found: dict[str, str] = cluster.client.get(f"/api/v1/namespaces/{namespace}/resourcequotas/inference")["status"]["used"]
    return found


@pytest.fixture
def space(cluster: Cluster, installed: Installed, namespace: str) -> str:
    """A namespace with the example in it."""
    restrict(cluster, namespace, *example())
    cluster.client.create(models(namespace), a_model())
    return namespace


def test_jobs_of_all_kinds_fit_and_both_containers_of_triton_count(cluster: Cluster, installed: Installed, space: str) -> None:
    names = ("batch", "service", "triton")
    for job in (a_batch("batch"), a_job("service"), a_batch("triton", backend="triton")):
        cluster.client.create(jobs(space), job)
    batch, service, triton = (installed.worker(space, name=name)["spec"] for name in names)
    (worker,), (server,) = triton["containers"], triton["initContainers"]

    assert [spec["containers"][0]["resources"]["limits"] for spec in (batch, service)] == [{"memory": "512Mi"}] * 2
    assert (worker["resources"]["requests"]["cpu"], server["resources"]["requests"]["cpu"]) == ("100m", "500m")
    assert worker["resources"]["limits"] == server["resources"]["limits"] == {"memory": "512Mi"}
    assert used(cluster, space).items() >= {"pods": "3", "requests.cpu": "1600m", "limits.memory": "2Gi"}.items()
    assert used(cluster, space)["count/inferencejobs.inference.myorg"] == "3"

    for name in ("batch", "triton"):
        installed.play(space, SUCCESS, name=name)
        installed.wait_reason(space, "Succeeded", name=name)


@pytest.mark.parametrize(
    ("spec", "reason", "says"),
    [
        pytest.param(
            {"resources": {"requests": {"cpu": "17"}}}, "QuotaExceeded", "limited: requests.cpu=16", id="more than the namespace"
        ),
        pytest.param(
            {"resources": {"requests": {"memory": "20Gi"}}},
            "PodRefused",
            "maximum memory usage per Container is 16Gi, but limit is 20Gi",
            id="more than a worker",
        ),
        pytest.param(
            {"backend": "triton", "resources": {"requests": {"memory": "13Gi"}}},
            "PodRefused",
            "maximum memory usage per Pod is 24Gi, but limit is",
            id="more than a worker with Triton beside it",
        ),
    ],
)
def test_who_wants_more_is_told_the_number_in_the_way(
    cluster: Cluster, installed: Installed, space: str, spec: Raw, reason: str, says: str
) -> None:
    cluster.client.create(jobs(space), a_batch(**spec))

    job = installed.wait_reason(space, reason)
    assert says in condition(job, "Placed")["message"]
    assert cluster.client.get(pods(space))["items"] == []


def test_a_job_too_many_is_refused_when_it_is_applied(cluster: Cluster, installed: Installed, namespace: str) -> None:
    """Jobs that wait take memory of the API server and of the operator: their number is bounded, too."""
    quota, _ = example()
    quota["spec"]["hard"] = {"count/inferencejobs.inference.myorg": "1"}
    restrict(cluster, namespace, quota)
    cluster.client.create(jobs(namespace), a_job("one", suspend=True))

    more = (a_job(f"more-{number}", suspend=True) for number in itertools.count())

    def refusal() -> str | None:
        answer = cluster.client.call("POST", jobs(namespace), next(more))
        return None if answer.ok else answer.message

    # The API server obeys a quota some time after it was made.
    message = until(refusal, "a refusal")
    assert "exceeded quota: inference" in message and "count/inferencejobs.inference.myorg=1" in message


@pytest.mark.parametrize(
    ("change", "says"),
    [
        pytest.param({"quota": {"limits.cpu": "16"}}, "must specify limits.cpu", id="a quota on limits.cpu"),
        pytest.param({"default": {"cpu": "200m"}}, "must be less than or equal to cpu limit", id="a default limit on CPU"),
    ],
)
def test_a_limit_that_no_worker_can_keep_is_named(
    cluster: Cluster, installed: Installed, namespace: str, change: dict[str, Raw], says: str
) -> None:
    """What the example warns of."""
    quota, limits = example()
    quota["spec"]["hard"] |= change.get("quota", {})
    limits["spec"]["limits"][0]["default"] |= change.get("default", {})
    restrict(cluster, namespace, quota, limits)
    cluster.client.create(models(namespace), a_model())
    cluster.client.create(jobs(namespace), a_batch())

    def told() -> str | None:
        message = str(condition(installed.job(namespace), "Placed").get("message", ""))
        return message if says in message else None

    until(told, says)
