"""The contract's models as PyTorch has them, by the names of makers.TWINS. Importing this needs PyTorch."""

from __future__ import annotations

import io
import warnings

import torch


class Matmul(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ torch.arange(12, dtype=torch.float32, device=x.device).reshape(4, 3) / 8


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


MODULES: dict[str, type[torch.nn.Module]] = {
    "matmul": Matmul,
    "add": Add,
    "two": Two,
    "label": Label,
    "half": Same,
    "fixed": Add,
    "total": Total,
}


def saved(module: type[torch.nn.Module]) -> bytes:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        buffer = io.BytesIO()
        torch.jit.save(torch.jit.script(module()), buffer)
    return buffer.getvalue()
