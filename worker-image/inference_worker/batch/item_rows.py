"""A row for each item in a model's answers: made where an item was alone, and required everywhere else."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from inference_protocol.reasons import WorkerReason
from inference_worker.batch.pipeline import Segment
from inference_worker.engines.engine import Tensor, Tensors
from inference_worker.errors import WorkerError


def with_rows(segment: Segment, axes: Mapping[str, int | None]) -> Segment:
    """The segment, whose batches are of one item each, with a row in the outputs that have none, or lose it where it is alone."""
    answers: list[Tensors] = [{name: _as_row(array, axes[name]) for name, array in batch.items()} for batch in segment.answers]
    return replace(segment, answers=answers)


def _as_row(array: Tensor, axis: int | None) -> Tensor:
    if axis is not None and array.shape[axis : axis + 1] == (1,):
        return array
    return np.expand_dims(array, min(axis or 0, array.ndim))


def require_rows(segment: Segment, axes: dict[str, int]) -> None:
    """Raise WorkerError INPUT_INVALID unless every output has a row for each item."""
    for batch, (count, _) in zip(segment.answers, segment.timings, strict=True):
        for name, array in batch.items():
            axis = axes.get(name, 0)
            if array.shape[axis : axis + 1] != (count,):
                raise WorkerError(
                    WorkerReason.INPUT_INVALID,
                    f"output {name!r} has shape {list(array.shape)} for {count} items: it has no row per item, so this model can't "
                    "be run over a list of items; serve it instead",
                )
