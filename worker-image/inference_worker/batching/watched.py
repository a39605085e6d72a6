"""A batch's runs under watch, so that one that hangs is noticed: no batcher, which watches those of requests, sees them.

It stands directly around what computes. So to wait for a turn behind requests is no part of a run.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from types import TracebackType
from typing import Self

from inference_worker.batching.in_flight import hanging, hangs
from inference_worker.engines.engine import Cancellation, Engine, Shapes, Stage, Tensor, Tensors, shapes_of
from inference_worker.engines.wrapped import WrappedEngine

_SHAPES = 1024


class WatchedEngine(WrappedEngine):
    """See Engine. One thread runs, another one looks once a second whether a run hangs.

    Small models run in microseconds, so a run only leaves its feeds behind. How long it takes is what passes between looks.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        rows: Callable[[Tensors], int] = lambda _: 1,
        warmed: Callable[[Tensors], float | None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`rows` says how many a run has, `warmed` how long the warm-up measured such a run; None where it made none."""
        super().__init__(engine)
        self._rows, self._warmed, self._clock = rows, warmed, clock
        self.under_way: Tensors | None = None
        self.before: Tensors | None = None
        # What the last look saw: the run, since when, and until when.
        self._seen: Tensors | None = None
        self._since = self._until = 0.0
        self._seconds: dict[Shapes, float] = {}

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        """See Engine."""
        self.under_way = feeds
        try:
            return self._engine.run(feeds, wanted, cancellation)
        finally:
            self.under_way, self.before = None, feeds

    def stage(self, shapes: Shapes, *, wait: bool = True) -> Stage | None:
        """See Engine."""
        stage = self._engine.stage(shapes, wait=wait)
        return None if stage is None else _WatchedStage(stage, self)

    @property
    def hung(self) -> str | None:
        """Look whether the run under way will not end by itself, and say so in words; None while all is well."""
        now, run = self._clock(), self.under_way
        if run is not self._seen:
            self._note()
            self._seen, self._since = run, now
        self._until = now
        if run is None or not hangs(now - self._since, self._expected(run)):
            return None
        return hanging(self._rows(run), now - self._since)

    def _expected(self, run: Tensors) -> float | None:
        """Seconds that a run should take, by the longest one of these shapes; None where there was none."""
        shapes, before = shapes_of(run), self.before
        if (known := self._seconds.get(shapes)) is not None:
            return known
        # Those that no second look has seen are short, and only tell that such runs end.
        return 0.0 if before is not None and shapes_of(before) == shapes else self._warmed(run)

    def _note(self) -> None:
        """Remember how long the run took that was seen last, as far as it was seen."""
        if self._seen is None or self._until == self._since:
            return
        shapes = shapes_of(self._seen)
        if shapes not in self._seconds and len(self._seconds) >= _SHAPES:
            self._seconds.pop(next(iter(self._seconds)))
        self._seconds[shapes] = max(self._until - self._since, self._seconds.get(shapes, 0.0))


class _WatchedStage(AbstractContextManager["Stage"]):
    """See Stage. Its run is waited for once those before it have ended, so what is watched is its own time."""

    def __init__(self, stage: Stage, engine: WatchedEngine) -> None:
        self._stage, self._engine = stage, engine
        self.feeds: Mapping[str, Tensor] = stage.feeds
        self.seconds = 0.0

    def __enter__(self) -> Self:
        self._stage.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._stage.__exit__(kind, value, trace)

    def write(self, name: str, parts: Sequence[Tensor]) -> None:
        """See Stage."""
        self._stage.write(name, parts)

    def start(self, cancellation: Cancellation | None = None) -> None:
        """See Stage."""
        self._stage.start(cancellation)

    def answers(self, wanted: tuple[str, ...] = ()) -> dict[str, Tensor]:
        """See Stage."""
        self._engine.under_way = self.feeds
        try:
            answers = self._stage.answers(wanted)
        finally:
            self._engine.under_way, self._engine.before = None, self.feeds
        self.seconds = self._stage.seconds
        return answers
