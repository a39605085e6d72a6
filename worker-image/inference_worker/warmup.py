"""What a loaded model shows of itself before anybody asks it: whether rows may go together, how long they take, where to run it."""

import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from statistics import median

import numpy as np

from inference_worker.batching.profile import LatencyProfile
from inference_worker.batching.rows import Bucket, Layout, layout_of
from inference_worker.engines.engine import Engine, RunMode, Tensor, Tensors, on_cpu, shapes_of
from inference_worker.errors import out_of_memory
from inference_worker.fixed_rows import layout_of_fixed
from inference_worker.probe import taken_sample, understood

_ROUNDS = 3
_PATIENCE_SECONDS = 2.0
"""Once measuring has taken this long, each further size is run once only."""

_PARTS = 8

# A thread costs some 30 us to reach and come back from; a run that blocks the event loop for longer costs its neighbours more.
_INLINE_SECONDS = 50e-6
_INLINE_LARGEST_SECONDS = 200e-6
# Below, the hand-over is dearer than what a second thread brings; above, one run can use all cores by itself.
_CONCURRENT_SECONDS = (100e-6, 50e-3)
_CONCURRENT_WORTH = 1.2

Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Warm:
    """What the warm-up found.

    `overflow` is the number of rows that found no memory, if any. `switch_seconds` is what a run costs more whose number of rows is
    not the last one's. `prepares` says that the engine has buffers for a run beside the one that computes.
    """

    layout: Layout
    profile: LatencyProfile
    shape: Bucket | None
    inline: bool
    threads: int
    overflow: int | None = None
    switch_seconds: float = 0.0
    prepares: bool = False

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
    unknown = dict.fromkeys(spec.name for spec in engine.outputs)
    try:
        sample, length = taken_sample(engine)
    except (ValueError, RuntimeError) as error:
        layout = layout_of(engine.inputs, unknown, f"it refused the zeros that it was warmed up with: {error}")
        return Warm(layout, LatencyProfile({}), None, inline=False, threads=1)
    except MemoryError as error:
        raise out_of_memory(f"for a batch of {rows or 1}: {error}", on_cpu=on_cpu(engine)) from error
    if rows is not None:
        layout = layout_of_fixed(engine, sample)
        engine.capture(sample)
        profile = LatencyProfile({rows: min(_timed(engine, sample, clock) for _ in range(_ROUNDS))})
        return _placed(engine, layout, profile, sample, cpus, clock, None)
    layout = understood(engine, sample, length, most=batch_size, clock=clock)
    sizes = (buckets if on_cpu(engine) else device_buckets)(batch_size) if layout.joins else (1,)
    measured, overflow = _measure(engine, layout, sample, sizes, clock)
    return _placed(engine, layout, LatencyProfile(measured, steps=fills_up(engine)), sample, cpus, clock, overflow)


def fills_up(engine: Engine) -> bool:
    """Whether a run gets the next of the warmed sizes, since each has a capture or a session of its own."""
    runs = engine.device_runs
    return runs is not None and runs.mode is not RunMode.ONE_SESSION


def buckets(batch_size: int) -> tuple[int, ...]:
    """The sizes that are warmed: powers of two below the batch size, and the batch size."""
    return (*(1 << i for i in range(batch_size.bit_length()) if 1 << i < batch_size), batch_size)


def device_buckets(batch_size: int) -> tuple[int, ...]:
    """The same for a device that is filled up to the next size: with each eighth between, little of a run is filler."""
    eighths = (batch_size * i // _PARTS for i in range(1, _PARTS)) if batch_size >= 2 * _PARTS else ()
    return tuple(sorted({*buckets(batch_size), *eighths}))


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
            engine.capture(feeds)
            measured[size] = min(_computed(engine, feeds, clock) for _ in range(rounds))
        except MemoryError as error:
            if size == 1:
                raise out_of_memory(f"for a single row: {error}", on_cpu=on_cpu(engine)) from error
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
    # A device does one run at a time, whoever asks it.
    alone = inline or cpus < 2 or not on_cpu(engine)
    threads = 1 if alone or not _CONCURRENT_SECONDS[0] < one < _CONCURRENT_SECONDS[1] else cpus
    if threads > 1 and _speedup(engine, sample, threads, one, clock) < _CONCURRENT_WORTH:
        threads = 1
    switch = _switch_seconds(engine, layout, profile, sample, clock) if layout.joins else 0.0
    prepares = layout.joins and _staged(engine, sample) is not None
    return Warm(layout, profile, layout.bucket(sample, ())[1:], inline, threads, overflow, switch, prepares)


def _switch_seconds(engine: Engine, layout: Layout, profile: LatencyProfile, sample: Tensors, clock: Clock) -> float:
    """What going from one number of rows to another costs over runs that stay; 0 on a CPU, which does not mind."""
    sizes = sorted(profile.measured)
    if on_cpu(engine) or len(sizes) < 2:
        return 0.0
    in_turn = [(size, layout.padded(sample, size - 1) if size > 1 else sample) for size in sizes] * _ROUNDS
    excess = [_computed(engine, feeds, clock) - profile.seconds(size) for size, feeds in in_turn]
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


def _computed(engine: Engine, feeds: Tensors, clock: Clock) -> float:
    """Seconds that a run computes, without the copies that others hide."""
    seconds = _staged(engine, feeds)
    return _timed(engine, feeds, clock) if seconds is None else seconds


def _staged(engine: Engine, feeds: Tensors) -> float | None:
    """Seconds of a run from buffers; None where there are none."""
    stage = engine.stage(shapes_of(feeds))
    if stage is None:
        return None
    with stage:
        for name, place in stage.feeds.items():
            np.copyto(place, feeds[name])
        stage.start()
        stage.answers()
    return stage.seconds


def _timed(engine: Engine, feeds: Mapping[str, Tensor], clock: Clock) -> float:
    begun = clock()
    engine.run(feeds)
    return clock() - begun
