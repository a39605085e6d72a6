"""The worker: loads one verified model, warms it up, and then answers requests or runs one batch task."""

import os

__version__ = "0.1.0"

# ONNX Runtime (1.32 and later) reports usage to its maker from the first import on. A worker that sees users' models and data
# tells nobody anything, so this has to be set before that import.
os.environ["ORT_DISABLE_TELEMETRY"] = "1"
