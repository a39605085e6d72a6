"""A model's configuration in Triton's vocabulary, with the fields that its clients read unasked: each is there whatever its value.

What has no meaning here is left out (optimisation, sequences, ensembles) or empty where Triton too has it empty by default.
Source: triton-inference-server/common (protobuf/model_config.proto).
"""

from collections.abc import Mapping

from inference_worker.batching.admission import QUEUE_LIMIT
from inference_worker.batching.queue import DEFAULT_PRIORITY
from inference_worker.engines.engine import TensorSpec, on_cpu
from inference_worker.model import Model
from inference_worker.serve.documents import Document, running_parameters

_PLATFORMS = {"onnx_onnxv1": ("onnxruntime_onnx", "onnxruntime"), "pytorch_libtorch": ("pytorch_libtorch", "pytorch")}
"""What Triton calls a platform of the protocol's specification, and the backend that runs it."""

_EMPTY: Document = {
    "batch_input": [],
    "batch_output": [],
    "default_model_filename": "",
    "cc_model_filenames": {},
    "metric_tags": {},
    "model_warmup": [],
}


def configuration(model: Model) -> Document:
    """The model's configuration. Shapes leave the batch dimension out where the model batches."""
    batches = model.batches
    layout = model.warm.layout
    platform, backend = _PLATFORMS.get(model.engine.platform, (model.engine.platform, model.engine.platform))
    document: Document = {
        "name": model.name,
        "platform": platform,
        "backend": backend,
        "version_policy": _version_policy(model.version),
        "max_batch_size": model.max_rows if batches else 0,
        "input": [_input(spec, layout.inputs, batches=batches) for spec in model.engine.inputs],
        "output": [_output(spec, layout.outputs, batches=batches) for spec in model.engine.outputs],
        **_EMPTY,
        "parameters": {name: {"string_value": text} for name, text in running_parameters(model).items()},
        "instance_group": [_instances(model)],
        "model_transaction_policy": {"decoupled": False},
    }
    if batches:
        document["dynamic_batching"] = _batching()
    return document


def _version_policy(version: str) -> Document:
    """The one version that is served. Triton knows versions by number only."""
    if version.isascii() and version.isdigit() and len(version) < 19:
        return {"specific": {"versions": [int(version)]}}
    return {"latest": {"num_versions": 1}}


def _instances(model: Model) -> Document:
    cpu = on_cpu(model.engine)
    return {
        "name": model.engine.provider,
        "kind": "KIND_CPU" if cpu else "KIND_GPU",
        "count": model.warm.threads,
        "gpus": [] if cpu else [0],
        "secondary_devices": [],
        "profile": [],
        "passive": False,
        "host_policy": "",
    }


def _batching() -> Document:
    return {
        "preferred_batch_size": [],
        "max_queue_delay_microseconds": 0,
        "preserve_ordering": False,
        "priority_levels": DEFAULT_PRIORITY,
        "default_priority_level": DEFAULT_PRIORITY,
        "default_queue_policy": {
            "timeout_action": "REJECT",
            "default_timeout_microseconds": 0,
            "allow_timeout_override": True,
            "max_queue_size": QUEUE_LIMIT,
        },
        "priority_queue_policy": {},
    }


def _input(spec: TensorSpec, axes: Mapping[str, int | None], *, batches: bool) -> Document:
    configured = _configured(spec, axes, batches=batches)
    return {**configured, "format": "FORMAT_NONE", "allow_ragged_batch": False, "optional": spec.optional}


def _output(spec: TensorSpec, axes: Mapping[str, int | None], *, batches: bool) -> Document:
    return {**_configured(spec, axes, batches=batches), "label_filename": ""}


def _configured(spec: TensorSpec, axes: Mapping[str, int | None], *, batches: bool) -> Document:
    """What inputs and outputs have in common."""
    dims = spec.wire_shape
    if batches and axes.get(spec.name) == 0:
        dims = dims[1:]
    kind = "STRING" if spec.datatype == "BYTES" else spec.datatype
    # In this vocabulary dims are never empty: one value a row is [1], which the model takes without that dimension.
    reshape: Document = {} if dims else {"reshape": {"shape": []}}
    fixed = {"is_shape_tensor": False, "is_non_linear_format_io": False}
    return {"name": spec.name, "data_type": f"TYPE_{kind}", "dims": dims or [1], **reshape, **fixed}
