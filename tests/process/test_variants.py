"""A real worker that makes an INT8 variant of its verified model, and serves it only if it is as good."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
import numpy as np
import pytest
from onnx import helper

from inference_protocol.messages import Quantization
from inference_protocol.reasons import WorkerReason
from tests.process import models
from tests.process.harness import Place, a_config
from tests.process.wire import get, infer_json, post

if TYPE_CHECKING:
    from inference_protocol.messages import WorkerConfig

RNG = np.random.default_rng(3)
ROWS = RNG.standard_normal((300, 64)).astype(np.float32)


def classifier() -> bytes:
    """x [N, 64] -> scores [N, 10]."""
    weights = {"w": RNG.standard_normal((64, 10)).astype(np.float32), "b": np.zeros(10, np.float32)}
    node = helper.make_node("Gemm", ["x", "w", "b"], ["scores"])
    return models.model(
        [node], [models.tensor("x", models.FLOAT, ["N", 64])], [models.tensor("scores", models.FLOAT, ["N", 10])], weights
    )


def a_variant(place: Place, **changes: object) -> WorkerConfig:
    data = classifier()
    asked = Quantization(method="static", evaluation_uri=place.put_array("rows.npy", ROWS), calibration_uri="pvc://data/rows.npy")
    config = a_config(place.put("m.onnx", data))
    source = msgspec.structs.replace(config.model, quantization=msgspec.structs.replace(asked, **changes))
    return msgspec.structs.replace(config, model=source, batch_size=8)


def test_a_variant_that_is_as_good_is_served_and_told_by_its_own_digest(place: Place) -> None:
    worker = place.start(a_variant(place, min_agreement=0.9)).wait_ready()

    told = get(worker.port, "/telemetry").json["model"]
    scores = post(worker.port, "/v2/models/net/infer", infer_json(ROWS[:4].tolist())).json["outputs"][0]["data"]

    assert told["variant"].startswith("sha256:") and told["variant"] != told["digest"]
    assert np.isfinite(scores).all() and len(scores) == 40


@pytest.mark.parametrize(
    ("changes", "reason", "words"),
    [
        ({"labels_uri": "labels"}, WorkerReason.QUANTIZATION_REFUSED, "refused"),
        ({"evaluation_uri": "pvc://data/none.npy"}, WorkerReason.INPUT_NOT_FOUND, "none.npy"),
        ({"calibration_uri": None}, WorkerReason.INPUT_NOT_FOUND, "calibration"),
    ],
    ids=["not as good", "no rows", "no calibration"],
)
def test_without_a_good_variant_the_worker_ends_with_the_reason(
    place: Place, changes: dict[str, object], reason: WorkerReason, words: str
) -> None:
    if "labels_uri" in changes:
        # Labels that the original gets wrong as often as not show nothing, so nothing is let through by them.
        changes = {"labels_uri": place.put_array("labels.npy", RNG.integers(0, 10, len(ROWS)))}

    ended = place.run(a_variant(place, **changes))

    assert ended.said.reason == reason
    assert words in ended.said.message
    assert ended.code == 2
