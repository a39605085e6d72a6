"""What fails leaves nothing to the garbage collector: it comes every ten thousand objects, and until then bodies and feeds would stay."""

from __future__ import annotations

import ast
import asyncio
import gc
import logging
import traceback
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import TYPE_CHECKING

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

import inference_worker
from inference_worker.batching import admission
from inference_worker.batching.execute import Execution
from inference_worker.engines.engine import Cancellation, RunCancelledError
from inference_worker.errors import RequestError, let_go
from inference_worker.threads import in_thread
from tests.unit.worker.scripted_engines import ALONE, FLAT, ROWS, Caller, Clock, Scripted, a_batcher, a_row
from tests.unit.worker.serve import test_jwt

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy import ndarray

    from inference_worker.batching.rows import Layout

BAD = 666.0
ROUNDS = 20


@contextmanager
def nothing_is_left() -> Iterator[None]:
    """Only reference counts free anything here: a cycle with an error in it is found by its kind."""
    gc.collect()
    gc.disable()
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        yield
        gc.collect()
        left = [each for each in gc.garbage if isinstance(each, BaseException | TracebackType | FrameType | np.ndarray)]
        assert left == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


def broken(x: ndarray) -> Exception | None:
    return ValueError("broken") if BAD in x else None


def no_memory(x: ndarray) -> Exception | None:
    return MemoryError("too many") if len(x) > 1 or BAD in x else None


def cancelled(_: ndarray) -> Exception | None:
    return RunCancelledError("nobody waits")


@pytest.mark.parametrize("faults", [broken, no_memory, cancelled])
@pytest.mark.parametrize(("layout", "values"), [(ROWS, [BAD]), (ROWS, [1, BAD, 2]), (ROWS, [BAD, BAD]), (ALONE, [BAD])])
@pytest.mark.parametrize("staged", [False, True])
def test_a_run_that_fails(faults: object, values: list[float], layout: Layout, *, staged: bool) -> None:
    execution = Execution(Scripted(faults=faults, staged=staged), layout, prepares=staged)  # type: ignore[arg-type]

    with nothing_is_left():
        for _ in range(ROUNDS):
            members = [a_row(value) for value in values]
            report = execution.run(members, [1] * len(members), (), 8, Cancellation())
            assert any(isinstance(answer, Exception) for answer in report.answers)
            del members, report


async def test_requests_that_fail() -> None:
    batcher = a_batcher(Scripted(faults=broken), profile=FLAT)

    with nothing_is_left():
        for _ in range(4):
            callers = [Caller() for _ in range(4)]
            for caller in callers:
                batcher.submit(a_row(BAD), (), caller)
            for caller in callers:
                assert isinstance(await caller.answer(), Exception)
            del callers, caller
        await asyncio.wait_for(batcher.emptied(), 20)


async def test_a_batch_that_can_not_be_made(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> list[object]:
        raise KeyError("a bug of ours")

    batcher = a_batcher(Scripted(), profile=FLAT)
    monkeypatch.setattr(batcher._dispatcher, "_gather", fail)
    caplog.set_level(logging.CRITICAL)

    with nothing_is_left():
        for _ in range(ROUNDS):
            caller = Caller()
            batcher.submit(a_row(1), (), caller)
            assert isinstance(await caller.answer(), Exception)
            del caller


async def test_work_that_fails_in_a_thread() -> None:
    def work() -> None:
        feeds = np.zeros(1000)
        raise ValueError(f"{len(feeds)}")

    with nothing_is_left():
        for _ in range(ROUNDS):
            with pytest.raises(ValueError, match="1000") as caught:
                await in_thread(work, name="failing")
            del caught


def test_a_token_that_no_key_has_signed() -> None:
    told = test_jwt.tokens()
    forged = test_jwt.token(key=rsa.generate_private_key(65537, 2048))

    with nothing_is_left():
        for _ in range(ROUNDS):
            assert test_jwt.fault(told, forged) is not None


def test_an_error_that_is_let_go_still_tells_where_it_was_raised() -> None:
    def deep() -> None:
        kept = np.zeros(3)
        raise ValueError(len(kept))

    try:
        try:
            deep()
        except ValueError as error:
            raise KeyError("outer") from error
    except KeyError as error:
        told = "".join(traceback.format_exception(let_go(error)))
        again = "".join(traceback.format_exception(let_go(error)))

    assert told == again and "Traceback" not in told
    assert told.index("in deep") < told.index("KeyError: 'outer'") < told.rindex("in test_an_error_that_is_let_go")


@pytest.mark.parametrize("full", [True, False])
async def test_requests_that_are_shed(monkeypatch: pytest.MonkeyPatch, *, full: bool) -> None:
    """Under load these are the most, and each would keep its body."""
    monkeypatch.setattr(admission, "QUEUE_LIMIT", 0 if full else 10)
    clock = Clock()
    batcher = a_batcher(Scripted(), profile={1: 5.0}, clock=clock)

    with nothing_is_left():
        for _ in range(ROUNDS):
            with pytest.raises(RequestError) as caught:
                batcher.submit(a_row(1), (), Caller(), deadline=clock.now + 1)
            del caught


def kept_errors(tree: ast.Module) -> Iterator[int]:
    """Lines that give a caught error to a name, or raise one that has a name: the frame keeps it, and is in its traceback."""
    freed = {
        name.id for each in ast.walk(tree) if isinstance(each, ast.Delete) for name in each.targets if isinstance(name, ast.Name)
    }
    for each in ast.walk(tree):
        if isinstance(each, ast.ExceptHandler) and each.name is not None:
            assigned = (part for part in ast.walk(each) if isinstance(part, ast.Assign))
            yield from (part.lineno for part in assigned if isinstance(part.value, ast.Name) and part.value.id == each.name)
        if isinstance(each, ast.Raise) and isinstance(each.exc, ast.Name | ast.Attribute):
            name = each.exc.id if isinstance(each.exc, ast.Name) else each.exc.attr
            if name[0].islower() and name not in freed:
                yield each.lineno


def test_no_frame_keeps_what_it_caught_or_raises() -> None:
    root = Path(inference_worker.__file__).parent
    trees = {path.relative_to(root): ast.parse(path.read_text()) for path in sorted(root.rglob("*.py"))}
    found = [str(path) for path, tree in trees.items() for _ in kept_errors(tree)]

    # A process that ends, and a runner's thread, which forgets it before it takes the next run.
    assert found == ["__main__.py", "batching/runners.py"]
