"""Whether a model answers the same when it is asked the same: found by asking it, as nothing in a file promises it."""

from collections.abc import Iterator

from inference_worker.engines.engine import Engine, EngineUnavailableError, Tensors
from inference_worker.likeness import ROUNDING, differing
from inference_worker.probe import REFUSALS, taken_sample
from inference_worker.trial_rows import NARROW, WIDE, different, shared_ones

_TIMES = 3


def why_not(engine: Engine) -> str:
    """Why a model's answers can't be kept, in words; empty where nothing speaks against it.

    One that draws lots, or counts its requests, differs between runs on the same rows. One that refuses all of them is taken at its
    job's word.
    """
    for feeds in _rows(engine):
        try:
            first, *others = [engine.run(feeds) for _ in range(_TIMES)]
        except (*REFUSALS, EngineUnavailableError):
            continue
        for other in others:
            if (name := differing(first, other, ROUNDING)) is not None:
                return f"output {name!r} differs between runs on the same inputs"
    return ""


def _rows(engine: Engine) -> Iterator[Tensors]:
    """Zeros, small values and wide ones, each also with what all rows share switched on: either may scale what draws lots."""
    try:
        sample, _ = taken_sample(engine)
    except (*REFUSALS, EngineUnavailableError):
        return
    plain = (sample, *(different(sample, engine.inputs, seed, values) for seed, values in enumerate((NARROW, WIDE))))
    for feeds in plain:
        yield feeds
        switched = shared_ones(feeds, engine.inputs)
        if switched is not feeds:
            yield switched
