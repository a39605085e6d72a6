"""The same ONNX Runtime session in every peer. Runs in the peers' own environments, so it needs nothing of this project."""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort

# What the benchmark tells a peer: model name and file, ports, batch, names and types of inputs and outputs.
CONFIG = json.loads(Path(os.environ["BENCH_PEER_CONFIG"]).read_text()) if "BENCH_PEER_CONFIG" in os.environ else {}
NUMPY = {"FP32": np.float32, "INT32": np.int32, "INT64": np.int64}


class Model:
    """A loaded model with its names."""

    def __init__(self, config: dict[str, Any] = CONFIG) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.inter_op_num_threads = 1
        options.log_severity_level = 3
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        options.add_session_config_entry("session.inter_op.allow_spinning", "0")
        self._session = ort.InferenceSession(config["path"], options, providers=["CPUExecutionProvider"])
        self.inputs = {name: NUMPY[datatype] for name, datatype, _ in config["inputs"]}
        self.outputs = [name for name, _, _ in config["outputs"]]

    def run(self, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
        """Run a batch, outputs in the model's order."""
        answers: list[np.ndarray] = self._session.run(self.outputs, feeds)
        return answers

    def run_rows(self, rows: list[dict[str, np.ndarray]]) -> list[list[np.ndarray]]:
        """Run one-row feeds as one batch; outputs for each."""
        feeds = {name: np.stack([row[name] for row in rows]) for name in self.inputs}
        columns = self.run(feeds)
        return [[column[index] for column in columns] for index in range(len(rows))]
