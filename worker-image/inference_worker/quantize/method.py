"""ONNX Runtime's quantiser, and what it needs to do well. The only module that knows `onnx`: it is untyped, so Any stays in here.

Deterministic: the same model, rows and ONNX Runtime give the same bytes.
"""

import importlib
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from inference_worker.engines.engine import Tensor
from inference_worker.quantize.faults import Fault, QuantizeError
from inference_worker.quantize.records import Method

# Where each operator keeps the weights that can become INT8.
_WEIGHT_INPUT = {
    "Attention": 1,
    "Conv": 1,
    "ConvTranspose": 1,
    "EmbedLayerNormalization": 2,
    "Gather": 0,
    "Gemm": 1,
    "LSTM": 1,
    "MatMul": 1,
}
_WEIGHTED: dict[Method, frozenset[str]] = {
    # Without Conv: the runtime's ConvInteger is several times slower than the float kernel.
    "dynamic": frozenset({"Attention", "EmbedLayerNormalization", "Gather", "Gemm", "LSTM", "MatMul"}),
    "static": frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"}),
}
# These pass INT8 on as it comes. Arithmetic (Add, Mul, Softmax ...) is left out: eight bits between a sum of squares and its root,
# for example in a normalisation, destroyed a model (relative error 1.1 instead of 0.008), and a model without it was no slower.
_CARRIERS = frozenset({"Clip", "Flatten", "MaxPool", "Relu", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_INT8_MARKS = ("QLinear", "DynamicQuantize", "MatMulNBits", "MatMulBnb4", "QAttention", "QGemm", "QMoE")
_INT8_OPS = frozenset({"QuantizeLinear", "DequantizeLinear", "MatMulInteger", "ConvInteger"})
# QDQ has scales for each channel from here on.
_PER_CHANNEL_OPSET = 13
_HOW_TO_INSTALL = (
    "build the worker image with REQUIREMENTS=worker-image/requirements-quantize.txt, "
    "or quantise where it is and serve the variant by its own digest"
)


@dataclass(frozen=True, slots=True)
class Built:
    """A quantised model, not judged yet; how many nodes of each kind got INT8 weights, and what its user should know."""

    data: bytes
    quantized: dict[str, int]
    notes: tuple[str, ...]


@dataclass(slots=True)
class _Feeder:
    """Hands calibration feeds to the quantiser, which asks until there is None."""

    feeds: Iterator[dict[str, Tensor]]

    def get_next(self) -> dict[str, Tensor] | None:
        return next(self.feeds, None)


def build(data: bytes, method: Method, calibration: Iterable[dict[str, Tensor]]) -> Built:
    """Quantise a model. `calibration` is only read by static.

    Raises QuantizeError: PACKAGE_MISSING, ALREADY_QUANTIZED, NOTHING_TO_QUANTIZE, TOOL_FAILED.
    """
    onnx, quantization = packages()
    source = onnx.load_model_from_string(data)
    _refuse_quantized(source.graph)
    with tempfile.TemporaryDirectory(prefix="quantize-") as folder:
        try:
            prepared = _prepared(onnx, quantization, source, Path(folder))
            found = _weighted(onnx, prepared.graph)
            _refuse_nothing(found, method, prepared.graph)
            made = _run(onnx, quantization, prepared, method, _Feeder(iter(calibration)), Path(folder))
        except QuantizeError:
            raise
        except Exception as error:
            # The quantiser has no fault classes: it stumbles over models that it does not know in every way that Python has.
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise QuantizeError(
                Fault.TOOL_FAILED,
                f"ONNX Runtime's {method} quantisation can't handle this model: {lines[0][:300]}; "
                f"try --method {'static' if method == 'dynamic' else 'dynamic'}, or serve the original",
            ) from error
    # By what is left, not by what was asked for: the quantiser passes over what it does not like without a word.
    left = Counter(_weighted(onnx, made.graph))
    done = dict(Counter(found) - left)
    _refuse_nothing(done, method, prepared.graph)
    return Built(_canonical(made), done, _notes(dict(left), method, _opset(prepared)))


def packages() -> tuple[Any, Any]:
    """The `onnx` package and the quantiser that needs it; here, so that workers without them start.

    Raises QuantizeError PACKAGE_MISSING.
    """
    try:
        return importlib.import_module("onnx"), importlib.import_module("onnxruntime.quantization")
    except ImportError as error:
        raise QuantizeError(
            Fault.PACKAGE_MISSING, f"INT8 quantisation needs the Python package onnx ({error}); {_HOW_TO_INSTALL}"
        ) from error


def _prepared(onnx: Any, quantization: Any, source: Any, folder: Path) -> Any:
    """The model with constants folded, batch norms in their convolutions, and shapes inferred: more of it can then be quantised."""
    before, after = folder / "source.onnx", folder / "prepared.onnx"
    onnx.save_model(source, before)
    # The symbolic half needs another package, and only finds more in models with computed shapes.
    quantization.quant_pre_process(str(before), str(after), skip_symbolic_shape=True)
    prepared = onnx.load_model(after)
    _flatten_biases(prepared.graph)
    return prepared


def _flatten_biases(graph: Any) -> None:
    """Make Gemm's biases of one row plain vectors: the same sum, but the quantiser takes a row's first entry for the whole row."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    uses = Counter(name for node in graph.node for name in node.input)
    for node in graph.node:
        bias = constants.get(node.input[2]) if node.op_type == "Gemm" and len(node.input) > 2 else None
        if bias is not None and uses[bias.name] == 1 and len(bias.dims) == 2 and bias.dims[0] == 1:
            del bias.dims[0]


def _run(onnx: Any, quantization: Any, prepared: Any, method: Method, feeder: _Feeder, folder: Path) -> Any:
    before, after = folder / "prepared.onnx", folder / "variant.onnx"
    onnx.save_model(prepared, before)
    present = {node.op_type for node in prepared.graph.node}
    # Sorted, because the order of a set differs from process to process.
    if method == "dynamic":
        quantization.quantize_dynamic(
            str(before),
            str(after),
            # A Gemm is taken apart first, and what is left of it is a MatMul.
            op_types_to_quantize=sorted(present & _WEIGHTED["dynamic"] | {"MatMul"}),
            per_channel=True,
            weight_type=quantization.QuantType.QInt8,
            # Seven bits: with eight, sums of products saturate on CPUs without VNNI, and a variant has to answer alike on all.
            reduce_range=True,
        )
    else:
        quantization.quantize_static(
            str(before),
            str(after),
            feeder,
            op_types_to_quantize=sorted(present & (_WEIGHTED["static"] | _CARRIERS)),
            per_channel=_opset(prepared) >= _PER_CHANNEL_OPSET,
            activation_type=quantization.QuantType.QUInt8,
            weight_type=quantization.QuantType.QInt8,
            quant_format=quantization.QuantFormat.QDQ,
            calibrate_method=quantization.CalibrationMethod.MinMax,
        )
    return onnx.load_model(after)


def _canonical(model: Any) -> bytes:
    """The same bytes in every process, and no operator sets that the model does not use: another runtime may not know them."""
    used = {"", *(node.domain for node in _nodes(model.graph)), *(f.domain for f in model.functions)}
    used |= {domain.domain for function in model.functions for domain in function.opset_import}
    kept = sorted((entry.domain, entry.version) for entry in model.opset_import if entry.domain in used)
    del model.opset_import[:]
    for domain, version in kept:
        model.opset_import.add(domain=domain, version=version)
    return bytes(model.SerializeToString(deterministic=True))


def _opset(model: Any) -> int:
    return max((int(entry.version) for entry in model.opset_import if entry.domain in {"", "ai.onnx"}), default=0)


def _nodes(graph: Any) -> Iterator[Any]:
    """Every node, those of branches and loops too."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (attribute.g, *attribute.graphs):
                yield from _nodes(inner)


def _weighted(onnx: Any, graph: Any) -> dict[str, int]:
    """How many nodes of each kind hold FP32 weights of at least two dimensions: what quantisation is about."""
    float32 = onnx.TensorProto.FLOAT
    constants = {tensor.name for tensor in graph.initializer if tensor.data_type == float32 and len(tensor.dims) > 1}
    found = Counter(
        node.op_type
        for node in graph.node
        if (at := _WEIGHT_INPUT.get(node.op_type)) is not None and len(node.input) > at and node.input[at] in constants
    )
    return dict(sorted(found.items()))


def _refuse_quantized(graph: Any) -> None:
    for node in _nodes(graph):
        if node.op_type in _INT8_OPS or node.op_type.startswith(_INT8_MARKS):
            raise QuantizeError(
                Fault.ALREADY_QUANTIZED,
                f"the model is quantised already (it has {node.op_type}); start from the FP32 model that it was made of",
            )


def _refuse_nothing(found: dict[str, int], method: Method, graph: Any) -> None:
    if any(op in _WEIGHTED[method] for op in found):
        return
    if method == "dynamic" and any(op in found for op in _WEIGHTED["static"]):
        raise QuantizeError(
            Fault.NOTHING_TO_QUANTIZE,
            f"all weights are in convolutions ({_listed(found)}), which dynamic quantisation makes slower; "
            "use --method static with --calibration",
        )
    kinds = ", ".join(sorted({node.op_type for node in graph.node})[:8])
    raise QuantizeError(
        Fault.NOTHING_TO_QUANTIZE,
        f"the model has no FP32 weights that {method} quantisation could make smaller (it has {kinds}); serve the original. "
        "Weights in FP16 have to be exported as FP32 first",
    )


def _notes(left: dict[str, int], method: Method, opset: int) -> tuple[str, ...]:
    notes = []
    if left:
        notes.append(f"{_listed(left)} stay in FP32")
    if method == "dynamic" and any(op in left for op in _WEIGHTED["static"] - _WEIGHTED["dynamic"]):
        notes.append("convolutions get slower by dynamic quantisation, so they are left out; --method static takes them too")
    if method == "dynamic":
        notes.append("ranges are taken from each batch: a row's answer depends a little on the rows beside it")
    if method == "static" and opset < _PER_CHANNEL_OPSET:
        notes.append(
            f"opset {opset} has one scale a tensor only; export with opset {_PER_CHANNEL_OPSET} or later for better accuracy"
        )
    return tuple(notes)


def _listed(found: dict[str, int]) -> str:
    return ", ".join(f"{number} {op}" for op, number in found.items())
