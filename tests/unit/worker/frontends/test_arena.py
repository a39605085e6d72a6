"""The memory that frontends and their worker share: no body lies in another's place, and all of it comes back."""

from __future__ import annotations

import gc
import os
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.frontends.arena import Allocator, Reader, create

if TYPE_CHECKING:
    from collections.abc import Iterator

PAGES = 64
SIZE = PAGES * 4096


@pytest.fixture
def file() -> Iterator[int]:
    made = create(SIZE)
    yield made
    os.close(made)


# A size to allocate, or the place among what is lent to free.
STEPS = st.lists(st.one_of(st.integers(1, 20 * 4096), st.integers(-PAGES, -1)), max_size=60)


@given(STEPS)
def test_bodies_keep_what_was_written_while_others_come_and_go(steps: list[int]) -> None:
    file = create(SIZE)
    arena, reader = Allocator(file), Reader(file)
    lent: list[tuple[int, memoryview, bytes]] = []
    for number, step in enumerate(steps):
        if step < 0:
            if lent:
                offset, *_ = lent.pop(step % len(lent))
                arena.free(offset)
            continue
        body = bytes([number % 251]) * step
        extent = arena.write([body[:7], body[7:]], step)
        if extent is None:
            assert arena.free_bytes < SIZE
            continue
        lent.append((extent.offset, reader.body(extent), body))
    assert all(bytes(view) == body for _, view, body in lent)
    for offset, *_ in lent:
        arena.free(offset)
    assert arena.free_bytes == SIZE and arena.write([bytes(SIZE)], SIZE) is not None
    os.close(file)


def test_a_body_is_free_once_nothing_made_of_it_is_left(file: int) -> None:
    """A run may still read the rows of a caller who is gone: another body in their place would be answered instead."""
    arena, reader = Allocator(file), Reader(file)
    extent = arena.write([bytes(range(100))], 100)
    assert extent is not None
    view = reader.body(extent)
    rows = np.frombuffer(view[10:20], np.uint8)
    del view
    gc.collect()
    assert reader.freed() == []

    del rows
    assert reader.freed() == [extent.offset] and reader.freed() == []


def test_what_a_caller_sent_can_not_be_changed_by_the_worker(file: int) -> None:
    arena, reader = Allocator(file), Reader(file)
    extent = arena.write([b"abc"], 3)
    assert extent is not None and reader.body(extent).readonly
