"""Bounds on what a service may answer to `predict`: how long, and how much."""

import contextlib
import http.client
import queue
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from inference_client.errors import ClientError, UnavailableError

T = TypeVar("T")
ANSWER_BYTES = 64 << 20
"""As much as a worker takes of a request. All of it is held in memory, and printed."""
_WORDS = 500


@dataclass(frozen=True, slots=True)
class Answer:
    """What came: a success."""

    body: bytes
    headers: http.client.HTTPMessage


def within(seconds: float, what: str, work: Callable[[], T]) -> T:
    """What `work` returns, in so long altogether: a timeout of a socket begins anew with each byte. Raises UnavailableError."""
    ended: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue()

    def run() -> None:
        try:
            ended.put((work(), None))
        except BaseException as error:  # noqa: BLE001 -- raised below, where somebody waits for it
            ended.put((None, error))

    # It ends with the process, if not before.
    threading.Thread(target=run, daemon=True).start()
    try:
        value, error = ended.get(timeout=seconds)
    except queue.Empty:
        raise UnavailableError(f"{what} has not answered within {seconds:g} s") from None
    if error is not None:
        raise error
    return value  # type: ignore[return-value]  # there is one, where there is no error


def exchange(
    address: str, request: tuple[str, str, bytes | None], headers: dict[str, str], tls: ssl.SSLContext | None, timeout: float
) -> Answer:
    """One request over HTTP: no redirect is followed and nothing inflated. Raises ClientError, OSError."""
    method, path, body = request
    try:
        with contextlib.closing(_connection(address, tls, timeout)) as made:
            made.request(method, path, body, {"Accept-Encoding": "identity", **headers})
            answered = made.getresponse()
            found = _body(answered)
    except (http.client.HTTPException, ValueError) as error:
        raise ClientError(f"{address} answers no HTTP: {type(error).__name__} {error}") from error
    if answered.status != http.client.OK:
        raise ClientError(f"HTTP {answered.status}: {found[:_WORDS].decode(errors='replace').strip() or answered.reason[:_WORDS]}")
    return Answer(found, answered.headers)


def _connection(address: str, tls: ssl.SSLContext | None, timeout: float) -> http.client.HTTPConnection:
    if tls is None:
        return http.client.HTTPConnection(address, timeout=timeout)
    return http.client.HTTPSConnection(address, timeout=timeout, context=tls)


def _body(answered: http.client.HTTPResponse) -> bytes:
    coding = answered.headers.get("Content-Encoding", "identity")
    if coding.lower() != "identity":
        raise ClientError(f"it answers in the coding {coding[:_WORDS]}, which was not asked for")
    found = answered.read(ANSWER_BYTES + 1)
    if len(found) > ANSWER_BYTES:
        raise ClientError(f"it answers with more than {ANSWER_BYTES >> 20} MiB")
    return found
