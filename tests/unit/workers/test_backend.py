"""Which back end a job gets, why, and what is said where there is none."""

from __future__ import annotations

import pytest

from inference_operator.api.job import Backend
from inference_operator.settings import Backends, TorchScriptBackend, TritonBackend
from inference_operator.workers.backend import BackendChoice, chosen, fault

ALL = Backends(TritonBackend("triton:1"), TorchScriptBackend("torch:1"))


@pytest.mark.parametrize(("kind", "wanted"), [("onnx", Backend.ONNX), ("torchscript", Backend.TORCHSCRIPT)])
def test_auto_goes_by_the_format_and_says_so(kind: str, wanted: Backend) -> None:
    assert chosen(Backend.AUTO, kind) == BackendChoice(wanted, f"auto: the model's format is {kind}")


@pytest.mark.parametrize("asked", [Backend.ONNX, Backend.TRITON, Backend.TORCHSCRIPT])
def test_the_jobs_own_word_wins(asked: Backend) -> None:
    assert chosen(asked, "onnx") == BackendChoice(asked, "spec.backend")


@pytest.mark.parametrize(
    ("asked", "kind", "backends", "words"),
    [
        (Backend.ONNX, "onnx", Backends(), None),
        (Backend.TRITON, "onnx", ALL, None),
        (Backend.TORCHSCRIPT, "torchscript", ALL, None),
        (Backend.TRITON, "onnx", Backends(), "set the chart's backends.triton.image"),
        (Backend.TORCHSCRIPT, "torchscript", Backends(), "set the chart's backends.torchscript.image"),
        (Backend.ONNX, "torchscript", ALL, "takes onnx files, and the model's format is torchscript; use backend: auto"),
        (Backend.TORCHSCRIPT, "onnx", ALL, "takes torchscript files"),
        (Backend.TRITON, "torchscript", ALL, "takes onnx files"),
    ],
)
def test_what_is_missing_is_named(asked: Backend, kind: str, backends: Backends, words: str | None) -> None:
    found = fault(chosen(asked, kind), kind, backends)

    assert found is None if words is None else found is not None and words in found
