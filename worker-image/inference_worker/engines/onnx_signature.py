"""What an ONNX model takes and answers, by its session's word."""

from dataclasses import replace

import onnxruntime as ort

from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from inference_worker.engines import onnx_faults
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError
from inference_worker.row_axes import row_names


def inputs_and_outputs(session: ort.InferenceSession) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """What the model takes and answers. Raises WorkerError where a name is no text, or a type is unknown."""
    try:
        producer = session.get_modelmeta().producer_name
        inputs = tuple(_spec(node, producer) for node in session.get_inputs())
        return inputs, tuple(_spec(node, producer) for node in session.get_outputs())
    except UnicodeDecodeError as error:
        raise WorkerError(WorkerReason.MODEL_CORRUPT, f"a name in the model is no text ({error}); is the file whole?") from error


def optional_inputs(session: ort.InferenceSession, required: tuple[TensorSpec, ...]) -> tuple[TensorSpec, ...]:
    """Inputs whose default the file holds. One that the protocol has no form for keeps its default: nobody needs to give it."""
    specs = [_spec(node) for node in session.get_overridable_initializers() if node.type in datatypes.ONNX]
    rows = row_names(required)
    axes = [next((axis for axis, name in enumerate(spec.names) if name in rows), None) for spec in specs]
    return tuple(replace(spec, optional=True, batch_axis=axis) for spec, axis in zip(specs, axes, strict=True))


def _spec(node: ort.NodeArg, producer: str = "") -> TensorSpec:
    if node.type not in datatypes.ONNX:
        raise WorkerError(*onnx_faults.of_type(node.name, node.type, producer))
    name = datatypes.ONNX[node.type]
    shape = tuple(d if isinstance(d, int) and d >= 0 else None for d in node.shape)
    names = tuple(d if isinstance(d, str) else None for d in node.shape)
    return TensorSpec(node.name, name, datatypes.NUMPY[name], shape, None, names)
