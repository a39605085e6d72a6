"""What the operator takes in of Kueue, whom it wakes for it, and what it makes of a Kueue that isn't there."""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest

from inference_operator.controllers import kueue as module
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
        self.watches: Counter[str] = Counter()
        self.cut: dict[str, asyncio.Event] = {}
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
        if not self.served:
            raise NotFoundError(path)
        if kind == self.refused:
            raise RefusedError(403, "Forbidden", "no right")
        assert bool(selector) == (kind == "workloads")
        yield self.listed.get(kind, [])

    async def watch(self, path: str, *, selector: str = "") -> AsyncIterator[dict[str, Any]]:
        if not self.served:
            raise NotFoundError(path)
        self.watches[path] += 1
        cut = self.cut[path] = asyncio.Event()
        await cut.wait()
        return
        yield {}

    async def reaches(self, watches: int) -> None:
        """Wait until there have been so many watches."""
        async with asyncio.timeout(20):
            while sum(self.watches.values()) < watches:
                await asyncio.sleep(0)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Follow, once there was a look."""
        await self.kueue.once()
        following = asyncio.create_task(self.kueue.run())
        try:
            yield
        finally:
            following.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await following

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


API = "/apis/kueue.x-k8s.io/v1beta2"
TEAMS = [f"team-{number}" for number in range(30)]
# One for each namespace, one for flavors and one for classes.
WATCHES = len(TEAMS) + 2


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LOOK_SECONDS", 0.0)
    monkeypatch.setattr(module, "_PAUSE_SECONDS", 0.0)


@pytest.mark.usefixtures("quick")
async def test_a_watch_that_ends_has_its_own_list_read_again_and_no_other() -> None:
    bench = Bench(*TEAMS)
    async with bench.running():
        await bench.reaches(WATCHES)
        bench.asked.clear()
        path = f"{API}/namespaces/team-7/workloads"
        bench.cut[path].set()
        await bench.reaches(WATCHES + 1)

        assert bench.asked == [path] and bench.watches[path] == 2


@pytest.mark.usefixtures("quick")
async def test_the_list_of_one_namespace_says_nothing_of_another() -> None:
    bench = Bench("default", "other", workloads=[a_raw_workload()])
    async with bench.running():
        await bench.reaches(4)
        bench.listed = {}
        bench.cut[f"{API}/namespaces/other/workloads"].set()
        await bench.reaches(5)
        assert bench.store.queues.workloads

        bench.cut[f"{API}/namespaces/default/workloads"].set()
        await bench.reaches(6)
        assert not bench.store.queues.workloads


@pytest.mark.usefixtures("quick")
async def test_one_look_for_a_missing_kueue_is_for_all_who_wait_for_it() -> None:
    bench = Bench(*TEAMS)
    bench.served = False
    async with bench.running():
        async with asyncio.timeout(20):
            while len(bench.asked) < 5:
                await asyncio.sleep(0)
        assert set(bench.asked) == {API} and not bench.watches
        looks = len(bench.asked)
        bench.served = True
        await bench.reaches(WATCHES)

        # One more, and one list of each.
        assert bench.asked.count(API) == looks + 1
        assert len(bench.asked) == looks + 1 + WATCHES and set(bench.watches.values()) == {1}


@pytest.mark.usefixtures("quick")
async def test_a_kind_that_is_not_served_any_more_is_the_end_of_kueue() -> None:
    bench = Bench(workloads=[a_raw_workload()])
    async with bench.running():
        await bench.reaches(3)
        bench.served = False
        bench.cut[f"{API}/workloads"].set()
        async with asyncio.timeout(20):
            while bench.store.queues.api is not KueueApi.MISSING:
                await asyncio.sleep(0)

    assert bench.store.queues.of(JOB).workload is None


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
