"""One batch through the model: each member gets what it would get alone, or its own fault, whatever happens to the others."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching.execute import Execution, Report
from inference_worker.batching.rows import Layout
from inference_worker.engines.engine import Cancellation, RunCancelledError
from inference_worker.engines.onnx import OnnxEngine
from tests.process import models
from tests.process.harness import until
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import ALONE, ROWS, Formula, Scripted, a_row, spec

if TYPE_CHECKING:
    from collections.abc import Callable

POISON = 666.0


def members(*sizes: int) -> list[dict[str, np.ndarray]]:
    """So many requests; each row of each has its own number."""
    starts = np.cumsum([0, *sizes])
    return [a_row(*range(int(start) + 1, int(start) + size + 1)) for start, size in zip(starts, sizes, strict=False)]


def poisoned(x: np.ndarray) -> Exception | None:
    return ValueError("bad row") if POISON in x else None


def fits(rows: int) -> Callable[[np.ndarray], Exception | None]:
    return lambda x: MemoryError(f"{len(x)} rows") if len(x) > rows else None


def run(engine: Any, asked: list[dict[str, np.ndarray]], *, layout: Layout = ROWS, limit: int = 64, **more: Any) -> Report:
    return Execution(engine, layout, **more).run(asked, [layout.rows(one) for one in asked], (), limit, Cancellation())


def values(report: Report) -> list[Any]:
    """Answers as lists, faults as their names."""
    return [type(a).__name__ if isinstance(a, Exception) else a["y"][:, 0].tolist() for a in report.answers]


def test_members_share_one_run_and_each_gets_its_own_rows() -> None:
    engine = Scripted()

    report = run(engine, members(1, 2, 1))

    assert values(report) == [[2], [4, 6], [8]]
    assert engine.sizes == [4] and [rows for rows, _ in report.runs] == [4] and report.fault is None


def test_one_who_spoils_the_batch_is_refused_alone() -> None:
    report = run(Scripted(faults=poisoned), [a_row(1), a_row(POISON), a_row(3, 4)])

    assert values(report) == [[2], "ValueError", [6, 8]]
    assert report.fault is None


def test_one_whose_row_breaks_the_model_is_told_so_alone() -> None:
    report = run(Scripted(faults=lambda x: RuntimeError("broken") if POISON in x else None), [a_row(1), a_row(POISON)])

    assert values(report) == [[2], "RuntimeError"] and isinstance(report.fault, RuntimeError)


def test_a_fault_of_the_device_is_everybodys() -> None:
    report = run(Scripted(faults=lambda _: RuntimeError("gone")), members(1, 1, 1))

    assert values(report) == ["RuntimeError"] * 3 and report.runs == []


def test_what_finds_no_memory_is_halved_until_it_fits_and_the_failures_are_told() -> None:
    engine = Scripted(faults=fits(2))

    report = run(engine, members(3, 5))

    assert values(report) == [[2, 4, 6], [8, 10, 12, 14, 16]]
    assert report.overflows == [8, 4] and [rows for rows, _ in report.runs] == [2, 2, 2, 2]


def test_what_does_not_fit_alone_is_a_lack_of_memory() -> None:
    report = run(Scripted(faults=fits(0)), members(2))

    assert values(report) == ["MemoryError"] and report.overflows == [2, 1]


def test_parts_whose_answers_have_different_shapes_are_a_lack_of_memory() -> None:
    """In numpy's words, the caller's arrays were at fault."""

    def cut_to_the_largest(x: np.ndarray) -> np.ndarray:
        if len(x) > 1:
            raise MemoryError("no room")
        return np.zeros((1, int(x.max())), np.float32)

    report = run(Formula(cut_to_the_largest), [a_row(1, 2)])

    (answer,) = report.answers
    assert isinstance(answer, MemoryError) and "2 rows" in str(answer) and isinstance(report.fault, MemoryError)


def test_one_whose_row_alone_finds_no_memory_is_refused_alone() -> None:
    report = run(
        Scripted(faults=lambda x: MemoryError("its own size") if POISON in x else None), [a_row(1), a_row(POISON), a_row(3)]
    )

    assert values(report) == [[2], "MemoryError", [6]]


def test_no_run_has_more_rows_than_the_limit() -> None:
    engine = Scripted()

    assert values(run(engine, members(3, 4), limit=3)) == [[2, 4, 6], [8, 10, 12, 14]]
    assert engine.sizes == [3, 3, 1]


def test_short_runs_are_filled_up_and_their_answers_cut() -> None:
    engine = Scripted()

    report = run(engine, members(1, 2), pad=lambda rows: max(rows, 4))

    assert values(report) == [[2], [4, 6]] and engine.firsts == [[1, 2, 3, 3]]
    assert [rows for rows, _ in report.runs] == [4]


def test_answers_that_have_lost_rows_are_not_given_to_the_wrong_member() -> None:
    dropping = Formula(lambda x: x[x[:, 0] != 2] * 2)

    report = run(dropping, members(1, 1, 1))

    assert values(report)[0] == [2] and values(report)[2] == [6]
    assert dropping.sizes == [3, 1, 1, 1]


def test_a_model_that_does_not_batch_gets_its_requests_whole_whatever_the_limit() -> None:
    engine = Scripted()

    assert values(run(engine, members(5), layout=ALONE, limit=2)) == [[2, 4, 6, 8, 10]] and engine.sizes == [5]


def test_only_the_outputs_that_are_wanted_are_asked_for() -> None:
    both = Formula(lambda x: {"y": x, "z": -x}, outputs=(spec("y"), spec("z")))
    layout = Layout({"x": 0}, {"y": 0, "z": 0})

    report = Execution(both, layout).run(members(1, 1), [1, 1], ("z",), 8, Cancellation())

    assert [set(answer) for answer in report.answers if not isinstance(answer, Exception)] == [{"z"}, {"z"}]


def test_a_run_that_is_cancelled_ends_for_all_and_is_no_fault() -> None:
    engine = Scripted(held=True)
    cancellation, reports = Cancellation(), []
    execution = Execution(engine, ROWS)
    thread = threading.Thread(target=lambda: reports.append(execution.run(members(1, 1), [1, 1], (), 8, cancellation)))
    thread.start()
    assert engine._begun.acquire(timeout=20)

    cancellation.cancel()
    thread.join(20)

    assert values(reports[0]) == ["RunCancelledError"] * 2
    assert reports[0].fault is None and len(engine.seen) == 1


def test_what_was_cancelled_before_it_began_does_not_run() -> None:
    engine, cancellation = Scripted(held=True), Cancellation()
    cancellation.cancel()

    report = Execution(engine, ROWS).run(members(1), [1], (), 8, cancellation)

    assert isinstance(report.answers[0], RunCancelledError)


def test_a_real_run_is_ended_from_another_thread() -> None:
    engine = OnnxEngine(models.slow(width=256, steps=4000), providers=("CPUExecutionProvider",), threads=1)
    cancellation, reports = Cancellation(), []
    feeds = {"x": np.ones((64, 256), np.float32)}
    execution = Execution(engine, Layout({"x": 0}, {"y": 0}))
    thread = threading.Thread(target=lambda: reports.append(execution.run([feeds], [64], (), 64, cancellation)))
    thread.start()
    until(lambda: cancellation._callback is not None, "the run's begin")

    cancellation.cancel()
    thread.join(60)

    assert isinstance(reports[0].answers[0], RunCancelledError) and reports[0].runs == []
    (again,) = execution.run([{"x": feeds["x"][:1]}], [1], (), 64, Cancellation()).answers
    assert not isinstance(again, Exception)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=6),
    limit=st.integers(1, 20),
    room=st.integers(1, 20),
    steps=st.integers(1, 8),
    bad=st.none() | st.integers(1, 20),
)
@settings(STEADY, max_examples=250)
def test_every_member_gets_what_it_would_get_alone(sizes: list[int], limit: int, room: int, steps: int, bad: int | None) -> None:
    def faults(x: np.ndarray) -> Exception | None:
        return MemoryError() if len(x) > max(room, steps) else ValueError() if bad is not None and float(bad) in x[:, 0] else None

    engine = Scripted(faults=faults)

    report = run(engine, asked := members(*sizes), limit=limit, pad=lambda rows: -(-rows // steps) * steps)

    for one, answer in zip(asked, report.answers, strict=True):
        if bad is not None and float(bad) in one["x"][:, 0]:
            assert isinstance(answer, ValueError)
        else:
            assert not isinstance(answer, Exception) and np.array_equal(answer["y"], one["x"] * 2)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.integers(1, 6))
@settings(STEADY, max_examples=40)
def test_every_row_of_a_real_model_equals_its_run_alone(sizes: list[int], limit: int) -> None:
    engine = OnnxEngine(models.matmul(), providers=("CPUExecutionProvider",), threads=1)
    rng = np.random.default_rng(sum(sizes))
    asked = [{"x": rng.standard_normal((size, 4)).astype(np.float32)} for size in sizes]

    report = run(engine, asked, limit=limit)

    for one, answer in zip(asked, report.answers, strict=True):
        alone = [engine.run({"x": one["x"][i : i + 1]})["y"] for i in range(len(one["x"]))]
        assert not isinstance(answer, Exception) and np.allclose(answer["y"], np.concatenate(alone), rtol=1e-5, atol=1e-6)


def test_rows_on_another_axis_are_members_too() -> None:
    """A recurrent state is [layers, rows, width], and its answer [rows, width, layers]."""
    turning = Formula(lambda h: np.moveaxis(h, 0, 2), inputs=(spec("h", (2, None, 3), 1),), outputs=(spec("y", (None, 3, 2)),))
    layout = Layout({"h": 1}, {"y": 0})
    asked = [{"h": np.full((2, rows, 3), rows, np.float32)} for rows in (1, 2, 3)]

    report = run(turning, asked, layout=layout, limit=4)

    assert turning.sizes == [4, 2]
    for rows, answer in zip((1, 2, 3), report.answers, strict=True):
        assert not isinstance(answer, Exception) and answer["y"].shape == (rows, 3, 2) and (answer["y"] == rows).all()
