"""Inputs with a default (triton-inference-server/server#5489): listed as optional, taken when given, alone when given."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper

from inference_worker.batching.rows import layout_of
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import RequestError
from inference_worker.serve import codec
from inference_worker.serve.ask import Signature
from inference_worker.trial_rows import sample_of
from inference_worker.warmup import warm_up
from tests.process import models
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import spec
from tests.unit.worker.states import a_worker_state, ask, infer, inferring, real, routes_of

MODELS = Path(__file__).parents[2] / "models"


def optional(name: str = "h", shape: tuple[int | None, ...] = (2,), axis: int | None = None) -> TensorSpec:
    plain = spec(name, shape, axis)
    return TensorSpec(plain.name, plain.datatype, plain.dtype, plain.shape, plain.batch_axis, optional=True)


def shifted(*, kind: int = models.FLOAT) -> bytes:
    """x [N, 2], by [1, 2] = 1 -> y = x + by."""
    return models.model(
        [helper.make_node("Add", ["x", "by"], ["y"])],
        [models.tensor("x", kind, ["N", 2]), models.tensor("by", kind, [1, 2])],
        [models.tensor("y", kind, ["N", 2])],
        {"by": np.ones((1, 2), np.float32)},
    )


def body(x: list[list[float]], by: list[float] | None = None) -> bytes:
    inputs: list[dict[str, Any]] = [{"name": "x", "datatype": "FP32", "shape": [len(x), 2], "data": x}]
    if by is not None:
        inputs.append({"name": "by", "datatype": "FP32", "shape": [1, 2], "data": by})
    return json.dumps({"inputs": inputs}).encode()


def told(raw: bytes) -> list[float]:
    values: list[float] = json.loads(raw)["outputs"][0]["data"]
    return values


def test_an_input_with_a_default_is_listed_behind_the_others() -> None:
    engine = real((MODELS / "overridable.onnx").read_bytes())

    assert [(one.name, one.optional) for one in engine.inputs] == [("in", False), ("hidden", True)]
    assert sample_of(engine.inputs, 3).keys() == {"in"}


def test_it_does_not_stand_in_the_way_of_batching() -> None:
    assert warm_up(real(shifted()), 8).layout.outputs == {"y": 0}


async def test_the_configuration_says_that_it_is_optional() -> None:
    routes = routes_of(await a_worker_state(shifted(), batch_size=8))

    document = json.loads((await ask(routes, "/v2/models/net/config")).body)

    assert [(entry["name"], entry.get("optional", False)) for entry in document["input"]] == [("x", False), ("by", True)]
    assert document["max_batch_size"] == 8


@pytest.mark.parametrize("batch_size", [1, 8])
async def test_it_may_be_left_out_and_is_taken_when_given(batch_size: int) -> None:
    routes = routes_of(await a_worker_state(shifted(), batch_size=batch_size))

    assert told((await infer(routes, body([[1, 2]]))).body) == [2, 3]
    assert told((await infer(routes, body([[1, 2]], [10, 20]))).body) == [11, 22]
    assert told((await infer(routes, body([[1, 2]] * 20, [10, 20]))).body) == [11, 22] * 20


async def test_the_others_are_still_required() -> None:
    entry = {"name": "by", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    reply = await infer(routes_of(await a_worker_state(shifted())), json.dumps({"inputs": [entry]}).encode())

    assert (reply.status, json.loads(reply.body)["error"]) == (400, "missing input x")


async def test_callers_who_give_it_and_callers_who_do_not_each_get_their_own_answer() -> None:
    routes = routes_of(await a_worker_state(shifted(), batch_size=16))

    calls = [inferring(routes, body([[i, i]], [i, 0] if i % 3 else None)) for i in range(60)]
    replies = await asyncio.gather(*(call.reply() for call in calls))

    assert [told(reply.body) for reply in replies] == [[2 * i, i] if i % 3 else [i + 1, i + 1] for i in range(60)]


@given(st.lists(st.booleans(), min_size=2, max_size=2), st.booleans())
@STEADY
def test_who_gives_it_shares_a_run_with_nobody(given_by: list[bool], equal: bool) -> None:  # noqa: FBT001
    layout = layout_of((spec(), optional()), {"y": 0})
    feeds = [
        {"x": np.zeros((1, 2), np.float32), **({"h": np.full(2, 0 if equal else i, np.float32)} if gives else {})}
        for i, gives in enumerate(given_by)
    ]

    one, other = (layout.bucket(one, ()) for one in feeds)

    assert (one == other) is not any(given_by)
    assert (layout.bucket(feeds[0], ()) == one) is not given_by[0]


def test_a_model_without_one_has_the_buckets_that_it_had() -> None:
    assert layout_of((spec(),), {"y": 0}).bucket({"x": np.zeros((3, 2))}, ("y",)) == (("y",), (2,))


def test_parts_and_padding_keep_what_was_given() -> None:
    layout = layout_of((spec(), optional(), optional("rows", (None, 1), 0)), {"y": 0})
    feeds = {"rows": np.arange(3)[:, None], "h": np.ones(2), "x": np.arange(6).reshape(3, 2)}

    part, padded = layout.part(feeds, 1, 2), layout.padded(feeds, 2)

    assert part["x"].tolist() == [[2, 3]] and part["rows"].tolist() == [[1]] and part["h"] is feeds["h"]
    assert padded["x"].shape == (5, 2) and padded["rows"].shape == (5, 1) and padded["h"] is feeds["h"]


def test_a_head_that_is_known_may_leave_it_out_too() -> None:
    decoder = codec.Decoder(Signature((spec(), optional()), (spec("y"),)))
    head = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "parameters": {"binary_data_size": 8}}]})
    for _ in range(2):
        feeds, _ = decoder.decode(head.encode() + bytes(8), str(len(head)))
        assert feeds.feeds.keys() == {"x"}


def test_a_default_of_a_type_that_can_not_be_sent_keeps_the_model_loadable() -> None:
    value = helper.make_tensor("c", TensorProto.FLOAT8E4M3FN, [1], [1.0])

    graph = helper.make_graph(
        [helper.make_node("Identity", ["x"], ["y"])],
        "g",
        [models.tensor("x", models.FLOAT, ["N", 2]), models.tensor("c", TensorProto.FLOAT8E4M3FN, [1])],
        [models.tensor("y", models.FLOAT, ["N", 2])],
        [value],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)

    assert [one.name for one in real(made.SerializeToString()).inputs] == ["x"]


def test_an_optional_input_is_refused_twice_like_any_other() -> None:
    signature = Signature((spec(), optional()), (spec("y"),))
    with pytest.raises(RequestError, match="twice"):
        signature.input("h", {"h"})
