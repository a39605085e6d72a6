"""The stream as gRPC's own client sees it: told, refused, told what is new, and told no more once it is gone."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from inference_operator.gateway import messages, server
from inference_operator.gateway.door import Door
from inference_operator.gateway.resources import resources
from inference_operator.gateway.server import Word, serve
from inference_operator.gateway.snapshot import Service
from inference_operator.observability import metrics

PATH = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
CLUSTERS = messages.type_url(messages.CLUSTER)


def say(word: Word, *models: str) -> None:
    services = [Service("default", model, "1", True, ()) for model in models]
    word.say(resources(services, {}, Door(8080, 1 << 20)))


@pytest.fixture
async def word() -> Word:
    return Word()


@pytest.fixture
async def stream(word: Word) -> AsyncIterator[Any]:
    ports: asyncio.Queue[int] = asyncio.Queue()
    serving = asyncio.create_task(serve(word, 0, ports.put_nowait))
    async with grpc.aio.insecure_channel(f"127.0.0.1:{await ports.get()}") as channel:
        yield channel.stream_stream(
            PATH,
            request_serializer=messages.DiscoveryRequest.SerializeToString,
            response_deserializer=messages.DiscoveryResponse.FromString,
        )()
    serving.cancel()


async def heard(stream: Any) -> Any:
    return await asyncio.wait_for(stream.read(), 10)


async def test_an_envoy_is_told_and_what_it_refuses_is_counted_and_said(
    word: Word, stream: Any, caplog: pytest.LogCaptureFixture
) -> None:
    refused = metrics.gateway_refusals_total._value.get()
    await stream.write(messages.DiscoveryRequest(type_url=CLUSTERS, node={"id": "envoy-7"}))
    # Nothing is known yet: who asks waits, and is not told that there is nothing.
    await asyncio.sleep(0.05)
    say(word, "m")

    first = await heard(stream)
    await stream.write(
        messages.DiscoveryRequest(type_url=CLUSTERS, response_nonce=first.nonce, error_detail={"code": 3, "message": "bad cluster"})
    )
    async with asyncio.timeout(60):
        while metrics.gateway_refusals_total._value.get() == refused:
            await asyncio.sleep(0.01)
    say(word, "m", "n")
    second = await heard(stream)

    assert [len(r.resources) for r in (first, second)] == [3, 5]
    assert metrics.gateway_refusals_total._value.get() == refused + 1
    assert "envoy-7" in caplog.text and "bad cluster" in caplog.text


async def test_a_word_that_comes_before_a_wait_for_it_begins_is_not_missed(word: Word) -> None:
    waiting = asyncio.ensure_future(word.changed())
    say(word, "m")

    await asyncio.wait_for(waiting, 10)


async def test_an_envoy_that_goes_is_no_longer_counted(word: Word, stream: Any) -> None:
    say(word)
    before = metrics.gateway_envoys._value.get()
    await stream.write(messages.DiscoveryRequest(type_url=CLUSTERS))
    await heard(stream)
    assert metrics.gateway_envoys._value.get() == before + 1

    stream.cancel()

    async with asyncio.timeout(10):
        while metrics.gateway_envoys._value.get() != before:
            await asyncio.sleep(0.01)


def test_an_envoy_that_is_to_go_loses_its_door_and_no_other_does() -> None:
    word = Word()
    word.say(resources([], {}, Door(8080, 1 << 20)), leaving=frozenset({"envoy-1"}))

    listeners = [set((word.of(name, "") or {})[messages.LISTENER]) for name in ("envoy-1", "envoy-2")]
    assert listeners == [{"self"}, {"self", "door"}]


async def test_whoever_waits_for_envoys_goes_on_once_they_have_answered(word: Word, stream: Any) -> None:
    await stream.write(messages.DiscoveryRequest(type_url=CLUSTERS))
    say(word, "m")
    told = await heard(stream)
    waiting = asyncio.create_task(word.taken())
    done, _ = await asyncio.wait([waiting], timeout=0.05)
    assert not done, "nobody has answered"

    await stream.write(messages.DiscoveryRequest(type_url=CLUSTERS, response_nonce=told.nonce))
    await asyncio.wait_for(waiting, 60)
    # What is new is waited for as well.
    say(word, "m", "n")
    again = asyncio.create_task(word.taken())
    done, _ = await asyncio.wait([again], timeout=0.05)
    assert not done
    stream.cancel()
    await asyncio.wait_for(again, 60)


async def test_an_envoy_that_hangs_holds_nobody_up_for_long(word: Word, stream: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "_TAKEN_SECONDS", 0.05)
    await stream.write(messages.DiscoveryRequest(type_url=CLUSTERS))
    say(word, "m")
    await heard(stream)

    await asyncio.wait_for(word.taken(), 60)
