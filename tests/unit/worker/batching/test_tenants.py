"""Several tenants of one queue: each has its turn by its weight, deadlines order within it, and quotas end where they say."""

from __future__ import annotations

from collections import Counter
from http import HTTPStatus
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching import admission
from inference_worker.batching.queue import DeadlineQueue, QueueEntry
from inference_worker.batching.tenants import NOBODY, OTHERS, Ledger, Tenant
from inference_worker.errors import RequestError
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import ALONE, Caller, Clock, Scripted, a_batcher, a_row

if TYPE_CHECKING:
    from inference_worker.batching.rows import Bucket

NEVER = float("inf")
LINE: Bucket = ((), (2,))
A, B, HEAVY = Tenant("a"), Tenant("b"), Tenant("heavy", weight=3)


def add(queue: DeadlineQueue[str], tenant: Tenant, *, deadline: float = NEVER, now: float = 0.0, rows: int = 1) -> None:
    queue.meet(tenant, now)
    queue.add(QueueEntry(tenant.name, rows, LINE, queue.order(100, deadline, now, tenant), tenant))


def run(queue: DeadlineQueue[str], count: int) -> str:
    return "".join(queue.pop(LINE, 1)[0].item[:1] for _ in range(count))


def test_who_comes_to_a_long_queue_of_another_waits_for_one_round_of_it() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=4)
    for _ in range(100):
        add(queue, A, deadline=1.0)

    for _ in range(8):
        add(queue, B, deadline=5.0)

    assert run(queue, 16) == "aaaabbbbaaaabbbb"


def test_tenants_have_rows_by_their_weight() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=4)
    for _ in range(60):
        add(queue, A)
        add(queue, HEAVY)

    found = Counter(run(queue, 64))

    assert (found["a"], found["h"]) == (16, 48)


def test_large_requests_take_as_many_turns_as_they_have_rows() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=4)
    for _ in range(40):
        add(queue, A, rows=4)
    for _ in range(40):
        add(queue, B, rows=1)

    found = Counter(run(queue, 25))

    assert abs(found["a"] * 4 - found["b"]) <= 8


def test_a_tenant_alone_is_served_by_its_deadlines_as_without_tenants() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=1)
    for due in (3.0, 1.0, 2.0):
        queue.meet(A, 0.0)
        queue.add(QueueEntry(f"{due}", 1, LINE, queue.order(100, due, 0.0, A), A))

    assert [queue.pop(LINE, 1)[0].item for _ in range(3)] == ["1.0", "2.0", "3.0"]


def test_deadlines_order_within_a_round() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=4)
    for due in (4.0, 3.0):
        add(queue, A, deadline=due)
    for due in (2.0, 1.0):
        add(queue, B, deadline=due)

    assert run(queue, 4) == "bbaa"


def test_a_tenant_that_was_idle_saves_up_no_turns() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=1)
    add(queue, B)
    for _ in range(50):
        add(queue, A)
    run(queue, 30)

    for _ in range(20):
        add(queue, B)

    assert abs(Counter(run(queue, 20))["a"] - 10) <= 1


def test_rounds_end_a_second_after_a_tenant_is_alone() -> None:
    queue: DeadlineQueue[str] = DeadlineQueue(quantum=1)
    add(queue, B)
    for _ in range(5):
        add(queue, A, deadline=9.0)
    assert "b" in run(queue, 2)

    add(queue, A, deadline=3.0, now=1.5)

    head = queue.head()
    assert head is not None and head.order[2] == 3.0
    assert queue.length == 5


tenants = st.sampled_from([NOBODY, A, B, HEAVY])


@given(
    st.lists(st.tuples(st.sampled_from(["add", "add", "pop", "remove"]), tenants, st.integers(1, 9), st.floats(0, 20)), max_size=60)
)
@settings(STEADY, max_examples=150)
def test_whatever_tenants_do_nothing_is_lost_and_the_order_is_whole(script: list[tuple[str, Tenant, int, float]]) -> None:
    queue: DeadlineQueue[int] = DeadlineQueue(quantum=4)
    there: list[QueueEntry[int]] = []
    for now, (step, tenant, rows, deadline) in enumerate(script):
        if step == "add":
            queue.meet(tenant, now / 2)
            entry = QueueEntry(now, rows, LINE, queue.order(100, deadline, now / 2, tenant), tenant)
            queue.add(entry)
            there.append(entry)
        elif step == "remove" and there:
            assert queue.remove(there.pop(rows % len(there)))
        elif there:
            (taken,) = queue.pop(LINE, 1)
            assert taken.order == min(one.order for one in there)
            there.remove(taken)
        assert (queue.length, queue.rows) == (len(there), sum(one.rows for one in there))
        if there:
            assert list(queue.line(LINE)) == sorted(there, key=lambda one: one.order)
    assert queue.clear() == sorted(there, key=lambda one: one.order)


async def test_a_flood_leaves_room_in_the_queue_for_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admission, "QUEUE_LIMIT", 4)
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    flood = [Caller() for _ in range(5)]
    for caller in flood:
        batcher.submit(a_row(1), (), caller, tenant=A)
    other = Caller()

    batcher.submit(a_row(2), (), other, tenant=B)

    error = await flood[-1].answer()
    assert error.status is HTTPStatus.TOO_MANY_REQUESTS and "makes room" in error.message
    with pytest.raises(RequestError):
        batcher.submit(a_row(1), (), Caller(), tenant=A)
    engine.let()
    assert (await other.answer())["y"][0, 0] == 4
    assert [(await caller.answer())["y"][0, 0] for caller in flood[:-1]] == [2] * 4


async def test_the_wait_that_a_deadline_is_held_against_is_that_of_the_tenants_turn() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, ALONE, {1: 1.0}, clock=clock)
    for _ in range(10):
        batcher.submit(a_row(1), (), Caller(), tenant=A, deadline=clock.now + 60.0)

    # What runs, one round of the other, and its own run.
    batcher.submit(a_row(1), (), Caller(), tenant=B, deadline=clock.now + 4.0)

    with pytest.raises(RequestError, match="can't be met"):
        batcher.submit(a_row(1), (), Caller(), tenant=A, deadline=clock.now + 9.0)
    engine.let()


async def test_a_tenant_has_so_many_requests_at_once_and_another_when_one_ends() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    two = Tenant("a", concurrent=2)
    first, second = Caller(), Caller()
    ticket = batcher.submit(a_row(1), (), first, tenant=two)
    batcher.submit(a_row(1), (), second, tenant=two)

    with pytest.raises(RequestError, match="quota of 2 requests at once") as refused:
        batcher.submit(a_row(1), (), Caller(), tenant=two)

    assert refused.value.status is HTTPStatus.TOO_MANY_REQUESTS
    assert ticket is not None
    batcher.cancel(ticket)
    batcher.submit(a_row(1), (), Caller(), tenant=two)
    engine.let()
    await second.answer()


def test_rows_are_let_in_up_to_the_quota_and_one_request_beyond() -> None:
    ledger, tenant = Ledger(), Tenant("a", rows=10.0)
    let_in = 0
    for tick in range(100):
        try:
            ledger.admit(tenant, tick / 10)
        except RequestError:
            continue
        ledger.begin(tenant, 3)
        ledger.end(tenant)
        let_in += 3

    # Ten seconds of ten rows, the second that was saved up, and at most one request that takes the rest below zero.
    assert 100 <= let_in <= 113


def test_device_seconds_are_charged_when_they_are_known() -> None:
    ledger, tenant = Ledger(), Tenant("a", device=0.5)
    ledger.admit(tenant, 0.0)
    ledger.ran(tenant, 8, 1.5)

    with pytest.raises(RequestError, match="device-seconds") as refused:
        ledger.admit(tenant, 1.0)

    assert refused.value.retry_after_seconds == pytest.approx(1.0)
    ledger.admit(tenant, 2.1)


def test_a_run_is_shared_among_its_tenants_by_rows() -> None:
    ledger = Ledger()

    ledger.share([(A, 1), (B, 3), (NOBODY, 4)], 8, 2.0)

    assert {name: (one.rows, one.seconds) for name, one in ledger.usage.items()} == {"a": (1, 0.25), "b": (3, 0.75)}


def test_callers_who_make_up_tenants_are_counted_together() -> None:
    ledger = Ledger()
    for number in range(200):
        ledger.begin(Tenant(f"t{number}"), 1)

    assert len(ledger.usage) == 65 and ledger.usage[OTHERS].requests == 136
