"""One request of http(s) and its answer: over a connection to a host that may be asked, at a pace, and ended when told to."""

import http.client
import io
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from urllib.parse import quote, urlsplit

from inference_protocol.reasons import WorkerReason
from inference_protocol.uris import HttpUri, UriError, parse_uri
from inference_worker import outbound
from inference_worker.errors import WorkerError
from inference_worker.pace import Pace, paced

_BLOCK = 1 << 20
_SENT_BLOCK = 128 << 10
_URL_SAFE = "/%:@!$&'()*+,;=~-._?"
_NOWHERE = "workers fetch over http(s) only, and from no address of the node or its metadata service"


def never() -> bool:
    """Nobody ever says stop."""
    return False


@dataclass(frozen=True, slots=True)
class Bounds:
    """What holds a download: which hosts it may reach, how many bytes it may have, who ends it, and what its faults are called."""

    hosts: Sequence[str]
    limit: int
    missing: WorkerReason
    large: WorkerReason
    stop: Callable[[], bool] = never


@contextmanager
def answered(
    url: str,
    headers: Mapping[str, str],
    *,
    told: str,
    authorities: str,
    bounds: Bounds,
    method: str = "GET",
    sent: bytes | None = None,
) -> Iterator[tuple[http.client.HTTPResponse, Pace]]:
    """A server's answer, whose body isn't read yet; `sent` goes with the request. Raises StoppedError, WorkerError."""
    # Checked from the start at each hop: a redirect is the usual way to an address that may not be fetched.
    connection = _connect(url, _target(url, told), authorities, bounds, told)
    parts = urlsplit(url)
    # Percent-encoded once more where the author left letters that a request line can't hold.
    target = quote(parts.path or "/", safe=_URL_SAFE) + (f"?{quote(parts.query, safe=_URL_SAFE)}" if parts.query else "")
    try:
        with paced(connection.sock, told, bounds.stop) as pace:
            told_by = {"Host": parts.netloc, "Accept-Encoding": "identity", **headers}
            if sent is not None:
                told_by["Content-Length"] = str(len(sent))
            connection.request(method, target, body=_paced(sent, pace) if sent else None, headers=told_by)
            yield connection.getresponse(), pace
    except http.client.HTTPException as error:
        # Not its text: that is what the server said, whoever it belongs to.
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told} gave no HTTP answer: {type(error).__name__}") from error
    except OSError as error:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: {str(error) or type(error).__name__}") from error
    finally:
        connection.close()


def _paced(data: bytes, pace: Pace) -> Iterator[memoryview]:
    """What is sent, block by block: an upload goes on as a download does."""
    whole = memoryview(data)
    for start in range(0, len(data), _SENT_BLOCK):
        block = whole[start : start + _SENT_BLOCK]
        yield block
        pace.taken += len(block)


def _connect(url: str, uri: HttpUri, authorities: str, bounds: Bounds, told: str) -> http.client.HTTPConnection:
    parts = urlsplit(url)
    tls = parts.scheme == "https"
    port = parts.port or (443 if tls else 80)
    connection = http.client.HTTPConnection(uri.host, port)
    connection.sock = outbound.connected(uri.host, port, allowed=bounds.hosts, told=told, tls=tls, authorities=authorities)
    return connection


def _target(url: str, told: str) -> HttpUri:
    """Where a hop goes. A redirect's URL is not told: it may hold another's credentials."""
    try:
        uri = parse_uri(url)
    except UriError as error:
        raise WorkerError(WorkerReason.URI_FORBIDDEN, str(error) if told == url else f"{told}: {_NOWHERE}") from error
    if not isinstance(uri, HttpUri):
        raise WorkerError(WorkerReason.URI_FORBIDDEN, f"{told}: {_NOWHERE}")
    return uri


def status_words(number: int) -> str:
    """The status in the standard's words: a server may have put anything there."""
    try:
        return f"{number} {HTTPStatus(number).phrase}"
    except ValueError:
        return str(number)


def small_body(response: http.client.HTTPResponse, pace: Pace, told: str, *, limit: int) -> bytes:
    """The whole of a short answer. Raises WorkerError MODEL_UNREACHABLE where it is longer than `limit` bytes, or broke off."""
    data = io.BytesIO()
    while block := response.read1(_BLOCK):
        pace.taken += len(block)
        if data.write(block) and data.tell() > limit:
            raise WorkerError(
                WorkerReason.MODEL_UNREACHABLE, f"{told}: an answer has more than {limit} bytes; is it the right server?"
            )
    if response.length:
        raise WorkerError(WorkerReason.MODEL_UNREACHABLE, f"{told}: the connection ended before the answer did")
    return data.getvalue()
