"""A session on a device: one thread for all, recordings by shape, and what happens where nothing can be recorded.

No device is needed: a session on the CPU takes the same calls, and its buffers are in the host's memory.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest

from inference_worker.engines import captured
from inference_worker.engines.device_session import DeviceSession
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import Mapping

MODEL = models.matmul()
ROWS = np.arange(32, dtype=np.float32).reshape(8, 4)


@pytest.fixture(autouse=True)
def host_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(captured, "_DEVICE", "cpu")


class Opened:
    """Real sessions on the CPU; `refuses` says what opening or recording is refused of."""

    def __init__(self, refuses: str = "", *, at: str = "") -> None:
        self._refuses = refuses
        self._at = at
        self.opened: list[dict[str, str]] = []
        self.threads: set[int] = set()

    def __call__(self, more: Mapping[str, str]) -> Any:
        self.opened.append(dict(more))
        self.threads.add(threading.get_ident())
        if more and self._at == "opening":
            raise RuntimeError(self._refuses)
        return Watched(ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"]), self, self._refuses if more else "")


class Watched:
    def __init__(self, session: ort.InferenceSession, opened: Opened, refuses: str) -> None:
        self._session, self._opened, self._refuses = session, opened, refuses

    def run(self, *arguments: Any) -> Any:
        self._opened.threads.add(threading.get_ident())
        return self._session.run(*arguments)

    def run_with_iobinding(self, *arguments: Any) -> None:
        self._opened.threads.add(threading.get_ident())
        if self._refuses:
            raise RuntimeError(self._refuses)
        self._session.run_with_iobinding(*arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def bare(x: np.ndarray) -> np.ndarray:
    (answer,) = ort.InferenceSession(MODEL, providers=["CPUExecutionProvider"]).run(None, {"x": x})
    found: np.ndarray = answer
    return found


def test_a_recorded_run_answers_for_what_it_is_given_and_others_run_as_ever() -> None:
    session = DeviceSession(Opened())
    session.capture({"x": np.zeros((4, 4), np.float32)})

    for x in (ROWS[:4], ROWS[4:], ROWS[:3], ROWS[::2]):
        assert np.array_equal(session.run(["y"], {"x": x})[0], bare(x))


def test_all_that_a_session_does_it_does_on_one_thread() -> None:
    opened = Opened()
    session = DeviceSession(opened)
    session.capture({"x": ROWS[:2]})
    callers = [threading.Thread(target=session.run, args=(["y"], {"x": ROWS[:n]})) for n in (1, 2, 3)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()

    assert len(opened.threads) == 1 and threading.get_ident() not in opened.threads


@pytest.mark.parametrize("at", ["opening", "recording"])
def test_a_model_that_can_not_be_recorded_runs_without_and_says_why(at: str) -> None:
    opened = Opened("control flow nodes", at=at)
    session = DeviceSession(opened)
    session.capture({"x": ROWS[:2]})

    assert "control flow nodes" in session.not_captured_because
    assert opened.opened == [captured.CAPTURING, {}]
    assert np.array_equal(session.run(["y"], {"x": ROWS[:2]})[0], bare(ROWS[:2]))


def test_a_session_that_does_not_open_at_all_raises_and_leaves_no_thread() -> None:
    def opening(more: Mapping[str, str]) -> Any:
        raise ValueError("no such model")

    before = threading.active_count()
    with pytest.raises(ValueError, match="no such model"):
        DeviceSession(opening)
    for thread in threading.enumerate():
        if thread.name.startswith("device"):
            thread.join(10)

    assert threading.active_count() <= before


def test_a_size_that_finds_no_memory_for_a_recording_spoils_no_other() -> None:
    session = DeviceSession(Opened("Failed to allocate memory for requested buffer of size 1", at="recording"))
    session.capture({"x": ROWS})

    assert session.not_captured_because == ""
    assert np.array_equal(session.run(["y"], {"x": ROWS})[0], bare(ROWS))
