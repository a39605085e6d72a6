"""LitServe: FastAPI with a worker process, JSON only."""

import logging
from typing import Any

import litserve
import numpy as np
from onnx_session import CONFIG, Model

logging.disable(logging.INFO)


class Api(litserve.LitAPI):
    """One model."""

    def setup(self, device: str) -> None:  # noqa: ARG002 -- LitServe calls by this name
        """Load it in the worker process."""
        self._model = Model()

    def decode_request(self, request: dict[str, Any], **_: Any) -> dict[str, np.ndarray]:
        """JSON to one row."""
        return {name: np.asarray(request[name], kind) for name, kind in self._model.inputs.items()}

    def batch(self, inputs: list[Any]) -> list[Any]:
        """Rows as they are: run_rows joins them."""
        return inputs

    def predict(self, data: Any) -> list[Any]:
        """Run one row or many."""
        if isinstance(data, dict):
            return self._model.run_rows([data])[0]
        return self._model.run_rows(data)

    def unbatch(self, output: list[Any]) -> list[Any]:
        """One answer a row."""
        return output

    def encode_response(self, output: list[np.ndarray], **_: Any) -> dict[str, Any]:
        """One row to JSON."""
        return {name: column.tolist() for name, column in zip(self._model.outputs, output, strict=True)}


if __name__ == "__main__":
    batch = {"max_batch_size": CONFIG["batch"], "batch_timeout": 0.0} if CONFIG["batch"] > 1 else {}
    api = Api(**batch)
    server = litserve.LitServer(api, accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=CONFIG["httpPort"], num_api_servers=1, generate_client_file=False, log_level="error")
