"""Polls over real sockets of loopback."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from inference_operator.runtime.pings import Pings, Word
from tests.loopback import free_ports

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"


@contextmanager
def listening() -> Iterator[tuple[socket.socket, Pings]]:
    with (
        closing(socket.create_server(("127.0.0.1", 0))) as server,
        closing(Pings("/v2/health/live", server.getsockname()[1])) as pings,
    ):
        yield server, pings


def words(pings: Pings, seconds: float = 60.0) -> list[tuple[str, Word]]:
    """What comes first, within some time."""
    end = time.monotonic() + seconds
    while not (found := list(pings.collect())) and time.monotonic() < end:
        time.sleep(0.005)
    return found


def test_a_connection_is_kept_for_the_next_question() -> None:
    with listening() as (server, pings):
        pings.ask("w", "127.0.0.1")
        assert words(pings, 0.05) == []
        peer, _ = server.accept()
        for _ in range(3):
            assert peer.recv(1000).startswith(b"GET /v2/health/live HTTP/1.1\r\nHost: ")
            peer.send(ANSWER)
            assert words(pings) == [("w", Word.ANSWERED)]
            pings.ask("w", "127.0.0.1")
            pings.ask("w", "127.0.0.1")
        peer.close()


def test_nobody_there_is_a_refusal() -> None:
    (port,) = free_ports(1)
    with closing(Pings("/", port)) as pings:
        pings.ask("w", "127.0.0.1")
        assert words(pings) == [("w", Word.REFUSED)]
        pings.ask("w", "127.0.0.1")
        assert words(pings) == [("w", Word.REFUSED)]


def test_a_connection_that_ends_with_a_question_open_is_a_refusal_and_without_one_nothing() -> None:
    with listening() as (server, pings):
        pings.ask("w", "127.0.0.1")
        words(pings, 0.05)
        server.accept()[0].close()
        assert words(pings) == [("w", Word.REFUSED)]

        pings.ask("w", "127.0.0.1")
        words(pings, 0.05)
        peer, _ = server.accept()
        peer.recv(1000)
        peer.send(ANSWER)
        assert words(pings) == [("w", Word.ANSWERED)]
        peer.close()
        assert words(pings, 0.1) == []


@pytest.mark.parametrize("answer", [b"x" * 100_000, b"HTTP/1.1 200 OK\r\n" + b"x" * 100_000, b"SSH-2.0-x\r\n"])
def test_whatever_a_peer_sends_costs_one_bounded_read(answer: bytes) -> None:
    with listening() as (server, pings):
        pings.ask("w", "127.0.0.1")
        words(pings, 0.05)
        peer, _ = server.accept()
        peer.recv(1000)
        peer.setblocking(False)
        peer.send(answer)
        found = words(pings, 0.1)
        assert found == ([("w", Word.ANSWERED)] if answer.startswith(b"HTTP") else [])
        peer.close()


def test_a_worker_that_is_forgotten_is_heard_no_more() -> None:
    with listening() as (server, pings):
        pings.ask("w", "127.0.0.1")
        words(pings, 0.05)
        peer, _ = server.accept()
        peer.recv(1000)
        pings.forget("w")
        assert words(pings, 0.05) == []
        assert peer.recv(1000) == b""
        peer.close()


@pytest.mark.parametrize("address", ["not an address", "999.1.1.1", "::zz"])
def test_an_address_that_is_none_is_a_refusal(address: str) -> None:
    with closing(Pings("/", 80)) as pings:
        pings.ask("w", address)
        assert words(pings) == [("w", Word.REFUSED)]
