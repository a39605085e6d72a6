"""What is known of the sizes in an ONNX graph when its inputs have sizes, operator by operator.

Shapes are computed from shapes within graphs (`Shape`, `Gather`, `Concat`, `Reshape`), so small whole numbers are computed along.
ONNX's own inference over a whole graph does that without a bound: a range of a billion takes its memory.
"""

from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import TYPE_CHECKING, Any

import numpy as np

from inference_worker.engines.engine import Tensor

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto, TensorProto, TypeProto

Size = int | None
Shape = tuple[Size, ...] | None
"""None where not even the number of axes is known."""

Computes = Callable[[Sequence[Tensor], dict[str, Any]], Any]
"""A first output from all inputs and attributes."""

_MOST_VALUES = 1024
_MOST_AXES = 64
_OWN_VALUES = frozenset({"Shape", "Size", "RandomNormal", "RandomUniform", "EyeLike"})
"""Operators whose answers have nothing of their inputs' values."""


class Sizes:
    """Shapes, small values, and which tensors have something of a caller's, by name, as far as the graph was walked."""

    def __init__(self, model: "ModelProto") -> None:
        self.opsets = {each.domain if each.domain != "ai.onnx" else "": each.version for each in model.opset_import}
        self.types: dict[str, TypeProto] = {}
        self.values: dict[str, Tensor] = {}
        self.callers: set[str] = set()

    def shape(self, name: str) -> Shape:
        """The shape of a tensor; sizes that nobody knows are None."""
        kind = self.types.get(name)
        if kind is None or not kind.tensor_type.HasField("shape"):
            return None
        return tuple(dim.dim_value if dim.HasField("dim_value") else None for dim in kind.tensor_type.shape.dim)

    def walk(self, graph: "GraphProto") -> "Iterator[NodeProto]":
        """Each operator, those of branches and loops first, when all that is known of its inputs and outputs is."""
        for tensor in graph.initializer:
            self._keep(tensor.name, tensor)
        for node in graph.node:
            inner = [each for attribute in node.attribute for each in (attribute.g, *attribute.graphs) if each.node]
            for each in inner:
                self._enter(node, each)
                yield from self.walk(each)
            self._infer(node, inner)
            yield node

    def _keep(self, name: str, tensor: "TensorProto") -> None:
        import onnx
        from onnx import numpy_helper

        self.types.setdefault(name, onnx.helper.make_tensor_type_proto(tensor.data_type, list(tensor.dims)))
        if prod(tensor.dims) > _MOST_VALUES or tensor.data_location == tensor.EXTERNAL or tensor.data_type == tensor.STRING:
            return
        try:
            self.values[name] = numpy_helper.to_array(tensor)
        except (ValueError, TypeError):
            # Its values were left out.
            return

    def _enter(self, node: "NodeProto", inner: "GraphProto") -> None:
        """Tell the inputs of a body; what a loop carries is taken to keep its shape."""
        outer = list(node.input)
        scanned = len(inner.input)
        if node.op_type == "Scan":
            scanned -= next(each.i for each in node.attribute if each.name == "num_scan_inputs")
        for place, value in enumerate(inner.input):
            source = outer[place] if place < len(outer) else ""
            if place < scanned and source in self.types and (node.op_type != "Loop" or place > 1):
                self.types[value.name] = self.types[source]
            elif value.type.tensor_type.HasField("shape"):
                self.types[value.name] = value.type
            if node.op_type != "Loop" or place != 1:
                # A body's state has something of a caller's after the first step at the latest, and a step may be a row's.
                self.callers.add(value.name)

    def _infer(self, node: "NodeProto", inner: "Sequence[GraphProto]") -> None:
        reached = any(name in self.callers for name in (*node.input, *(out.name for each in inner for out in each.output)))
        if reached and node.op_type not in _OWN_VALUES:
            self.callers.update(filter(None, node.output))
        if node.op_type == "If" and inner:
            for name, one, other in zip(node.output, inner[0].output, inner[-1].output, strict=False):
                if self.shape(one.name) == self.shape(other.name) and one.name in self.types:
                    self.types[name] = self.types[one.name]
            return
        if inner:
            carried = len(inner[0].input) if node.op_type == "Loop" else 0
            for name, source in zip(node.output, node.input[2:carried], strict=False):
                if source in self.types:
                    self.types[name] = self.types[source]
            if carried:
                self._stack(node, inner[0], carried)
            return
        if (value := _value(node, self)) is not None and value.size <= _MOST_VALUES:
            self.values[node.output[0]] = value
        self.types.update(self._inferred(node))

    def _stack(self, node: "NodeProto", body: "GraphProto", carried: int) -> None:
        """Tell what a loop puts together of its steps, which are on a new first axis."""
        from onnx import helper

        steps = self.values.get(node.input[0])
        for name, step in zip(node.output[carried - 2 :], body.output[carried - 1 :], strict=False):
            if (shape := self.shape(step.name)) is not None:
                kind = self.types[step.name].tensor_type.elem_type
                self.types[name] = helper.make_tensor_type_proto(kind, [None if steps is None else int(steps.item()), *shape])

    def _inferred(self, node: "NodeProto") -> "dict[str, TypeProto]":
        import onnx
        from onnx import numpy_helper
        from onnx.checker import ValidationError
        from onnx.shape_inference import InferenceError, infer_node_outputs

        version = self.opsets.get(node.domain if node.domain != "ai.onnx" else "", 1)
        names = [name for name in node.input if name]
        data = {name: numpy_helper.from_array(np.asarray(self.values[name])) for name in names if name in self.values}
        try:
            schema = onnx.defs.get_schema(node.op_type, version, "" if node.domain == "ai.onnx" else node.domain)
            found = infer_node_outputs(schema, node, {name: self.types[name] for name in names}, data,
                                       opset_imports=[onnx.helper.make_opsetid(*each) for each in self.opsets.items()])  # fmt: skip
        except (InferenceError, ValidationError, onnx.defs.SchemaError, KeyError, RuntimeError, ValueError, TypeError):
            found = {}
        for name in node.output[:1]:
            if name in self.values and name not in found:
                value = self.values[name]
                found[name] = onnx.helper.make_tensor_type_proto(onnx.helper.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        return {name: kind for name, kind in found.items() if len(kind.tensor_type.shape.dim) <= _MOST_AXES}


def _value(node: "NodeProto", sizes: Sizes) -> Tensor | None:
    """A node's first output where all it is made of is known and it is small; None otherwise."""
    from onnx import helper

    attributes: dict[str, Any] = {}
    compute = _VALUES.get(node.op_type) if node.domain in ("", "ai.onnx") else None
    if compute is None or not node.output:
        return None
    for each in node.attribute:
        if not each.ref_attr_name:
            attributes[each.name] = helper.get_attribute_value(each)
    if node.op_type in ("Shape", "Size"):
        shape = sizes.shape(node.input[0])
        if shape is None or None in shape:
            return None
        given = [np.array(shape, np.int64)]
    else:
        given = [sizes.values[name] for name in node.input if name in sizes.values]
        if len(given) != sum(map(bool, node.input)):
            return None
    try:
        with np.errstate(all="ignore"):
            found = compute(given, attributes)
            return None if found is None else np.asarray(found)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, MemoryError, AttributeError):
        return None


def _bounded(sizes: Tensor) -> list[int]:
    found = [int(size) for size in sizes]
    if prod(found) > _MOST_VALUES or any(size < 0 for size in found):
        raise ValueError("too many")
    return found


def _range(given: Sequence[Tensor], _: dict[str, Any]) -> Tensor:
    start, limit, step = (each.item() for each in given)
    if step == 0 or abs((limit - start) / step) > _MOST_VALUES:
        raise ValueError("too many")
    return np.arange(start, limit, step, dtype=given[0].dtype)


def _slice(given: Sequence[Tensor], attributes: dict[str, Any]) -> Tensor:
    data, starts, ends = given[:3] if len(given) > 2 else (given[0], attributes["starts"], attributes["ends"])
    axes = given[3] if len(given) > 3 else attributes.get("axes", range(len(starts)))
    steps = given[4] if len(given) > 4 else [1] * len(starts)
    for axis, start, end, step in zip(axes, starts, ends, steps, strict=True):
        data = np.moveaxis(np.moveaxis(data, axis, 0)[int(start) : int(end) : int(step)], 0, axis)
    return data


def _cast(given: Sequence[Tensor], attributes: dict[str, Any]) -> Tensor:
    from onnx import helper

    return given[0].astype(helper.tensor_dtype_to_np_dtype(attributes["to"]))


def _axes(given: Sequence[Tensor], attributes: dict[str, Any]) -> tuple[int, ...] | None:
    found = given[1] if len(given) > 1 else attributes.get("axes")
    return None if found is None else tuple(int(axis) for axis in found)


def _constant(_: Sequence[Tensor], attributes: dict[str, Any]) -> Tensor:
    from onnx import numpy_helper

    (kind, value), *_rest = attributes.items()
    if kind == "value":
        return numpy_helper.to_array(value)
    return np.array(value, np.float32 if "float" in kind else np.int64)


def _filled(given: Sequence[Tensor], attributes: dict[str, Any]) -> Tensor:
    from onnx import numpy_helper

    value = numpy_helper.to_array(attributes["value"]) if "value" in attributes else np.zeros(1, np.float32)
    return np.full(_bounded(given[0]), value[0])


def _divided(given: Sequence[Tensor], _: dict[str, Any]) -> Tensor:
    return np.asarray(given[0] // given[1] if given[0].dtype.kind in "iu" else given[0] / given[1])


def _elementwise(function: Callable[..., Any]) -> Computes:
    return lambda given, _: function(*given)


_ELEMENTWISE = {
    "Identity": _elementwise(np.copy),
    "Add": _elementwise(np.add),
    "Sub": _elementwise(np.subtract),
    "Mul": _elementwise(np.multiply),
    "Equal": _elementwise(np.equal),
    "Less": _elementwise(np.less),
    "Greater": _elementwise(np.greater),
    "Neg": _elementwise(np.negative),
    "Not": _elementwise(np.logical_not),
    "Where": _elementwise(np.where),
    "Max": _elementwise(np.maximum),
    "Min": _elementwise(np.minimum),
    "Floor": _elementwise(np.floor),
    "Ceil": _elementwise(np.ceil),
}
_VALUES: dict[str, Computes] = {
    "Constant": _constant,
    "ConstantOfShape": _filled,
    "Range": _range,
    "Slice": _slice,
    "Cast": _cast,
    "Div": _divided,
    "Shape": lambda given, at: given[0][at.get("start", 0) : at.get("end")],
    "Size": lambda given, _: np.int64(prod(given[0].tolist())),
    "Gather": lambda given, at: np.take(given[0], given[1], axis=at.get("axis", 0)) if given[1].size <= _MOST_VALUES else None,
    "Concat": lambda given, at: np.concatenate(given, axis=at["axis"]) if sum(map(np.size, given)) <= _MOST_VALUES else None,
    "Squeeze": lambda given, at: np.squeeze(given[0], _axes(given, at)),
    "Unsqueeze": lambda given, at: np.expand_dims(given[0], _axes(given, at) or ()),
    "Reshape": lambda given, _: given[0].reshape(given[1].tolist()),
    "Expand": lambda given, _: given[0] * np.ones(_bounded(given[1]), given[0].dtype),
    "ReduceProd": lambda given, at: given[0].prod(keepdims=bool(at.get("keepdims", 1))),
    **_ELEMENTWISE,
}
"""Operators by which graphs compute shapes. None, or what numpy raises, is a value that is not known."""
