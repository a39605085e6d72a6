"""One operator of an ONNX graph, with what is known of its inputs."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from inference_worker.engines.axis_sizes import Shape, Sizes
from inference_worker.engines.engine import Tensor

if TYPE_CHECKING:
    from onnx import NodeProto

ROWS = 10007
"""The number of rows that a graph is looked at with. A prime: each size that has the rows in it is a multiple."""


class Operator:
    """A node with what is known of its inputs."""

    def __init__(self, node: "NodeProto", sizes: Sizes) -> None:
        from onnx import helper

        self.node, self._sizes = node, sizes
        self.at: Mapping[str, Any] = {
            each.name: helper.get_attribute_value(each) for each in node.attribute if not each.ref_attr_name
        }
        self.opset = sizes.opsets.get("", 0)

    def name(self, place: int) -> str:
        """The name of an input; empty where there is none."""
        return self.node.input[place] if place < len(self.node.input) else ""

    def shape(self, place: int) -> Shape:
        """The shape of an input."""
        return self._sizes.shape(self.name(place))

    def rank(self, place: int = 0) -> int:
        """The number of axes of an input, 1 where nobody knows."""
        return len(self.shape(place) or (None,))

    def value(self, place: int) -> Tensor | None:
        """An input's values, where they are the same in each run."""
        return self._sizes.values.get(self.name(place))

    def integers(self, place: int, attribute: str) -> list[int] | None:
        """Whole numbers that were an attribute once and are an input since; None where they are not there or not known."""
        if attribute in self.at:
            return list(self.at[attribute])
        value = self.value(place)
        return None if value is None else [int(each) for each in value.ravel()]

    def caller(self, place: int) -> bool:
        """Whether an input has something of a caller's values."""
        return self.name(place) in self._sizes.callers

    def counts(self, place: int, axis: int) -> bool:
        """Whether an axis of an input has rows in it."""
        return has_rows(self.shape(place), axis)

    def same_for_all(self, place: int) -> bool:
        """Whether an input is known to have nothing of the rows: neither a caller's values, nor something for each of them."""
        shape = self.shape(place)
        if shape is None or None in shape or self.caller(place):
            return False
        return not any(has_rows(shape, axis) for axis in range(len(shape)))

    def answers(self) -> list[Shape]:
        """The shapes of the outputs."""
        return [self._sizes.shape(name) for name in self.node.output]


def has_rows(shape: Shape, axis: int) -> bool:
    """Whether an axis is there and has rows in it."""
    return shape is not None and -len(shape) <= axis < len(shape) and bool(shape[axis]) and (shape[axis] or 1) % ROWS == 0
