"""What one connection may cost: limits that hold before anything is buffered, and time that runs out."""

from __future__ import annotations

import asyncio
from http import HTTPStatus

import pytest

from inference_worker.serve import http
from inference_worker.serve.http_messages import BODY_LIMIT_BYTES, HEADER_LIMIT_BYTES, Response
from tests.process.wire import request
from tests.unit.worker.served import Served

GET = request("GET", "/a")
HEAD = b"POST /a HTTP/1.1\r\nHost: x\r\n"


async def test_an_announced_body_over_the_limit_is_refused_before_a_byte_of_it() -> None:
    served = Served()

    (reply,) = await served.answers(HEAD + b"Content-Length: %d\r\n\r\n" % (BODY_LIMIT_BYTES + 1))

    assert reply.status == 413 and str(BODY_LIMIT_BYTES) in reply.error and served.transport.closed


async def test_a_body_over_the_limit_that_expects_to_be_asked_is_not_asked() -> None:
    (reply,) = await Served().answers(HEAD + b"Expect: 100-continue\r\nContent-Length: 99999999999\r\n\r\n")

    assert reply.status == 413


@pytest.mark.parametrize("length", [b"18446744073709551616", b"9" * 5000])
async def test_an_announced_length_beyond_all_numbers_is_refused(length: bytes) -> None:
    (reply,) = await Served().answers(HEAD + b"Content-Length: " + length + b"\r\n\r\n")

    assert reply.status in (400, 413)


async def test_a_chunked_body_is_cut_off_at_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_LIMIT_BYTES", 1000)
    served = Served()
    chunk = b"64\r\n" + b"x" * 100 + b"\r\n"

    assert await served.answers(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + chunk * 10) == []
    (reply,) = await served.answers(chunk)

    assert reply.status == 413 and served.transport.closed and served.handled == []


async def test_a_body_of_just_the_limit_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "BODY_LIMIT_BYTES", 1000)

    assert [reply.status for reply in await Served().answers(request("POST", "/a", b"x" * 1000))] == [200]
    assert [reply.status for reply in await Served().answers(request("POST", "/a", b"x" * 1001))] == [413]


@pytest.mark.parametrize(
    "raw",
    [
        b"GET /a HTTP/1.1\r\nHost: x\r\nA: " + b"y" * HEADER_LIMIT_BYTES + b"\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\n" + b"A: bbbbbbbbbbbbbbbb\r\n" * 4000 + b"\r\n",
        b"GET /" + b"y" * HEADER_LIMIT_BYTES + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\n0\r\n" + b"A: bbbbbbbbbbbbbbbb\r\n" * 4000 + b"\r\n",
    ],
    ids=["one", "many", "target", "trailers"],
)
async def test_headers_over_the_limit_are_refused(raw: bytes) -> None:
    served = Served()

    (reply,) = await served.answers(raw)

    assert reply.status in (414, 431) and served.transport.closed and served.handled == []


@pytest.mark.parametrize("start", [b"GET /a HTTP/1.1\r\nA: ", b"GET /a HTTP/1.1\r\n"], ids=["value", "name"])
async def test_a_header_without_an_end_is_refused_at_the_limit(start: bytes) -> None:
    served = Served()

    replies = await served.answers(start, *[b"y" * 65536] * 16)

    assert [reply.status for reply in replies] == [431]


async def test_many_headers_within_the_limit_are_taken() -> None:
    (reply,) = await Served().answers(b"GET /a HTTP/1.1\r\n" + b"A: bbbbbbbbbbbbbbbb\r\n" * 3000 + b"\r\n")

    assert reply.status == 200


async def test_a_flood_of_pipelined_requests_stops_the_reading_until_they_are_answered() -> None:
    served = Served()
    served.feed(request("GET", "/wait"), *[GET] * http._PIPELINE_LIMIT)
    await served.settle()
    assert served.transport.paused

    served.gate.set()

    assert len(await served.answers()) == http._PIPELINE_LIMIT + 1
    assert not served.transport.paused


async def test_answers_wait_for_a_caller_that_does_not_read() -> None:
    served = Served()
    served.protocol.pause_writing()

    assert len(await served.answers(*[GET] * 20)) <= 2
    served.protocol.resume_writing()
    assert len(await served.answers()) == 20


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "STALL_SECONDS", 0.05)


async def closing(served: Served) -> None:
    """Wait until the server closes; the time is a bound for a broken one."""
    async with asyncio.timeout(60):
        while not served.transport.closed:
            await asyncio.sleep(0.005)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize(
    "begun",
    [b"G", b"GET /a HTT", GET[:-1], HEAD + b"Content-Length: 5\r\n\r\nabc", HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n"],
)
async def test_a_request_that_stalls_is_refused_and_closed(begun: bytes) -> None:
    served = Served().feed(begun)

    await closing(served)

    (reply,) = served.replies
    assert reply.status == 408 and served.handled == []


@pytest.mark.usefixtures("impatient")
async def test_a_trickle_does_not_buy_time() -> None:
    served = Served().feed(HEAD + b"Content-Length: 100000\r\n\r\n")

    async def trickle() -> None:
        while not served.transport.closed:
            served.feed(b"x")
            await asyncio.sleep(0.005)

    await asyncio.wait_for(trickle(), 60)

    assert [reply.status for reply in served.replies] == [408]


@pytest.mark.usefixtures("impatient")
async def test_a_request_that_stalls_behind_a_whole_one_is_refused_too() -> None:
    served = Served().feed(GET + b"GET /b HTT")

    await closing(served)

    assert [reply.status for reply in served.replies] == [200, 408]


@pytest.mark.usefixtures("impatient")
async def test_a_stalled_request_does_not_cost_the_answer_of_the_one_before() -> None:
    served = Served().feed(request("GET", "/wait"), b"GET /b HTT")
    # The stalled request's time is up while the first one runs.
    async with asyncio.timeout(60):
        while served.protocol._stall is not None and not served.transport.closed:
            await asyncio.sleep(0.005)
    served.gate.set()

    assert [reply.body for reply in await served.answers()][:1] == [b"GET /wait "]


async def test_an_idle_connection_is_kept() -> None:
    served = Served()

    await served.answers(GET)

    assert served.protocol._stall is None and not served.transport.closed


async def test_a_slow_model_is_no_stall() -> None:
    served = Served()

    await served.answers(request("GET", "/wait"))

    assert served.protocol._stall is None
    served.gate.set()
    assert len(await served.answers()) == 1


async def test_a_caller_that_leaves_takes_its_work_along() -> None:
    served = Served()
    await served.answers(request("GET", "/wait") * 2 + GET)
    assert len(served.handled) == 3

    served.protocol.connection_lost(None)

    assert served.cancelled == ["/wait"] * 2 and all(asked.abandoned for asked in served.handled)
    assert served.connections.open == set()


async def test_an_answer_to_a_caller_that_has_left_goes_nowhere() -> None:
    served = Served()
    await served.answers(request("GET", "/wait"))
    served.protocol.connection_lost(None)

    served.gate.set()

    assert await served.answers() == [] and served.cancelled == ["/wait"]


async def test_a_request_is_answered_once_and_with_its_first_answer() -> None:
    served = Served()
    await served.answers(request("GET", "/wait") * 2)
    first, second = served.gate.held

    for body in (b"2", b"not this"):
        second.reply(Response(HTTPStatus.OK, body))
    for body in (b"1", b"nor this"):
        first.reply(Response(HTTPStatus.OK, body))

    assert [reply.body for reply in await served.answers()] == [b"1", b"2"] and served.cancelled == []


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_bug_in_the_handler_is_a_500_and_not_silence() -> None:
    served = Served()

    (reply,) = await served.answers(request("GET", "/fail"))

    assert reply.status == 500


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
async def test_a_bug_in_the_handler_does_not_cost_the_next_answer_or_closes() -> None:
    served = Served()

    replies = await served.answers(request("GET", "/fail") + GET)

    assert served.transport.closed or [reply.status for reply in replies] == [500, 200]


async def test_shutting_answers_what_was_received_and_closes() -> None:
    served = Served()
    await served.answers(request("GET", "/wait") + GET)

    served.connections.draining = True
    served.protocol.close_when_idle()
    served.gate.set()
    replies = await served.answers()

    assert [reply.body for reply in replies] == [b"GET /wait ", b"GET /a "]
    assert replies[-1].headers["connection"] == "close" and served.transport.closed


async def test_shutting_an_idle_connection_closes_it_at_once() -> None:
    served = Served()
    await served.answers(GET)

    served.connections.draining = True
    served.protocol.close_when_idle()

    assert served.transport.closed
