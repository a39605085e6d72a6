"""KServe's Python ModelServer with an ONNX file."""

import logging
from typing import Any

from kserve import InferOutput, InferRequest, InferResponse, Model, ModelServer
from onnx_session import CONFIG
from onnx_session import Model as OnnxModel

logging.disable(logging.INFO)


class Served(Model):
    """One model."""

    def __init__(self) -> None:
        super().__init__(CONFIG["name"])
        self._model = OnnxModel()
        self.ready = True

    def predict(self, payload: InferRequest, headers: Any = None, response_headers: Any = None) -> InferResponse:  # noqa: ARG002 -- the SDK calls by these names
        """Run one request: the SDK has no batching."""
        feeds = {tensor.name: tensor.as_numpy().astype(self._model.inputs[tensor.name], copy=False) for tensor in payload.inputs}
        outputs = []
        for (name, datatype, _), column in zip(CONFIG["outputs"], self._model.run(feeds), strict=True):
            output = InferOutput(name=name, shape=list(column.shape), datatype=datatype, data=column)
            if payload.from_grpc:
                output.set_data_from_numpy(column, binary_data=True)
            outputs.append(output)
        return InferResponse(
            response_id=payload.id or "",
            model_name=self.name,
            infer_outputs=outputs,
            requested_outputs=None if payload.from_grpc else payload.request_outputs,
        )


if __name__ == "__main__":
    ModelServer(
        http_port=CONFIG["httpPort"], grpc_port=CONFIG["grpcPort"], workers=1, enable_grpc=True, access_log_format=None
    ).start([Served()])
