"""Triton's Python backend running ONNX Runtime: copied into the model repository as model.py."""

import json
import os
import sys
from pathlib import Path
from typing import Any

_config = json.loads(Path(os.environ["BENCH_PEER_CONFIG"]).read_text())
# The stub's own interpreter knows nothing of the environment that the packages are in.
sys.path[:0] = [_config["sitePackages"], _config["peersFolder"]]

import numpy as np  # noqa: E402
import triton_python_backend_utils as pb  # type: ignore[import-not-found]  # noqa: E402
from onnx_session import Model  # noqa: E402


class TritonPythonModel:
    """One instance."""

    def initialize(self, args: dict[str, str]) -> None:  # noqa: ARG002 -- Triton calls by this name
        """Load the model."""
        self.model = Model(_config)

    def execute(self, requests: list[Any]) -> list[Any]:
        """Run all requests of a batch as one."""
        rows = [{name: pb.get_input_tensor_by_name(request, name).as_numpy() for name in self.model.inputs} for request in requests]
        if len(rows) == 1:
            columns = self.model.run(rows[0])
            return [self._response(columns)]
        counts = np.cumsum([len(next(iter(row.values()))) for row in rows])[:-1]
        feeds = {name: np.concatenate([row[name] for row in rows]) for name in self.model.inputs}
        parts = [np.split(column, counts) for column in self.model.run(feeds)]
        return [self._response(columns) for columns in zip(*parts, strict=True)]

    def _response(self, columns: Any) -> Any:
        return pb.InferenceResponse([pb.Tensor(name, column) for name, column in zip(self.model.outputs, columns, strict=True)])
