"""HTTP/1.1 on one connection: requests cut anywhere, in any number, answered in order and by the rules."""

from __future__ import annotations

from http import HTTPStatus

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from inference_worker.serve.http_messages import BODY_LIMIT_BYTES, Request, Response
from tests.process.wire import Reply, request
from tests.unit.worker.conftest import STEADY
from tests.unit.worker.served import Served

GET = request("GET", "/a")
CHUNKED = b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"


def bodies(replies: list[Reply]) -> list[bytes]:
    return [reply.body for reply in replies]


async def test_a_request_is_answered_and_the_connection_kept() -> None:
    served = Served()

    (reply,) = await served.answers(request("POST", "/a", b"body"))

    assert (reply.status, reply.body, reply.headers["content-type"]) == (200, b"POST /a body", "text/plain")
    assert not served.transport.closed and "connection" not in reply.headers
    assert bodies(await served.answers(GET)) == [b"POST /a body", b"GET /a "]


async def test_pipelined_requests_are_answered_in_order_even_when_the_first_is_slow() -> None:
    served = Served()
    assert await served.answers(request("GET", "/wait") + GET + request("POST", "/b", b"2")) == []

    served.gate.set()

    assert bodies(await served.answers()) == [b"GET /wait ", b"GET /a ", b"POST /b 2"]


async def test_pipelined_requests_run_side_by_side_and_their_answers_leave_in_order() -> None:
    served = Served()
    served.feed(*(request("POST", "/wait", bytes([n])) for n in b"123"))
    assert len(served.gate.held) == 3

    # The gate answers the last of them first.
    served.gate.set()

    assert bodies(await served.answers()) == [b"POST /wait 1", b"POST /wait 2", b"POST /wait 3"]


PIPELINE = (
    request("POST", "/1", b"\x00\r\n\r\n") + CHUNKED + b"3\r\nabc\r\n0\r\n\r\n" + request("GET", "/3") + request("POST", "/4", b"")
)


@given(st.lists(st.integers(0, len(PIPELINE)), max_size=12).map(sorted))
@settings(STEADY, max_examples=60)
def test_cuts_between_packets_change_nothing(cuts: list[int]) -> None:
    import asyncio

    parts = [PIPELINE[a:b] for a, b in zip([0, *cuts], [*cuts, len(PIPELINE)], strict=True) if a != b]

    async def talk() -> list[bytes]:
        return bodies(await Served().answers(*parts))

    assert asyncio.run(talk()) == [b"POST /1 \x00\r\n\r\n", b"POST /a abc", b"GET /3 ", b"POST /4 "]


@given(st.lists(st.integers(0, 3 * len(PIPELINE)), max_size=12).map(sorted))
@settings(STEADY, max_examples=60)
def test_what_was_seen_before_means_the_same_again_however_it_is_cut(cuts: list[int]) -> None:
    import asyncio

    again = PIPELINE * 3
    parts = [again[a:b] for a, b in zip([0, *cuts], [*cuts, len(again)], strict=True) if a != b]

    async def talk() -> list[bytes]:
        served = Served()
        # Each request comes once alone and whole, which is how heads are remembered.
        first = await served.answers(*(request("POST", f"/{n}", body) for n, body in ((1, b"\x00\r\n\r\n"), (4, b""))))
        assert len(first) == 2
        return bodies(await served.answers(*parts))[2:]

    assert asyncio.run(talk()) == [b"POST /1 \x00\r\n\r\n", b"POST /a abc", b"GET /3 ", b"POST /4 "] * 3


async def test_a_head_that_was_seen_before_on_another_connection_means_the_same() -> None:
    first, second = Served(), Served()
    second.connections = second.protocol._connections = first.connections
    for served in (first, second, second):
        await served.answers(request("POST", "/a", b"body", {"X-Own": "1"}))
    await second.answers(request("POST", "/a", b"longer", {"X-Own": "1"}))

    assert [asked.body for asked in (*first.handled, *second.handled)] == [b"body", b"body", b"body", b"longer"]
    assert {asked.headers["x-own"] for asked in second.handled} == {"1"}
    assert all(not asked.abandoned and asked.arrived > 0 for asked in second.handled)


async def test_a_request_that_was_seen_before_is_waited_for_wherever_it_is_cut() -> None:
    served = Served()
    known = request("POST", "/a", b"\r\n\r\nbody")
    await served.answers(known)

    for cut in range(1, len(known)):
        await served.answers(known[:cut])
        assert len(served.handled) == cut
        await served.answers(known[cut:])

    assert {asked.body for asked in served.handled} == {b"\r\n\r\nbody"} and len(served.handled) == len(known)


async def test_a_last_request_that_was_seen_before_is_still_the_last() -> None:
    last = request("GET", "/a", headers={"Connection": "close"})
    first, second = Served(), Served()
    second.connections = second.protocol._connections = first.connections
    await first.answers(last)

    (reply,) = await second.answers(last + GET)

    assert reply.headers["connection"] == "close" and second.transport.closed and len(second.handled) == 1


async def test_byte_by_byte_is_a_request_too() -> None:
    assert bodies(await Served().answers(*(PIPELINE[i : i + 1] for i in range(len(PIPELINE))))) == [
        b"POST /1 \x00\r\n\r\n",
        b"POST /a abc",
        b"GET /3 ",
        b"POST /4 ",
    ]


async def test_a_chunked_body_with_extensions_and_trailers_is_whole() -> None:
    (reply,) = await Served().answers(CHUNKED + b"3;name=value\r\nabc\r\n2\r\nde\r\n0\r\nX-Sum: 1\r\n\r\n")

    assert reply.body == b"POST /a abcde"


async def test_trailers_do_not_replace_headers() -> None:
    served = Served()
    head = CHUNKED.replace(b"\r\n\r\n", b"\r\nInference-Header-Content-Length: 5\r\n\r\n")

    await served.answers(head + b"3\r\nabc\r\n0\r\nInference-Header-Content-Length: 1\r\n\r\n")

    assert served.handled[0].headers["inference-header-content-length"] == "5"


async def test_connection_close_is_answered_then_closed() -> None:
    served = Served()

    (reply,) = await served.answers(request("GET", "/a", headers={"Connection": "close"}))

    assert reply.status == 200 and reply.headers["connection"] == "close" and served.transport.closed


async def test_bytes_after_a_last_request_do_not_cost_its_answer() -> None:
    served = Served()
    served.feed(request("GET", "/wait", headers={"Connection": "close"}) + GET)
    served.gate.set()

    assert bodies(await served.answers())[0] == b"GET /wait "


async def test_garbage_after_a_good_request_does_not_cost_its_answer() -> None:
    served = Served()
    served.feed(request("GET", "/wait") + GET + b"GARBAGE\r\n\r\n")
    served.gate.set()

    replies = await served.answers()

    assert [reply.status for reply in replies] == [200, 200, 400] and served.transport.closed


async def test_http_1_0_is_answered_then_closed() -> None:
    served = Served()

    (reply,) = await served.answers(b"GET /a HTTP/1.0\r\n\r\n")

    assert reply.body == b"GET /a " and served.transport.closed


async def test_http_1_0_is_kept_open_only_when_it_is_told_so() -> None:
    served = Served()

    (reply,) = await served.answers(b"GET /a HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")

    assert served.transport.closed or reply.headers.get("connection", "").lower() == "keep-alive"


async def test_head_has_the_length_but_not_the_body() -> None:
    served = Served()

    await served.answers(request("HEAD", "/a"))

    assert served.transport.written.endswith(b"\r\n\r\n")
    assert b"Content-Length: 8\r\n" in served.transport.written


@pytest.mark.parametrize(
    ("target", "path"), [("/a?b=c&d", "/a"), ("/a?", "/a"), ("/a%20b", "/a%20b"), ("/?x=/v2", "/"), ("*", "*")]
)
async def test_the_query_is_no_part_of_the_path(target: str, path: str) -> None:
    served = Served()

    await served.answers(request("GET", target))

    assert served.handled[0].path == path


@pytest.mark.parametrize("target", ["http://worker/a?b", "http://worker:8000/a"])
async def test_an_absolute_target_is_its_path(target: str) -> None:
    served = Served()

    await served.answers(request("GET", target))

    assert served.handled[0].path == "/a"


async def test_expect_100_continue_is_told_to_go_on() -> None:
    served = Served()
    head = request("POST", "/a", b"body", {"Expect": "100-continue"})[:-4]

    assert [reply.status for reply in await served.answers(head)] == [100]
    assert [reply.status for reply in await served.answers(b"body")] == [100, 200]


async def test_a_caller_of_http_1_0_that_expects_100_continue_gets_its_answer_alone() -> None:
    served = Served()
    sent = request("POST", "/a", b"body", {"Expect": "100-continue"}).replace(b"HTTP/1.1", b"HTTP/1.0")

    assert [reply.status for reply in await served.answers(sent)] == [200]


async def test_100_continue_waits_for_its_turn() -> None:
    served = Served()
    served.feed(request("GET", "/wait"), request("POST", "/a", b"body", {"Expect": "100-continue"}))
    served.gate.set()

    assert (await served.answers())[0].status == 200


@pytest.mark.parametrize(
    "head",
    [
        "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: x\r\n",
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    ],
    ids=["websocket", "h2c as java.net.http sends it"],
)
async def test_an_offer_to_upgrade_is_answered_in_http_1_1(head: str) -> None:
    (reply,) = await Served().answers(f"GET /a HTTP/1.1\r\nHost: x\r\n{head}\r\n".encode())

    assert reply.body == b"GET /a "


async def test_what_a_handler_makes_of_a_request_is_not_what_its_head_means_to_the_next() -> None:
    """A body as long as what it inflates to: its head was kept as one without a coding, for all callers."""
    seen: list[tuple[bytes, str | None]] = []

    def handle(asked: Request) -> None:
        seen.append((bytes(asked.body), asked.headers.get("content-encoding")))
        asked.body, asked.headers = b"inflated", {name: v for name, v in asked.headers.items() if name != "content-encoding"}
        asked.reply(Response(HTTPStatus.OK, b""))

    served = Served(handle)
    for _ in range(2):
        await served.answers(request("POST", "/a", b"deflated", {"Content-Encoding": "gzip"}))

    assert seen == [(b"deflated", "gzip")] * 2


OFFERS = [
    "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "Connection: upgrade, close\r\nUpgrade: x\r\n",
    "Upgrade: TLS/1.2\r\n",
]
BODY = b"GET /smuggled HTTP/1.1\r\nHost: evil\r\n\r\n"
FRAMINGS = {
    "by length": (b"Content-Length: %d\r\n\r\n" % len(BODY), BODY),
    "in chunks": (b"Transfer-Encoding: chunked\r\n\r\n", b"%x\r\n%b\r\n0\r\n\r\n" % (len(BODY), BODY)),
}


@pytest.mark.parametrize("size", [1, 7, 1 << 20])
@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("offer", OFFERS)
async def test_the_body_of_a_request_with_an_offer_to_upgrade_is_no_request_of_its_own(offer: str, framing: str, size: int) -> None:
    """Kludex/uvicorn#2722, MagicStack/httptools#124: Java's HttpClient offers h2c with each POST, and its body was lost."""
    served = Served()
    head, body = FRAMINGS[framing]
    raw = b"POST /a HTTP/1.1\r\nHost: x\r\n" + offer.encode() + head + body
    for start in range(0, len(raw), size):
        served.feed(raw[start : start + size])
    if "close" not in offer:
        served.feed(request("POST", "/b", b"next"))

    replies = [reply.body for reply in await served.answers()]

    assert replies == [b"POST /a " + BODY, *([] if "close" in offer else [b"POST /b next"])]


async def test_an_offer_to_upgrade_with_a_body_that_is_too_long_is_refused_by_its_length() -> None:
    raw = f"POST /a HTTP/1.1\r\nHost: x\r\n{OFFERS[0]}Content-Length: {BODY_LIMIT_BYTES + 1}\r\n\r\n"
    (reply,) = await Served().answers(raw.encode())

    assert reply.status == 413


@pytest.mark.parametrize(
    "first", [b"CONNECT host:443 HTTP/1.1\r\nHost: x\r\n\r\n", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], ids=["connect", "h2"]
)
async def test_other_protocols_are_refused_and_closed(first: bytes) -> None:
    served = Served()

    (reply,) = await served.answers(first)

    assert reply.status in (400, 405, 501, 505) and served.transport.closed


@pytest.mark.parametrize(
    "raw",
    [
        b"GARBAGE\r\n\r\n",
        b"get /a HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a b HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/9.9\r\nHost: x\r\n\r\n",
        b"GET /a HTTP/1.1\nHost: x\n\n",
        b"GET /a HTTP/1.1\r\nHost x\r\n\r\n",
        b"GET /a HTTP/1.1\r\nHost: x\r\nA: b\0c\r\n\r\n",
        b"\x16\x03\x01\x00\xf5\x01\x00\x00\xf1\x03\x03" + bytes(64),
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: abc\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1e3\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 1\r\n\r\na",
        b"POST /a HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"POST /a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip\r\n\r\nabc",
        CHUNKED + b"zz\r\nabc\r\n",
        CHUNKED + b"-1\r\n",
        CHUNKED + b"3\r\nabcd\r\n0\r\n\r\n",
    ],
)
async def test_what_breaks_the_rules_of_http_is_a_400_and_a_closed_connection(raw: bytes) -> None:
    served = Served()

    (reply,) = await served.answers(raw)

    assert reply.status == 400 and "malformed" in reply.error and served.transport.closed
    assert served.handled == []


@given(
    st.lists(
        st.sampled_from(
            [b"GET ", b"/a ", b"HTTP/1.1\r\n", b"\r\n", b"Host: x\r\n", b"Content-Length: 3\r\n", b"0\r\n\r\n", CHUNKED]
        )
        | st.binary(max_size=12),
        max_size=10,
    )
)
@settings(STEADY, max_examples=120)
def test_no_bytes_bring_the_connection_down_otherwise_than_by_a_refusal(parts: list[bytes]) -> None:
    import asyncio

    async def talk() -> list[int]:
        served = Served()
        return [reply.status for reply in await served.answers(*parts)]

    assert set(asyncio.run(talk())) <= {100, 200, 400, 408, 413, 431, 501}


async def test_a_caller_that_ends_its_side_has_all_it_asked_for_and_then_the_end() -> None:
    """`nc -N` and some proxies do that (RFC 9112, 9.6)."""
    served = Served().feed(request("GET", "/wait"), GET)

    assert served.protocol.eof_received() and not served.transport.closed
    served.gate.set()

    # What is not asked for shows whether anybody is there.
    assert [(reply.status, reply.headers.get("connection")) for reply in await served.answers()] == [
        (100, None),
        (200, None),
        (200, "close"),
    ]
    assert served.transport.closed and served.protocol._stall is None


async def test_a_caller_of_http_1_0_that_ends_its_side_hears_no_interim_answer() -> None:
    served = Served().feed(b"GET /wait HTTP/1.0\r\n\r\n")

    assert served.protocol.eof_received()
    served.gate.set()

    assert [reply.status for reply in await served.answers()] == [200] and served.transport.closed


@pytest.mark.parametrize("sent", [b"", GET, b"GET /b HTT"], ids=["nothing", "answered", "half"])
async def test_a_caller_that_ends_its_side_and_is_owed_nothing_is_let_go(sent: bytes) -> None:
    served = Served().feed(sent)

    assert not served.protocol.eof_received()
    assert served.protocol._reserved == 0 and served.protocol._stall is None


async def test_a_caller_that_ends_its_side_before_its_body_is_owed_nothing() -> None:
    served = Served()
    # Nothing is taken, so that it is not told yet to go on.
    served.protocol.pause_writing()
    served.feed(b"POST /a HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n")

    assert not served.protocol.eof_received()
    assert served.protocol._reserved == 0


async def test_half_a_request_behind_a_whole_one_does_not_keep_its_caller_from_the_answer() -> None:
    served = Served().feed(request("GET", "/wait"), b"GET /b HTT")

    assert served.protocol.eof_received()
    served.gate.set()

    assert [reply.status for reply in await served.answers()] == [100, 200] and served.transport.closed
