"""Whether a model answers the same when it is asked the same: found by asking it, as nothing in a file promises it."""

from collections.abc import Iterator

from inference_worker.engines.engine import Engine, EngineUnavailableError, Tensors
from inference_worker.likeness import KERNELS, differing
from inference_worker.probe import REFUSALS, taken_sample
from inference_worker.trial_rows import NARROW, WIDE, different

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
            if (name := differing(first, other, KERNELS)) is not None:
                return f"output {name!r} differs between runs on the same inputs"
    return ""


def _rows(engine: Engine) -> Iterator[Tensors]:
    """Zeros, small values and wide ones: what draws lots may scale them by what it is given."""
    try:
        sample, _ = taken_sample(engine)
    except (*REFUSALS, EngineUnavailableError):
        return
    yield sample
    for seed, values in enumerate((NARROW, WIDE)):
        yield different(sample, engine.inputs, seed, values)
