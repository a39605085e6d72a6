"""Every back end is found the same way, and what there is not is told."""

from __future__ import annotations

from importlib import import_module
from inspect import signature
from typing import Any, get_args

import pytest

from inference_protocol.messages import Backend
from inference_protocol.reasons import WorkerReason
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.engines.opening import Opening
from inference_worker.engines.registry import ENGINES, open_engine
from inference_worker.errors import WorkerError
from tests.process import models
from tests.process.harness import a_config


def opening(backend: Any) -> Opening:
    config = a_config("pvc://data/m.onnx", backend=backend)
    return Opening(models.identity(), "sha256:" + "a" * 64, config.model, config, threads=1)


def test_every_back_end_has_a_module() -> None:
    assert set(ENGINES) == set(get_args(Backend))


@pytest.mark.parametrize("backend", ENGINES)
def test_every_module_opens_an_engine_by_the_same_name(backend: Backend) -> None:
    assert list(signature(import_module(ENGINES[backend]).open_engine).parameters) == ["opening"]


def test_the_back_end_that_was_asked_for_is_opened() -> None:
    engine = open_engine(opening("onnx"))

    assert isinstance(engine, OnnxEngine) and engine.inputs[0].datatype == "FP32"


def test_a_back_end_that_is_not_there_is_told_with_those_that_are() -> None:
    with pytest.raises(WorkerError, match=r"'abacus'.*onnx, torchscript, triton") as caught:
        open_engine(opening("abacus"))

    assert caught.value.reason is WorkerReason.BACKEND_MISSING
