"""Compressed requests and answers, as Triton's clients and others send them (triton-inference-server/server#2021)."""

from __future__ import annotations

import gzip
import json
import queue
import zlib
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton
import tritonclient.http.aio as triton_aio

from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from tests.process import models
from tests.process.callers import INFER, resident_bytes, rows_request
from tests.process.harness import a_config
from tests.process.wire import Wire, infer_json, post
from tests.process.wire2 import Wire2, message

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.process.harness import Place, Worker

ALGORITHMS = ["gzip", "deflate"]
CODED: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress}
PLAIN: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.decompress, "deflate": zlib.decompress}

MANY_ROWS = 4096
"""Enough of them that their answer is worth compressing."""


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    """x [N, M] -> y, unchanged."""
    data = models.identity(shape=["N", "M"])
    return shared_place.start(a_config(shared_place.put("free.onnx", data), batch_size=8)).wait_ready()


def arrays() -> list[np.ndarray]:
    return [np.ones((1, 2), np.float32), np.arange(300_000, dtype=np.float32).reshape(3, -1)]


def tensor(kind: Any, x: np.ndarray, **how: Any) -> Any:
    made = kind("x", list(x.shape), "FP32")
    made.set_data_from_numpy(x, **how)
    return made


@pytest.mark.parametrize("answer", [None, *ALGORITHMS])
@pytest.mark.parametrize("request_algorithm", [None, *ALGORITHMS])
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "json"])
def test_tritons_client_compresses_what_it_sends_and_is_answered_as_it_asks(
    worker: Worker, *, request_algorithm: str | None, answer: str | None, binary: bool
) -> None:
    client = triton.InferenceServerClient(f"127.0.0.1:{worker.port}", network_timeout=60.0)
    for x in arrays():
        result = client.infer(
            "net",
            [tensor(triton.InferInput, x, binary_data=binary)],
            outputs=[triton.InferRequestedOutput("y", binary_data=binary)],
            request_compression_algorithm=request_algorithm,
            response_compression_algorithm=answer,
        )
        assert np.array_equal(result.as_numpy("y"), x)
    client.close()


async def test_tritons_asyncio_client_is_answered_too(worker: Worker) -> None:
    async with triton_aio.InferenceServerClient(f"127.0.0.1:{worker.port}") as client:
        for x in arrays():
            for algorithm in ALGORITHMS:
                result = await client.infer(
                    "net",
                    [tensor(triton.InferInput, x)],
                    request_compression_algorithm=algorithm,
                    response_compression_algorithm=algorithm,
                )
                assert np.array_equal(result.as_numpy("y"), x)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_the_answer_says_how_it_is_compressed(worker: Worker, algorithm: str) -> None:
    reply = post(worker.port, INFER, infer_json([[1, 2]] * MANY_ROWS), {"Accept-Encoding": algorithm})

    assert reply.headers["content-encoding"] == algorithm
    assert json.loads(PLAIN[algorithm](reply.body))["outputs"][0]["data"] == [1, 2] * MANY_ROWS


def test_compressed_and_plain_requests_on_one_connection_are_answered_in_order(worker: Worker) -> None:
    plain = infer_json([[1, 2]])
    with Wire(worker.port) as wire:
        for _ in range(3):
            # Three times: heads that came before are not parsed again.
            coded = wire.post(INFER, gzip.compress(plain), {"Content-Encoding": "gzip"})
            assert (coded.status, coded.json["outputs"][0]["data"]) == (200, [1, 2])
            assert wire.post(INFER, plain).status == 200
            assert wire.post(INFER, plain, {"Content-Encoding": "br"}).status == 415


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_tritons_grpc_client_is_answered_as_it_sends(worker: Worker, algorithm: str) -> None:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        for x in arrays():
            result = client.infer("net", [tensor(triton_grpc.InferInput, x)], compression_algorithm=algorithm)
            assert np.array_equal(result.as_numpy("y"), x)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_compressed_stream_is_answered_in_order(worker: Worker, algorithm: str) -> None:
    done: queue.Queue[Any] = queue.Queue()
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        client.start_stream(callback=lambda result, error: done.put((result, error)), compression_algorithm=algorithm)
        sent = [arrays()[i % 2] + i for i in range(20)]
        for i, x in enumerate(sent):
            client.async_stream_infer("net", [tensor(triton_grpc.InferInput, x)], request_id=str(i))
        answers = [done.get(timeout=60) for _ in sent]
        client.stop_stream()

    assert [(error, result.get_response().id) for result, error in answers] == [(None, str(i)) for i in range(20)]
    assert all(np.array_equal(result.as_numpy("y"), x) for (result, _), x in zip(answers, sent, strict=True))


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_call_is_answered_in_its_own_coding_and_others_plain(worker: Worker, algorithm: str) -> None:
    ask = rows_request([[1, 2]] * MANY_ROWS).SerializeToString()
    with Wire2(worker) as wire2:
        coded = wire2.call(
            "ModelInfer",
            message(CODED[algorithm](ask), flag=1),
            {"grpc-encoding": algorithm, "grpc-accept-encoding": "identity,deflate,gzip"},
        )
        unasked = wire2.call("ModelInfer", message(CODED[algorithm](ask), flag=1), {"grpc-encoding": algorithm})
        plain = wire2.call("ModelInfer", message(ask), {"grpc-accept-encoding": "identity,gzip,deflate"})

    assert (coded.grpc_status, coded.headers["grpc-encoding"], coded.body[0]) == (0, algorithm, 1)
    assert PLAIN[algorithm](coded.messages[0])
    assert unasked.grpc_status == 0 and "grpc-encoding" not in unasked.headers and unasked.body[0] == 0
    assert plain.grpc_status == 0 and "grpc-encoding" not in plain.headers and plain.body[0] == 0


def test_bombs_on_a_stream_are_not_held_inflated(worker: Worker) -> None:
    """Sixty-four messages may be under way, and more wait: inflated in advance they would be gigabytes."""
    before = resident_bytes(worker)
    bomb = message(gzip.compress(bytes(BODY_LIMIT_BYTES), 9), flag=1)
    with Wire2(worker) as wire2:
        stream = wire2.open("ModelStreamInfer", {"grpc-encoding": "gzip"})
        wire2.send(stream, bomb * 40, end=True)
        wire2.wait(stream)
        assert wire2.ping()

    assert resident_bytes(worker) - before < 10 * BODY_LIMIT_BYTES
    assert post(worker.port, INFER, infer_json([[1, 2]])).status == 200


def test_a_bomb_over_http_is_refused_and_the_next_request_is_answered(worker: Worker) -> None:
    bomb = gzip.compress(bytes(BODY_LIMIT_BYTES + 1), 9)

    reply = post(worker.port, INFER, bomb, {"Content-Encoding": "gzip"})

    assert reply.status == 413 and str(BODY_LIMIT_BYTES) in reply.error
    assert post(worker.port, INFER, infer_json([[1, 2]])).status == 200
