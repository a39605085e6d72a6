"""A batch's runs under watch: one that hangs is noticed, and one that is only long, or the first of its kind, is left alone."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inference_worker.batching.in_flight import _STUCK_TIMES, FIRST_SECONDS, STUCK_SECONDS
from inference_worker.batching.slack import InSlack, Slack
from inference_worker.batching.watched import WatchedEngine
from tests.unit.worker.scripted_engines import Clock, Formula, doubled

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


class Watch:
    """A watched engine whose runs take as long as a test says, with a look each second."""

    def __init__(self, *, staged: bool = False, warmed: Callable[[Mapping[str, Any]], float | None] = lambda _: None) -> None:
        self.clock, self.found = Clock(), ""
        self._seconds = 0.0
        engine = Formula(self._compute, staged=staged)
        self.engine = WatchedEngine(engine, rows=lambda feeds: len(feeds["x"]), warmed=warmed, clock=self.clock)

    def _compute(self, x: Any) -> Any:
        for _ in range(int(self._seconds)):
            self.found = self.engine.hung or self.found
            self.clock.now += 1
        self.found = self.engine.hung or self.found
        return doubled(x)

    def run(self, seconds: float, rows: int = 3) -> str:
        """What was found while a run took so long."""
        self._seconds, self.found = seconds, ""
        feeds = {"x": np.zeros((rows, 2), np.float32)}
        if self.engine.device_runs is None:
            self.engine.run(feeds)
        else:
            stage = self.engine.stage((("x", (rows, 2)),))
            assert stage is not None
            with stage:
                stage.write("x", [feeds["x"]])
                stage.start()
                stage.answers()
        assert self.engine.hung is None
        return self.found


@pytest.mark.parametrize(("seconds", "hangs"), [(STUCK_SECONDS, False), (STUCK_SECONDS + 1, True)])
def test_a_run_like_others_hangs_after_a_minute(seconds: float, *, hangs: bool) -> None:
    watch = Watch()
    watch.run(0)

    assert (watch.run(seconds) != "") is hangs


def test_the_words_name_rows_and_seconds() -> None:
    watch = Watch()
    watch.run(0)

    assert watch.run(STUCK_SECONDS + 1) == "a run of 3 rows has not ended for 61 s"


def test_a_long_run_gives_others_like_it_a_hundred_times_as_long() -> None:
    for seconds, hangs in ((5 * _STUCK_TIMES, False), (5 * _STUCK_TIMES + 1, True)):
        watch = Watch()
        watch.run(5)
        assert (watch.run(seconds) != "") is hangs


def test_the_first_run_of_a_shape_may_compile() -> None:
    watch = Watch()
    watch.run(0, rows=7)

    assert watch.run(FIRST_SECONDS, rows=3) == ""


def test_the_first_run_of_a_shape_hangs_too_in_the_end() -> None:
    assert Watch().run(FIRST_SECONDS + 1) != ""


@pytest.mark.parametrize(("measured", "limit"), [(0.1, STUCK_SECONDS), (3.0, 300.0)])
def test_what_the_warm_up_has_run_is_no_first_run(measured: float, limit: float) -> None:
    assert Watch(warmed=lambda _: measured).run(limit) == ""
    assert Watch(warmed=lambda _: measured).run(limit + 1) != ""


def test_a_run_from_buffers_is_watched_too() -> None:
    watch = Watch(staged=True)
    watch.run(0)

    assert watch.run(STUCK_SECONDS + 1) != ""


def test_a_run_that_fails_is_over() -> None:
    def fail(x: Any) -> Any:
        raise RuntimeError("a fault of the model")

    engine = WatchedEngine(Formula(fail))
    with pytest.raises(RuntimeError):
        engine.run({"x": np.zeros((1, 2), np.float32)})

    assert engine.under_way is None and engine.hung is None


def test_to_wait_behind_requests_is_no_part_of_a_run() -> None:
    stop, waits, clock = threading.Event(), threading.Event(), Clock()

    def busy() -> bool:
        waits.set()
        return True

    engine = WatchedEngine(Formula(doubled), warmed=lambda _: 0.1, clock=clock)
    behind = InSlack(engine, Slack(busy), stop.is_set)
    running = threading.Thread(target=behind.run, args=({"x": np.zeros((1, 2), np.float32)},))
    running.start()
    waits.wait()

    assert engine.hung is None
    clock.now += 10 * STUCK_SECONDS
    assert engine.hung is None
    stop.set()
    running.join()
