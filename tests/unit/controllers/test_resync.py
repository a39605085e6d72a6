"""A complete list of all kinds: what it lacks is dropped, owners before what they own, and after every list."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import pytest

from inference_operator.controllers.resync import RestoredError, Resync
from inference_operator.errors import RefusedError, RetryableError
from inference_operator.kube.scope import Scope
from inference_operator.state.objects import Key
from inference_operator.state.store import Store
from tests.builders import a_job, a_node, a_pod

JOB = a_job(serve=True)
POD = a_pod(JOB)


class Bench:
    """A view of a node, a job and its worker, and an API server that has none of them any more."""

    def __init__(self, fails: str = "") -> None:
        self.done: list[str] = []
        self.store = Store()
        self.store.nodes["node-1"] = a_node("node-1")
        self.store.put_job(JOB)
        self.store.put_pod(POD)
        self.store.services[JOB.key] = JOB.uid
        kinds = ("job", "model", "node", "pod", "service", "slice", "volume", "claim", "autoscaler")
        self.informer = Mock(**{kind: self._take(kind) for kind in kinds})
        self.resync = Resync(Mock(list_pages=self._pages), self.store, self.informer, lambda _: None)
        self._fails = fails

    async def _pages(self, path: str, *, selector: str = "") -> AsyncIterator[list[dict[str, Any]]]:
        kind = path.rsplit("/", 1)[1]
        if kind == self._fails:
            raise RetryableError(kind)
        self.done.append(f"list {kind}")
        yield []

    def _take(self, kind: str) -> Any:
        def take(raw: dict[str, Any], *, gone: bool) -> None:
            assert gone
            self.done.append(f"drop {kind} {raw['metadata']['name']}")

        return take


async def test_nothing_is_dropped_before_every_kind_was_listed_and_owners_go_first() -> None:
    bench = Bench()
    await bench.resync.once()

    lists, drops = bench.done[:10], bench.done[10:]
    assert lists[0] == "list nodes" and lists[-1] == "list inferencejobs"
    assert drops == [f"drop job {JOB.key.name}", f"drop service {JOB.key.name}", f"drop pod {POD.key.name}", "drop node node-1"]


async def test_a_round_follows_each_list_of_kopfs_when_nothing_of_it_comes_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_operator.controllers.resync._CALM_SECONDS", 0.05)
    bench = Bench()
    running = asyncio.create_task(bench.resync.run(3600.0))

    async def rounds(count: int) -> None:
        while bench.done.count("list inferencejobs") < count:
            await asyncio.sleep(0.001)

    # kopf's first list comes after ours, and may be of nothing.
    await rounds(1)
    for _ in range(5):
        bench.resync.listed()
        await asyncio.sleep(0.02)
        assert bench.done.count("list inferencejobs") == 1
    await rounds(2)
    running.cancel()


async def test_where_a_list_fails_the_stale_object_of_those_before_it_go_all_the_same() -> None:
    bench = Bench("services")
    with pytest.raises(RetryableError):
        await bench.resync.once()

    assert bench.done[-2:] == [f"drop pod {POD.key.name}", "drop node node-1"]


async def test_a_namespace_that_can_not_be_listed_keeps_what_is_known_of_it_and_the_others_are_listed() -> None:
    bench = Bench()
    bench.store.put_job(replace(JOB, key=Key("elsewhere", "gone"), uid="uid-gone"))
    asked: list[str] = []

    async def pages(path: str, *, selector: str = "") -> AsyncIterator[list[dict[str, Any]]]:
        asked.append(path)
        if f"/namespaces/{JOB.key.namespace}/" in path:
            raise RefusedError(403, "Forbidden", "no Role")
        yield []

    scope = Scope((JOB.key.namespace, "elsewhere"))
    await Resync(Mock(list_pages=pages), bench.store, bench.informer, lambda _: None, scope).once()

    assert [done for done in bench.done if " job " in done or " pod " in done] == ["drop job gone"]
    assert "/apis/inference.myorg/v1/namespaces/elsewhere/inferencejobs" in asked


async def test_without_rights_in_the_cluster_the_list_has_failed() -> None:
    async def pages(path: str, *, selector: str = "") -> AsyncIterator[list[dict[str, Any]]]:
        raise RefusedError(403, "Forbidden", path)
        yield []

    with pytest.raises(RefusedError):
        await Resync(Mock(list_pages=pages), Store(), Mock(), lambda _: None, Scope(("team",))).once()


@pytest.mark.parametrize(
    ("version", "expected"), [("1001", pytest.raises(RestoredError)), ("1200", nullcontext()), ("1201", nullcontext())]
)
async def test_a_list_of_an_earlier_day_than_what_was_known_before_it_is_that_of_a_backup(
    version: str, expected: AbstractContextManager[object]
) -> None:
    """Whatever it says would be taken for old news, until as much has happened as since the backup."""
    bench = Bench()
    bench.store.nodes["node-1"] = replace(a_node("node-1"), uid="uid-node-1", resource_version="1200")
    listed = {"metadata": {"name": "node-1", "uid": "uid-node-1", "resourceVersion": version}}

    async def pages(path: str, *, selector: str = "") -> AsyncIterator[list[dict[str, Any]]]:
        yield [listed] if path.endswith("/nodes") else []

    with expected:
        await Resync(Mock(list_pages=pages), bench.store, Mock(), lambda _: None).once()
