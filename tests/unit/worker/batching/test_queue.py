"""Who is next: by priority, then by deadline, then by arrival; and nobody waits for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching.queue import PATIENCE_SECONDS, DeadlineQueue, QueueEntry
from tests.unit.worker.conftest import STEADY

if TYPE_CHECKING:
    from inference_worker.batching.rows import Bucket

NEVER = float("inf")
A: Bucket = ((), (2,))
B: Bucket = ((), (3,))


def add(
    queue: DeadlineQueue[str],
    item: str,
    *,
    deadline: float = NEVER,
    priority: int = 100,
    now: float = 0.0,
    bucket: Bucket = A,
    rows: int = 1,
) -> QueueEntry[str]:
    waiting = QueueEntry(item, rows, bucket, queue.order(priority, deadline, now))
    queue.add(waiting)
    return waiting


def drained(queue: DeadlineQueue[str]) -> str:
    """All items, as they would be run one by one."""
    found = ""
    while (head := queue.head()) is not None:
        (taken,) = queue.pop(head.bucket, 1)
        assert taken is head
        found += taken.item
    return found


def test_the_earliest_deadline_is_first() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for item, deadline in (("c", 3.0), ("a", 1.0), ("b", 2.0)):
        add(queue, item, deadline=deadline)

    assert drained(queue) == "abc"


def test_a_priority_goes_before_every_deadline() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "b", deadline=0.1, priority=2)
    add(queue, "a", priority=1)
    add(queue, "c", deadline=0.05, priority=3)

    assert drained(queue) == "abc"


def test_equals_are_served_as_they_came() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for item in "abcdef":
        add(queue, item, deadline=5.0)

    assert drained(queue) == "abcdef"


def test_who_has_no_deadline_is_not_overtaken_by_those_who_come_after_its_patience() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "b", now=0.0)
    add(queue, "a", now=1.0, deadline=PATIENCE_SECONDS - 0.1)
    add(queue, "c", now=1.0, deadline=PATIENCE_SECONDS + 0.1)

    assert drained(queue) == "abc"


def test_a_far_deadline_is_no_worse_than_none() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "a", now=0.0, deadline=3600.0)
    add(queue, "b", now=0.0)
    add(queue, "c", now=0.0, deadline=3600.0)

    assert drained(queue) == "abc"


def test_the_head_is_the_most_urgent_of_all_buckets() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "b", deadline=2.0, bucket=A)
    add(queue, "a", deadline=1.0, bucket=B)
    add(queue, "c", deadline=3.0, bucket=B)

    assert drained(queue) == "abc"


def test_a_bucket_is_popped_alone_and_in_order() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for item, deadline, bucket in (("x", 0.1, B), ("b", 2.0, A), ("a", 1.0, A), ("c", 3.0, A)):
        add(queue, item, deadline=deadline, bucket=bucket)

    assert [waiting.item for waiting in queue.pop(A, 2)] == ["a", "b"]
    assert [waiting.item for waiting in queue.line(A)] == ["c"]
    assert (queue.length, queue.rows) == (2, 2) and queue.rows_in(A) == 1


def test_one_who_is_removed_is_not_served_and_not_removed_twice() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "a", rows=2)
    gone = add(queue, "b", rows=3)
    add(queue, "c", rows=4)

    assert queue.remove(gone) and not queue.remove(gone)
    assert (queue.length, queue.rows) == (2, 6)
    assert drained(queue) == "ac"


def test_one_who_was_popped_is_not_removed() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "a")
    add(queue, "b")
    (popped,) = queue.pop(A, 1)

    assert not queue.remove(popped) and (queue.length, drained(queue)) == (1, "b")


def test_clearing_gives_back_all_in_order() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    for item, deadline, bucket in (("c", 3.0, A), ("a", 1.0, B), ("b", 2.0, A)):
        add(queue, item, deadline=deadline, bucket=bucket)

    assert "".join(waiting.item for waiting in queue.clear()) == "abc"
    assert (queue.length, queue.rows, queue.head()) == (0, 0, None)


def test_an_empty_queue_has_nobody_ahead_and_no_head() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()

    assert queue.ahead((1, 0, 0.0, 0)) == 0 and queue.head() is None


@pytest.mark.parametrize(("deadline", "ahead"), [(0.5, 0), (1.5, 4), (9.0, 8)])
def test_the_rows_ahead_are_those_of_the_more_urgent_in_any_bucket(deadline: float, ahead: int) -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    add(queue, "a", deadline=1.0, bucket=A, rows=4)
    add(queue, "b", deadline=2.0, bucket=B, rows=4)

    assert queue.ahead((100, 0, deadline, 0)) == ahead
    assert queue.ahead((99, 0, 9.0, 0)) == 0 and queue.ahead((101, 0, 0.0, 0)) == 8


steps = st.lists(
    st.tuples(
        st.sampled_from(["add", "add", "add", "remove", "pop"]),
        st.integers(1, 3),
        st.floats(0, 20) | st.just(NEVER),
        st.sampled_from([A, B]),
        st.integers(1, 5),
        st.integers(0, 30),
    ),
    max_size=40,
)


@given(steps)
@settings(STEADY, max_examples=150)
def test_whatever_happens_the_queue_is_a_sorted_list(script: list[tuple[str, int, float, Bucket, int, int]]) -> None:
    queue: DeadlineQueue[str] = DeadlineQueue()
    there: list[QueueEntry[str]] = []
    for now, (step, priority, deadline, bucket, rows, at) in enumerate(script):
        if step == "add":
            there.append(add(queue, "", deadline=deadline, priority=priority, now=float(now), bucket=bucket, rows=rows))
        elif step == "remove" and there:
            assert queue.remove(there.pop(at % len(there)))
        elif there:
            head = queue.head()
            assert head is not None
            taken = queue.pop(head.bucket, at % 3 + 1)
            assert taken == sorted((w for w in there if w.bucket == head.bucket), key=lambda w: w.order)[: len(taken)]
            there = [waiting for waiting in there if waiting not in taken]
        there.sort(key=lambda waiting: waiting.order)
        assert queue.head() is (there[0] if there else None)
        assert (queue.length, queue.rows) == (len(there), sum(waiting.rows for waiting in there))
    assert queue.clear() == there
