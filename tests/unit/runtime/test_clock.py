"""The API server's time, carried on by boot time: what an answer's Date says, and when it is believed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from random import Random
from typing import TYPE_CHECKING

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from inference_operator.kube.client import Kube, api_session
from inference_operator.kube.connection import Connection
from inference_operator.runtime.bucket import TokenBucket
from inference_operator.runtime.clock import ServerClock, ServerTime

if TYPE_CHECKING:
    from collections.abc import Iterable

SECONDS = st.floats(0.0, 1e6)
DELAY = st.floats(0.0, 5.0)
_OFFSET = 1.7e9


def answers(time: ServerTime, offset: float, at: Iterable[tuple[float, float, float]]) -> ServerTime:
    """What a server says whose clock is so far from boot time; each is asked, reads its clock after a while, and is heard."""
    for asked, there, back in at:
        time = time.told(float(int(asked + there + offset)), asked, asked + there + back)
    return time


@given(st.lists(st.tuples(SECONDS, DELAY, DELAY), min_size=1), st.floats(-1e6, 1e6))
def test_the_first_answer_puts_a_wrong_clock_right(at: list[tuple[float, float, float]], error: float) -> None:
    slowest = max(there + back for _, there, back in at)

    time = answers(ServerTime(_OFFSET + error), _OFFSET, at)

    assert abs(time.offset - _OFFSET) <= slowest + 2.0


@given(st.lists(st.tuples(SECONDS, DELAY, DELAY)), st.floats(-0.9, 0.9))
def test_a_clock_that_is_in_step_is_left_alone(at: list[tuple[float, float, float]], error: float) -> None:
    assert answers(ServerTime(_OFFSET + error), _OFFSET, at).offset == _OFFSET + error


@given(st.floats(-1e6, 1e6).filter(lambda error: abs(error) > 10))
def test_a_server_whose_clock_was_set_moves_the_time_once_it_has_said_so_often_enough(error: float) -> None:
    other = _OFFSET + error
    time = answers(ServerTime(_OFFSET), _OFFSET, [(0.0, 0.0, 0.0)] * 1000)
    time = answers(time, other, [(1.0, 0.0, 0.0)] * 100)
    assert time.offset == _OFFSET

    assert abs(answers(time, other, [(2.0, 0.0, 0.0)] * 100).offset - other) <= 2.0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("error", [-3600.0, 3600.0])
def test_one_wrong_clock_among_three_servers_moves_nothing_however_answers_alternate(error: float, seed: int) -> None:
    """Three answers in a row come from one server of three every few seconds: a clock an hour ahead ended Firm jobs."""
    dice, time = Random(seed), answers(ServerTime(_OFFSET), _OFFSET, [(0.0, 0.0, 0.0)] * 20)
    moved = []
    for second in range(1000):
        time = answers(time, _OFFSET + dice.choice((0.0, 0.0, error)), [(float(second), 0.0, 0.0)])
        moved += [second] if time.offset != _OFFSET else []

    assert moved == []


@pytest.mark.parametrize("seed", range(3))
def test_who_believed_the_wrong_one_of_three_servers_first_is_put_right_by_the_others(seed: int) -> None:
    dice, time = Random(seed), answers(ServerTime(_OFFSET), _OFFSET + 3600.0, [(0.0, 0.0, 0.0)])
    for second in range(300):
        time = answers(time, _OFFSET + dice.choice((0.0, 0.0, 3600.0)), [(float(second), 0.0, 0.0)])

    assert abs(time.offset - _OFFSET) <= 2.0


async def told(date: str) -> ServerClock:
    """The clock of an operator whose API server answers with this Date."""

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"found": True}, headers={"Date": date})

    app = web.Application()
    app.router.add_get("/", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    clock = ServerClock()
    try:
        async with api_session(clock) as session:
            server = Connection(f"http://127.0.0.1:{runner.addresses[0][1]}", None)
            assert await Kube(server, session, TokenBucket(10, 10, clock.monotonic)).get("/") == {"found": True}
    finally:
        await runner.cleanup()
    return clock


@pytest.mark.parametrize("hours", [-30, 30])
async def test_an_operator_on_a_node_whose_clock_is_wrong_has_the_api_servers_time(hours: int) -> None:
    right = timedelta(hours=hours)

    clock = await told(format_datetime(datetime.now(UTC) + right, usegmt=True))

    assert abs(clock.now() - datetime.now(UTC) - right) < timedelta(seconds=60)
    assert abs(clock.skew_seconds + right.total_seconds()) < 60


async def test_an_answer_whose_date_can_not_be_read_is_taken_all_the_same() -> None:
    assert abs((await told("soon")).skew_seconds) < 1
