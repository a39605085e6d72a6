"""Shared by all tests. Builders live in builders.py; fixtures of the cluster beside the tests that need it."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
# Before anything imports ONNX Runtime: tests report nothing to anybody.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
# What tests start as processes of their own imports the checkout, also where pytest was not called by make.
os.environ["PYTHONPATH"] = ":".join(str(ROOT / name) for name in ("operator", "protocol", "worker-image"))
