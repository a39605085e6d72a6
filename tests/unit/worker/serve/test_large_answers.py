"""Large answers are encoded beside the event loop, a piece at a time: others are answered meanwhile."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_worker.serve import codec, grpc_codec, pieces
from inference_worker.serve.ask import Ask
from inference_worker.serve.codec import Form
from inference_worker.serve.messages import ModelInferResponse
from tests.process import models
from tests.process.wire import infer_json
from tests.unit.worker.scripted_engines import Formula, spec
from tests.unit.worker.states import a_worker_state, infer, inferring, routes_of

if TYPE_CHECKING:
    from inference_worker.engines.engine import Tensor

MUCH = pieces.PIECE_VALUES + 1
ASK = Ask("", {}, ())
KINDS = ["float32", "int64", "bool", "uint8"]


@pytest.mark.parametrize("count", [0, 1, MUCH - 1, MUCH, 3 * MUCH], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_encoded_in_pieces_is_what_would_be_encoded_at_once(kind: str, count: int) -> None:
    array = np.arange(count).astype(kind)

    body, _ = codec.encode(ASK, Form(), {"y": array}, model="net", version="1")

    assert json.loads(body)["outputs"][0]["data"] == array.tolist()


def test_texts_are_whole_in_every_form() -> None:
    texts = np.array([f'"{i}" ü' for i in range(2 * MUCH)], dtype=object)

    body, _ = codec.encode(ASK, Form(), {"y": texts}, model="net", version="1")
    raw, size = codec.encode(ASK, Form(binary_all=True), {"y": texts}, model="net", version="1")
    typed = ModelInferResponse.FromString(
        grpc_codec.encode(ASK, grpc_codec.Form(raw=False), {"y": texts}, model="net", version="1")
    )

    assert json.loads(body)["outputs"][0]["data"] == texts.tolist()
    assert size is not None and len(raw) - size == sum(len(text.encode()) + 4 for text in texts)
    assert [value.decode() for value in typed.outputs[0].contents.bytes_contents] == texts.tolist()


def test_numbers_in_grpcs_typed_contents_are_whole() -> None:
    array = np.arange(2 * MUCH, dtype=np.float32)

    typed = ModelInferResponse.FromString(
        grpc_codec.encode(ASK, grpc_codec.Form(raw=False), {"y": array}, model="net", version="1")
    )

    assert list(typed.outputs[0].contents.fp32_contents) == array.tolist()


@pytest.mark.parametrize(
    ("array", "copied", "large"),
    [
        (np.zeros(MUCH - 1, np.float32), False, False),
        (np.zeros(MUCH, np.float32), False, True),
        (np.zeros(MUCH, np.float32), True, False),
        (np.array(["a" * (1 << 20)], object), False, True),
        (np.array(["a"] * MUCH, object), True, True),
    ],
)
def test_only_what_is_encoded_value_by_value_is_large(array: Tensor, *, copied: bool, large: bool) -> None:
    assert pieces.is_large({"y": array}, lambda _: copied) is large


async def test_a_large_answer_does_not_hold_up_the_others() -> None:
    engine = Formula(lambda x: np.broadcast_to(x[:, :1], (len(x), 4_000_000)), outputs=(spec("y", (None, None)),))
    routes = routes_of(await a_worker_state(engine))
    turns = [time.thread_time()]
    asking = inferring(routes, infer_json([[1, 2]]))

    assert not asking.answered
    while not asking.answered:
        await asyncio.sleep(0.001)
        turns.append(time.thread_time())
    reply = await asking.reply()

    # At once it takes a tenth of a second or more of the loop's own thread.
    assert reply.status == 200 and len(turns) > 10
    assert max(after - before for before, after in pairwise(turns)) < 0.05


async def test_a_small_answer_is_encoded_at_once_without_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = routes_of(await a_worker_state(models.identity()))
    threads: list[threading.Thread] = []
    encode = codec.encode

    def seen(*args: object, **more: object) -> object:
        threads.append(threading.current_thread())
        return encode(*args, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(codec, "encode", seen)

    assert (await infer(routes, infer_json([[1, 2]]))).status == 200
    assert threads == [threading.main_thread()]
