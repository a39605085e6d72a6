"""Known attacks on servers of HTTP/1.1 and HTTP/2, by their CVE, on a real worker: what each costs, and that others are still answered.

A cost is memory and CPU time. The time that an attack lasts is measured, and not judged: it is up to the machine.

`docs/security.md` has the table with the figures; `--junitxml` writes those of a run. Attacks on callers' patience run on a worker whose
deadline is half a second in place of thirty.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from bench.proc import cpu_seconds
from tests.beside import beside
from tests.process import models
from tests.process.callers import INFER
from tests.process.harness import a_config
from tests.process.reports.test_bounds import ENHANCE_YOUR_CALM, PATCHES, infer_request, is_ended, memory, narrow
from tests.process.wire import Wire, get, infer_json, post, request
from tests.process.wire2 import DATA, END_HEADERS, HEADERS, PING, RST_STREAM, SERVICE, SETTINGS, WINDOW_UPDATE, Wire2, frame

if TYPE_CHECKING:
    from tests.process.harness import Place, Worker

MIB = 1 << 20
PRIORITY, CONTINUATION = 2, 9
_GET = b"GET /telemetry HTTP/1.1\r\nHost: a\r\n\r\n"


@pytest.fixture(scope="module")
def uri(shared_place: Place) -> str:
    """A model that makes 400 kB of sixteen bytes."""
    return shared_place.put("m.onnx", models.matmul(out=100_000))


@pytest.fixture(scope="module")
def worker(shared_place: Place, uri: str) -> Worker:
    return shared_place.start(a_config(uri)).wait_ready()


@pytest.fixture(scope="module")
def impatient(shared_place: Place, uri: str) -> Worker:
    return shared_place.start(a_config(uri), patches=PATCHES).wait_ready()


@dataclass
class Cost:
    """What an attack costs the worker."""

    mib: float = 0.0
    cpu: float = 0.0
    seconds: float = 0.0


Costs = Callable[["Worker"], contextlib.AbstractContextManager[Cost]]


@pytest.fixture
def costs(record_property: Callable[[str, object], None]) -> Costs:
    """Measure while an attack runs: the most memory beyond that before, CPU and time. Then a right answer must come."""

    @contextlib.contextmanager
    def measured(worker: Worker) -> Iterator[Cost]:
        cost, before, started = Cost(), memory(worker), time.monotonic()
        cpu = cpu_seconds(worker.process.pid)

        def watch(over: threading.Event) -> None:
            while not over.wait(0.01):
                cost.mib = max(cost.mib, (memory(worker) - before) / MIB)

        with beside(watch):
            yield cost
            cost.seconds = time.monotonic() - started
        cost.cpu = cpu_seconds(worker.process.pid) - cpu
        record_property("cost", f"{cost.mib:.1f} MiB, {cost.cpu:.2f} s CPU, {cost.seconds:.2f} s")
        reply = post(worker.port, INFER, infer_json([[0, 0, 0, 0]]))
        assert reply.status == 200 and len(reply.json["outputs"][0]["data"]) == 100_000

    return measured


def streams(count: int, after: Callable[[int], bytes], block: bytes = b"") -> bytes:
    """So many calls, each with something behind it; the header block leaves nothing in the table."""
    path, kind = f"{SERVICE}ModelInfer".encode(), b"application/grpc"
    wire = b"\x83\x86\x04" + bytes([len(path)]) + path + b"\x0f\x10" + bytes([len(kind)]) + kind
    return b"".join(frame(HEADERS, END_HEADERS, 2 * number + 1, block or wire) + after(2 * number + 1) for number in range(count))


FLOODS = {
    "CVE-2023-44487 rapid reset": streams(20_000, lambda stream: frame(RST_STREAM, 0, stream, b"\0\0\0\x08")),
    "CVE-2025-8671 MadeYouReset": streams(20_000, lambda stream: frame(WINDOW_UPDATE, 0, stream, bytes(4))),
    "CVE-2019-9512 ping flood": frame(PING, 0, 0, bytes(8)) * 100_000,
    "CVE-2019-9513 resource loop": streams(50, lambda _: b"")
    + b"".join(frame(PRIORITY, 0, 2 * (n % 50) + 1, (2 * ((n + 1) % 50) + 1).to_bytes(4, "big") + b"\x10") for n in range(100_000)),
    "CVE-2019-9514 reset flood": streams(20_000, lambda _: b"", block=b"\x83\x86"),
    "CVE-2019-9515 settings flood": frame(SETTINGS, 0, 0) * 100_000,
    "CVE-2019-9516 0-length headers": streams(2_000, lambda _: b"", block=b"\x83\x86\x84" + b"\x40\x00\x00" * 900),
    "CVE-2019-9518 empty frames": streams(1, lambda stream: frame(DATA, 0, stream) * 100_000),
    "CVE-2024-27316 CONTINUATION": frame(HEADERS, 0, 1, b"\x83") + frame(CONTINUATION, 0, 1, b"\0\1a\1b" * 3000) * 2_000,
    "CVE-2024-28182 CONTINUATION, empty": frame(HEADERS, 0, 1, b"\x83") + frame(CONTINUATION, 0, 1) * 100_000,
    "CVE-2016-6581 HPACK bomb": streams(1, lambda _: b"", block=b"\x40\x01a\x7f\x81\x1e" + b"x" * 3968 + b"\xbe" * 12_000),
    "CVE-2020-11080 large SETTINGS": frame(SETTINGS, 0, 0, b"\0\x03\0\0\0\x64" * 2400) * 1_000,
}


@pytest.mark.parametrize("flood", FLOODS.values(), ids=FLOODS)
def test_a_flood_over_http2_ends_its_connection_at_little_cost(worker: Worker, costs: Costs, flood: bytes) -> None:
    with costs(worker) as cost, Wire2(worker) as wire:
        assert wire.ping()
        with contextlib.suppress(OSError):
            wire.socket.sendall(flood)
        with contextlib.suppress(OSError):
            while wire.step():
                pass

    # A reset of the connection may overtake the word.
    assert wire.goaway in (ENHANCE_YOUR_CALM, None)
    assert cost.mib < 16 and cost.cpu < 2, cost


def test_cve_2019_9511_a_window_that_opens_by_bytes(impatient: Worker, costs: Costs) -> None:
    """Data dribble: answers of 400 kB, taken a byte at a time."""
    with costs(impatient) as cost, Wire2(impatient, settings=b"\0\4\0\0\0\1") as wire:
        numbers = [wire.open("ModelInfer") for _ in range(20)]
        for number in numbers:
            wire.send(number, infer_request(), end=True)
        over, most = False, 500_000
        left = most
        with contextlib.suppress(ConnectionError):
            while not over and left:
                wire.socket.sendall(b"".join(frame(WINDOW_UPDATE, 0, number, b"\0\0\0\1") for number in numbers))
                over = not wire.step() or all(wire.heard[number].reset is not None for number in numbers)
                left -= 1

    # As many as the caller can send until its time is over.
    frames = (most - left) * len(numbers)
    assert left and cost.mib < 64 and cost.cpu < 20e-6 * frames, (frames, cost)


def test_cve_2019_9517_answers_that_nobody_takes_from_the_socket(impatient: Worker, costs: Costs) -> None:
    """Internal data buffering: all windows open, and nothing is read."""
    with costs(impatient) as cost, contextlib.closing(narrow(impatient.grpc_port)) as caller:
        with Wire2(impatient) as wire:
            wire.socket.close()
            wire.socket = caller
            wide = (1 << 30).to_bytes(4, "big")
            caller.sendall(
                b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0, b"\0\4" + wide) + frame(WINDOW_UPDATE, 0, 0, wide)
            )
            for _ in range(100):
                wire.send(wire.open("ModelInfer"), infer_request(), end=True)
            wire.socket = socket.socket()
        is_ended(caller)

    assert cost.mib < 128, cost


def test_cve_2024_27983_callers_that_leave_within_a_header_block(worker: Worker, costs: Costs) -> None:
    with costs(worker) as cost:
        for _ in range(300):
            with Wire2(worker) as wire:
                wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                wire.socket.sendall(frame(HEADERS, 0, 1, b"\x83") + frame(CONTINUATION, 0, 1, b"\x86"))

    assert cost.mib < 16 and cost.cpu < 3, cost


@pytest.mark.parametrize("method", ["GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /x", "GET / HTTP/1.1"])
def test_cve_2021_33193_a_request_of_http1_within_one_of_http2(worker: Worker, costs: Costs, method: str) -> None:
    """Whoever writes HTTP/2 as HTTP/1.1 makes two requests of these. The worker writes it as nothing."""
    with costs(worker), Wire2(worker) as wire:
        heard = wire.wait(wire.open("ModelInfer", {":method": method, "content-length": "0"}))
        wire.send(1, _GET, end=True)
        assert wire.ping()

    assert heard.reset is not None or heard.headers[":status"].startswith("4")
    assert wire.heard.keys() == {1}


def test_cve_2022_41721_frames_of_http2_within_a_body_of_http1(worker: Worker, costs: Costs) -> None:
    """Who goes over to HTTP/2 and leaves the body in the connection takes it for requests."""
    body = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0) + streams(3, lambda _: b"")
    offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABk"}
    with costs(worker), Wire(worker.port) as wire:
        assert wire.post(INFER, body, offer).status == 400
        assert wire.get("/v2/health/live").status == 200


def test_cve_2007_6750_and_2012_5568_heads_that_come_by_bytes(impatient: Worker, costs: Costs) -> None:
    """Slowloris: two hundred connections, a byte at a time."""
    head = b"GET /v2/health/live HTTP/1.1\r\nX-Slow: " + b"x" * 1000
    with costs(impatient) as cost, contextlib.ExitStack() as stack:
        slow = {stack.enter_context(Wire(impatient.port)) for _ in range(200)}
        for number in range(len(head)):
            slow = {wire for wire in slow if _goes_on(wire.socket, head[number : number + 1])}
            if not slow:
                break
            assert impatient.answers("/v2/health/live") == 200
            time.sleep(0.02)
        assert not slow

    assert cost.mib < 16, cost


def _goes_on(caller: socket.socket, byte: bytes) -> bool:
    """Send a byte; whether the other side has said nothing and not gone."""
    caller.setblocking(False)
    try:
        caller.sendall(byte)
        caller.recv(1000)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def test_cve_2011_3192_ranges_by_the_thousand(worker: Worker, costs: Costs) -> None:
    """The range killer: the worker knows no ranges, so each request is one whole answer."""
    many = ",".join(f"5-{n}" for n in range(1300))
    with costs(worker) as cost, Wire(worker.port) as wire:
        plain = wire.get("/v2/models/net")
        for _ in range(200):
            wire.send(request("GET", "/v2/models/net", None, {"Range": f"bytes=0-,{many}"}))
            reply = wire.read()
            assert reply.status == 200 and reply.body == plain.body

    assert cost.mib < 16 and cost.cpu < 2, cost


_POST = f"POST {INFER} HTTP/1.1\r\nHost: a\r\n".encode()
_INNER = b"%x\r\n%b\r\n0\r\n\r\n" % (len(_GET), _GET)
SMUGGLED = {
    "CVE-2021-22959 space before the colon": _POST + b"Content-Length : %d\r\n\r\n" % len(_GET) + _GET,
    "CVE-2021-22960 line feed in a chunk's extension": _POST + b"Transfer-Encoding: chunked\r\n\r\n1;a\nb\r\nx\r\n0\r\n\r\n" + _GET,
    "CVE-2022-32213 a coding that only begins so": _POST + b"Transfer-Encoding: chunkedx\r\n\r\n" + _INNER,
    "CVE-2022-32214 lines that end in a line feed": _POST + b"Dummy: x\nContent-Length: %d\r\n\r\n" % len(_GET) + _GET,
    "CVE-2022-32215 a coding on the next line": _POST + b"Transfer-Encoding: chunked,\r\n identity\r\n\r\n" + _INNER,
    "CVE-2022-1705 a coding that is none": _POST + b"Transfer-Encoding: xchunked\r\nContent-Length: %d\r\n\r\n" % len(_GET) + _GET,
    "CVE-2023-25725 a header without a name": _POST + b": a\r\nContent-Length: %d\r\n\r\n" % len(_GET) + _GET,
    "CVE-2023-30589 a carriage return alone": _POST + b"X:\rTransfer-Encoding: chunked\r\n\r\n" + _INNER,
    "CVE-2023-38697 lengths with a sign": _POST + b"Content-Length: +%d\r\n\r\n" % len(_GET) + _GET,
    "CVE-2019-16276 a space before the coding's colon": _POST + b"Transfer-Encoding : chunked\r\n\r\n" + _INNER,
}


@pytest.mark.parametrize("raw", SMUGGLED.values(), ids=SMUGGLED)
def test_a_request_that_two_servers_would_read_differently_is_refused(worker: Worker, costs: Costs, raw: bytes) -> None:
    with costs(worker), Wire(worker.port) as wire:
        wire.send(raw)
        assert wire.read().status == 400
        assert wire.closed()


def test_cve_2024_22019_and_2023_39326_a_chunk_whose_extension_does_not_end(worker: Worker, costs: Costs) -> None:
    with costs(worker) as cost, Wire(worker.port) as wire:
        wire.send(_POST + b"Transfer-Encoding: chunked\r\n\r\n1;a=")
        sent = 0
        with contextlib.suppress(OSError):
            while sent < 256 * MIB:
                wire.socket.sendall(b"x" * MIB)
                sent += MIB

    assert sent < 16 * MIB and cost.mib < 32, (sent, cost)


def test_a_body_in_chunks_of_one_byte_is_still_a_body(worker: Worker) -> None:
    body = infer_json([[0, 0, 0, 0]]) + b" " * 60_000
    with Wire(worker.port) as wire:
        wire.send(_POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % one for one in body) + b"0\r\n\r\n")
        assert wire.read().status == 200


def test_a_worker_that_saw_them_all_still_lives(worker: Worker, impatient: Worker) -> None:
    for one in (worker, impatient):
        assert one.running and get(one.port, "/v2/health/ready").status == 200 and "Traceback" not in one.log
