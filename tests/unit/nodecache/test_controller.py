"""The leader tells nodes what they should have, by real sockets; whoever answers wrongly costs its own service a wait at most."""

import asyncio
from datetime import datetime, timedelta

import msgspec
import pytest
from aiohttp import web

from inference_operator.kube.key_secret import KeySecret
from inference_operator.nodecache import controller
from inference_operator.nodecache.controller import NodeCaches
from inference_operator.nodecache.prefetch import orders
from inference_operator.runtime.bounded_http import BoundedHttp
from inference_operator.settings import NodeCache
from inference_operator.state.node_caches import CacheState, NodeAgent, Prefetch
from inference_operator.state.objects import Key
from inference_operator.state.request import Request, job_request
from inference_operator.state.store import Store
from inference_protocol.messages import ModelSource, encode
from inference_protocol.node_cache import SIGNATURE_HEADER, CachedModel, Wanted, WantedModel, WantedState, signature
from tests.builders import DIGEST, NOW, OTHER_DIGEST, a_job
from tests.simulation.api import At, SimulatedApi
from tests.unit.runtime.test_bounded_http import Handler, serving


class Clock:
    def __init__(self) -> None:
        self.seconds = 0.0

    def now(self) -> datetime:
        self.seconds += 1
        return NOW + timedelta(seconds=self.seconds)


JOB = a_job(serve=True)
MODEL = WantedModel("default", ModelSource("m", "1", "https://models.example/m", DIGEST))


def ask(
    handler: Handler, monkeypatch: pytest.MonkeyPatch, *, rounds: int = 1, prefetch: bool = True
) -> tuple[Store, list[Request]]:
    """Run rounds against a cache on node-1 that answers so; returns the store and who was woken."""
    store = Store()
    woken: list[Request] = []
    store.put_job(JOB)

    async def main() -> None:
        api = SimulatedApi()
        api.put(At("secrets", "system", "key"), {"metadata": {"name": "key"}})
        async with BoundedHttp() as http, serving(handler) as port:
            monkeypatch.setattr(controller, "PORT", port)
            caches = NodeCaches(store, http, Clock(), KeySecret(api, "system", "key", "f"), NodeCache(), woken.append)  # type: ignore[arg-type]
            await caches.open()
            KEYS.append(caches._opened)
            store.node_caches[Key("system", "c")] = NodeAgent("node-1", "127.0.0.1")
            if prefetch:
                store.want_in_caches(JOB.key, Prefetch(MODEL, frozenset({"node-1"})))
            for _ in range(rounds):
                await caches.round()

    asyncio.run(main())
    return store, woken


KEYS: list[bytes] = []


def answering(*models: CachedModel) -> Handler:
    async def handler(request: web.Request) -> web.Response:
        body = await request.read()
        assert request.headers[SIGNATURE_HEADER] == signature(KEYS[-1], body)
        assert msgspec.json.decode(body, type=Wanted).models == (MODEL,)
        return web.Response(body=encode(WantedState(models)))

    return handler


def test_what_a_cache_answers_is_kept_and_its_service_woken_once(monkeypatch: pytest.MonkeyPatch) -> None:
    store, woken = ask(answering(CachedModel("default", DIGEST, "Cached")), monkeypatch, rounds=3)

    assert store.node_models["node-1"]["default", DIGEST].state is CacheState.CACHED
    assert woken == [job_request(JOB.key)]
    seen = store.observe(JOB.key)
    assert seen is not None and seen.node_models["node-1"][DIGEST].state is CacheState.CACHED


def test_the_time_since_when_a_node_should_have_a_model_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = ask(answering(CachedModel("default", DIGEST, "Fetching")), monkeypatch, rounds=3)
    first, _ = ask(answering(CachedModel("default", DIGEST, "Fetching")), monkeypatch)

    assert store.node_models["node-1"]["default", DIGEST].since == first.node_models["node-1"]["default", DIGEST].since


def test_a_cache_that_answers_of_other_models_has_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    store, _ = ask(answering(CachedModel("other", DIGEST, "Cached"), CachedModel("default", OTHER_DIGEST, "Cached")), monkeypatch)

    assert store.node_models["node-1"].keys() == {("default", DIGEST)}
    assert store.node_models["node-1"]["default", DIGEST].state is CacheState.FAILED


@pytest.mark.parametrize("answer", [web.Response(status=500), web.Response(body=b"x" * (2 << 20)), web.Response(body=b"{")])
def test_a_cache_that_answers_nothing_of_use_has_failed(monkeypatch: pytest.MonkeyPatch, answer: web.Response) -> None:
    async def handler(_: web.Request) -> web.Response:
        return web.Response(status=answer.status, body=answer.body)

    store, woken = ask(handler, monkeypatch)

    assert store.node_models["node-1"]["default", DIGEST].state is CacheState.FAILED and woken


def test_a_node_that_should_have_nothing_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    async def handler(_: web.Request) -> web.Response:
        raise AssertionError

    store, woken = ask(handler, monkeypatch, rounds=2, prefetch=False)

    assert not store.node_models and not woken


def test_no_namespace_crowds_others_out_of_an_order() -> None:
    def wanted(namespace: str, number: int) -> Prefetch:
        return Prefetch(WantedModel(namespace, ModelSource("m", str(number), "https://m/m", DIGEST)), frozenset({"n"}))

    many = [wanted("a", number) for number in range(10)]
    (found,) = orders([*many, wanted("b", 0)], ["n"], most=4).values()

    assert [model.namespace for model in found] == ["a", "b", "a", "a"]
