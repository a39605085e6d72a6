"""The back ends under the contract: the same models in each one's format, opened as a worker opens them."""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec

from inference_protocol.messages import Backend, ModelSignature, TensorSignature, TritonServer
from inference_worker.engines.opening import Opening
from inference_worker.engines.registry import open_engine
from tests.process import models
from tests.process.harness import CPU, a_config

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_worker.engines.engine import Engine

# The whole contract on another device: WORKER_TEST_PROVIDER=CUDAExecutionProvider where there is one.
PROVIDER = os.environ.get("WORKER_TEST_PROVIDER", CPU)

Ports = tuple[tuple[str, str, tuple[int, ...]], ...]


@dataclass(frozen=True)
class Twin:
    """One model, and what it takes and gives; in TorchScript it is that of the same name in modules.py."""

    onnx: Callable[[], bytes]
    inputs: Ports
    outputs: Ports

    @property
    def signature(self) -> ModelSignature:
        return signature(self.inputs, self.outputs)


TWINS = {
    "matmul": Twin(models.matmul, (("x", "FP32", (-1, 4)),), (("y", "FP32", (-1, 3)),)),
    "add": Twin(models.add, (("a", "FP32", (-1, 2)), ("b", "FP32", (-1, 2))), (("total", "FP32", (-1, 2)),)),
    "two": Twin(models.two_outputs, (("x", "FP32", (-1, 2)),), (("same", "FP32", (-1, 2)), ("negated", "FP32", (-1, 2)))),
    "label": Twin(models.label, (("x", "FP32", (-1, 4)),), (("class", "INT64", (-1,)),)),
    "half": Twin(lambda: models.identity(models.HALF, ["N", 2]), (("x", "FP16", (-1, 2)),), (("y", "FP16", (-1, 2)),)),
    "fixed": Twin(lambda: models.add(rows=2), (("a", "FP32", (2, 2)), ("b", "FP32", (2, 2))), (("total", "FP32", (2, 2)),)),
    "total": Twin(models.grand_total, (("x", "FP32", (-1, 2)),), (("total", "FP32", ()),)),
}


def signature(inputs: Ports, outputs: Ports) -> ModelSignature:
    return ModelSignature(tuple(TensorSignature(*port) for port in inputs), tuple(TensorSignature(*port) for port in outputs))


@dataclass(frozen=True)
class Maker:
    """Opens models in one back end."""

    backend: Backend
    triton: TritonServer | None = None

    def open(self, name: str) -> Engine:
        twin = TWINS[name]
        if self.backend == "torchscript":
            from tests.process.engines.modules import MODULES, saved

            return self.open_bytes(saved(MODULES[name]), twin.signature)
        return self.open_bytes(twin.onnx())

    def open_bytes(self, data: bytes, described: ModelSignature | None = None) -> Engine:
        config = a_config("pvc://data/model", backend=self.backend, triton=self.triton, providers=(PROVIDER,))
        source = msgspec.structs.replace(config.model, signature=described)
        return open_engine(Opening(data, f"sha256:{hashlib.sha256(data).hexdigest()}", source, config, threads=1))
