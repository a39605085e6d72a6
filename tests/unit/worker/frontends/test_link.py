"""What a frontend and its worker tell each other comes whole and in order, however the socket cuts it."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import TYPE_CHECKING, Any, cast

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from inference_worker.frontends.link import Link
from inference_worker.frontends.messages import Extent, FromFrontend, FromWorker, Left, Received

if TYPE_CHECKING:
    from collections.abc import Sequence

MESSAGES = st.one_of(
    st.builds(Left, st.integers(0, 1 << 40)),
    st.builds(Received, st.integers(0, 99), st.binary(max_size=300), st.booleans()),
    st.builds(Received, st.integers(0, 99), st.builds(Extent, st.integers(0, 1 << 40), st.integers(0, 1 << 20))),
)


class Socket(asyncio.Transport):
    """Takes down what is written, and how often reading was paused."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = b""
        self.pauses = self.resumes = 0

    def write(self, data: Any) -> None:
        self.sent += data

    def pause_reading(self) -> None:
        self.pauses += 1

    def resume_reading(self) -> None:
        self.resumes += 1


async def told(messages: Sequence[FromFrontend]) -> bytes:
    """The bytes of one piece for each round of the loop."""
    link: Link[FromFrontend, FromWorker] = Link(msgspec.msgpack.Decoder(list[FromWorker]), lambda _: None, lambda: None)
    link.connection_made(socket := Socket())
    for at, message in enumerate(messages):
        link.tell(message)
        if at % 3 == 0:
            await asyncio.sleep(0)
    await asyncio.sleep(0)
    return socket.sent


async def heard(data: bytes, cuts: Sequence[int]) -> tuple[list[FromFrontend], Socket]:
    found: list[FromFrontend] = []
    link: Link[FromWorker, FromFrontend] = Link(msgspec.msgpack.Decoder(list[FromFrontend]), found.append, lambda: None)
    link.connection_made(socket := Socket())
    places = [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    for begin, end in pairwise(places):
        if begin < end:
            link.data_received(data[begin:end])
    for _ in range(len(data)):
        await asyncio.sleep(0)
    return found, socket


@given(st.lists(MESSAGES, max_size=40), st.lists(st.integers(0, 1 << 16), max_size=12))
def test_messages_come_whole_and_in_order(messages: list[FromFrontend], cuts: list[int]) -> None:
    async def talk() -> list[FromFrontend]:
        return (await heard(await told(messages), cuts))[0]

    assert asyncio.run(talk()) == messages


async def test_a_side_that_is_told_more_than_it_takes_stops_reading_until_it_has_caught_up() -> None:
    """What waits here would be bounded by nothing; what waits in the socket holds the other side up."""
    messages = [Left(number) for number in range(3000)]
    piece = msgspec.msgpack.encode(messages)

    found, socket = await heard(len(piece).to_bytes(8, "big") + piece, [])

    assert found == cast("list[FromFrontend]", messages) and (socket.pauses, socket.resumes) == (1, 1)
