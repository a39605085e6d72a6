"""Shared by all tests. Builders live in builders.py; fixtures of the cluster beside the tests that need it."""

import os

# Before anything imports ONNX Runtime: tests report nothing to anybody.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
