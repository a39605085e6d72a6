"""The latency sketch: near every quantile, the same merged as whole, and able to tell what is new."""

import math

from hypothesis import given
from hypothesis import strategies as st

from inference_protocol.sketch import RELATIVE_ACCURACY, LatencySketch, added, merged

durations = st.floats(1e-6, 3600.0)
samples = st.lists(durations, min_size=1, max_size=60)
quantiles = st.floats(0.0, 1.0)


def sketch_of(values: list[float]) -> LatencySketch:
    sketch = LatencySketch()
    for value in values:
        sketch.record(value)
    return sketch


@given(samples, quantiles)
def test_a_quantile_is_near_the_true_one(values: list[float], q: float) -> None:
    true = sorted(values)[math.floor(q * (len(values) - 1))]
    answer = sketch_of(values).quantile(q)

    assert answer is not None
    assert abs(answer - true) <= true * RELATIVE_ACCURACY * (1 + 1e-9)


@given(st.lists(samples, max_size=4))
def test_merged_sketches_equal_the_sketch_of_everything(groups: list[list[float]]) -> None:
    whole = sketch_of([value for group in groups for value in group])
    parts = merged(sketch_of(group) for group in groups)

    assert (parts.counts, parts.total) == (whole.counts, whole.total)


@given(samples, samples)
def test_what_was_added_is_what_came_in_since(early: list[float], late: list[float]) -> None:
    before, after = sketch_of(early), sketch_of(early + late)

    assert added(before.counts, after.counts) == sketch_of(late).counts
    assert before.counts == sketch_of(early).counts


def test_after_a_restart_everything_is_new() -> None:
    before = sketch_of([1.0, 2.0])

    # Others than before, fewer of the same, more of one and none of the other.
    for restarted in (sketch_of([3.0]), sketch_of([1.0]), sketch_of([1.0, 1.0, 3.0])):
        assert added(before.counts, restarted.counts) == restarted.counts


@given(samples)
def test_counts_survive_the_way_over_the_wire(values: list[float]) -> None:
    sketch = sketch_of(values)
    again = LatencySketch(sketch.counts)

    assert again.total == len(values)
    assert again.quantile(0.5) == sketch.quantile(0.5)


def test_a_weight_counts_so_often() -> None:
    heavy, many = LatencySketch(), sketch_of([0.01] * 32)
    heavy.record(0.01, weight=32)

    assert (heavy.counts, heavy.total) == (many.counts, many.total)


def test_nothing_recorded_has_no_quantile() -> None:
    assert LatencySketch().quantile(0.5) is None
    assert merged([]).quantile(0.99) is None


@given(st.floats(allow_nan=False))
def test_whatever_is_recorded_the_sketch_stays_small(value: float) -> None:
    sketch = sketch_of([value, 1e-6, 3600.0])

    assert all(-1000 < index < 600 for index in sketch.counts)
    assert sketch.quantile(1.0) is not None
