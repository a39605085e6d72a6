"""Inputs with a default, over both protocols (triton-inference-server/server#5489)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import tritonclient.grpc as triton_grpc
import tritonclient.http as triton_http

from tests.process.harness import a_config

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

MODELS = Path(__file__).parents[2] / "models"


@pytest.fixture(scope="module")
def worker(shared_place: Place) -> Worker:
    """in [bs, 4], hidden [4] = 0, 1, 2, 3 -> out = in + hidden."""
    data = (MODELS / "overridable.onnx").read_bytes()
    return shared_place.start(a_config(shared_place.put("m.onnx", data), batch_size=8)).wait_ready()


@pytest.mark.parametrize("kind", [triton_http, triton_grpc], ids=["http", "grpc"])
def test_an_input_with_a_default_may_be_given_or_left_out(worker: Worker, kind: Any) -> None:
    port = worker.port if kind is triton_http else worker.grpc_port
    client = kind.InferenceServerClient(f"127.0.0.1:{port}")
    sent = dict(np.load(MODELS / "overridable.in.npz"))
    kept = dict(np.load(MODELS / "overridable.out.npz"))
    given = {"in": np.ones((3, 4), np.float32), "hidden": np.full(4, 10, np.float32)}

    def ask(feeds: dict[str, np.ndarray]) -> Any:
        inputs = []
        for name, array in feeds.items():
            inputs.append(kind.InferInput(name, list(array.shape), "FP32"))
            inputs[-1].set_data_from_numpy(array)
        return client.infer("net", inputs).as_numpy("out")

    for _ in range(3):
        assert np.array_equal(ask(sent), kept["out"])
        assert np.array_equal(ask({"in": sent["in"]}), sent["in"] + np.arange(4, dtype=np.float32))
        assert np.array_equal(ask(given), np.full((3, 4), 11, np.float32))
    client.close()


def test_the_configuration_lists_it_as_optional(worker: Worker) -> None:
    with triton_grpc.InferenceServerClient(f"127.0.0.1:{worker.grpc_port}") as client:
        config = client.get_model_config("net").config
        assert [(entry.name, entry.optional) for entry in config.input] == [("in", False), ("hidden", True)]
