"""A session on a device: one thread for all, recordings by shape, and what happens where nothing can be recorded.

No device is needed: a session on the CPU takes the same calls, and its buffers are in the host's memory.
"""

from __future__ import annotations

import ctypes
import os
import threading
from typing import TYPE_CHECKING, Any

import numpy as np
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.engines import captured, transport
from inference_worker.engines.device_session import DeviceSession
from inference_worker.engines.engine import Cancellation, DeviceRuns, RunCancelledError, RunMode, shapes_of
from inference_worker.engines.transport import HostMemory
from tests.process import models

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from inference_worker.engines.engine import Stage, Tensor

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


class HostTransport:
    """Memory of the host for that of a device. Copies are as late as they may be: none is made before somebody waits for it."""

    def __init__(self, room: int = 1 << 20) -> None:
        self._room = room
        self._asked: list[Callable[[], object]] = []
        self._held: list[Any] = []
        self.closed = False

    def host(self, size: int) -> HostMemory:
        return HostMemory(size)

    def device(self, size: int) -> int:
        if size > self._room:
            raise MemoryError("no room")
        self._held.append(ctypes.create_string_buffer(size))
        return ctypes.addressof(self._held[-1])

    def upload(self, to: int, array: Tensor) -> None:
        self._asked.append(lambda: ctypes.memmove(to, array.ctypes.data, array.nbytes))

    def move(self, to: int, source: int, size: int) -> None:
        self._asked.append(lambda: ctypes.memmove(to, source, size))

    def download(self, array: Tensor, source: int) -> None:
        self._asked.append(lambda: ctypes.memmove(array.ctypes.data, source, array.nbytes))

    def wait(self, *, briefly: bool = False) -> None:
        asked, self._asked = self._asked, []
        for copy in asked:
            copy()

    def free(self) -> None:
        assert not self._asked, "memory is freed that a copy still uses"
        self._held.clear()

    def close(self) -> None:
        self.free()
        self.closed = True


def staging(*sizes: int, transports: Callable[[], Any] = HostTransport) -> DeviceSession:
    session = DeviceSession(Opened(), transports=transports)
    for size in sizes:
        # A recording on the host would write into what it is shown.
        session.capture({"x": ROWS[:size].copy()})
    return session


def begun(session: DeviceSession, x: np.ndarray) -> Stage:
    stage = session.stage(shapes_of({"x": x}))
    assert stage is not None
    np.copyto(stage.feeds["x"], x)
    stage.start()
    return stage


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

    assert session.runs == DeviceRuns(RunMode.ONE_SESSION, "control flow nodes")
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

    assert session.runs == DeviceRuns(RunMode.CAPTURED)
    assert np.array_equal(session.run(["y"], {"x": ROWS})[0], bare(ROWS))


def test_the_next_run_is_copied_in_before_the_last_one_is_copied_out() -> None:
    session = staging(4, 8)
    with begun(session, ROWS[:4]) as first, begun(session, ROWS) as second:
        later, earlier = second.answers()["y"], first.answers()["y"]
    with begun(session, ROWS[4:]) as third:
        last = third.answers(("y",))["y"]

    assert np.array_equal(earlier, bare(ROWS[:4])) and np.array_equal(later, bare(ROWS)) and np.array_equal(last, bare(ROWS[4:]))
    assert first.seconds > 0


def test_buffers_grow_with_the_runs_that_use_them_and_are_freed_with_the_session() -> None:
    made: list[HostTransport] = []

    def transports() -> HostTransport:
        made.append(HostTransport())
        return made[-1]

    session = staging(2, 8, transports=transports)
    for x in (ROWS[:2], ROWS, ROWS[6:], ROWS[::-1].copy()):
        with begun(session, x) as stage:
            assert np.array_equal(stage.answers()["y"], bare(x))
    session.close()

    assert [each.closed for each in made] == [True, True]


def _no_driver() -> HostTransport:
    raise OSError("libcuda.so.1: cannot open shared object file")


@pytest.mark.parametrize("transports", [_no_driver, lambda: HostTransport(room=8)], ids=["no driver", "no room"])
def test_a_run_that_finds_no_buffers_is_computed_without(transports: Callable[[], Any]) -> None:
    session = staging(4, transports=transports)

    for _ in range(3):
        assert session.stage(shapes_of({"x": ROWS[:4]})) is None
    assert np.array_equal(session.run(["y"], {"x": ROWS[:4]})[0], bare(ROWS[:4]))


def test_a_run_whose_callers_left_before_its_turn_is_not_computed() -> None:
    session = staging(4)
    cancellation = Cancellation()
    stage = session.stage(shapes_of({"x": ROWS[:4]}))
    assert stage is not None
    cancellation.cancel()
    with stage:
        stage.start(cancellation)
        with pytest.raises(RunCancelledError):
            stage.answers()


def test_whoever_gives_up_leaves_buffers_that_others_can_use() -> None:
    session = staging(4)
    for _ in range(5):
        with pytest.raises(KeyError), begun(session, ROWS[:4]):
            raise KeyError
    with begun(session, ROWS[4:]) as stage:
        assert np.array_equal(stage.answers()["y"], bare(ROWS[4:]))


def test_a_shape_that_was_not_captured_has_no_buffers() -> None:
    assert staging(4).stage(shapes_of({"x": ROWS[:3]})) is None


@pytest.mark.parametrize("rooms", [0, 1, 5])
def test_a_model_that_can_not_be_recorded_gets_sessions_as_far_as_memory_goes(rooms: int) -> None:
    left = [rooms]

    def room() -> bool:
        left[0] -= 1
        return left[0] >= 0

    opened = Opened("control flow nodes", at="opening")
    session = DeviceSession(opened, room=room)
    for size in (1, 2, 4, 8, 4):
        # A recording on the host would write into what it is shown.
        session.capture({"x": ROWS[:size].copy()})

    assert len(opened.opened) - 2 == min(rooms, 3)
    assert session.runs.mode == (RunMode.SESSION_PER_SIZE if rooms else RunMode.ONE_SESSION)
    assert all(np.array_equal(session.run(["y"], {"x": ROWS[:n]})[0], bare(ROWS[:n])) for n in (1, 2, 3, 4, 8))


@given(st.lists(st.integers(0, 5), max_size=12))
def test_many_rows_are_written_one_after_another_whatever_a_write_takes_at_once(counts: list[int]) -> None:
    parts = [np.full((count, 3), at, np.int16) for at, count in enumerate(counts)]
    memory = HostMemory(1024)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transport, "_MOST_PARTS", 2)
        real = os.pwritev
        # A kernel may take less than it was offered.
        patch.setattr(
            os,
            "pwritev",
            lambda file, views, at: real(file, [views[0][:7], *views[1:]] if len(views[0]) <= 7 else [views[0][:7]], at),
        )
        memory.write(parts)
    whole = np.concatenate([np.zeros((0, 3), np.int16), *parts])

    assert np.array_equal(memory.bytes[: whole.nbytes].view(np.int16).reshape(-1, 3), whole)
    memory.close()
