"""Answers that are given again: to whom, for what, and for how long."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from inference_worker.cache.steady import why_not
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.model import Loaded
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.cache.cached import ONE_BY_ONE, a_cached, binary, mark_of, values_of
from tests.unit.worker.scripted_engines import Formula, Scripted
from tests.unit.worker.states import FACTS

if TYPE_CHECKING:
    from inference_protocol.messages import ModelSource

ONE = infer_json([[1, 2]])
OTHER = infer_json([[1, 3]])


async def test_the_same_again_is_answered_without_a_run_and_says_so() -> None:
    engine = Scripted()
    cached = await a_cached(engine)

    first, second, other = [await cached.infer(body) for body in (ONE, ONE, OTHER)]

    assert [mark_of(each) for each in (first, second, other)] == ["", "hit", ""]
    assert first.body == second.body and values_of(other) == [2, 6]
    assert engine.firsts == [[1], [1]]
    assert cached.results == {"hit": 1, "miss": 2}
    assert cached.counts.saved_seconds > 0


async def test_an_id_a_deadline_and_a_priority_are_no_part_of_what_is_asked() -> None:
    cached = await a_cached(Scripted())
    await cached.infer(ONE)

    again = await cached.infer(
        infer_json([[1, 2]], id="mine", parameters={"timeout": 10_000_000, "priority": 7}), **{"inference-timeout-ms": "9000"}
    )

    assert mark_of(again) == "hit" and json.loads(again.body)["id"] == "mine"


async def test_json_and_binary_share_their_answers() -> None:
    cached = await a_cached(Scripted())
    body, headers = binary(np.array([[1, 2]], np.float32), "FP32")

    await cached.infer(ONE)
    replies = [await cached.infer(body, **headers) for _ in range(2)]

    assert [mark_of(reply) for reply in replies] == ["hit", "hit"]
    assert replies[0].body[-8:] == np.array([2, 4], np.float32).tobytes()


async def test_other_outputs_are_another_answer() -> None:
    cached = await a_cached(models.two_outputs(), warm=None)
    asks: list[list[str]] = [[], ["same"], ["negated"], ["negated", "same"]]
    bodies = [infer_json([[1, 2]], outputs=[{"name": name} for name in names]) for names in asks]

    assert [mark_of(await cached.infer(body)) for body in bodies] == [""] * 4
    for names, body in zip(asks, bodies, strict=True):
        reply = await cached.infer(body)
        assert mark_of(reply) == "hit"
        assert [output["name"] for output in json.loads(reply.body)["outputs"]] == (names or ["same", "negated"])


async def test_classes_are_made_of_a_kept_answer_too() -> None:
    cached = await a_cached(Scripted())
    await cached.infer(ONE)

    best = await cached.infer(infer_json([[1, 2]], outputs=[{"name": "y", "parameters": {"classification": 1}}]))
    more = await cached.infer(infer_json([[1, 2]], outputs=[{"name": "y", "parameters": {"classification": 2}}]))

    # Asked for by its name, an output is another question than all of them.
    assert [mark_of(each) for each in (best, more)] == ["", "hit"]
    assert values_of(best) == ["4.000000:1"] and values_of(more) == ["4.000000:1", "2.000000:0"]


async def test_a_tenant_never_gets_another_tenants_answer() -> None:
    engine = Scripted()
    cached = await a_cached(engine)
    tenants = [{"inference-tenant": text} for text in ("acme;weight=2", "acme", "other;rows=100")]

    replies = [await cached.infer(ONE, **headers) for headers in (*tenants, {}, {})]

    assert [mark_of(reply) for reply in replies] == ["", "hit", "", "", "hit"]
    assert len(engine.seen) == 3


async def test_a_tenant_that_is_named_wrongly_is_refused_though_its_answer_is_kept() -> None:
    cached = await a_cached(Scripted())
    await cached.infer(ONE)

    assert (await cached.infer(ONE, **{"inference-tenant": "acme;wait=2"})).status == 400


async def test_answers_that_are_kept_count_as_rows_and_as_no_seconds_of_the_device() -> None:
    """To hash and to compare takes the worker's time, which others wait for."""
    cached = await a_cached(Scripted())

    rows = [(await cached.infer(ONE, **{"inference-tenant": "acme;rows=2"})).status for _ in range(20)]
    device = [(await cached.infer(ONE, **{"inference-tenant": "other;device=0.5"})).status for _ in range(20)]

    assert rows[:2] == [200, 200] and 429 in rows
    assert device == [200] * 20


async def test_another_tenants_run_under_way_does_not_even_show_in_time() -> None:
    """Whoever waited for it would learn that somebody asks the same."""
    engine = Scripted(held=True)
    cached = await a_cached(engine)

    asked = [cached.asking(ONE, **{"inference-tenant": tenant}) for tenant in ("a", "b", "a", "b")]
    await engine.begun()
    assert cached.state.model is not None and cached.state.model.batcher.waiting == 1
    engine.let()
    replies = [await asking.reply() for asking in asked]

    assert [mark_of(reply) for reply in replies] == ["", "", "coalesced", "coalesced"]
    assert len(engine.seen) == 2


async def test_another_version_is_never_answered_from_the_old_ones_digest() -> None:
    engine, newer = Scripted(), Formula(lambda x: x * 3)
    cached = await a_cached(engine)
    await cached.infer(ONE)

    async def load(source: ModelSource) -> Loaded:
        return Loaded(source, newer, ONE_BY_ONE, msgspec.structs.replace(FACTS, digest="sha256:" + "b" * 64))

    cached.state.repository._load = load
    await cached.state.repository.load("net")
    replies = [await cached.infer(ONE) for _ in range(2)]

    assert [(mark_of(reply), values_of(reply)) for reply in replies] == [("", [3, 6]), ("hit", [3, 6])]


async def test_a_run_of_the_old_version_answers_nobody_who_asks_the_new_one() -> None:
    engine, newer = Scripted(held=True), Formula(lambda x: x * 3)
    cached = await a_cached(engine)
    before = cached.asking(ONE)
    await engine.begun()

    async def load(source: ModelSource) -> Loaded:
        return Loaded(source, newer, ONE_BY_ONE, msgspec.structs.replace(FACTS, digest="sha256:" + "b" * 64))

    cached.state.repository._load = load
    await cached.state.repository.load("net")
    after = await cached.infer(ONE)
    engine.let()

    assert (mark_of(after), values_of(after)) == ("", [3, 6])
    assert values_of(await before.reply()) == [2, 4]


async def test_refusals_are_not_kept() -> None:
    failing = [True]
    engine = Scripted(faults=lambda _: RuntimeError("broken") if failing else None)
    cached = await a_cached(engine)

    assert [(await cached.infer(ONE)).status for _ in range(2)] == [500, 500]
    failing.clear()
    replies = [await cached.infer(ONE) for _ in range(2)]

    assert [mark_of(reply) for reply in replies] == ["", "hit"]


async def test_an_old_answer_is_computed_anew() -> None:
    engine = Scripted()
    cached = await a_cached(engine, max_age_seconds=5.0)
    now = cached.cache._clock()
    cached.cache._clock = lambda: now
    await cached.infer(ONE)
    cached.cache._clock = lambda: now + 4.9
    assert mark_of(await cached.infer(ONE)) == "hit"
    cached.cache._clock = lambda: now + 5.1

    assert mark_of(await cached.infer(ONE)) == ""
    assert len(engine.seen) == 2


async def test_what_does_not_fit_is_not_kept_and_the_oldest_goes_first() -> None:
    cached = await a_cached(Scripted(), max_bytes=3 * 1400)
    bodies = [infer_json([[number, 0]]) for number in range(4)]

    for body in (*bodies[:3], bodies[0], bodies[3]):
        await cached.infer(body)
    marks = [mark_of(await cached.infer(body)) for body in (bodies[0], bodies[2], bodies[3])]
    await cached.infer(infer_json([[number, 0] for number in range(1000)]))

    assert marks == ["hit", "hit", "hit"]
    occupied = cached.counts.occupied()
    assert sum(each.bytes for each in occupied.values()) <= 3 * 1400
    assert mark_of(await cached.infer(bodies[1])) == ""


async def test_an_answer_does_not_keep_the_whole_runs_in_memory() -> None:
    cached = await a_cached(Scripted())
    await cached.infer(ONE)

    (kept,) = (entry.value for entry in cached.cache._answers._kept.values())
    assert all(array.base is None and not array.flags.writeable for array in kept.answer.values())


async def test_large_inputs_are_hashed_beside_the_event_loop() -> None:
    cached = await a_cached(models.identity(shape=["N", 2]), warm=None)
    body, headers = binary(np.arange(1 << 17, dtype=np.float32).reshape(-1, 2), "FP32")

    replies = await asyncio.gather(*(cached.infer(body, **headers) for _ in range(3)))
    again = await cached.infer(body, **headers)

    # Whose input is hashed last may find the answer of the first.
    assert len([reply for reply in replies if mark_of(reply) == ""]) == 1 and mark_of(again) == "hit"
    assert len({reply.body for reply in (*replies, again)}) == 1


async def test_who_leaves_while_its_input_is_hashed_causes_no_run() -> None:
    engine = Scripted()
    cached = await a_cached(engine)
    body, headers = binary(np.zeros((1 << 16, 2), np.float32), "FP32")

    cached.asking(body, **headers).leave()
    other = await cached.infer(ONE)

    assert values_of(other) == [2, 4] and len(engine.seen) == 1


@pytest.mark.parametrize("parameters", [{"sequence_id": 7}, {"sequence_id": "a", "stream_id": "b"}])
async def test_requests_of_a_sequence_go_past(parameters: dict[str, Any]) -> None:
    cached = await a_cached(Scripted())
    body = infer_json([[1, 2]], parameters=parameters)

    assert [mark_of(await cached.infer(body)) for _ in range(2)] == ["", ""]
    assert cached.results == {"past": 2}
    assert mark_of(await cached.infer(infer_json([[1, 2]], parameters={"sequence_id": 0}))) == ""


async def test_a_model_that_draws_lots_goes_past() -> None:
    cached = await a_cached(Scripted())
    assert cached.state.model is not None
    cached.state.model.facts = msgspec.structs.replace(FACTS, not_cached_because="output 'y' differs")

    assert [mark_of(await cached.infer(ONE)) for _ in range(2)] == ["", ""]
    assert cached.results == {"past": 2}


def test_a_model_that_draws_lots_or_counts_is_found_by_asking_it() -> None:
    random, calls = np.random.default_rng(1), iter(range(1000))

    assert why_not(Formula(lambda x: x * 2)) == ""
    assert "'y' differs" in why_not(Formula(lambda x: x + random.random(x.shape).astype(np.float32)))
    assert "'y' differs" in why_not(Formula(lambda x: x * random.random(x.shape).astype(np.float32)))
    assert "'y' differs" in why_not(Formula(lambda x: x * 0 + next(calls)))


def test_a_model_whose_callers_switch_its_lots_on_is_found_too() -> None:
    """Dropout draws only where `training` is true, which one input says for all rows."""
    nodes = [helper.make_node("Dropout", ["x", "ratio", "training"], ["y"])]
    training = helper.make_tensor_value_info("training", TensorProto.BOOL, [])
    ratio = numpy_helper.from_array(np.array(0.5, np.float32), "ratio")
    tensors = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", 64]) for name in ("x", "y")]
    graph = helper.make_graph(nodes, "g", [tensors[0], training], [tensors[1]], [ratio])
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)

    engine = OnnxEngine(made.SerializeToString(), providers=("CPUExecutionProvider",), threads=1)
    try:
        assert "'y' differs" in why_not(engine)
    finally:
        engine.close()


def test_a_model_that_refuses_what_it_is_tried_with_is_taken_at_its_jobs_word() -> None:
    def refuse(x: np.ndarray) -> np.ndarray:
        raise ValueError("not these")

    assert why_not(Formula(refuse)) == ""


@pytest.mark.parametrize("stream", ["", 7, None, "a" * 257, True, 1.5, [1]])
async def test_a_streams_name_is_a_text_or_a_number(stream: object) -> None:
    cached = await a_cached(Scripted())

    reply = await cached.infer(infer_json([[1, 2]], parameters={"stream_id": stream}))

    assert reply.status == (200 if stream in ("", 7, None) else 400)
