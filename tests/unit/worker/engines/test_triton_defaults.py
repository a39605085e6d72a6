"""Inputs with a default on Triton: offered where they can be passed on, else they keep their default."""

from __future__ import annotations

from pathlib import Path

import pytest

from inference_worker.engines.triton.engine import TritonEngine
from inference_worker.engines.triton.repository import configuration

DATA = (Path(__file__).parents[3] / "models" / "overridable.onnx").read_bytes()


def described(*, defaults: bool) -> TritonEngine:
    engine = object.__new__(TritonEngine)
    engine._describe(DATA, {}, defaults=defaults)
    return engine


@pytest.mark.parametrize(("defaults", "names"), [(True, ["in", "hidden"]), (False, ["in"])])
def test_a_default_is_not_offered_where_triton_can_not_pass_it_on(*, defaults: bool, names: list[str]) -> None:
    assert [spec.name for spec in described(defaults=defaults).inputs] == names


def test_tritons_configuration_lets_the_default_be_left_out() -> None:
    engine = described(defaults=True)

    text = configuration("net", platform="python", inputs=engine.inputs, outputs=engine.outputs, gpu=False, parameters={})

    required, optional = (line for line in text.splitlines() if line.startswith("input"))
    assert "optional" not in required and 'name: "hidden"' in optional and "optional: true" in optional
