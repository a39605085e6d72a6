"""What a model shows of itself before anybody asks it: a batch is made only of rows that leave each other alone."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_protocol.reasons import WorkerReason
from inference_worker import warmup
from inference_worker.engines.engine import Engine
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.probe import understood
from inference_worker.trial_rows import sample_of
from inference_worker.warmup import Warm, buckets, warm_up
from tests.process import models
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import Clock, Formula, Scripted, doubled, spec


def layout_of(engine: Engine) -> tuple[object, str]:
    """Where the rows of the answers are, and why not."""
    layout = understood(engine, sample_of(engine.inputs, 1), 1)
    return layout.outputs if layout.joins else None, layout.why


def real(data: bytes) -> OnnxEngine:
    return OnnxEngine(data, providers=("CPUExecutionProvider",), threads=1)


@pytest.mark.parametrize(
    "name", ["identity", "matmul", "add", "two_outputs", "label", "named_label", "square_root", "scaled", "gather"]
)
def test_models_that_treat_each_row_alone_are_batched(name: str) -> None:
    engine = real(getattr(models, name)())

    outputs, why = layout_of(engine)

    assert outputs == {out.name: 0 for out in engine.outputs} and why == ""


MIXING = {
    "softmax over the rows": lambda x: np.exp(x) / np.exp(x).sum(axis=0),
    "the mean taken off": lambda x: x - x.mean(axis=0),
    "the largest of all rows": lambda x: np.broadcast_to(x.max(axis=0), x.shape),
    "running sums": lambda x: x.cumsum(axis=0),
    "rows turned round": lambda x: x[::-1],
    "a whole number of all rows": lambda x: np.broadcast_to((x.sum(axis=0) > 0.0).astype(np.int64), x.shape),
}


@pytest.mark.parametrize("mixing", MIXING)
def test_rows_that_depend_on_those_beside_them_are_not_batched(mixing: str) -> None:
    outputs, why = layout_of(Formula(MIXING[mixing]))

    assert outputs is None and "'y'" in why and "beside it" in why


ROWLESS = {
    "a scalar": lambda x: x.sum(),
    "one row for all": lambda x: x.sum(axis=0, keepdims=True),
    "columns": lambda x: x.sum(axis=0),
    "a fixed size": lambda x: np.resize(x, (4, 2)),
    "two axes": lambda x: x @ x.T,
    "two rows for each": lambda x: np.concatenate([x, x]),
    "axes that come and go": lambda x: x if len(x) < 3 else x[None],
}


@pytest.mark.parametrize("rowless", ROWLESS)
def test_answers_without_one_axis_of_rows_are_not_batched(rowless: str) -> None:
    outputs, why = layout_of(Formula(ROWLESS[rowless]))

    assert outputs is None and "'y'" in why and "no dimension that counts rows" in why


def test_one_output_that_can_not_be_cut_is_enough() -> None:
    engine = Formula(lambda x: {"y": x, "total": x.sum()}, outputs=(spec("y"), spec("total", (), None)))

    assert layout_of(engine)[0] is None


def test_a_model_that_refuses_several_rows_is_not_batched() -> None:
    def single(x: np.ndarray) -> np.ndarray:
        if len(x) > 1:
            raise ValueError("one at a time")
        return x

    outputs, why = layout_of(Formula(single))

    assert outputs is None and "one at a time" in why


def test_a_model_without_an_axis_of_rows_is_not_batched() -> None:
    engine = Formula(lambda x: x, inputs=(spec("x", (3,), None),))

    assert layout_of(engine) == (None, "none of its inputs has a dimension that counts rows")


@given(st.integers(0, 2), st.integers(0, 2), st.sampled_from(["FP32", "FP64", "FP16", "INT64", "INT8", "BOOL", "UINT8"]))
@settings(STEADY, max_examples=60)
def test_rows_are_found_on_whatever_axis_they_come_and_go(into: int, out: int, datatype: str) -> None:
    shape: list[int | None] = [4, 5]
    shape.insert(into, None)
    engine = Formula(lambda x: np.moveaxis(x, into, out), inputs=(spec("x", tuple(shape), into, datatype),))

    assert layout_of(engine)[0] == {"y": out}


def test_texts_are_told_apart_too() -> None:
    inputs = (spec("x", (None, 1), 0, "BYTES"),)
    longest = Formula(lambda x: np.full(x.shape, max(x.ravel(), key=len), dtype=object), inputs=inputs)

    assert layout_of(longest)[0] is None
    assert layout_of(Formula(lambda x: x, inputs=inputs))[0] == {"y": 0}


def test_rounding_is_no_mixing_and_what_is_not_finite_may_be_alike() -> None:
    rough = Formula(lambda x: x * np.float32(1 + 1e-6 * len(x)))
    nothing = Formula(lambda x: x / 0 * np.nan)

    with np.errstate(all="ignore"):
        assert layout_of(rough)[0] == layout_of(nothing)[0] == {"y": 0}


def test_a_shared_input_is_the_same_for_all_rows_of_a_run_and_is_tried_off_and_on() -> None:
    seen = []

    def compute(x: np.ndarray, rate: np.ndarray) -> np.ndarray:
        seen.append(rate.tolist())
        return x * rate

    assert layout_of(Formula(compute, inputs=(spec(), spec("rate", (1,), None))))[0] == {"y": 0}
    assert {tuple(rate) for rate in seen} == {(0.0,), (1.0,)}


# the whole warm-up


def stepping(clock: Clock, seconds: dict[int, float], *, room: int = 1 << 20) -> Formula:
    """A device of these times by rows."""

    def compute(x: np.ndarray) -> np.ndarray:
        if len(x) > room:
            raise MemoryError(f"{len(x)} rows")
        clock.now += seconds.get(len(x), 1.0)
        return x * 2

    return Formula(compute)


def test_every_size_is_measured_up_to_the_batch_size() -> None:
    clock = Clock()
    times = {1: 0.001, 2: 0.0015, 4: 0.002, 6: 0.003}

    warm = warm_up(stepping(clock, times), 6, clock=clock)

    assert warm.profile.measured == pytest.approx(times) and warm.overflow is None
    assert warm.items_per_second == pytest.approx(2000.0)
    assert warm.layout.outputs == {"y": 0} and warm.shape == ((2,),)


@pytest.mark.parametrize(("batch", "sizes"), [(1, (1,)), (2, (1, 2)), (3, (1, 2, 3)), (8, (1, 2, 4, 8)), (9, (1, 2, 4, 8, 9))])
def test_the_sizes_are_powers_of_two_and_the_batch_size(batch: int, sizes: tuple[int, ...]) -> None:
    assert buckets(batch) == sizes


def test_a_slow_device_is_not_measured_three_times_a_size() -> None:
    clock = Clock()
    engine = stepping(clock, dict.fromkeys((1, 2, 3, 4, 8), 30.0))

    warm_up(engine, 8, clock=clock)

    assert engine.sizes.count(8) == engine.sizes.count(4) == 1


@pytest.mark.parametrize(("room", "sizes", "overflow"), [(5, [1, 2, 4], 8), (3, [1, 2], 4), (64, [1, 2, 4, 8], None)])
def test_the_size_that_finds_no_memory_is_left_out_and_told(room: int, sizes: list[int], overflow: int | None) -> None:
    clock = Clock()

    warm = warm_up(stepping(clock, {}, room=room), 8, clock=clock)

    assert sorted(warm.profile.measured) == sizes and warm.overflow == overflow


def test_a_size_that_is_refused_is_left_out_too() -> None:
    def compute(x: np.ndarray) -> np.ndarray:
        if len(x) > 4:
            raise RuntimeError("too many")
        return x

    warm = warm_up(Formula(compute), 8)

    assert sorted(warm.profile.measured) == [1, 2, 4] and warm.overflow == 8


def test_a_batch_that_can_not_even_be_put_together_is_left_out_like_one_that_does_not_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    # Larger than any address space: numpy says so at once.
    monkeypatch.setattr(warmup, "buckets", lambda _: (1, 1 << 60))

    assert warm_up(Formula(doubled), 1 << 60).overflow == 1 << 60


def test_no_memory_for_a_single_row_is_an_error_with_a_way_out() -> None:
    with pytest.raises(WorkerError) as caught:
        warm_up(Scripted(faults=lambda _: MemoryError("no room")), 4)

    assert caught.value.reason is WorkerReason.OUT_OF_MEMORY and not caught.value.permanent
    assert "batchSize" in caught.value.message and "memory limit" in caught.value.message
    assert "deviceMemory" not in caught.value.message


def test_a_device_without_memory_is_not_cured_by_the_hosts() -> None:
    engine = Scripted(faults=lambda _: MemoryError("no room"))
    engine.provider = "CUDAExecutionProvider"
    with pytest.raises(WorkerError) as caught:
        warm_up(engine, 4)

    first, _, of_host = caught.value.message.partition("; if the host's memory is short, ")
    assert "lower batchSize, raise deviceMemory of the accelerator class, or use a class with more device memory" in first
    assert of_host == "raise the memory limit (resources.limits.memory)"


def test_a_model_that_refuses_zeros_is_ready_without_batches_and_without_a_rate() -> None:
    warm = warm_up(Scripted(faults=lambda _: ValueError("division by zero rows")), 2)

    assert warm.layout.outputs == {"y": None} and "division by zero rows" in warm.layout.why
    assert (warm.items_per_second, warm.shape, warm.inline, warm.threads) == (None, None, False, 1)


def test_a_model_of_so_many_rows_is_run_with_just_those() -> None:
    engine = Formula(doubled, rows=5)

    warm = warm_up(engine, 8)

    assert set(engine.sizes) == {5} and list(warm.profile.measured) == [5]
    assert not warm.layout.joins and "exactly 5 rows" in warm.layout.why


def placed(seconds: dict[int, float], *, cpus: int = 1) -> Warm:
    clock = Clock()
    return warm_up(stepping(clock, seconds), 4, cpus=cpus, clock=clock)


def test_only_what_never_blocks_the_loop_for_long_runs_on_it() -> None:
    quick = {1: 20e-6, 2: 25e-6, 3: 25e-6, 4: 30e-6}

    assert placed(quick).inline
    assert not placed({**quick, 4: 300e-6}).inline
    assert not placed(dict.fromkeys(quick, 80e-6)).inline


def test_several_threads_are_for_runs_that_gain_by_them() -> None:
    # One clock for all threads: what runs side by side takes as long as one after another.
    assert placed(dict.fromkeys((1, 2, 3, 4), 0.001), cpus=4).threads == 1
    assert placed(dict.fromkeys((1, 2, 3, 4), 20e-6), cpus=4).threads == 1


def test_runs_that_share_the_device_well_get_a_thread_a_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(warmup, "_speedup", lambda *_: 1.9)

    assert [placed(dict.fromkeys((1, 2, 3, 4), 0.001), cpus=cpus).threads for cpus in (1, 2, 4)] == [1, 2, 4]
    assert placed(dict.fromkeys((1, 2, 3, 4), 1.0), cpus=4).threads == 1
