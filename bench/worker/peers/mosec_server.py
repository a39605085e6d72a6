"""mosec: a Rust front with a Python worker process. Its protocol is its own, so JSON and raw float bytes are ours to choose."""

import json
from typing import Any

import numpy as np
from mosec import Server, Worker
from onnx_session import CONFIG, Model


class Inference(Worker):
    """One worker process; told apart by their first byte, JSON is answered in JSON and raw bytes in raw bytes."""

    def __init__(self) -> None:
        self._model = Model()

    def deserialize(self, data: bytes) -> tuple[dict[str, np.ndarray], bool]:
        """Bytes to one row; models with one input only."""
        ((name, kind),) = self._model.inputs.items()
        if data[:1] == b"{":
            return {name: np.asarray(json.loads(data)[name], kind)}, True
        return {name: np.frombuffer(data, kind, offset=1)}, False

    def forward(self, data: Any) -> Any:
        """Run rows as one batch; with a batch of 1 mosec hands over a single item."""
        single = not isinstance(data, list)
        items = [data] if single else data
        answers = self._model.run_rows([row for row, _ in items])
        results = [(answer, plain) for answer, (_, plain) in zip(answers, items, strict=True)]
        return results[0] if single else results

    def serialize(self, data: tuple[list[np.ndarray], bool]) -> bytes:
        """One row to bytes."""
        answer, plain = data
        if plain:
            names = self._model.outputs
            return json.dumps({name: column.tolist() for name, column in zip(names, answer, strict=True)}).encode()
        return b"".join(column.tobytes() for column in answer)


if __name__ == "__main__":
    server = Server()
    # A wait of 0 is refused; 1 ms is the smallest that it takes.
    server.append_worker(Inference, num=1, max_batch_size=CONFIG["batch"], max_wait_time=1)
    server.run()
