"""A startup probe asks once and is answered when the model is loaded: no warning events, and no pause before the first request."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from typing import TYPE_CHECKING

from inference_protocol.messages import HEALTH_PORT, STARTED_PATH
from inference_worker import early
from inference_worker.early import open_port
from inference_worker.serve.health import Health
from tests.loopback import free_ports
from tests.process import models
from tests.unit.worker.states import Asking, a_worker_state, an_unloaded_worker_state, ask, loading, real

if TYPE_CHECKING:
    import pytest


async def test_a_probe_that_comes_while_the_model_loads_is_answered_when_it_is_loaded() -> None:
    state = an_unloaded_worker_state()
    probe = Asking(Health(state), STARTED_PATH)
    await asyncio.sleep(0)
    assert not probe.answered

    loading(state, lambda: real(models.identity()))
    await state.repository.load("net")

    assert (await probe.reply()).status == 200


async def test_a_probe_that_comes_later_is_answered_at_once() -> None:
    assert (await ask(Health(await a_worker_state(models.identity())), STARTED_PATH)).status == 200


async def test_a_probe_is_held_for_so_long_and_no_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("inference_worker.serve.health._HELD_SECONDS", 0.01)

    assert (await ask(Health(an_unloaded_worker_state()), STARTED_PATH)).status == 503


async def test_a_probe_that_has_left_is_no_fault() -> None:
    state = an_unloaded_worker_state()
    probe = Asking(Health(state), STARTED_PATH)
    probe.leave()
    loading(state, lambda: real(models.identity()))
    await state.repository.load("net")
    await asyncio.sleep(0)

    assert not probe.answered


def test_the_port_is_open_before_anything_is_imported_that_takes_time() -> None:
    seen = "import sys; import inference_worker.early as e; print([m for m in ('asyncio', 'numpy', 'msgspec') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
    assert early.DEFAULT_HEALTH_PORT == HEALTH_PORT


def test_a_port_that_is_taken_is_left_to_the_program_which_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        there = {"INFERENCE_ADDRESS": "127.0.0.1", "INFERENCE_HEALTH_PORT": str(taken.getsockname()[1])}
        assert open_port(there) is None
    assert open_port({"INFERENCE_HEALTH_PORT": "eighty"}) is None


def test_whoever_connects_before_the_worker_runs_waits_in_the_backlog() -> None:
    (port,) = free_ports(1)
    opened = open_port({"INFERENCE_ADDRESS": "127.0.0.1", "INFERENCE_HEALTH_PORT": str(port)})
    assert opened is not None
    with opened, socket.create_connection(("127.0.0.1", port), timeout=60) as caller:
        accepted, _ = opened.accept()
        with accepted:
            accepted.sendall(b"at last")
            assert caller.recv(7) == b"at last"
