"""The classes of examples/accelerators-values.yaml, beside the chart's own, as tests see them."""

from pathlib import Path

import msgspec
import yaml

from inference_operator.accelerators import AcceleratorClass, default_classes
from inference_operator.settings import Settings

EXAMPLE = Path(__file__).parents[2] / "examples" / "accelerators-values.yaml"


def example_classes() -> dict[str, AcceleratorClass]:
    given = yaml.safe_load(EXAMPLE.read_text())["accelerators"]
    return default_classes() | msgspec.convert(given, dict[str, AcceleratorClass])


def with_classes(*names: str) -> Settings:
    """Settings with these classes of the example."""
    found = example_classes()
    return Settings(accelerators={name: found[name] for name in names})
