"""Shapes that the model's own runtime refuses: the caller's fault, in words that name what it sent; the breaker stays closed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import numpy as np
import pytest
from onnx import helper

from inference_worker.batching.breaker import BreakerState
from inference_worker.engines.shape_faults import of_run
from tests.process import models
from tests.unit.worker.scripted_engines import Scripted, spec
from tests.unit.worker.states import a_worker_state, infer, routes_of

if TYPE_CHECKING:
    from inference_worker.serve.routes import Routes

SEVERAL_TIMES = 8
WEIGHT = {"w": np.ones((1, 3), np.float32)}


def of_free_width(op: str = "MatMul") -> bytes:
    """x [N, K] -> y: K has to be what the weights have, which the file does not say."""
    return models.model(
        [helper.make_node(op, ["x", "w"], ["y"])],
        [models.tensor("x", models.FLOAT, ["N", "K"])],
        [models.tensor("y", models.FLOAT, ["N", 3])],
        WEIGHT,
    )


def joined() -> bytes:
    """a, b [N, K] -> y: both have K."""
    return models.model(
        [helper.make_node("Add", ["a", "b"], ["y"])],
        [models.tensor(name, models.FLOAT, ["N", "K"]) for name in "ab"],
        [models.tensor("y", models.FLOAT, ["N", "K"])],
    )


def body(**shapes: list[int]) -> bytes:
    inputs = [
        {"name": name, "datatype": "FP32", "shape": shape, "data": [0.5] * int(np.prod(shape))} for name, shape in shapes.items()
    ]
    return json.dumps({"inputs": inputs}).encode()


async def refused(routes: Routes, payload: bytes) -> str:
    replies = [await infer(routes, payload) for _ in range(SEVERAL_TIMES)]
    assert {reply.status for reply in replies} == {400}
    text: str = json.loads(replies[-1].body)["error"]
    return text


@pytest.mark.parametrize("batch_size", [1, 8])
async def test_a_width_that_the_weights_do_not_have_is_the_callers_fault_and_not_a_500(batch_size: int) -> None:
    state = await a_worker_state(of_free_width(), batch_size=batch_size)

    text = await refused(routes_of(state), body(x=[2, 5]))

    assert "input 'x': shape [2, 5] where it takes [N, K]" in text and "mismatch" in text
    assert state.model is not None and state.model.batcher.breaker.state is BreakerState.CLOSED
    assert (await infer(routes_of(state), body(x=[2, 1]))).status == 200


async def test_inputs_whose_sizes_disagree_are_named_both() -> None:
    state = await a_worker_state(joined(), batch_size=8)

    text = await refused(routes_of(state), body(a=[2, 3], b=[2, 4]))

    assert "'a': shape [2, 3]" in text and "'b': shape [2, 4]" in text and "equal names are equal sizes" in text
    assert (await infer(routes_of(state), body(a=[2, 3], b=[2, 3]))).status == 200


async def test_a_fixed_size_that_is_wrong_is_named_with_the_models_shape() -> None:
    text = await refused(routes_of(await a_worker_state(models.matmul())), body(x=[2, 5]))

    assert text == "input 'x': shape [2, 5] does not fit the model's [-1, 4]"


@pytest.mark.parametrize(
    ("error", "shape"),
    [
        ("CUDA failure 700: an illegal memory access; shape {2,3}", (None, None)),
        ("CUDNN_STATUS_BAD_PARAM in a convolution of dimension 3", (None, None)),
        ("the node has lost its weights", (None, None)),
        ("shapes do not match", (2, 2)),
    ],
)
def test_a_fault_of_the_device_or_the_model_is_never_put_on_the_caller(error: str, shape: tuple[int | None, ...]) -> None:
    assert isinstance(of_run(error, (spec(shape=shape),)), RuntimeError)


async def test_a_model_that_fails_by_itself_is_a_500_still() -> None:
    engine = Scripted()
    routes = routes_of(await a_worker_state(engine))
    engine.faults = lambda _: RuntimeError("broken")

    assert (await infer(routes, body(x=[1, 2]))).status == 500
