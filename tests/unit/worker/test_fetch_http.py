"""Models and inputs over HTTP: a good body comes whole, a bad server is named, and what may be tried again says so."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from inference_protocol.reasons import WorkerReason
from inference_worker import fetch, outbound, pace
from inference_worker.errors import StoppedError, WorkerError
from tests.unit.worker.conftest import answering, saying

if TYPE_CHECKING:
    from collections.abc import Callable

BODY = bytes(range(256)) * 300
DIGEST = f"sha256:{hashlib.sha256(BODY).hexdigest()}"
OK = f"HTTP/1.1 200 OK\nContent-Length: {len(BODY)}"

pytestmark = pytest.mark.usefixtures("loopback_allowed")


def download(
    port: int, path: str = "/m.onnx", *, digest: str | None = None, limit: int = 1 << 20, hosts: tuple[str, ...] = ()
) -> bytes:
    url = f"http://files.test:{port}{path}"
    return fetch.read_verified(url, digest=digest, limit=limit, missing=WorkerReason.MODEL_NOT_FOUND, hosts=hosts)[0]


def refusal(port: int, path: str = "/m.onnx", **given: object) -> WorkerError:
    with pytest.raises(WorkerError) as caught:
        download(port, path, **given)  # type: ignore[arg-type]
    return caught.value


def test_a_body_with_its_digest_comes_whole() -> None:
    with answering(saying(OK, BODY)) as (port, seen):
        assert download(port, "/a/m.onnx?v=1&x=%20", digest=DIGEST) == BODY

    head = seen[0].decode()
    assert head.startswith("GET /a/m.onnx?v=1&x=%20 HTTP/1.1\r\n")
    assert f"Host: files.test:{port}\r\n" in head and head.count("Host:") == 1


def test_a_chunked_body_comes_whole() -> None:
    chunked = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (BODY[:1000], BODY[1000:])) + b"0\r\n\r\n"

    with answering(saying("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", chunked)) as (port, _):
        assert download(port) == BODY


def test_a_body_that_ends_with_the_connection_comes_whole() -> None:
    with answering(saying("HTTP/1.0 200 OK", BODY)) as (port, _):
        assert download(port, digest=DIGEST) == BODY


def test_other_bytes_than_the_digest_says_are_refused() -> None:
    with answering(saying(OK, BODY[:-1] + b"!")) as (port, _):
        error = refusal(port, digest=DIGEST)

    assert error.reason is WorkerReason.MODEL_DIGEST_MISMATCH and error.permanent


@pytest.mark.parametrize("status", ["404 Not Found", "410 Gone"])
def test_what_is_not_there_is_not_tried_again(status: str) -> None:
    with answering(saying(f"HTTP/1.1 {status}\nContent-Length: 0")) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_NOT_FOUND and error.permanent and status[:3] in error.message


@pytest.mark.parametrize(
    "status", ["500 Oops", "502 Bad Gateway", "503 Busy", "429 Slow Down", "403 Forbidden", "204 No Content", "206 Part"]
)
def test_any_other_status_may_be_tried_again(status: str) -> None:
    with answering(saying(f"HTTP/1.1 {status}\nContent-Length: 0")) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent and status[:3] in error.message


def test_a_redirect_is_followed_to_the_body() -> None:
    moved = saying("HTTP/1.1 302 Found\nLocation: /there?x=1\nContent-Length: 0")

    with answering(moved, saying(OK, BODY)) as (port, seen):
        assert download(port) == BODY

    assert seen[1].startswith(b"GET /there?x=1 HTTP/1.1")


@pytest.mark.parametrize(
    "location",
    [
        "http://169.254.169.254/latest/meta-data/iam/",
        "//169.254.169.254/latest",
        "http://[::ffff:169.254.169.254]/",
        "http://[::1]:80/",
        "http://2852039166/",
        "file:///etc/passwd",
        "pvc://data/secret",
        "ftp://host/x",
    ],
)
def test_a_redirect_to_where_nobody_may_go_is_refused(location: str) -> None:
    with answering(saying(f"HTTP/1.1 301 Moved\nLocation: {location}\nContent-Length: 0")) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.URI_FORBIDDEN and error.permanent


def test_redirects_in_a_circle_end() -> None:
    turn = saying("HTTP/1.1 307 Again\nLocation: /m.onnx\nContent-Length: 0")

    with answering(*[turn] * 50) as (port, seen):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and "redirects" in error.message
    assert len(seen) <= 6


def test_as_many_redirects_as_the_message_names_are_followed() -> None:
    turn = saying("HTTP/1.1 307 Again\nLocation: /m.onnx\nContent-Length: 0")

    with answering(*[turn] * 5, saying(OK, BODY)) as (port, _):
        assert download(port) == BODY


def test_a_redirect_to_nonsense_is_the_servers_fault() -> None:
    with answering(saying("HTTP/1.1 302 Found\nLocation: http://[\nContent-Length: 0")) as (port, _):
        assert refusal(port).reason in (WorkerReason.MODEL_UNREACHABLE, WorkerReason.URI_FORBIDDEN)


def test_a_body_over_the_limit_is_not_read_to_its_end() -> None:
    with answering(saying("HTTP/1.1 200 OK\nContent-Length: 1000000000000", BODY)) as (port, _):
        error = refusal(port, limit=1000)

    assert "limit" in error.message and error.permanent


def test_a_body_of_just_the_limit_is_taken() -> None:
    with answering(saying(OK, BODY)) as (port, _):
        assert download(port, limit=len(BODY)) == BODY


@pytest.mark.parametrize("kept", [0, 1, len(BODY) // 2, len(BODY) - 1])
@pytest.mark.parametrize("digest", [None, DIGEST], ids=["no digest", "digest"])
def test_a_body_that_is_cut_off_is_a_network_fault_that_may_be_tried_again(kept: int, digest: str | None) -> None:
    with answering(saying(OK, BODY[:kept])) as (port, _):
        error = refusal(port, digest=digest)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent


def test_a_chunked_body_that_is_cut_off_may_be_tried_again() -> None:
    with answering(saying("HTTP/1.1 200 OK\nTransfer-Encoding: chunked", b"1000\r\n" + BODY[:50])) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-OpenSSH_9.2\r\n", b"HTTP/1.1 abc\r\n\r\n", b"\0" * 70000])
def test_what_is_no_http_may_be_tried_again(answer: bytes) -> None:
    with answering(lambda connection, _: connection.sendall(answer)) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent


def test_a_server_that_falls_silent_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "_TIMEOUT_SECONDS", 0.2)
    over = threading.Event()

    def stall(connection: socket.socket, _: bytes) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nabc")
        over.wait(20)

    with answering(stall) as (port, _):
        error = refusal(port)
        over.set()

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent


def test_nobody_listening_may_be_tried_again() -> None:
    with answering() as (port, _):
        pass

    error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent and "network" in error.message


def test_another_address_is_tried_when_the_first_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbound, "forbidden_address", lambda _: None)
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 0)) for address in ("127.0.0.2", "127.0.0.1")]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: found)

    with answering(saying(OK, BODY)) as (port, _):
        assert download(port) == BODY


@pytest.mark.parametrize("path", ["/größe.onnx", "/✓"])
def test_a_path_with_letters_beyond_ascii_is_fetched(path: str) -> None:
    with answering(saying(OK, BODY)) as (port, _):
        assert download(port, path) == BODY


def test_a_path_with_a_space_is_fetched_or_refused_for_good() -> None:
    with answering(saying(OK, BODY)) as (port, _):
        try:
            assert download(port, "/my model.onnx") == BODY
        except WorkerError as error:
            assert error.permanent  # noqa: PT017


def test_a_download_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SLOW_SECONDS", 0.4)

    with answering(dripping(OK)) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent and "0.4 s" in error.message


def test_a_head_that_drips_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "_SLOW_SECONDS", 0.4)

    with answering(dripping("HTTP/1.1 200 OK", between="A: b\r\n")) as (port, _):
        error = refusal(port)

    assert error.reason is WorkerReason.MODEL_UNREACHABLE and not error.permanent


def test_a_download_that_drips_obeys_a_stop() -> None:
    stop = threading.Event()
    threading.Timer(0.2, stop.set).start()

    with answering(dripping(OK)) as (port, _):
        url = f"http://files.test:{port}/in.npz"
        with pytest.raises(StoppedError):
            fetch.read_verified(url, digest=None, limit=1 << 20, missing=WorkerReason.INPUT_NOT_FOUND, hosts=(), stop=stop.is_set)


def dripping(head: str, *, between: str = "x") -> Callable[[socket.socket, bytes], None]:
    """Send a head and then a little at a time, until the other side has had enough."""

    def drip(connection: socket.socket, _: bytes) -> None:
        start = head.replace("\n", "\r\n") + ("\r\n" if between != "x" else "\r\n\r\n")
        with contextlib.suppress(OSError):
            connection.sendall(start.encode())
            for _turn in range(3000):
                connection.sendall(between.encode())
                time.sleep(0.02)

    return drip
