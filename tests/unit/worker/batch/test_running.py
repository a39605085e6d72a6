"""When a task is given up whose run hangs: only after some looks in a row, since a paused process finds all its runs long."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, cast

import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker.batch import running
from inference_worker.errors import WorkerError

if TYPE_CHECKING:
    from inference_worker.batch.task import Task

LOOKS = 3


class Hanging:
    """A task whose run is found to hang at some looks, and comes back when nothing more is to be seen."""

    def __init__(self, looks: list[bool]) -> None:
        self._looks = iter(looks)
        self._back, self.stopped = threading.Event(), False

    def run(self) -> str:
        self._back.wait()
        return "answers"

    @property
    def hung(self) -> str | None:
        found = next(self._looks, None)
        if found is None:
            self._back.set()
        return "a run has not ended" if found else None

    def stop(self) -> None:
        self.stopped = True
        self._back.set()


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(running, "_LOOKS", LOOKS)


async def test_a_run_that_comes_back_after_a_pause_goes_on() -> None:
    task = Hanging([True] * (LOOKS - 1) + [False] + [True] * (LOOKS - 1))

    assert await running.run_to_end(cast("Task", task)) == "answers"
    assert not task.stopped


async def test_a_run_that_hangs_at_look_after_look_is_given_up_and_told_to_stop() -> None:
    task = Hanging([True] * LOOKS)

    with pytest.raises(WorkerError) as caught:
        await running.run_to_end(cast("Task", task))
    assert caught.value.reason is WorkerReason.MODEL_HUNG and task.stopped
