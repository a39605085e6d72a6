"""Real workers that are told to stop: probes tell the truth, and nobody who was let in leaves without an answer."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from inference_worker.__main__ import _ANSWERING, _LINGER_SECONDS
from tests.process import models
from tests.process.harness import QUICK_DRAIN, Worker, a_config, until
from tests.process.test_endings import host_address
from tests.process.wire import Reply, Wire, get, infer_json, post, request

if TYPE_CHECKING:
    from collections.abc import Iterator

    from inference_protocol.messages import WorkerConfig
    from tests.process.harness import Place

INFER = "/v2/models/net/infer"
WIDTH = 256
# About 20 ms for each run of 16 rows, on one core.
SLOW = models.slow(width=WIDTH, steps=250)
ONE_SLOW = json.dumps({"inputs": [{"name": "x", "datatype": "FP32", "shape": [16, WIDTH], "data": [0.5] * 16 * WIDTH}]}).encode()


def a_slow_config(place: Place, **changes: Any) -> WorkerConfig:
    return a_config(place.put("m.onnx", SLOW), batch_size=16, **changes)


@dataclass
class HeldServer:
    """Serves one model, but only once it is let go."""

    url: str
    asked: threading.Event = field(default_factory=threading.Event)
    let_go: threading.Event = field(default_factory=threading.Event)


@pytest.fixture
def held_server() -> Iterator[HeldServer]:
    address = host_address()
    if address is None:
        pytest.skip("this machine has no address besides loopback")
    listener = socket.create_server((address, 0))
    held = HeldServer(f"http://{address}:{listener.getsockname()[1]}/m.onnx")
    body = models.identity()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(65536)
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body))
            held.asked.set()
            held.let_go.wait()
            # Who asked may be gone by then.
            with contextlib.suppress(OSError):
                connection.sendall(body)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield held
    held.let_go.set()
    listener.close()


def test_a_loading_worker_is_live_and_not_ready_and_says_so(place: Place, held_server: HeldServer) -> None:
    worker = place.start(a_config(held_server.url)).wait_answering()
    assert held_server.asked.wait(30)

    assert worker.answers("/v2/health/live") == 200
    assert worker.answers("/v2/health/ready") == worker.answers("/v2/models/net/ready") == worker.answers("/v2/models/net") == 503
    refused = post(worker.port, INFER, infer_json([[1, 2]]))
    assert refused.status == 503 and "loading" in refused.error and refused.headers["retry-after"] == "1"
    told = {"ready": False, "draining": False, "requestsTotal": 1, "failedTotal": 1}
    assert get(worker.port, "/telemetry").json | {"busySeconds": 0.0} == told | {"busySeconds": 0.0}

    held_server.let_go.set()
    worker.wait_ready()
    assert post(worker.port, INFER, infer_json([[1, 2]])).status == 200


def test_a_stop_before_the_worker_has_started_ends_it_at_once(place: Place) -> None:
    """What has pid 1 ignores signals that it has no handler for, so it was killed after all of its grace."""
    worker = place.start(a_config(place.put("m.onnx", models.identity())))

    def listens() -> bool:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", worker.health_port)):
            return True
        return False

    until(listens, "the port of probes, which is open before all else")
    ended = worker.stop().ended()

    assert ended.report is not None
    assert (ended.code, ended.report.outcome) == (0, "Drained")
    assert ended.report.message.startswith("told to stop before")


def test_a_stop_while_loading_ends_the_worker(place: Place, held_server: HeldServer) -> None:
    worker = place.start(a_config(held_server.url)).wait_answering()
    assert held_server.asked.wait(30)

    ended = worker.stop().ended()

    assert (ended.code, ended.said.outcome) == (0, "Drained") and "before the model was loaded" in ended.said.message


def test_a_draining_worker_is_live_and_not_ready_and_still_answers(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
    with Wire(worker.port) as kept:
        kept.get("/v2/health/ready")
        worker.stop()
        until(lambda: get(worker.port, "/v2/health/ready").status == 503, "not ready")
        last = kept.get("/v2/health/ready")
        assert (last.status, last.headers["connection"]) == (503, "close")

        assert kept.closed()
        assert get(worker.port, "/v2/health/live").status == 200
        assert post(worker.port, INFER, infer_json([[1, 2]])).status == 200
        telemetry = get(worker.port, "/telemetry").json
        assert (telemetry["ready"], telemetry["draining"]) == (False, True)

    ended = worker.stop().ended()
    assert (ended.code, ended.said.outcome, ended.said.reason) == (0, "Drained", None)


@pytest.mark.parametrize("grace", [2.0, 8.0])
def test_a_worker_that_was_told_to_go_answers_for_as_long_as_callers_come_and_most_of_its_grace_lasts(
    place: Place, grace: float
) -> None:
    """A quick model's last answers need little of a long grace."""
    worker = place.start(a_config(place.put("m.onnx", models.identity()), drain_seconds=grace)).wait_ready()
    told = time.monotonic()
    worker.stop()
    until(lambda: get(worker.port, "/v2/health/ready").status == 503, "not ready")

    # Callers never stop coming: the worker goes all the same, and not before its time.
    with contextlib.suppress(ConnectionError):
        while True:
            assert post(worker.port, INFER, infer_json([[1, 2]])).status == 200
    assert time.monotonic() - told >= grace - min(_LINGER_SECONDS, _ANSWERING * grace)
    assert worker.ended().code == 0


@pytest.fixture
def slow_worker(place: Place) -> Worker:
    return place.start(a_slow_config(place), patches=QUICK_DRAIN).wait_ready()


def queued(worker: Worker) -> int:
    return int(get(worker.port, "/telemetry").json.get("queued", 0))


def received(worker: Worker) -> int:
    """Requests that are answered, run or wait."""
    telemetry = get(worker.port, "/telemetry").json
    return sum(int(telemetry.get(name, 0)) for name in ("requestsTotal", "inFlight", "queued"))


def test_sixteen_callers_who_wait_when_the_stop_comes_are_all_answered(slow_worker: Worker) -> None:
    wires = [Wire(slow_worker.port) for _ in range(16)]
    for wire in wires:
        wire.send(request("POST", INFER, ONE_SLOW))
    until(lambda: received(slow_worker) == 16, "all of them to be in")

    slow_worker.stop()

    assert [wire.read().status for wire in wires] == [200] * 16
    assert slow_worker.ended().code == 0


def test_those_who_still_wait_when_the_time_is_up_are_told_so(place: Place) -> None:
    config = a_config(place.put("m.onnx", SLOW), drain_seconds=0.05)
    worker = place.start(config, patches=QUICK_DRAIN).wait_ready()
    wires = [Wire(worker.port) for _ in range(400)]
    for wire in wires:
        wire.send(request("POST", INFER, ONE_SLOW))
    until(lambda: received(worker) == 400, "all of them to be in")

    worker.stop()

    assert {wire.read().status for wire in wires} == {200, 503}


@dataclass
class Tally:
    """What callers saw. `lost` are requests that were sent whole and never answered."""

    stopping: threading.Event = field(default_factory=threading.Event)
    statuses: list[int] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def take(self, reply: Reply) -> None:
        self.statuses.append(reply.status)


def load(worker: Worker, tally: Tally, body: bytes, *, keep_alive: bool) -> list[threading.Thread]:
    """Sixteen callers. New connections end when the endpoint would be taken away; kept ones go on until they are told to close."""

    def call() -> None:
        while not tally.stopping.is_set():
            try:
                wire = Wire(worker.port)
            except ConnectionRefusedError:
                return
            with wire:
                while True:
                    try:
                        reply = wire.post(INFER, body)
                    except OSError as error:
                        tally.lost.append(repr(error))
                        return
                    tally.take(reply)
                    if not keep_alive or reply.headers.get("connection") == "close":
                        break

    threads = [threading.Thread(target=call) for _ in range(16)]
    for thread in threads:
        thread.start()
    return threads


def stop_under_load(worker: Worker, body: bytes, *, keep_alive: bool) -> Tally:
    tally = Tally()
    threads = load(worker, tally, body, keep_alive=keep_alive)
    until(lambda: len(tally.statuses) > 30, "load")
    worker.stop()
    until(lambda: worker.answers("/v2/health/ready") != 200, "not ready")
    tally.stopping.set()
    assert worker.ended().code == 0
    for thread in threads:
        thread.join(30)
    return tally


def test_a_stop_under_load_of_new_connections_loses_no_answer(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()

    tally = stop_under_load(worker, infer_json([[1, 2]]), keep_alive=False)

    assert set(tally.statuses) == {200} and tally.lost == []


def test_a_stop_under_load_of_kept_connections_loses_no_answer(place: Place) -> None:
    worker = place.start(a_slow_config(place, drain_seconds=60.0)).wait_ready()

    tally = stop_under_load(worker, ONE_SLOW, keep_alive=True)

    assert set(tally.statuses) == {200}
    assert tally.lost == []


def test_a_pipeline_that_was_received_is_answered_to_its_end(slow_worker: Worker) -> None:
    with Wire(slow_worker.port) as wire:
        wire.send(request("POST", INFER, ONE_SLOW) * 60)
        wire.read()

        slow_worker.stop()

        assert [wire.read().status for _ in range(59)] == [200] * 59


def test_a_large_answer_to_a_slow_reader_is_sent_to_its_end(place: Place) -> None:
    config = a_config(place.put("m.onnx", models.identity()), batch_size=4096, drain_seconds=60.0)
    worker = place.start(config, patches=QUICK_DRAIN).wait_ready()
    rows = np.zeros((3 << 20, 2), np.float32)
    entry = {"name": "x", "datatype": "FP32", "shape": list(rows.shape), "parameters": {"binary_data_size": rows.nbytes}}
    head = json.dumps({"inputs": [entry], "parameters": {"binary_data_output": True}}).encode()
    with Wire(worker.port) as wire:
        wire.send(request("POST", INFER, head + rows.tobytes(), {"Inference-Header-Content-Length": str(len(head))}))
        assert wire.socket.recv(1, socket.MSG_PEEK)

        worker.stop()
        until(lambda: not worker.running or worker.answers("/v2/health/live") == 0, "no more connections")

        assert len(wire.read().body) > rows.nbytes


def test_a_caller_who_left_does_not_hold_the_drain(place: Place) -> None:
    config = a_slow_config(place, drain_seconds=300.0)
    worker = place.start(config, patches=QUICK_DRAIN).wait_ready()
    with Wire(worker.port) as wire:
        wire.send(request("POST", INFER, ONE_SLOW) * 30)
        until(lambda: queued(worker) >= 1, "a running request")

    assert worker.stop().ended().code == 0


def test_an_idle_connection_does_not_hold_the_drain(place: Place) -> None:
    worker = place.start(a_config(place.put("m.onnx", models.identity()), drain_seconds=300.0), patches=QUICK_DRAIN).wait_ready()
    with Wire(worker.port) as idle, Wire(worker.port) as begun:
        idle.get("/v2/health/live")
        begun.send(b"POST /v2/models/net/infer HTTP/1.1\r\nContent-Length: 100\r\n\r\n{")

        assert worker.stop().stop().ended().code == 0
        assert idle.closed() and begun.closed()


def test_a_worker_whose_model_was_unloaded_drains_like_any_other(place: Place) -> None:
    config = a_config(place.put("m.onnx", models.identity()), model_control="explicit")
    worker = place.start(config, patches=QUICK_DRAIN).wait_ready()
    assert post(worker.port, "/v2/repository/models/net/unload", b"").status == 200

    ended = worker.stop().ended()

    assert (ended.code, ended.said.outcome) == (0, "Drained")
    assert "before the model was loaded" not in ended.said.message
