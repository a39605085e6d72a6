"""The phases of a worker: what leads from one to the other, what can't, and what is told in each."""

from __future__ import annotations

from itertools import product

import msgspec
import pytest

from inference_protocol.messages import PROBLEM_LENGTH, BatchTask, Telemetry, encode
from inference_protocol.reasons import WorkerReason
from inference_worker.batching.profile import LatencyProfile
from inference_worker.errors import WorkerError
from inference_worker.phase import TRANSITIONS, IllegalTransitionError, PhaseMachine, WorkerPhase
from inference_worker.warmup import Warm
from inference_worker.worker_state import WorkerState
from tests.unit.worker.scripted_engines import ALONE, Scripted
from tests.unit.worker.states import a_worker_state, an_unloaded_worker_state, loading

LOADING, READY, UNAVAILABLE, DRAINING, FAILED = WorkerPhase
ALLOWED = {
    (LOADING, READY),
    (READY, UNAVAILABLE),
    (READY, DRAINING),
    (READY, FAILED),
    (UNAVAILABLE, READY),
    (UNAVAILABLE, DRAINING),
    (UNAVAILABLE, FAILED),
}
WARM = Warm(ALONE, LatencyProfile({}), None, inline=False, threads=1)
HOPELESS = WorkerError(WorkerReason.OUT_OF_MEMORY, "no memory for a single row")
TASK = BatchTask(input_data="[1, 2]", output_uri="pvc://data/out")


def told(state: WorkerState) -> tuple[WorkerPhase, bool, bool, bool, WorkerError | None]:
    return state.phase, state.ready, state.loaded, state.draining, state.fault


@pytest.mark.parametrize(("current", "following"), list(product(WorkerPhase, repeat=2)))
def test_a_phase_follows_another_only_where_the_table_says_so(current: WorkerPhase, following: WorkerPhase) -> None:
    machine = PhaseMachine(current)

    if (current, following) in ALLOWED or current is following:
        machine.enter(following)
        assert machine.phase is following
    else:
        with pytest.raises(IllegalTransitionError, match=f"{current} can't become {following}"):
            machine.enter(following)
        assert machine.phase is current


def test_the_table_names_every_phase() -> None:
    assert set(TRANSITIONS) == set(WorkerPhase)


async def test_a_worker_loads_and_is_ready_and_drains() -> None:
    state = an_unloaded_worker_state()
    seen = [told(state)]
    loading(state, Scripted(), WARM)

    await state.repository.load("net")
    seen.append(told(state))
    state.drain()

    assert [*seen, told(state)] == [
        (LOADING, False, False, False, None),
        (READY, True, True, False, None),
        (DRAINING, False, True, True, None),
    ]


async def test_an_engine_that_is_away_or_a_model_that_is_unloaded_makes_a_worker_unavailable_for_as_long() -> None:
    engine = Scripted()
    state = await a_worker_state(engine, WARM)
    seen = []

    for problem in ("it is away", None):
        engine.problem = problem
        seen.append(state.phase)
    await state.repository.unload("net")
    seen.append(state.phase)
    await state.repository.load("net")

    assert [*seen, state.phase] == [UNAVAILABLE, READY, UNAVAILABLE, READY] and state.loaded


async def test_a_worker_cuts_its_problem_to_what_the_operator_takes() -> None:
    engine = Scripted()
    state = await a_worker_state(engine, WARM)
    engine.problem = "é" * 1000

    told_problem = msgspec.json.decode(encode(state.telemetry()), type=Telemetry).problem
    assert told_problem is not None and len(told_problem) == PROBLEM_LENGTH


async def test_a_worker_beyond_help_fails_for_good_with_the_first_reason() -> None:
    state = await a_worker_state(Scripted(), WARM)

    state._give_up(HOPELESS)
    state._give_up(WorkerError(WorkerReason.INTERNAL, "later"))
    await state.repository.unload("net")

    assert told(state) == (FAILED, False, True, False, HOPELESS) and state.failed.is_set()
    with pytest.raises(IllegalTransitionError):
        state.drain()


async def test_a_reason_to_give_up_that_comes_while_the_model_loads_counts_once_it_is_loaded() -> None:
    state = an_unloaded_worker_state()
    loading(state, Scripted(), WARM)

    state._give_up(HOPELESS)
    assert told(state) == (LOADING, False, False, False, None)
    await state.repository.load("net")

    assert told(state) == (FAILED, False, True, False, HOPELESS)


async def test_a_worker_that_drains_goes_on_draining() -> None:
    state = await a_worker_state(Scripted(), WARM)
    state.drain()

    state._give_up(HOPELESS)

    assert told(state) == (DRAINING, False, True, True, None) and not state.failed.is_set()


async def test_a_batch_worker_ends_by_what_its_own_task_meets() -> None:
    state = await a_worker_state(Scripted(), WARM, task=TASK)

    state._give_up(HOPELESS)

    assert told(state) == (READY, True, True, False, None)
