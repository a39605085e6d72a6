"""What computes a job's model: its own word, else what the model's format asks for; and whether this operator has that."""

from dataclasses import dataclass

from inference_operator.api.job import Backend
from inference_operator.settings import Backends

_BY_FORMAT = {"onnx": Backend.ONNX, "torchscript": Backend.TORCHSCRIPT}
_TAKES = {Backend.ONNX: "onnx", Backend.TORCHSCRIPT: "torchscript", Backend.TRITON: "onnx"}


@dataclass(frozen=True, slots=True)
class BackendChoice:
    """A back end (never AUTO), and why it is that one."""

    backend: Backend
    reason: str


def chosen(asked: Backend, model_format: str) -> BackendChoice:
    """The back end for a model of this format."""
    if asked is Backend.AUTO:
        return BackendChoice(_BY_FORMAT[model_format], f"auto: the model's format is {model_format}")
    return BackendChoice(asked, "spec.backend")


def fault(choice: BackendChoice, model_format: str, backends: Backends) -> str | None:
    """Why a back end can't run the model here, with what to do; None when it can."""
    name = choice.backend.value
    if (taken := _TAKES[choice.backend]) != model_format:
        return f"back end {name} takes {taken} files, and the model's format is {model_format}; use backend: auto"
    if choice.backend is Backend.TRITON and not backends.triton.image:
        return "this operator has no tritonserver; set the chart's backends.triton.image, or use backend: auto"
    if choice.backend is Backend.TORCHSCRIPT and not backends.torchscript.image:
        return "this operator has no worker image with PyTorch; set the chart's backends.torchscript.image, or use an ONNX file"
    return None
