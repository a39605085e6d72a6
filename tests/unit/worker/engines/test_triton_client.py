"""Requests to a server that takes them and says nothing: they end when they are cancelled, whenever that is, and in time."""

from __future__ import annotations

import socket
import threading
from typing import TYPE_CHECKING

import pytest

from inference_worker.engines.engine import Cancellation, RunCancelledError
from inference_worker.engines.triton.client import TritonClient, TritonGoneError

if TYPE_CHECKING:
    from collections.abc import Iterator

_PATIENCE_SECONDS = 20.0


@pytest.fixture
def silent() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def client_of(server: socket.socket) -> TritonClient:
    return TritonClient(server.getsockname()[1])


def test_a_run_that_was_cancelled_before_it_began_is_not_sent(silent: socket.socket) -> None:
    cancellation = Cancellation()
    cancellation.cancel()

    with pytest.raises(RunCancelledError):
        client_of(silent).call("POST", "/infer", b"rows", cancellation=cancellation, timeout=1.0)

    taken, _ = silent.accept()
    with taken:
        assert taken.recv(1) == b""


def test_a_run_that_is_cancelled_under_way_is_not_waited_for(silent: socket.socket) -> None:
    cancellation = Cancellation()

    def cancel() -> None:
        taken, _ = silent.accept()
        with taken:
            taken.recv(1)
            cancellation.cancel()

    leaving = threading.Thread(target=cancel)
    leaving.start()
    with pytest.raises(RunCancelledError):
        client_of(silent).call("POST", "/infer", b"rows", cancellation=cancellation, timeout=_PATIENCE_SECONDS)
    leaving.join()


def test_who_does_not_answer_in_time_is_as_good_as_gone(silent: socket.socket) -> None:
    with pytest.raises(TritonGoneError, match="timed out"):
        client_of(silent).get("/v2", timeout=0.01)


def test_who_is_not_there_is_gone() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

    with pytest.raises(TritonGoneError, match="refused"):
        TritonClient(port).get("/v2", timeout=_PATIENCE_SECONDS)
