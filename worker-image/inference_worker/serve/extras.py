"""What few requests ask for beside tensors: inputs and outputs in shared memory, and the best classes in place of an output.

Codecs find out what is asked for (`Extras` in `ask`); here it is done, in a thread where it is much.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import msgspec
import numpy as np

from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, Tensors
from inference_worker.model import Model
from inference_worker.serve import tensors
from inference_worker.serve.ask import Ask, Extras, Span, bad
from inference_worker.serve.budget import Budget
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES
from inference_worker.serve.shared_memory import SharedMemory

_INLINE_BYTES = 256 << 10
"""So much is copied in some ten microseconds; more is copied beside the event loop."""

_INLINE_VALUES = 16 << 10
_CLASSES = 16 << 10
"""Classes that one output may be answered with, over all its rows: each becomes a text."""

_RANKED = 4 << 20
"""Values of a row that are ranked. Ranking takes tens of bytes for each of them, and no classifier has so many classes."""


@dataclass(frozen=True, slots=True)
class Delivered:
    """Answers as they go out. `placed` says which went into shared memory, and where."""

    answers: Tensors
    placed: Mapping[str, Span]


def is_large_request(extras: Extras) -> bool:
    """Whether reading the inputs takes longer than the event loop should be held up."""
    return sum(read.span.byte_size for read in extras.reads.values()) > _INLINE_BYTES


def is_large_answer(extras: Extras, answers: Tensors) -> bool:
    """Whether delivering the answers takes longer than the event loop should be held up."""
    return any(array.size > _INLINE_VALUES for name, array in answers.items() if name in extras.classes) or (
        sum(array.nbytes for name, array in answers.items() if name in extras.writes) > _INLINE_BYTES
    )


def gathered(ask: Ask, extras: Extras, shared: SharedMemory, budget: Budget, owner: object) -> Ask:
    """The request with its inputs from shared memory, which `owner` has until it goes.

    Raises RequestError: 400 for what is not there or does not fit, 413 for more than a body may have, 429 when there is no room.
    """
    for span in extras.writes.values():
        shared.check(span)
    total = sum(read.span.byte_size for read in extras.reads.values())
    if not extras.reads:
        return ask
    if total > BODY_LIMIT_BYTES:
        raise bad(f"the inputs in shared memory have {total} bytes, and the limit is {BODY_LIMIT_BYTES}; split the request")
    budget.take(total)
    budget.lend(owner, total)
    feeds = dict(ask.feeds)
    for name, read in extras.reads.items():
        feeds[name] = tensors.from_raw(memoryview(shared.read(read.span)), read.shape, read.spec)
    return msgspec.structs.replace(ask, feeds=feeds)


def delivered(extras: Extras, answers: Tensors, shared: SharedMemory, model: Model) -> Delivered:
    """The answers with their classes, and what goes to shared memory written there. Raises RequestError(400)."""
    found: dict[str, Tensor] = dict(answers)
    placed: dict[str, Span] = {}
    for name, array in answers.items():
        if (count := extras.classes.get(name)) is not None:
            found[name] = best_classes(array, count, name, row_axis(model, name))
        elif (span := extras.writes.get(name)) is not None:
            raw = tensors.to_raw(array, datatypes.name_of(array))
            shared.write(span, raw)
            placed[name] = Span(span.region, span.offset, len(raw))
    return Delivered(found, placed)


def row_axis(model: Model, name: str) -> int | None:
    """Which axis of an output counts rows, each of which has classes of its own; None when all of it is one row."""
    axes = model.warm.layout.outputs
    if axes is not None:
        return axes.get(name)
    shape = model.signature.outputs[name].shape
    return 0 if len(shape) > 1 and shape[0] is None else None


def best_classes(array: Tensor, count: int, name: str, axis: int | None) -> Tensor:
    """The `count` largest values of each row, largest first, as texts VALUE:INDEX (Triton's classification extension).

    Of equal values that with the lower index comes first; what is not a number comes last. Raises RequestError(400).
    """
    if array.dtype.kind in "OSUb":
        raise bad(f"output {name!r} is {datatypes.name_of(array)}, which has no classes; ask for it as a tensor")
    rows = _as_rows(array, axis)
    count = min(count, rows.shape[1])
    if rows.shape[1] > _RANKED:
        raise bad(f"output {name!r}: a row of {rows.shape[1]} values has more than {_RANKED} classes; ask for it as a tensor")
    # A row without values costs a turn too.
    if max(count, 1) * rows.shape[0] > _CLASSES:
        text = f"output {name!r}: {count} classes for each of {rows.shape[0]} rows are more than {_CLASSES}; ask for fewer"
        raise bad(text)
    real = datatypes.is_real(array)
    texts = np.empty((rows.shape[0], count), dtype=datatypes.NUMPY["BYTES"])
    for number, row in enumerate(rows):
        places = _largest(row, count)
        # Six decimals, as printf has them, and as clients of Triton know them.
        values = zip(row[places].tolist(), places.tolist(), strict=True)
        texts[number] = [f"{value:f}:{place}" if real else f"{value}:{place}" for value, place in values]
    return texts[0] if axis is None else texts


def _as_rows(array: Tensor, axis: int | None) -> Tensor:
    if axis is None:
        return array.reshape(1, -1)
    ordered = np.moveaxis(array, axis, 0)
    # numpy can't find out the length of a row where there is none.
    return ordered.reshape(len(ordered), math.prod(ordered.shape[1:]))


def _largest(row: Tensor, count: int) -> Tensor:
    """Where the largest values are, the largest first."""
    if datatypes.is_real(row):
        row = row.astype(np.float64)
        row[np.isnan(row)] = -np.inf
    # All that are as large as the last of them, so that of equal ones those come first that stand first.
    least = np.partition(row, row.size - count)[row.size - count] if 0 < count < row.size else None
    places = np.arange(row.size) if least is None else np.flatnonzero(row >= least)
    found = row[places]
    order = found.size - 1 - np.argsort(found[::-1], kind="stable")[::-1]
    return places[order][:count]
