"""Shared by all tests. Builders live in builders.py; fixtures of the cluster beside the tests that need it."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# Before anything imports ONNX Runtime: tests report nothing to anybody.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# What tests start as processes of their own imports the checkout, also where pytest was not called by make.
os.environ["PYTHONPATH"] = ":".join(str(ROOT / name) for name in ("operator", "protocol", "worker-image", "client"))


@pytest.fixture(scope="session")
def example_models() -> Path:
    """The example models where the demo has them; a build takes half a minute, so it happens only when they are not current."""
    from examples.models.index import build_all
    from examples.models.magika_features import default_trees

    built = ROOT / "build" / "examples"
    build_all(built, default_trees())
    return built
