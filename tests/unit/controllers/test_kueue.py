"""What the operator takes in of Kueue, whom it wakes for it, and what it makes of a Kueue that isn't there."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from inference_operator.controllers.kueue import Kueue
from inference_operator.errors import NotFoundError, RefusedError
from inference_operator.kube.scope import Scope
from inference_operator.queueing.workload import create_workload
from inference_operator.state.kueue import KueueApi
from inference_operator.state.objects import Key
from inference_operator.state.request import Request
from inference_operator.state.store import Store
from tests.builders import a_job, observed, resolved_of
from tests.kueues import QUEUED, kueue

JOB = a_job(queue_name="team")


def a_raw_workload(uid: str = "u", version: str = "5", **status: Any) -> dict[str, Any]:
    manifest = create_workload(resolved_of(observed(JOB, kueue=kueue()), QUEUED), QUEUED, {}, 0).manifest
    return {**manifest, "metadata": {**manifest["metadata"], "uid": uid, "resourceVersion": version}, "status": status}


class Bench:
    """A view with one batch in a queue, and a cluster that has these objects, by the last part of their path."""

    def __init__(self, *namespaces: str, **listed: list[dict[str, Any]]) -> None:
        self.listed = listed
        self.store = Store()
        self.store.put_job(JOB)
        self.store.put_job(a_job("plain"))
        self.woken: list[Request] = []
        self.asked: list[str] = []
        self.served = True
        self.refused = ""
        self.kueue = Kueue(self, self.store, self._wake, Scope(namespaces), resync_seconds=300)  # type: ignore[arg-type]

    def _wake(self, request: Request, /, *, urgent: bool = False) -> None:
        self.woken.append(request)

    async def get(self, path: str) -> dict[str, Any]:
        self.asked.append(path)
        if not self.served:
            raise NotFoundError(path)
        return {}

    async def list_pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[dict[str, Any]]]:
        self.asked.append(path)
        kind = path.rpartition("/")[2]
        if kind == self.refused:
            raise RefusedError(403, "Forbidden", "no right")
        assert bool(selector) == (kind == "workloads")
        yield self.listed.get(kind, [])

    @property
    def jobs(self) -> set[str]:
        found = {request.key.name for request in self.woken}
        self.woken.clear()
        return found


async def test_a_cluster_with_kueue_is_read_flavors_first() -> None:
    bench = Bench(
        workloads=[a_raw_workload()],
        resourceflavors=[{"metadata": {"name": "small", "uid": "f"}, "spec": {"nodeLabels": {"zone": "a"}}}],
        priorityclasses=[{"metadata": {"name": "high", "uid": "p"}, "value": 9}],
    )
    await bench.kueue.once()
    seen = bench.store.queues.of(JOB)

    assert [path.rpartition("/")[2] for path in bench.asked] == ["v1beta2", "resourceflavors", "priorityclasses", "workloads"]
    assert seen.api is KueueApi.SERVING
    assert seen.workload is not None
    assert seen.flavors["small"].node_labels == {"zone": "a"}
    assert seen.priorities == {"high": 9}
    # Only what is in a queue hears of it.
    assert bench.jobs == {"job"}


async def test_a_cluster_without_kueue_is_told_once() -> None:
    bench = Bench()
    bench.served = False
    await bench.kueue.once()

    assert bench.store.queues.api is KueueApi.MISSING
    assert bench.jobs == {"job"}
    await bench.kueue.once()
    assert bench.jobs == set()


async def test_a_kueue_that_is_removed_is_forgotten_and_comes_back() -> None:
    bench = Bench(workloads=[a_raw_workload()])
    await bench.kueue.once()
    bench.served = False
    await bench.kueue.once()
    assert bench.store.queues.of(JOB).workload is None

    bench.served = True
    await bench.kueue.once()
    assert bench.store.queues.of(JOB).workload is not None


async def test_what_a_list_lacks_is_gone() -> None:
    bench = Bench(workloads=[a_raw_workload()], resourceflavors=[{"metadata": {"name": "small", "uid": "f"}}],
        priorityclasses=[{"metadata": {"name": "high", "uid": "p"}, "value": 9}])  # fmt: skip
    await bench.kueue.once()
    bench.listed = {}
    await bench.kueue.once()

    assert (bench.store.queues.workloads, bench.store.queues.flavors, bench.store.queues.priorities) == ({}, {}, {})


async def test_rights_that_are_missing_are_an_error_and_change_nothing() -> None:
    bench = Bench(workloads=[a_raw_workload()])
    await bench.kueue.once()
    bench.refused = "workloads"
    with pytest.raises(RefusedError):
        await bench.kueue.once()

    assert bench.store.queues.api is KueueApi.SERVING
    assert bench.store.queues.of(JOB).workload is not None


async def test_without_rights_from_the_start_kueue_counts_as_missing() -> None:
    bench = Bench()
    bench.refused = "resourceflavors"
    await bench.kueue.once()

    assert bench.store.queues.api is KueueApi.MISSING


async def test_namespaces_are_read_one_by_one_and_flavors_once() -> None:
    bench = Bench("a", "b")
    await bench.kueue.once()

    assert [path for path in bench.asked if "workloads" in path] == [
        f"/apis/kueue.x-k8s.io/v1beta2/namespaces/{name}/workloads" for name in ("a", "b")
    ]
    assert bench.asked.count("/apis/kueue.x-k8s.io/v1beta2/resourceflavors") == 1


async def test_an_object_that_can_not_be_read_hides_no_other() -> None:
    bench = Bench(resourceflavors=[{"metadata": {"name": "odd", "uid": "o"}, "spec": {"nodeLabels": 7}}, {
        "metadata": {"name": "small", "uid": "f"}}])  # fmt: skip
    await bench.kueue.once()

    assert set(bench.store.queues.flavors) == {"small"}


def test_news_of_a_workload_wakes_its_job_and_old_news_nobody() -> None:
    bench = Bench()
    bench.kueue.workload(a_raw_workload(version="5"), gone=False)
    assert bench.jobs == {"job"}
    bench.kueue.workload(a_raw_workload(version="4", admission={"clusterQueue": "all"}), gone=False)
    assert bench.jobs == set()
    bench.kueue.workload(a_raw_workload(version="6", admission={"clusterQueue": "all"}), gone=False)
    assert bench.jobs == {"job"}


def test_the_end_of_another_workload_of_that_name_is_no_news() -> None:
    bench = Bench()
    bench.kueue.workload(a_raw_workload(), gone=False)
    bench.woken.clear()
    bench.kueue.workload(a_raw_workload("another"), gone=True)
    assert bench.jobs == set()
    bench.kueue.workload(a_raw_workload(), gone=True)
    assert bench.jobs == {"job"}
    assert bench.store.queues.of(JOB).workload is None


def test_a_workload_of_another_job_of_that_name_is_not_this_ones() -> None:
    bench = Bench()
    bench.kueue.workload(a_raw_workload(), gone=False)
    again = a_job(uid="next", queue_name="team")

    assert bench.store.queues.of(again).workload is None
    assert Key("default", "job") == again.key
