"""What goes together, in which order, for whom, and what is learnt of it."""

from __future__ import annotations

import asyncio
import gc

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.batching.execute import Answer
from inference_worker.batching.rows import Layout
from inference_worker.batching.ticket import Timing
from inference_worker.engines.engine import Cancellation, Tensor, Tensors
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.scripted_engines import ALONE, FLAT, LINEAR, Caller, Clock, Formula, Scripted, a_batcher, a_row, spec

NEVER = float("inf")


async def test_what_gathers_while_the_model_is_busy_goes_together_when_that_pays() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    callers = [Caller() for _ in range(6)]
    for value, caller in enumerate(callers):
        batcher.submit(a_row(value), (), caller)

    engine.let()

    assert [(await caller.answer())["y"][0, 0] for caller in callers] == [2 * value for value in range(6)]
    assert engine.firsts == [[0], [1, 2, 3, 4, 5]]
    assert [(await caller.timing()).rows for caller in callers] == [1, 5, 5, 5, 5, 5]


async def test_where_it_does_not_pay_they_go_one_by_one() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=LINEAR)
    callers = [Caller() for _ in range(4)]
    for value, caller in enumerate(callers):
        batcher.submit(a_row(value), (), caller)

    engine.let()
    for caller in callers:
        await caller.answer()

    assert engine.firsts == [[0], [1], [2], [3]]


async def test_a_batch_has_at_most_so_many_rows_and_a_request_is_not_split_between_batches() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT, max_rows=4)
    for rows in (1, 3, 2, 2, 3):
        batcher.submit(a_row(*[rows] * rows), (), Caller())

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    assert engine.firsts == [[1], [3, 3, 3], [2, 2, 2, 2], [3, 3, 3]]


async def test_a_request_of_many_rows_is_one_run_when_its_caller_comes_alone() -> None:
    engine, caller = Scripted(), Caller()

    a_batcher(engine, profile={1: 0.001}, max_rows=1).submit(a_row(*range(100)), (), caller)

    assert (await caller.answer())["y"][:, 0].tolist() == [2 * i for i in range(100)]
    assert engine.sizes == [100]


async def test_the_most_urgent_go_first_and_others_of_their_shape_with_them() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, profile=FLAT, max_rows=2, clock=clock)
    asked = [(0.0, NEVER, 100), (1.0, NEVER, 100), (2.0, 5.0, 100), (3.0, 3.0, 100), (4.0, NEVER, 1)]
    for value, deadline, priority in asked:
        batcher.submit(a_row(value), (), Caller(), deadline=clock.now + deadline, priority=priority)

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    assert engine.firsts == [[0], [4, 3], [2, 1]]


async def test_requests_of_two_shapes_do_not_share_a_run_nor_starve_each_other() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    for value in range(5):
        wide = {"x": np.full((1, 3), value, np.float32)}
        batcher.submit(wide if value % 2 else a_row(value), (), Caller())

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    assert engine.firsts == [[0], [1, 3], [2, 4]]


async def test_a_deadline_keeps_a_batch_small_enough() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, profile={1: 1.0, 2: 1.2, 4: 1.5, 8: 2.0}, clock=clock)
    for value in range(8):
        batcher.submit(a_row(value), (), Caller(), deadline=NEVER if value != 1 else clock.now + 8.0)
    # The first run took so long that later ones are given half a second more.
    clock.now += 6.2

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    assert engine.firsts[1] == [1, 2]


async def test_a_model_that_does_not_batch_runs_one_request_at_a_time() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE, FLAT)
    for value in range(3):
        batcher.submit(a_row(value, value), (), Caller())

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    assert engine.firsts == [[0, 0], [1, 1], [2, 2]]


async def test_as_many_runs_go_at_a_time_as_there_are_threads() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE, threads=3)
    for value in range(5):
        batcher.submit(a_row(value), (), Caller())

    await engine.begun(3)

    assert (batcher.in_flight, batcher.waiting) == (3, 2)
    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)


async def test_a_caller_who_leaves_the_queue_is_not_run() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    batcher.submit(a_row(0), (), Caller())
    gone = Caller()
    ticket = batcher.submit(a_row(1), (), gone)
    stays = Caller()
    batcher.submit(a_row(2), (), stays)
    assert ticket is not None

    batcher.cancel(ticket)
    batcher.cancel(ticket)

    assert (batcher.waiting, batcher.counts.cancelled) == (1, 1)
    engine.let()
    await stays.answer()
    assert engine.firsts == [[0], [2]] and not gone.heard


async def test_a_run_whose_callers_have_all_left_is_ended_and_the_next_begins() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE)
    ticket, stays = batcher.submit(a_row(1), (), Caller()), Caller()
    batcher.submit(a_row(2), (), stays)
    await engine.begun()
    assert ticket is not None

    batcher.cancel(ticket)
    await engine.begun()
    engine.let()

    assert (await stays.answer())["y"][0, 0] == 4
    assert batcher.counts.cancelled == 1 and batcher.breaker.state == 0


async def test_a_run_with_one_caller_left_goes_on_for_it() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    batcher.submit(a_row(0), (), Caller())
    gone, stays = Caller(), Caller()
    ticket = batcher.submit(a_row(1), (), gone)
    batcher.submit(a_row(2), (), stays)
    engine.let(1)
    await engine.begun(2)
    assert ticket is not None

    batcher.cancel(ticket)
    engine.let()

    assert (await stays.answer())["y"][0, 0] == 4
    assert not gone.heard and batcher.counts.wasted_rows == 1


async def test_a_callback_that_raises_harms_nobody() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    batcher.submit(a_row(0), (), Caller())

    def breaks(answer: Answer, timing: Timing) -> None:
        raise KeyError("a bug of ours")

    before, after = Caller(), Caller()
    for value, done in ((1, before), (2, breaks), (3, after)):
        batcher.submit(a_row(value), (), done)
    engine.let()

    assert [(await caller.answer())["y"][0, 0] for caller in (before, after)] == [2, 6]
    await asyncio.wait_for(batcher.emptied(), 20)
    again = Caller()
    batcher.submit(a_row(4), (), again)
    assert (await again.answer())["y"][0, 0] == 8


async def test_a_callback_may_ask_again_or_cancel_another_of_its_batch() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=FLAT)
    batcher.submit(a_row(0), (), Caller())
    again, gone = Caller(), Caller()

    def asks_again(answer: Answer, timing: Timing) -> None:
        assert ticket is not None
        batcher.cancel(ticket)
        batcher.submit(a_row(7), (), again)

    batcher.submit(a_row(1), (), asks_again)
    ticket = batcher.submit(a_row(2), (), gone)
    engine.let()

    assert (await again.answer())["y"][0, 0] == 14
    assert not gone.heard


async def test_quick_runs_of_the_warmed_shape_are_answered_before_submit_returns() -> None:
    engine, caller, wide = Scripted(), Caller(), Caller()
    batcher = a_batcher(engine, warm=((2,),), inline=True)

    assert batcher.submit(a_row(1), (), caller) is None and caller.heard
    assert batcher.submit({"x": np.ones((1, 3), np.float32)}, (), wide) is not None and not wide.heard
    await wide.answer()


async def test_more_rows_than_were_measured_do_not_run_on_the_loop() -> None:
    caller = Caller()

    ticket = a_batcher(Scripted(), max_rows=4, warm=((2,),), inline=True).submit(a_row(*range(5)), (), caller)

    assert ticket is not None and not caller.heard
    assert len((await caller.answer())["y"]) == 5


async def test_quick_runs_wait_their_turn_behind_a_queue() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, ALONE, warm=((2,),), inline=True)
    slow = [Caller(), Caller()]
    for caller in slow:
        batcher.submit({"x": np.ones((1, 3), np.float32)}, (), caller)
    quick = Caller()

    assert batcher.submit(a_row(1), (), quick) is not None and not quick.heard
    engine.let()
    for caller in (*slow, quick):
        await caller.answer()


async def test_runs_are_counted_by_rows_and_times_are_learnt() -> None:
    engine = Scripted(held=True)
    batcher = a_batcher(engine, profile=dict.fromkeys((1, 2, 4), 100.0), warm=((2,),))
    for value in range(5):
        batcher.submit(a_row(value), (), Caller())
    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    counts = batcher.counts
    assert (counts.runs, counts.rows, counts.fullest) == (2, 5, 4)
    assert {rows: runs for rows, (runs, _) in counts.by_rows.items()} == {1: 1, 4: 1}
    assert batcher.profile.seconds(4) < 100.0


async def test_what_another_shape_takes_does_not_spoil_the_warmed_shapes_times() -> None:
    batcher = a_batcher(Scripted(), profile={1: 100.0}, warm=((2,),))
    caller = Caller()
    batcher.submit({"x": np.ones((1, 3), np.float32)}, (), caller)
    await caller.answer()

    assert batcher.profile.seconds(1) == 100.0


async def test_members_with_another_shared_value_do_not_share_a_run() -> None:
    rate = spec("rate", (), None)
    engine = Formula(lambda x, rate: x * rate, inputs=(spec(), rate))
    batcher = a_batcher(engine, Layout({"x": 0, "rate": None}, {"y": 0}), FLAT)
    callers = [Caller() for _ in range(6)]
    for value, caller in enumerate(callers):
        batcher.submit({**a_row(value), "rate": np.array(value % 2 + 1, np.float32)}, (), caller)

    assert [(await caller.answer())["y"][0, 0] for caller in callers] == [0, 2, 2, 6, 4, 10]


class Rated(Scripted):
    """As its maker, with an input that all rows share; remembers which of its values came with which rows."""

    def __init__(self) -> None:
        super().__init__(held=True)
        self.inputs = (spec(), spec("rate", (None,), None))
        self.runs: list[tuple[list[float], list[float]]] = []

    def run(self, feeds: Tensors, wanted: tuple[str, ...] = (), cancellation: Cancellation | None = None) -> dict[str, Tensor]:
        self.runs.append((feeds["x"][:, 0].tolist(), feeds["rate"].tolist()))
        answer = super().run({"x": feeds["x"]}, wanted, cancellation)
        return {"y": answer["y"] * feeds["rate"].sum()}


@given(st.lists(st.sampled_from([(1.0,), (2.0,), (0.0,), (-0.0,), (float("nan"),), (1.0, 1.0), ()]), min_size=2, max_size=12))
@settings(STEADY, max_examples=40)
def test_rows_of_equal_shared_values_may_join_and_of_different_ones_never(rates: list[tuple[float, ...]]) -> None:
    async def scenario() -> None:
        engine = Rated()
        batcher = a_batcher(engine, Layout({"x": 0, "rate": None}, {"y": 0}), FLAT)
        callers = [Caller() for _ in rates]
        for value, (rate, caller) in enumerate(zip(rates, callers, strict=True)):
            batcher.submit({**a_row(value), "rate": np.array(rate, np.float32)}, (), caller)
        engine.let()
        for caller in callers:
            await caller.answer()
        batcher.close()

        for rows, shared in engine.runs:
            assert {repr(rates[int(row)]) for row in rows} == {repr(tuple(shared))}
        # All but the first wait together.
        if len(rates) > 2 and len({repr(rate) for rate in rates}) == 1:
            assert len(engine.runs) < len(rates)

    asyncio.run(scenario())


requests = st.lists(
    st.tuples(st.integers(1, 5), st.integers(1, 3), st.sampled_from(["answer", "cancel", "poison"])), min_size=1, max_size=12
)


@given(requests, st.integers(1, 6), st.integers(1, 3), st.sampled_from([FLAT, LINEAR, {}]))
@settings(STEADY, max_examples=80)
def test_every_caller_who_stays_gets_its_own_answer_once(
    asked: list[tuple[int, int, str]], max_rows: int, threads: int, profile: dict[int, float]
) -> None:
    async def talk() -> None:
        engine = Scripted(held=True, faults=lambda x: ValueError("poison") if (x[:, 1] > 0).any() else None)
        batcher = a_batcher(engine, profile=profile, max_rows=max_rows, threads=threads)
        callers = []
        for number, (rows, priority, fate) in enumerate(asked, start=1):
            feeds = a_row(*[number] * rows)
            if fate == "poison":
                feeds["x"] = np.abs(feeds["x"])
            caller = Caller()
            callers.append((caller, batcher.submit(feeds, (), caller, priority=priority)))
        for (_, ticket), (_, _, fate) in zip(callers, asked, strict=True):
            if fate == "cancel" and ticket is not None:
                batcher.cancel(ticket)
        engine.let()
        await asyncio.wait_for(batcher.emptied(), 20)
        for number, ((caller, _), (rows, _, fate)) in enumerate(zip(callers, asked, strict=True), start=1):
            if fate == "cancel":
                assert not caller.heard
            elif fate == "poison":
                assert (await caller.answer()).status == 400
            else:
                assert (await caller.answer())["y"][:, 0].tolist() == [2 * number] * rows
        assert batcher.waiting == batcher.in_flight == 0
        batcher.close()

    asyncio.run(talk())


async def test_busy_seconds_are_those_of_ended_runs_and_of_what_runs() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, profile=FLAT, clock=clock)
    batcher.submit(a_row(1), (), Caller())
    await engine.begun()
    before, clock.now = batcher.busy_seconds, clock.now + 2.0
    assert (before, batcher.busy_seconds) == (0.0, 2.0)

    batcher.counts.by_rows[1] = (4, 3.0)
    assert batcher.busy_seconds == 5.0
    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)

    assert batcher.busy_seconds >= 3.0


async def test_busy_seconds_are_a_share_of_all_runners() -> None:
    engine, clock = Scripted(held=True), Clock()
    batcher = a_batcher(engine, profile=FLAT, clock=clock, threads=2)
    batcher.submit(a_row(1), (), Caller())
    await engine.begun()
    clock.now += 2.0

    assert batcher.busy_seconds == 1.0
    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)


SLOW = dict.fromkeys((1, 2, 4, 8), 10.0)
"""A device that takes as long for many rows as for one, and longer than any test."""


async def test_a_full_run_is_prepared_beside_the_one_that_computes_and_a_smaller_one_still_gathers() -> None:
    engine = Scripted(staged=True, held=True)
    batcher = a_batcher(engine, profile=SLOW, max_rows=4, warm=((2,),), prepares=True)
    callers = [Caller() for _ in range(8)]
    for value, caller in enumerate(callers[:4]):
        batcher.submit(a_row(value), (), caller)
    assert (batcher.in_flight, batcher.waiting) == (1, 3)

    for value, caller in enumerate(callers[4:], start=4):
        batcher.submit(a_row(value), (), caller)
    assert (batcher.in_flight, batcher.waiting) == (5, 3)

    engine.let()
    assert [(await caller.answer())["y"][0, 0] for caller in callers] == [2 * value for value in range(8)]
    assert engine.firsts == [[0], [1, 2, 3, 4], [5, 6, 7]]


async def test_nothing_is_prepared_for_a_shape_that_was_not_warmed() -> None:
    engine = Scripted(staged=True, held=True)
    batcher = a_batcher(engine, profile=FLAT, max_rows=2, warm=((3,),), prepares=True)
    for value in range(5):
        batcher.submit(a_row(value), (), Caller())

    assert (batcher.in_flight, batcher.waiting) == (1, 4)
    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)


async def test_the_fault_of_one_run_costs_the_prepared_one_nothing() -> None:
    engine = Scripted(staged=True, held=True, faults=lambda x: RuntimeError("the device says no") if 0 in x[:, 0] else None)
    batcher = a_batcher(engine, profile=FLAT, max_rows=2, warm=((2,),), prepares=True)
    callers = [Caller() for _ in range(3)]
    for value, caller in enumerate(callers):
        batcher.submit(a_row(value), (), caller)

    engine.let()

    assert isinstance(await callers[0].answer(), Exception)
    assert [(await caller.answer())["y"][0, 0] for caller in callers[1:]] == [2, 4]


async def test_what_waits_is_prepared_shortly_before_the_device_is_free() -> None:
    clock = Clock()
    engine = Scripted(staged=True, held=True)
    batcher = a_batcher(engine, profile=dict.fromkeys((1, 2, 4), 0.05), max_rows=4, warm=((2,),), prepares=True, clock=clock)
    for value in range(3):
        batcher.submit(a_row(value), (), Caller())
    assert (batcher.in_flight, batcher.waiting) == (1, 2)

    clock.now += 0.0495
    # What is looked for comes by the event loop's own clock.
    while batcher.waiting:
        await asyncio.sleep(0)
    assert batcher.in_flight == 3

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)
    assert engine.firsts == [[0], [1, 2]]


async def test_the_more_rows_there_are_to_copy_the_sooner_they_are_prepared() -> None:
    """With one lead for all, a device waited for each large run, and was a tenth slower than it is."""
    clock = Clock()
    engine = Scripted(staged=True, held=True)
    batcher = a_batcher(engine, profile=dict.fromkeys((1, 2, 4), 0.05), max_rows=4, warm=((2,),), prepares=True, clock=clock)
    batcher._dispatcher._seconds_a_row = 0.01
    batcher.submit(a_row(0), (), Caller())
    clock.now += 0.025
    batcher.submit(a_row(1), (), Caller())
    assert (batcher.in_flight, batcher.waiting) == (1, 1)

    batcher.submit(a_row(2), (), Caller())
    batcher.submit(a_row(3), (), Caller())
    assert (batcher.in_flight, batcher.waiting) == (4, 0)

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)


async def test_requests_leave_nothing_to_the_collector() -> None:
    """Two fifths of a busy event loop's time went to cycles of requests and their runs, and bodies stayed until they were found."""
    batcher = a_batcher(Scripted(), profile=FLAT)
    gc.collect()
    gc.disable()
    try:
        for _ in range(50):
            callers = [Caller() for _ in range(8)]
            for value, caller in enumerate(callers):
                batcher.submit(a_row(value), (), caller)
            for caller in callers:
                await caller.answer()
        await asyncio.wait_for(batcher.emptied(), 20)
        callers.clear()
        left = gc.collect()
    finally:
        gc.enable()
    assert left < 400


async def test_a_full_run_leaves_its_places_to_more_urgent_requests_until_the_device_is_nearly_free() -> None:
    """Prepared at once, two runs stood before each urgent request, which had time for one."""
    clock = Clock()
    engine = Scripted(staged=True, held=True)
    batcher = a_batcher(engine, profile=dict.fromkeys((1, 2, 4), 0.05), max_rows=2, warm=((2,),), prepares=True, clock=clock)
    for value in range(4):
        batcher.submit(a_row(value), (), Caller(), priority=200)
    assert (batcher.in_flight, batcher.waiting) == (1, 3)

    batcher.submit(a_row(9), (), Caller(), deadline=clock.now + 10)
    clock.now += 0.0495
    while batcher.in_flight < 3:
        await asyncio.sleep(0)

    engine.let()
    await asyncio.wait_for(batcher.emptied(), 20)
    assert engine.firsts[1] == [9, 1]
