"""The back ends under the contract: the same models in each one's format, opened as a worker opens them."""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import torch

from inference_protocol.messages import Backend, ModelSignature, TensorSignature, TritonServer
from inference_worker.engines import Opening, open_engine
from tests.worker import models
from tests.worker.harness import a_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_worker.engine import Engine

WEIGHT = torch.arange(12, dtype=torch.float32).reshape(4, 3) / 8


class Matmul(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.arange(12, dtype=torch.float32).reshape(4, 3) / 8


class Add(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return a + b


class Two(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x, -x


class Label(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.argmax(1)


class Same(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.clone()


class Total(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.sum()


Ports = tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Twin:
    """One model in both formats."""

    onnx: Callable[[], bytes]
    module: type[torch.nn.Module]
    inputs: Ports
    outputs: Ports

    @property
    def signature(self) -> ModelSignature:
        return signature(self.inputs, self.outputs)

    def torchscript(self) -> bytes:
        return saved(self.module)


TWINS = {
    "matmul": Twin(models.matmul, Matmul, (("x", "FP32", (-1, 4)),), (("y", "FP32", (-1, 3)),)),
    "add": Twin(models.add, Add, (("a", "FP32", (-1, 2)), ("b", "FP32", (-1, 2))), (("total", "FP32", (-1, 2)),)),
    "two": Twin(models.two_outputs, Two, (("x", "FP32", (-1, 2)),), (("same", "FP32", (-1, 2)), ("negated", "FP32", (-1, 2)))),
    "label": Twin(models.label, Label, (("x", "FP32", (-1, 4)),), (("class", "INT64", (-1,)),)),
    "half": Twin(lambda: models.identity(models.HALF, ["N", 2]), Same, (("x", "FP16", (-1, 2)),), (("y", "FP16", (-1, 2)),)),
    "fixed": Twin(lambda: models.add(rows=2), Add, (("a", "FP32", (2, 2)), ("b", "FP32", (2, 2))), (("total", "FP32", (2, 2)),)),
    "total": Twin(models.grand_total, Total, (("x", "FP32", (-1, 2)),), (("total", "FP32", ()),)),
}


def signature(inputs: Ports, outputs: Ports) -> ModelSignature:
    return ModelSignature(tuple(TensorSignature(*port) for port in inputs), tuple(TensorSignature(*port) for port in outputs))


def saved(module: type[torch.nn.Module]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(module()), buffer)
    return buffer.getvalue()


@dataclass(frozen=True)
class Maker:
    """Opens models in one back end."""

    backend: Backend
    triton: TritonServer | None = None

    def open(self, name: str) -> Engine:
        twin = TWINS[name]
        if self.backend == "torchscript":
            return self.open_bytes(twin.torchscript(), twin.signature)
        return self.open_bytes(twin.onnx())

    def open_bytes(self, data: bytes, described: ModelSignature | None = None) -> Engine:
        config = a_config("pvc://data/model", backend=self.backend, triton=self.triton)
        source = msgspec.structs.replace(config.model, signature=described)
        return open_engine(Opening(data, f"sha256:{hashlib.sha256(data).hexdigest()}", source, config, threads=1))
