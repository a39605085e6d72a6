"""Is a variant as good as its original? Pure: two models' answers to the same rows in, a judgement out.

Every doubt is against the variant: NaN, rows on which a model that always says the same would pass, outputs that can't be compared.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from inference_worker.engines.engine import Tensor
from inference_worker.quantize.faults import Fault, QuantizeError
from inference_worker.quantize.records import Bounds, Judgement

Answers = Mapping[str, Tensor]

_SUMS_TO_ONE = 1e-3
_EVEN_CHANCE = 0.5
_ROUNDING = 1e-9
_SCORE_NAMES = ("logit", "score", "prob", "class")
_ADVICE = "try the other method, or calibration rows that are more like real ones, or serve the original"


@dataclass(frozen=True, slots=True)
class _Seen:
    """One output: the share (0 to 1) in which both agree, and the share that the best constant answer would have got."""

    name: str
    agreement: float
    constant: float


def judge(before: Answers, after: Answers, labels: Tensor | None, bounds: Bounds, *, rows: int) -> Judgement:
    """Compare the original's answers with the variant's, by labels where there are some.

    Raises QuantizeError ROWS_UNFIT for labels that no output answers.
    """
    if fault := _odd_shape(before, after) or _not_finite(before, "the original") or _not_finite(after, "the variant"):
        return Judgement("none", passed=False, message=fault, rows=rows)
    if labels is not None:
        return _by_labels(before, after, labels, bounds, rows)
    return _by_agreement([_compared(name, before[name], after[name]) for name in before], bounds, rows)


def _by_labels(before: Answers, after: Answers, labels: Tensor, bounds: Bounds, rows: int) -> Judgement:
    readers = {name: reader for name, array in before.items() if (reader := _reader(array, labels)) is not None}
    if not readers:
        shapes = ", ".join(f"{name} {array.dtype}{list(array.shape)}" for name, array in before.items())
        raise QuantizeError(
            Fault.ROWS_UNFIT,
            f"no output ({shapes}) gives a class a row, which labels could judge; leave them out to compare outputs",
        )
    # Models give both scores and labels, and other things beside: the output that is meant is the one that answers best.
    right = {name: _share(reader(before[name]) == labels) for name, reader in readers.items()}
    name = max(right, key=lambda key: right[key])
    was, now, constant = right[name], _share(readers[name](after[name]) == labels), _most_common(labels)
    told = f"accuracy {was:.4f} before and {now:.4f} after on {rows} rows"
    # Shares of rows are not exact in binary: 0.99 - 0.98 is a little more than 0.01.
    passed = was - now <= bounds.max_drop + _ROUNDING
    if was - constant <= bounds.max_drop + _ROUNDING:
        passed = False
        message = (
            f"the labels can't judge it: the original is right in {was:.4f} of the rows, always saying the most common label in "
            f"{constant:.4f}; are labels and rows in the same order, and of several classes?"
        )
    else:
        message = told if passed else f"{told}, a drop of {was - now:.4f} where {bounds.max_drop:g} is allowed; {_ADVICE}"
    return Judgement("accuracy", passed=passed, message=message, rows=rows, before=was, after=now, outputs={name: now})


def _by_agreement(seen: Iterable[_Seen], bounds: Bounds, rows: int) -> Judgement:
    found = list(seen)
    outputs = {one.name: one.agreement for one in found}
    telling = [one for one in found if one.constant < bounds.min_agreement]
    worst = min(found, key=lambda one: one.agreement)
    told = f"agreement {worst.agreement:.4f} in output {worst.name!r} on {rows} rows"
    passed = bool(telling) and worst.agreement >= bounds.min_agreement
    if not telling:
        message = "the rows can't judge it: a model that always answers the same would pass; give more varied rows, or labels"
    elif passed:
        message = told
    else:
        message = f"{told}, less than {bounds.min_agreement:g}; {_ADVICE}"
    return Judgement("agreement", passed=passed, message=message, rows=rows, before=1.0, after=worst.agreement, outputs=outputs)


def _compared(name: str, before: Tensor, after: Tensor) -> _Seen:
    if before.dtype.kind == "f" and not _are_scores(name, before):
        exact = before.astype(np.float64)
        return _Seen(name, _closeness(exact, after.astype(np.float64)), _closeness(exact, exact.mean(axis=0, keepdims=True)))
    classes = (before, after) if before.dtype.kind != "f" else (before.argmax(axis=-1), after.argmax(axis=-1))
    return _Seen(name, _share(classes[0] == classes[1]), _most_common(classes[0]))


def _are_scores(name: str, array: Tensor) -> bool:
    """Whether the last axis holds scores of classes: they sum to one, or are called so.

    Not by shape alone: the largest of several measured values may stay the largest in a variant that is wrong in all of them.
    """
    if array.ndim < 2 or array.shape[-1] < 2:
        return False
    if (array >= 0).all() and np.allclose(array.sum(axis=-1, dtype=np.float64), 1, atol=_SUMS_TO_ONE):
        return True
    return array.ndim == 2 and any(mark in name.lower() for mark in _SCORE_NAMES)


def _closeness(before: Tensor, after: Tensor) -> float:
    """One less the relative error, never below zero."""
    size, error = float(np.linalg.norm(before.ravel())), float(np.linalg.norm((before - after).ravel()))
    if not error:
        return 1.0
    return max(0.0, 1 - error / size) if size else 0.0


def _reader(array: Tensor, labels: Tensor) -> Callable[[Tensor], Tensor] | None:
    """How to read an output as one class a row, in the labels' kind; None where it is not one.

    Chosen by the original's output and used for both: a variant's probability may be a little more than one.
    """
    rows, kind = len(labels), array.dtype.kind
    single = array.shape in {(rows,), (rows, 1)}
    if labels.dtype.kind == "U":
        return (lambda found: found.ravel().astype(str)) if single and kind in "OU" else None
    if single and kind in "iub":
        return lambda found: found.ravel().astype(np.int64)
    if single and kind == "f" and set(np.unique(labels)) <= {0, 1} and (array >= 0).all() and (array <= 1).all():
        return lambda found: (found.ravel() > _EVEN_CHANCE).astype(np.int64)
    if kind == "f" and array.ndim == 2 and len(array) == rows and array.shape[1] > 1:
        return lambda found: found.argmax(axis=1)
    return None


def _odd_shape(before: Answers, after: Answers) -> str:
    for name, array in before.items():
        if name not in after or after[name].shape != array.shape or after[name].dtype != array.dtype:
            return f"the variant's output {name!r} has another shape or type than the original's"
    return ""


def _not_finite(answers: Answers, whose: str) -> str:
    for name, array in answers.items():
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            return f"{whose} gives NaN or infinity in output {name!r}; what is no number can't be compared"
    return ""


def _share(same: Tensor) -> float:
    return float(np.mean(same)) if same.size else 0.0


def _most_common(values: Tensor) -> float:
    plain = values.astype(str) if values.dtype.kind == "O" else values
    _, counts = np.unique(plain, return_counts=True)
    return float(counts.max() / counts.sum()) if counts.size else 1.0
