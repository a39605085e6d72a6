"""One batch through the model: halved when memory is short, taken apart when one member spoils it.

Runs in a runner's thread, or on the event loop for models that are quicker than the way to a thread. Knows nothing of either.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from inference_worker.batching.rows import Layout
from inference_worker.engines.engine import Cancellation, Engine, EngineUnavailableError, RunCancelledError, Tensors
from inference_worker.errors import let_go

Answer = Tensors | Exception


@dataclass(slots=True)
class Report:
    """What came of a batch. `answers` stand in the order of the members.

    `prepared` is the seconds that its rows took to a device, 0 where that was part of the run. `runs` are (rows, seconds) of runs
    that went well, `overflows` the rows of those that found no memory. `limit` is the most rows that are tried: what did not fit
    once is not tried again in the same batch.
    """

    limit: int
    answers: list[Answer] = field(default_factory=list)
    runs: list[tuple[int, float]] = field(default_factory=list)
    overflows: list[int] = field(default_factory=list)
    prepared: float = 0.0

    @property
    def fault(self) -> Exception | None:
        """A fault of the model or the device, the worst there is; None when there was none."""
        faults = [answer for answer in self.answers if isinstance(answer, RuntimeError | MemoryError)]
        return faults[0] if faults else None


class Execution:
    """A model and what is known of its rows: `joins` says whether requests may share a run. Threads may use it at the same time."""

    def __init__(
        self, engine: Engine, layout: Layout, *, pad: Callable[[int], int] = lambda rows: rows, prepares: bool = False
    ) -> None:
        """`pad` says how many rows a run gets that has fewer (the next size that the device was warmed for).

        `prepares` says that the engine has buffers for runs; others are not asked for them.
        """
        self._engine = engine
        self._layout = layout
        self._pad = pad
        self._prepares = prepares
        self.joins = layout.joins

    def run(
        self, members: Sequence[Tensors], rows: Sequence[int], wanted: tuple[str, ...], limit: int, cancellation: Cancellation
    ) -> Report:
        """Run the members together, at most `limit` rows at a time; every member gets an answer or its own exception."""
        report = Report(limit)
        try:
            report.answers = self._together(members, rows, wanted, cancellation, report)
        except (RunCancelledError, EngineUnavailableError) as error:
            # None of the members is to blame, so none is tried by itself.
            report.answers = [let_go(error)] * len(members)
        except Exception as error:  # noqa: BLE001 -- whatever an engine raises belongs to the members, not to the runner
            report.answers = [let_go(error)] if len(members) == 1 else self._apart(members, rows, wanted, cancellation, report)
        return report

    def _apart(
        self,
        members: Sequence[Tensors],
        rows: Sequence[int],
        wanted: tuple[str, ...],
        cancellation: Cancellation,
        report: Report,
    ) -> list[Answer]:
        """One after another, so that only the one that spoils the batch is refused."""
        answers: list[Answer] = []
        for feeds, count in zip(members, rows, strict=True):
            try:
                answers.extend(self._together([feeds], [count], wanted, cancellation, report))
            except Exception as error:  # noqa: BLE001 -- as above
                answers.append(let_go(error))
        return answers

    def _together(
        self,
        members: Sequence[Tensors],
        rows: Sequence[int],
        wanted: tuple[str, ...],
        cancellation: Cancellation,
        report: Report,
    ) -> list[Answer]:
        layout = self._layout
        if not layout.joins:
            (feeds,) = members
            try:
                return [self._timed(feeds, rows[0], wanted, cancellation, report)]
            except MemoryError:
                # It can't be halved, so it counts as what it is: the smallest run that there is.
                report.overflows.append(1)
                raise
        total = sum(rows)
        staged = self._prepares and total <= report.limit
        whole = self._staged(members, total, wanted, cancellation, report) if staged else None
        if whole is None:
            whole = self._in_parts(layout.joined(members), total, wanted, cancellation, report)
        if len(members) == 1:
            return [whole]
        if layout.count(whole) != total:
            raise RuntimeError("the answers have not a row for each row that went in")
        answers: list[Answer] = []
        start = 0
        for count in rows:
            answers.append(layout.answer(whole, start, start + count))
            start += count
        return answers

    def _staged(
        self, members: Sequence[Tensors], rows: int, wanted: tuple[str, ...], cancellation: Cancellation, report: Report
    ) -> Tensors | None:
        """Rows straight from their callers into the buffers of a run, while another one computes; None where there are none."""
        layout = self._layout
        size = max(rows, self._pad(rows))
        stage = self._engine.stage(layout.shapes(members[0], size))
        if stage is None:
            return None
        with stage:
            begun = time.perf_counter()
            layout.write(stage, members, rows)
            stage.start(cancellation)
            report.prepared = time.perf_counter() - begun
            answers = stage.answers(wanted)
        report.runs.append((size, stage.seconds))
        return layout.answer(answers, 0, rows)

    def _in_parts(self, feeds: Tensors, rows: int, wanted: tuple[str, ...], cancellation: Cancellation, report: Report) -> Tensors:
        """All rows, in runs of as many as fit: a part that finds no memory is tried again with half as many."""
        parts: list[Tensors] = []
        start = 0
        while start < rows:
            size = min(report.limit, rows - start)
            part = feeds if size == rows else self._layout.part(feeds, start, start + size)
            try:
                parts.append(self._padded(part, size, wanted, cancellation, report))
            except MemoryError:
                report.overflows.append(size)
                if size <= 1:
                    raise
                report.limit = size // 2
                continue
            start += size
        if len(parts) == 1:
            return parts[0]
        try:
            return self._layout.assembled(parts)
        except ValueError as error:
            # The shape of an answer hung on its neighbours, so only one run of all rows would do.
            raise MemoryError(f"{rows} rows do not fit at once, and in parts their answers have different shapes") from error

    def _padded(self, feeds: Tensors, rows: int, wanted: tuple[str, ...], cancellation: Cancellation, report: Report) -> Tensors:
        size = self._pad(rows)
        if size <= rows:
            return self._timed(feeds, rows, wanted, cancellation, report)
        answers = self._timed(self._layout.padded(feeds, size - rows), size, wanted, cancellation, report)
        return self._layout.answer(answers, 0, rows)

    def _timed(self, feeds: Tensors, rows: int, wanted: tuple[str, ...], cancellation: Cancellation, report: Report) -> Tensors:
        begun = time.perf_counter()
        answers = self._engine.run(feeds, wanted, cancellation)
        report.runs.append((rows, time.perf_counter() - begun))
        return answers
