"""Callers that cost a worker memory or time for next to nothing: each attack over real sockets, and what it comes to."""

from __future__ import annotations

import contextlib
import socket
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from tritonclient.grpc import service_pb2 as pb

from bench.proc import cpu_seconds
from inference_worker.serve.connections import SLOWEST_BYTES
from tests.process import models
from tests.process.callers import INFER
from tests.process.harness import QUICK_DRAIN, a_config, until
from tests.process.wire import PATIENCE_SECONDS, Wire, get, infer_json, post, request
from tests.process.wire2 import DATA, END_HEADERS, END_STREAM, HEADERS, SETTINGS, WINDOW_UPDATE, Wire2, frame, message

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.process.harness import Place, Worker

MIB = 1 << 20
OUT = 100_000


def patience(seconds: float) -> dict[str, float]:
    """What makes a worker wait so long for its callers, in place of thirty seconds."""
    places = (f"inference_worker.serve.{module}:STALL_SECONDS" for module in ("http", "http2", "connections"))
    return {**dict.fromkeys(places, seconds), "inference_worker.serve.connections:_SWEEP_SECONDS": seconds / 4, **QUICK_DRAIN}


PATCHES = patience(0.5)
ROOMY = 60 * MIB
ENHANCE_YOUR_CALM, COMPRESSION_ERROR = 11, 9


@pytest.fixture(scope="module")
def uri(shared_place: Place) -> str:
    """A model that makes 400 kB of sixteen bytes."""
    return shared_place.put("m.onnx", models.matmul(out=OUT))


@pytest.fixture(scope="module")
def impatient(shared_place: Place, uri: str) -> Worker:
    """Gives callers half a second."""
    return shared_place.start(a_config(uri), patches=PATCHES).wait_ready()


@pytest.fixture(scope="module")
def patient(shared_place: Place, uri: str) -> Worker:
    """Has the usual times, and 128 MiB for its callers, as in a gigabyte of memory."""
    return shared_place.start(a_config(uri), patches={"inference_worker.serve.budget:_SHARE": 1 << 40, **QUICK_DRAIN}).wait_ready()


@pytest.fixture(autouse=True)
def none_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """What one test's callers held is given back before the next begins."""
    yield
    for name in ("patient", "impatient"):
        if name in request.fixturenames:
            worker = request.getfixturevalue(name)
            until(partial(_has_room, worker), "room")


def _has_room(worker: Worker) -> bool:
    # On a busy machine a megabyte may take longer than an impatient worker waits for it.
    with contextlib.suppress(OSError):
        return post(worker.port, INFER, b"x" * MIB).status == 400
    return False


def memory(worker: Worker) -> int:
    """Bytes that the worker has in memory."""
    return int(Path(f"/proc/{worker.process.pid}/statm").read_text().split()[1]) * 4096


def grows_less(worker: Worker, than: int, before: int, *, seconds: float = 2.0) -> None:
    """Watch for so long how much memory there is beyond `before`."""
    give_up, most = time.monotonic() + seconds, 0
    while time.monotonic() < give_up:
        most = max(most, memory(worker) - before)
        time.sleep(0.02)
    assert most < than, f"{most >> 20} MiB more"


def held(port: int) -> bool:
    """Whether a process holds the other end of a connection from `port`: what only the kernel still sends has no inode."""
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[2].endswith(f":{port:04X}") and row[9] != "0" for row in rows)


def is_ended(caller: socket.socket) -> None:
    """Wait for the worker to let go of a caller, who sees no end as long as it reads nothing."""
    port = caller.getsockname()[1]
    # It has been taken once there is a word of it, which may be the end.
    with contextlib.suppress(ConnectionError):
        assert caller.recv(1, socket.MSG_PEEK)
    until(lambda: not held(port), "the end of the connection")


def infer_request() -> bytes:
    raw = np.zeros((1, 4), np.float32)
    tensor = pb.ModelInferRequest.InferInputTensor(name="x", datatype="FP32", shape=[1, 4])
    asked = pb.ModelInferRequest(model_name="net", inputs=[tensor], raw_input_contents=[raw.tobytes()])
    return message(asked.SerializeToString())


def narrow(port: int) -> socket.socket:
    """A connection that takes little unless it is read."""
    made = socket.socket()
    made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    made.settimeout(PATIENCE_SECONDS)
    made.connect(("127.0.0.1", port))
    return made


def test_unfinished_bodies_of_many_callers_stay_within_the_budget(patient: Worker) -> None:
    head = f"POST {INFER} HTTP/1.1\r\nHost: x\r\nContent-Length: {60 * MIB}\r\n\r\n".encode()
    before = memory(patient)
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(patient.port)).send(head + b"x" * 1000) for _ in range(10)]
        until(lambda: sum(wire.said() for wire in wires) >= 8, "eight that are refused")
        for wire in [wire for wire in wires if wire.said()]:
            reply = wire.read()
            assert reply.status == 503 and int(reply.headers["retry-after"]) >= 1, reply
            wires.remove(wire)
        for wire in wires:
            wire.send(b"x" * (59 * MIB))
        assert [wire.said() for wire in wires] == [False] * 2
        assert memory(patient) - before < 200 * MIB
        # Requests that come whole need no room.
        assert post(patient.port, INFER, infer_json([[0, 0, 0, 0]])).status == 200


def test_unfinished_messages_of_many_calls_stay_within_the_budget(patient: Worker) -> None:
    with Wire2(patient) as wire:
        streams = [wire.open("ModelInfer") for _ in range(10)]
        for stream in streams:
            wire.send(stream, message(b"x" * 1000, length=60 * MIB))
        refused = [wire.wait(stream).grpc_status for stream in streams[2:]]

    assert refused == [8] * 8


def test_chunks_without_an_announced_length_stay_within_the_budget(patient: Worker) -> None:
    chunk = b"%x\r\n" % MIB + b"x" * MIB + b"\r\n"
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(patient.port)) for _ in range(4)]
        for wire in wires:
            wire.send(request("POST", INFER).replace(b"Content-Length: 0\r\n", b"")[:-2] + b"Transfer-Encoding: chunked\r\n\r\n")
            # One that is refused may be reset while it sends.
            with contextlib.suppress(ConnectionError):
                wire.send(chunk * 50)
        until(lambda: sum(wire.said() for wire in wires) >= 2, "two that are refused")
        # Those who were let in are so still: one of them ends its body, and is answered for that.
        wires = [wire for wire in wires if not wire.said()]
        assert len(wires) == 2
        assert wires[0].send(b"0\r\n\r\n").read().status == 400


def test_answers_of_one_http2_caller_that_reads_nothing_stay_within_the_budget(patient: Worker) -> None:
    with Wire2(patient, settings=b"\0\4\0\0\0\0") as wire:
        body, before = infer_request(), memory(patient)
        for _ in range(1000):
            wire.send(wire.open("ModelInfer"), body, end=True)
        grows_less(patient, 200 * MIB, before, seconds=4)


def test_documents_for_a_caller_that_reads_nothing_do_not_gather(patient: Worker) -> None:
    """Pipelined requests in one packet: the answers were all made, whether or not they could be sent."""
    with contextlib.closing(narrow(patient.port)) as caller:
        caller.settimeout(2)
        before = memory(patient)
        with contextlib.suppress(TimeoutError):
            for _ in range(20):
                caller.sendall(request("GET", "/metrics") * 2000)
        assert memory(patient) - before < ROOMY


@pytest.mark.parametrize("path", [INFER, "/metrics"])
def test_an_http1_caller_that_takes_no_answer_is_ended(impatient: Worker, path: str) -> None:
    with contextlib.closing(narrow(impatient.port)) as caller:
        one = request("GET", path) if path == "/metrics" else request("POST", path, infer_json([[0, 0, 0, 0]] * 4))
        with contextlib.suppress(ConnectionError):
            caller.sendall(one * (500 if path == "/metrics" else 20))
        is_ended(caller)


def test_an_http2_caller_that_takes_no_bytes_is_ended(impatient: Worker) -> None:
    wide = b"\0\4" + (1 << 30).to_bytes(4, "big")
    with contextlib.closing(narrow(impatient.grpc_port)) as caller:
        caller.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, wide))
        caller.sendall(frame(WINDOW_UPDATE, 0, 0, (1 << 30).to_bytes(4, "big")))
        # Another connection's encoder, on ours.
        with Wire2(impatient) as wire:
            wire.socket.close()
            wire.socket = caller
            for _ in range(40):
                wire.send(wire.open("ModelInfer"), infer_request(), end=True)
            wire.socket = socket.socket()
        is_ended(caller)


def test_an_http2_caller_that_opens_no_window_is_ended(impatient: Worker) -> None:
    with Wire2(impatient, settings=b"\0\4" + (1 << 14).to_bytes(4, "big")) as wire:
        stream = wire.open("ModelInfer")
        wire.send(stream, infer_request(), end=True)

        heard = wire.wait(stream)

    assert heard.reset is not None and len(heard.body) == 1 << 14


def test_a_slow_caller_that_takes_its_answers_is_served(place: Place) -> None:
    """What it takes in each of the worker's waits is four times what it has to, so that a busy machine may slow it down."""
    stall, pause = 1.5, 0.1
    worker = place.start(a_config(place.put("m.onnx", models.matmul(out=OUT)), batch_size=8), patches=patience(stall)).wait_ready()
    with contextlib.closing(narrow(worker.port)) as caller:
        caller.sendall(request("POST", INFER, infer_json([[0, 0, 0, 0]] * 8)))
        assert caller.recv(1)
        ends = time.monotonic() + 2.5 * stall
        while time.monotonic() < ends:
            assert caller.recv(4 * SLOWEST_BYTES // int(stall / pause)), "ended"
            time.sleep(pause)


@pytest.mark.parametrize("part", [frame(DATA, 0, 1, b"x" * 500_000)[:-1], frame(HEADERS, 0, 1, b"\x83")], ids=["frame", "block"])
def test_half_of_a_frame_or_of_a_header_block_is_waited_for_no_longer(impatient: Worker, part: bytes) -> None:
    with Wire2(impatient) as wire:
        assert wire.ping()
        wire.socket.sendall(part)
        while wire.step():
            pass

    assert wire.goaway == ENHANCE_YOUR_CALM


@pytest.mark.parametrize(
    "fault",
    [
        lambda stream: frame(WINDOW_UPDATE, 0, stream, bytes(4)),
        lambda stream: frame(2, 0, stream, b"\0"),
        lambda stream: frame(HEADERS, END_HEADERS, stream, b"\x83"),
    ],
    ids=["window", "priority", "trailers"],
)
def test_streams_that_the_worker_is_made_to_reset_end_the_connection(patient: Worker, fault: Callable[[int], bytes]) -> None:
    """CVE-2025-8671 (MadeYouReset)."""
    with Wire2(patient) as wire:
        with contextlib.suppress(OSError):
            for _ in range(3000):
                stream = wire.open("ModelInfer")
                wire.socket.sendall(fault(stream))
        with contextlib.suppress(OSError):
            while wire.step():
                pass

    assert wire.goaway in (ENHANCE_YOUR_CALM, None)
    assert wire.goaway == ENHANCE_YOUR_CALM or sum(1 for heard in wire.heard.values() if heard.reset is not None) < 2500


def block_of(raw: bytes) -> bytes:
    return frame(HEADERS, END_HEADERS | END_STREAM, 1, raw)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"\x20" * MIB, ENHANCE_YOUR_CALM),
        (b"\x20" * 60_000, COMPRESSION_ERROR),
        (b"\x20" * 3, COMPRESSION_ERROR),
        (b"\xff" + b"\xff" * 60_000, COMPRESSION_ERROR),
        (b"\x82" * 1500, ENHANCE_YOUR_CALM),
    ],
    ids=["megabyte", "updates", "three", "integer", "fields"],
)
def test_header_blocks_that_take_long_to_decode_end_the_connection_at_once(patient: Worker, raw: bytes, code: int) -> None:
    with Wire2(patient) as wire:
        assert wire.ping()
        before = cpu_seconds(patient.process.pid)
        wire.socket.sendall(block_of(raw)[:3] + block_of(raw)[3:])
        with contextlib.suppress(OSError):
            while wire.step():
                pass

    assert wire.goaway == code and cpu_seconds(patient.process.pid) - before < 0.5


def test_settings_without_end_do_not_occupy_the_worker(patient: Worker) -> None:
    with Wire2(patient) as wire:
        wire.frame(SETTINGS, 0, 0, (b"\0\4\0\0\0\0" + b"\0\4\0\0\xff\xff") * 80_000)
        with contextlib.suppress(OSError):
            while wire.step():
                pass

    assert wire.goaway == ENHANCE_YOUR_CALM


def test_connections_beyond_the_cap_are_refused_at_once(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("INFERENCE_CONNECTIONS", "20")
    worker = place.start(a_config(place.put("m.onnx", models.identity()))).wait_ready()
    with contextlib.ExitStack() as stack:
        wires = [stack.enter_context(Wire(worker.port)) for _ in range(20)]
        assert [wire.send(request("GET", "/v2/health/live")).read().status for wire in wires] == [200] * 20

        with Wire(worker.port) as late, Wire2(worker) as late2:
            refused = late.read()
            with contextlib.suppress(OSError):
                while late2.step():
                    pass
        wires[0].close()
        until(lambda: worker.answers("/v2/health/live") == 200, "a place")

    assert refused.status == 503 and refused.headers["connection"] == "close" and late2.goaway in (ENHANCE_YOUR_CALM, None)


def test_a_packet_of_many_requests_does_not_occupy_the_worker(patient: Worker) -> None:
    pid, count = patient.process.pid, 1000
    with Wire(patient.port) as flood, Wire(patient.port) as other:
        assert other.send(request("GET", "/v2/health/live")).read().status == 200
        before = cpu_seconds(pid)
        flood.send(request("GET", "/metrics") * count)
        assert flood.socket.recv(1, socket.MSG_PEEK)
        assert other.send(request("GET", "/v2/health/live")).read().status == 200
        until_other = cpu_seconds(pid) - before
        assert {flood.read().status for _ in range(count)} == {200}
        # The flood's answers wait in the sockets, and the rest is not made before they are taken.
        assert until_other < 0.5 * (cpu_seconds(pid) - before)


def test_a_drained_budget_lets_the_next_body_in(patient: Worker) -> None:
    for _ in range(5):
        assert post(patient.port, INFER, b"x" * (60 * MIB)).status == 400
    assert get(patient.port, "/v2/health/live").status == 200
