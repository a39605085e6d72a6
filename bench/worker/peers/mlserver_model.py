"""MLServer's runtime for an ONNX file; `mlserver start FOLDER` finds it through model-settings.json."""

from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceRequest, InferenceResponse
from onnx_session import Model


class OnnxModel(MLModel):
    """One model."""

    async def load(self) -> bool:
        """Load it."""
        self._model = Model()
        return True

    async def predict(self, payload: InferenceRequest) -> InferenceResponse:
        """Run one request, or the batch that MLServer has made of several."""
        feeds = {
            tensor.name: NumpyCodec.decode_input(tensor).astype(self._model.inputs[tensor.name], copy=False)
            for tensor in payload.inputs
        }
        columns = self._model.run(feeds)
        outputs = [NumpyCodec.encode_output(name, column) for name, column in zip(self._model.outputs, columns, strict=True)]
        return InferenceResponse(model_name=self.name, model_version=self.version, outputs=outputs)
