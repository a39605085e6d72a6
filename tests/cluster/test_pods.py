"""What users write for pods, as the real API server takes it: amounts, claims, and pods that it finds invalid."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.client import jobs, models
from tests.cluster.objects import a_batch, a_model, condition
from tests.cluster.operators import make_node, until
from tests.cluster.test_volumes import nodes_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

BESIDE = "node-beside"


@pytest.fixture
def space(cluster: Cluster, installed: Installed, namespace: str) -> str:
    cluster.client.create(models(namespace), a_model())
    return namespace


@pytest.fixture
def node_beside(cluster: Cluster) -> Iterator[str]:
    make_node(cluster.client, BESIDE)
    yield BESIDE
    cluster.client.delete(f"/api/v1/nodes/{BESIDE}")


def a_claim(mode: str) -> Raw:
    resources = {"requests": {"storage": "1Gi"}}
    spec = {"accessModes": [mode], "storageClassName": "", "resources": resources}
    return {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"}, "spec": spec}


def test_amounts_without_quotes_reach_the_pod(cluster: Cluster, installed: Installed, space: str) -> None:
    """SeldonIO/seldon-core#1410: `cpu: 1` was refused."""
    amounts = {"cpu": 0.5, "memory": "1e9"}
    cluster.client.create(jobs(space), a_batch(resources={"requests": amounts}))

    requests = installed.worker(space)["spec"]["containers"][0]["resources"]["requests"]
    assert requests == {"cpu": "500m", "memory": "1e9"}


def test_a_pod_that_the_api_server_finds_invalid_stalls_its_job_in_its_words(
    cluster: Cluster, installed: Installed, space: str
) -> None:
    cluster.client.create(jobs(space), a_batch(resources={"requests": {"cpu": 2}, "limits": {"cpu": 1}}))

    job = installed.wait_reason(space, "PodInvalid", kind="Stalled")
    assert "must be less than or equal to cpu limit" in condition(job, "Stalled")["message"]


def placed_message(job: Raw) -> str:
    return next((one["message"] for one in job.get("status", {}).get("conditions", []) if one["type"] == "Placed"), "")


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
def test_two_jobs_on_one_disk_are_not_spread(
    cluster: Cluster, installed: Installed, space: str, node_beside: str, mode: str
) -> None:
    """kserve/kserve#3409. Without the claim the second would go to the emptier node."""
    cluster.client.create(f"/api/v1/namespaces/{space}/persistentvolumeclaims", a_claim(mode))
    cluster.client.create(jobs(space), a_batch("one", resources={"requests": {"cpu": 8}}))
    first = nodes_of(installed.worker(space, name="one"))
    cluster.client.create(jobs(space), a_batch("two"))

    if mode == "ReadWriteOnce":
        assert nodes_of(installed.worker(space, name="two")) == first
    else:
        # The reason may be FairShare: jobs of other tests' namespaces wait, too.
        words = "claim data with ReadWriteOncePod access mode, in use by one-"
        until(lambda: words in placed_message(installed.job(space, "two")), "word of the claim")
