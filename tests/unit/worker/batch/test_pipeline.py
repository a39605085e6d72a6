"""Segments of items through a model: in order, from where it was left, with faults told at their item and no later."""

from __future__ import annotations

import threading
from collections.abc import Generator
from itertools import accumulate, groupby, pairwise
from types import SimpleNamespace
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batch import pipeline as module
from inference_worker.batch.items import ArrayItems
from inference_worker.batch.pipeline import Pipeline, Segment, columns
from inference_worker.batch.ragged import Ragged, joined
from inference_worker.errors import WorkerError
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import ALONE, ROWS, Formula, Scripted, doubled

if TYPE_CHECKING:
    from collections.abc import Callable

    from inference_worker.engines.engine import Engine, Tensors

BAD = 666.0


def numbered(count: int) -> np.ndarray:
    return np.arange(count, dtype=np.float32)[:, None].repeat(2, axis=1)


class Read(ArrayItems):
    """Items that note what is read, and by whom."""

    def __init__(self, x: np.ndarray) -> None:
        super().__init__({"x": x}, {"x": 0})
        self.reads: list[tuple[int, int]] = []
        self.threads: set[str] = set()

    def rows(self, start: int, end: int) -> dict[str, np.ndarray]:
        self.reads.append((start, end))
        self.threads.add(threading.current_thread().name)
        return super().rows(start, end)


def nothing(feeds: Tensors, first: int) -> None:
    pass


def a_pipeline(
    engine: Engine, x: np.ndarray | Read, *, size: int = 4, check: Callable[[Tensors, int], None] = nothing, layout: object = ROWS
) -> Pipeline:
    items = x if isinstance(x, Read) else Read(x)
    return Pipeline(engine, layout, items, size=size, check=check)  # type: ignore[arg-type]


def joined_answers(segments: list[Segment]) -> np.ndarray:
    found = columns(segments, {"y": 0})["y"]
    assert isinstance(found, np.ndarray)
    return found


def never() -> bool:
    return False


def spans(segments: list[Segment]) -> list[tuple[int, int]]:
    return [(segment.start, segment.end) for segment in segments]


@given(
    count=st.integers(1, 60),
    size=st.integers(1, 9),
    start=st.integers(0, 59),
    batches=st.integers(1, 4),
    fixed=st.none() | st.integers(1, 7),
    staged=st.booleans(),
)
@settings(STEADY, max_examples=120)
def test_every_item_from_the_start_on_is_answered_once_and_in_order(
    count: int, size: int, start: int, batches: int, fixed: int | None, *, staged: bool
) -> None:
    engine = Formula(doubled, rows=fixed, staged=staged)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SEGMENT_BATCHES", batches)
        segments = list(a_pipeline(engine, x := numbered(count), size=fixed or size).segments(start, never))

    assert all(a.end == b.start for a, b in pairwise(segments))
    if start >= count:
        assert segments == []
        return
    assert (segments[0].start, segments[-1].end) == (start, count)
    assert np.array_equal(joined_answers(segments), x[start:] * 2)
    assert [n for segment in segments for n, _ in segment.timings] == [
        len(batch["y"]) for segment in segments for batch in segment.answers
    ]
    assert fixed is None or set(engine.sizes) == {fixed}


@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=20),
    st.integers(1, 4),
    st.integers(1, 6),
    st.integers(1, 6),
    st.none() | st.integers(1, 4),
)
@settings(STEADY, max_examples=60)
def test_neighbours_of_one_length_share_runs_that_no_segment_and_no_new_attempt_changes(
    lengths: list[int], size: int, batches: int, other: int, fixed: int | None
) -> None:
    """A job that is run again, or goes on after a kill, gives the same answers to the last bit."""
    values = [np.full((1, length), i, np.float32) for i, length in enumerate(lengths)]
    items = ArrayItems({"x": joined(values)}, {"x": 0})

    def runs(start: int, most: int) -> tuple[list[Segment], list[tuple[int, ...]]]:
        seen: list[tuple[int, ...]] = []

        def compute(x: np.ndarray) -> np.ndarray:
            seen.append(x.shape)
            return x * 2

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(module, "_SEGMENT_BATCHES", most)
            engine = Formula(compute, rows=fixed)
            segments = list(Pipeline(engine, ROWS, items, size=fixed or size, check=nothing).segments(start, never))
        return segments, seen

    segments, seen = runs(0, batches)
    column = columns(segments, {"y": 0})["y"]
    again, seen_again = runs(segments[0].end, other)

    answers = [row.tolist() for span in (column.spans() if isinstance(column, Ragged) else [column]) for row in span]
    assert answers == [[2.0 * i] * length for i, length in enumerate(lengths)]
    assert seen[len(seen) - len(seen_again) :] == seen_again
    assert len(list(groupby(lengths))) == sum(a[1] != b[1] for a, b in pairwise(seen)) + 1
    assert [end for segment in again for end in ends(segment)] == [end for segment in segments[1:] for end in ends(segment)]


def ends(segment: Segment) -> list[int]:
    """Where each batch ends."""
    return [segment.start + count for count in accumulate(count for count, _ in segment.timings)]


def test_until_a_batch_has_run_segments_are_single_and_later_ones_are_many_but_not_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "_SEGMENT_BYTES", 8 * 4 * 3)

    segments = list(a_pipeline(Formula(doubled), numbered(40)).segments(0, never))

    # An item has eight bytes, so three batches of four fill a segment.
    assert spans(segments) == [(0, 4), (4, 8), (8, 20), (20, 32), (32, 40)]


def test_a_slow_models_segments_end_so_that_they_can_be_committed(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    clock = SimpleNamespace(perf_counter=lambda: now[0], monotonic=lambda: now[0])
    monkeypatch.setattr(module, "time", clock)

    def takes_a_second(x: np.ndarray) -> np.ndarray:
        now[0] += 1.0
        return x * 2

    segments = list(a_pipeline(Formula(takes_a_second), numbered(100), size=1).segments(0, never))

    assert max(len(segment.answers) for segment in segments) <= 10
    assert np.array_equal(joined_answers(segments), numbered(100) * 2)


def test_the_next_segment_is_read_beside_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEGMENT_BATCHES", 1)
    read = Read(numbered(12))
    segments = a_pipeline(Formula(doubled), read).segments(0, never)
    assert isinstance(segments, Generator)

    next(segments)
    next(segments)
    segments.close()

    assert read.reads == [(0, 4), (4, 8), (8, 12)]
    assert len(read.threads) == 2 and any(name.startswith("reading") for name in read.threads)


@pytest.mark.parametrize("staged", [False, True])
def test_a_fault_of_the_input_is_told_when_its_segment_comes_and_not_before(
    monkeypatch: pytest.MonkeyPatch, *, staged: bool
) -> None:
    monkeypatch.setattr(module, "_SEGMENT_BATCHES", 1)

    def check(feeds: Tensors, first: int) -> None:
        if BAD in feeds["x"]:
            raise ValueError(f"bad from {first} on")

    x = numbered(16)
    x[9] = BAD
    pipeline = a_pipeline(Formula(doubled, staged=staged), x, check=check)
    segments = pipeline.segments(0, never)

    assert spans([next(segments), next(segments)]) == [(0, 4), (4, 8)]
    with pytest.raises(ValueError, match="from 8 on"):
        next(segments)
    assert pipeline.first == 8


@pytest.mark.parametrize("staged", [False, True])
def test_a_fault_of_the_model_is_told_with_the_first_item_of_its_batch(*, staged: bool) -> None:
    x = numbered(30)
    x[21] = BAD
    pipeline = a_pipeline(Scripted(faults=lambda seen: ValueError("no") if BAD in seen else None, staged=staged), x)

    with pytest.raises(ValueError, match="no"):
        list(pipeline.segments(0, never))

    assert pipeline.first == 20


def test_a_stop_ends_with_the_batch_that_runs_and_loses_none_of_its_answers() -> None:
    engine = Formula(doubled)
    pipeline = a_pipeline(engine, x := numbered(40))

    segments = list(pipeline.segments(0, lambda: len(engine.sizes) >= 4))

    assert spans(segments) == [(0, 4), (4, 8), (8, 16)] and len(engine.sizes) == 4
    again = list(pipeline.segments(segments[-1].end, never))
    assert np.array_equal(joined_answers([*segments, *again]), x * 2)


def test_what_is_stopped_already_does_not_begin() -> None:
    engine = Formula(doubled)

    assert list(a_pipeline(engine, numbered(4)).segments(0, lambda: True)) == [] and engine.sizes == []


@given(stop=st.integers(1, 8), batches=st.integers(1, 4))
@settings(STEADY, max_examples=30)
def test_a_stop_loses_no_answer_that_was_given_while_the_next_run_was_prepared(stop: int, batches: int) -> None:
    engine = Formula(doubled, staged=True)
    pipeline = a_pipeline(engine, x := numbered(40))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_SEGMENT_BATCHES", batches)
        segments = list(pipeline.segments(0, lambda: len(engine.sizes) >= stop))
        end = segments[-1].end if segments else 0
        again = list(pipeline.segments(end, never))

    assert end < len(x) and np.array_equal(joined_answers([*segments, *again]), x * 2)


def test_a_batch_that_finds_no_memory_is_halved_and_so_are_all_that_follow() -> None:
    engine = Scripted(faults=lambda seen: MemoryError("no room") if len(seen) > 3 else None)
    pipeline = a_pipeline(engine, x := numbered(40), size=8)

    segments = list(pipeline.segments(0, never))

    assert np.array_equal(joined_answers(segments), x * 2)
    sizes = [len(seen) for seen in engine.seen]
    assert sizes[:3] == [8, 4, 2] and max(sizes[8:]) <= 3
    assert [n for segment in segments for n, _ in segment.timings][1:3] == [2, 2]


def test_an_item_that_finds_no_memory_alone_ends_the_task() -> None:
    pipeline = a_pipeline(Scripted(faults=lambda _: MemoryError("no room")), numbered(8))

    with pytest.raises(MemoryError):
        list(pipeline.segments(0, never))


def test_a_model_that_does_not_batch_is_not_halved() -> None:
    engine = Scripted(faults=lambda _: MemoryError("no room"))

    with pytest.raises(MemoryError, match="single item"):
        list(a_pipeline(engine, numbered(8), size=1, layout=ALONE).segments(0, never))

    assert len(engine.seen) == 1


def test_answers_of_different_numbers_of_dimensions_are_refused_in_words() -> None:
    segments = [Segment(i, i + 1, [{"y": np.zeros((1, *shape))}], []) for i, shape in enumerate([(2,), (2, 2)])]

    with pytest.raises(WorkerError, match=r"'y'.*dimensions"):
        columns(segments, {"y": 0})


def test_columns_have_the_items_first_wherever_the_model_has_them() -> None:
    batches = [{"y": np.full((3, rows, 2), rows), "z": np.full(rows, rows)} for rows in (1, 2)]
    segments = [Segment(0, 1, [batches[0]], []), Segment(1, 3, [batches[1]], [])]

    found = {name: np.asarray(column) for name, column in columns(segments, {"y": 1, "z": 0}).items()}

    assert found["y"].shape == (3, 3, 2) and found["z"].tolist() == [1, 2, 2] == found["y"][:, 0, 0].tolist()
