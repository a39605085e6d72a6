"""A worker goes where its data can be mounted: volumes of one zone, as the real API server has them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.cluster.client import jobs, models
from tests.cluster.conftest import make_namespace
from tests.cluster.objects import a_batch, a_model, condition
from tests.cluster.operators import make_node

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.cluster.client import Raw
    from tests.cluster.conftest import Cluster
    from tests.cluster.operators import Installed

ZONE = "topology.kubernetes.io/zone"
FAR = "node-in-zone-b"


@pytest.fixture
def space(cluster: Cluster, installed: Installed) -> str:
    name = make_namespace(cluster.client)
    cluster.client.create(models(name), a_model())
    return name


@pytest.fixture
def zonal(cluster: Cluster, space: str) -> Iterator[str]:
    """The claim `data`, bound to a volume that only zone b can mount."""
    name = f"of-{space}"
    term = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["b"]}]}
    spec = {
        "capacity": {"storage": "1Gi"},
        "accessModes": ["ReadWriteMany"],
        "hostPath": {"path": "/tmp/of-this-test"},
        "claimRef": {"namespace": space, "name": "data"},
        "nodeAffinity": {"required": {"nodeSelectorTerms": [term]}},
    }
    cluster.client.create("/api/v1/persistentvolumes", {"metadata": {"name": name}, "spec": spec})
    cluster.client.merge(f"/api/v1/persistentvolumes/{name}/status", {"status": {"phase": "Bound"}})
    yield name
    cluster.client.delete(f"/api/v1/persistentvolumes/{name}")


@pytest.fixture
def far_node(cluster: Cluster) -> Iterator[str]:
    make_node(cluster.client, FAR, {ZONE: "b"})
    yield FAR
    cluster.client.delete(f"/api/v1/nodes/{FAR}")


def nodes_of(pod: Raw) -> list[str]:
    (term,) = pod["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    (field,) = term["matchFields"]
    found: list[str] = field["values"]
    return found


def test_a_job_goes_to_the_zone_of_its_volume(
    cluster: Cluster, installed: Installed, space: str, zonal: str, far_node: str
) -> None:
    cluster.client.create(jobs(space), a_batch())

    assert nodes_of(installed.worker(space)) == [far_node]


def test_a_job_whose_volume_no_node_can_mount_is_told_so_and_goes_on_when_one_comes(
    cluster: Cluster, installed: Installed, space: str, zonal: str, request: pytest.FixtureRequest
) -> None:
    cluster.client.create(jobs(space), a_batch())

    job = installed.wait_reason(space, "NoNodeFits", kind="Placed")
    told = condition(job, "Placed")["message"]
    assert f"node(s) had volume node affinity conflict (claim data: {ZONE}=b)" in told

    far = request.getfixturevalue("far_node")
    assert nodes_of(installed.worker(space)) == [far]
