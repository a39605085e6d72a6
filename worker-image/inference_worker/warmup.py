"""What a loaded model shows of itself before anybody asks it: whether rows may go together, how long they take, where to run it.

Nothing is taken from the file's word alone. A graph can promise a free first dimension and mix its rows (a softmax over the
batch), or lose it (a reshape to a fixed size): two rows are run together and one by one, and the answers compared.
"""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np

from inference_protocol.reasons import WorkerReason
from inference_worker import datatypes
from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.rows import Bucket, Layout, layout_of
from inference_worker.engines.engine import Engine, Tensor, Tensors, TensorSpec, on_cpu, zeros_of
from inference_worker.errors import WorkerError

_ROUNDS = 3
_PATIENCE_SECONDS = 2.0
"""Once measuring has taken this long, each further size is run once only."""

# A thread costs some 30 us to reach and come back from; a run that blocks the event loop for longer costs its neighbours more.
_INLINE_SECONDS = 50e-6
_INLINE_LARGEST_SECONDS = 200e-6
# Below, the hand-over is dearer than what a second thread brings; above, one run can use all cores by itself.
_CONCURRENT_SECONDS = (100e-6, 50e-3)
_CONCURRENT_WORTH = 1.2

_ROUNDING = 1e-4
_KERNELS = 5e-2

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Warm:
    """What the warm-up found.

    `overflow` is the number of rows that found no memory, if any. `switch_seconds` is what a run costs more whose number of rows is
    not the last one's.
    """

    layout: Layout
    profile: LatencyProfile
    shape: Bucket | None
    inline: bool
    threads: int
    overflow: int | None = None
    switch_seconds: float = 0.0

    @property
    def items_per_second(self) -> float | None:
        """Rows a second at the size that pays best; None when nothing could be measured."""
        sizes = self.profile.measured
        return max((size / seconds for size, seconds in sizes.items() if seconds > 0), default=None)


def warm_up(engine: Engine, batch_size: int, *, cpus: int = 1, clock: Clock = time.perf_counter) -> Warm:
    """Run every batch bucket. Raises WorkerError OUT_OF_MEMORY when not even the smallest fits.

    A model that refuses zeros (a valid one may: a reshape by its input, say) is ready all the same, without batching.
    """
    rows = engine.rows
    sample = sample_of(engine.inputs, rows or 1)
    try:
        seconds = _timed(engine, sample, clock)
    except (ValueError, RuntimeError) as error:
        layout = layout_of(engine.inputs, None, f"it refused the zeros that it was warmed up with: {error}")
        return Warm(layout, LatencyProfile({}), None, inline=False, threads=1)
    except MemoryError as error:
        raise WorkerError(
            WorkerReason.OUT_OF_MEMORY, f"no memory for a batch of {rows or 1}: {error}; lower batchSize or raise the memory limit"
        ) from error
    if rows is not None:
        layout = layout_of(engine.inputs, None, f"it takes exactly {rows} rows a run")
        profile = LatencyProfile({rows: min(seconds, *(_timed(engine, sample, clock) for _ in range(_ROUNDS - 1)))})
        return _placed(engine, layout, profile, sample, cpus, clock, None)
    layout = understood(engine, sample)
    sizes = buckets(batch_size) if layout.outputs is not None else (1,)
    measured, overflow = _measure(engine, layout, sample, sizes, clock)
    return _placed(engine, layout, LatencyProfile(measured), sample, cpus, clock, overflow)


def buckets(batch_size: int) -> tuple[int, ...]:
    """The sizes that are warmed: powers of two below the batch size, and the batch size."""
    return (*(1 << i for i in range(batch_size.bit_length()) if 1 << i < batch_size), batch_size)


def understood(engine: Engine, sample: Tensors) -> Layout:
    """Where the rows of a model's answers are, found by running it with `sample` (one row) and more."""
    inputs = engine.inputs
    single = layout_of(inputs, None)
    if all(spec.batch_axis is None for spec in inputs):
        return layout_of(inputs, None, "none of its inputs has a dimension that counts rows")
    one, other = (_different(sample, inputs, seed) for seed in (1, 2))
    # Each row in several places beside several others, always three at a time: kernels round differently for other numbers of
    # rows, and some nets make much of it, but not for other neighbours.
    company = ((one, other, sample), (sample, one, other), (one, sample, sample), (sample, sample, sample))
    probe = Layout(single.inputs, {})
    try:
        alone, two = engine.run(one), engine.run(probe.joined([one, other]))
        threes = [engine.run(probe.joined(rows)) for rows in company]
    except (ValueError, RuntimeError, MemoryError) as error:
        return layout_of(inputs, None, f"it refused several rows at once: {error}")
    axes: dict[str, int] = {}
    for name, array in two.items():
        three = threes[0][name]
        grown = [i for i, (a, b) in enumerate(zip(array.shape, three.shape, strict=False)) if (a, b) == (2, 3)]
        if array.ndim != three.ndim or len(grown) != 1:
            return layout_of(inputs, None, f"its output {name!r} has no dimension that counts rows")
        axes[name] = grown[0]
    layout = Layout(single.inputs, axes)
    if mixed := _mixed(layout, company, threes, one, alone):
        return layout_of(inputs, None, f"its output {mixed!r} for a row depends on the rows beside it")
    return layout


def _mixed(
    layout: Layout, company: tuple[tuple[Tensors, ...], ...], threes: list[dict[str, Tensor]], one: Tensors, alone: Tensors
) -> str | None:
    """The output that is another one for the same row in other company; None when there is none."""
    first: dict[int, Tensors] = {}
    for rows, answers in zip(company, threes, strict=True):
        for index, row in enumerate(rows):
            answer = layout.answer(answers, index, index + 1)
            known = first.setdefault(id(row), answer)
            if mixed := next((name for name, array in known.items() if not _alike(array, answer[name], _ROUNDING)), None):
                return mixed
    # By the number of rows alone it may not change much either.
    beside = first[id(one)]
    return next(
        (name for name, array in alone.items() if datatypes.is_real(array) and not _alike(array, beside[name], _KERNELS)), None
    )


def sample_of(inputs: tuple[TensorSpec, ...], rows: int) -> dict[str, Tensor]:
    """Zeros that fit the signature, with `rows` rows; other free sizes are 1."""
    return {spec.name: zeros_of(spec, rows) for spec in inputs}


def _different(sample: Tensors, inputs: tuple[TensorSpec, ...], seed: int) -> Tensors:
    """Another row of the same shape: small values that any embedding or mask takes. Shared inputs stay as they are."""
    random = np.random.default_rng(seed)
    other: dict[str, Tensor] = dict(sample)
    for spec in inputs:
        array = sample[spec.name]
        if spec.batch_axis is None or not array.size:
            continue
        if array.dtype.kind == "O":
            other[spec.name] = np.full(array.shape, "ab"[seed % 2], dtype=object)
        elif datatypes.is_real(array):
            other[spec.name] = random.random(array.shape).astype(array.dtype)
        else:
            other[spec.name] = random.integers(0, 2, array.shape).astype(array.dtype)
    return other


def _alike(one: Tensor, other: Tensor, share: float) -> bool:
    """Whether two answers are the same but for a share of their largest value."""
    if one.shape != other.shape:
        return False
    if not datatypes.is_real(one):
        return bool((one == other).all())
    precise = one.dtype.itemsize >= 4
    if not precise:
        one, other = one.astype(np.float32), other.astype(np.float32)
    scale = float(np.nanmax(np.abs(one[np.isfinite(one)]), initial=0.0))
    tolerance = max(share, 0.0 if precise else 2e-2) * max(scale, 1e-6)
    return bool(np.allclose(one, other, rtol=0.0, atol=tolerance, equal_nan=True))


def _measure(
    engine: Engine, layout: Layout, sample: Tensors, sizes: tuple[int, ...], clock: Clock
) -> tuple[dict[int, float], int | None]:
    """Seconds by rows, of the quickest of a few runs each; and the size that found no memory, if one did."""
    begun = clock()
    measured: dict[int, float] = {}
    for size in sizes:
        rounds = _ROUNDS if clock() - begun < _PATIENCE_SECONDS else 1
        try:
            feeds = layout.padded(sample, size - 1) if size > 1 else sample
            measured[size] = min(_timed(engine, feeds, clock) for _ in range(rounds))
        except MemoryError as error:
            if size == 1:
                raise WorkerError(
                    WorkerReason.OUT_OF_MEMORY, f"no memory for a single row: {error}; raise the memory limit"
                ) from error
            return measured, size
        except (ValueError, RuntimeError):
            # What took two rows and three may still refuse a hundred; the sizes that work are the ones to use.
            return measured, size
    return measured, None


def _placed(
    engine: Engine, layout: Layout, profile: LatencyProfile, sample: Tensors, cpus: int, clock: Clock, overflow: int | None
) -> Warm:
    seconds = profile.measured
    one, largest = min(seconds.values()), max(seconds.values())
    inline = one < _INLINE_SECONDS and largest < _INLINE_LARGEST_SECONDS
    threads = 1 if inline or cpus < 2 or not _CONCURRENT_SECONDS[0] < one < _CONCURRENT_SECONDS[1] else cpus
    if threads > 1 and _speedup(engine, sample, threads, one, clock) < _CONCURRENT_WORTH:
        threads = 1
    switch = _switch_seconds(engine, layout, profile, sample, clock) if layout.outputs is not None else 0.0
    return Warm(layout, profile, layout.bucket(sample, ())[1:], inline, threads, overflow, switch)


def _switch_seconds(engine: Engine, layout: Layout, profile: LatencyProfile, sample: Tensors, clock: Clock) -> float:
    """What going from one number of rows to another costs over runs that stay; 0 on a CPU, which does not mind."""
    sizes = sorted(profile.measured)
    if on_cpu(engine) or len(sizes) < 2:
        return 0.0
    in_turn = [(size, layout.padded(sample, size - 1) if size > 1 else sample) for size in sizes] * _ROUNDS
    excess = [_timed(engine, feeds, clock) - profile.seconds(size) for size, feeds in in_turn]
    return max(0.0, median(excess))


def _speedup(engine: Engine, sample: Tensors, threads: int, alone: float, clock: Clock) -> float:
    """How much more several threads on the one session get done than one thread."""
    rounds = 4

    def several(_: int) -> None:
        for _ in range(rounds):
            engine.run(sample)

    with ThreadPoolExecutor(threads) as pool:
        list(pool.map(several, range(threads)))
        begun = clock()
        list(pool.map(several, range(threads)))
        took = clock() - begun
    return threads * rounds * alone / took if took > 0 else 1.0


def _timed(engine: Engine, feeds: Mapping[str, Tensor], clock: Clock) -> float:
    begun = clock()
    engine.run(feeds)
    return clock() - begun
