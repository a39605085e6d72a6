"""What all scenarios share: models, sides, rounds, and how loud the machine is."""

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from bench.worker import models
from bench.worker.models import Model
from bench.worker.processes import SERVER_CORE
from bench.worker.sides import Side
from dev.console import say

Record = dict[str, Any]
_PROBE_SECONDS = 0.25


@dataclass(slots=True)
class Context:
    """A run of the benchmark. `failed` holds the sides that do not run here, with the reason."""

    rounds: int
    sides: tuple[Side, ...]
    failed: dict[str, str] = field(default_factory=dict)

    @property
    def working(self) -> list[Side]:
        """Sides that have not failed."""
        return [side for side in self.sides if side.name not in self.failed]

    @property
    def ours(self) -> Side:
        """The side that this project makes."""
        return self.sides[0]

    def turns(self, rounds: int | None = None) -> Iterator[tuple[int, Side]]:
        """Every side in every round, each round beginning with another side: A B C, B C A, C A B."""
        for number in range(rounds if rounds is not None else self.rounds):
            names = [side.name for side in self.working]
            shift = number % len(names)
            for name in names[shift:] + names[:shift]:
                found = next((side for side in self.working if side.name == name), None)
                if found is not None:
                    yield number, found

    @contextmanager
    def may_fail(self, side: Side, *, where: str) -> Iterator[None]:
        """A side that does not run is reported; the others go on."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- whatever it was, it is the side's and goes into the report
            text = f"{where}: {type(error).__name__}: {str(error)[-600:]}"
            say(f"  {side.name} failed in {text}")
            self.failed[side.name] = text

    @contextmanager
    def survives(self, scenario: str, records: list[Record]) -> Iterator[None]:
        """A scenario that breaks is reported as such; what the others measured is kept."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 -- see above
            reason = f"{type(error).__name__}: {str(error)[-600:]}"
            say(f"  {scenario} broke: {reason}")
            records.append({"scenario": scenario, "skipped": reason})


digits = cache(models.digits)
magika = cache(models.magika)
silero = cache(models.silero)
resnet = cache(models.resnet)


@contextmanager
def folder() -> Iterator[Path]:
    """A place for one server."""
    with tempfile.TemporaryDirectory(prefix="inference-bench-") as name:
        yield Path(name)


def noise() -> Record:
    """What the machine gives at this moment: runs a second of a bare loop on the server's core, and the load average."""
    return {"bareRunsPerSecond": round(bare_rate(digits(), 1, _PROBE_SECONDS)), "loadAverage": round(os.getloadavg()[0], 2)}


def bare_rate(model: Model, batch: int, seconds: float) -> float:
    """Runs a second of a bare ONNX Runtime loop on the server's core."""
    session = _session(model.path)
    axes = model.batch_axes
    feeds = {name: array if axes[name] is None else array.take(range(batch), axis=axes[name]) for name, array in model.rows.items()}
    outputs = [name for name, _, _ in model.outputs]
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {SERVER_CORE})
    try:
        session.run(outputs, feeds)
        begun, runs = time.perf_counter(), 0
        while (took := time.perf_counter() - begun) < seconds:
            session.run(outputs, feeds)
            runs += 1
        return runs / took
    finally:
        os.sched_setaffinity(0, before)


_session = cache(models.session)
