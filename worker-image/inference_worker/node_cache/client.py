"""A worker's way to its node's cache. It trusts nothing of it: what has another digest is fetched from where the model is.

Whoever has to fetch a model brings it to the cache over the connection that it asked by; others on the node wait for that.
"""

import hashlib
import http.client
import io
import logging
import os
import re
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import urlsplit

import msgspec

from inference_protocol import node_cache as protocol
from inference_protocol.node_cache import FILL_HEADER, HEAD_BYTES, MODELS_PATH, BundledFile, Grant, Head, model_digest
from inference_worker import fetch
from inference_worker.engines import external_data
from inference_worker.fetch import ModelFiles

log = logging.getLogger(__name__)

_CONNECT_SECONDS = 2.0
# Another worker may fetch the model meanwhile: longer than the cache has one wait for that.
_ANSWER_SECONDS = 330.0
_STALL_SECONDS = 30.0
_BLOCK = 4 << 20
_SUMS = re.compile(rb"(?:[0-9a-f]{64}  [^\n]+\n)+")

Vouch = Callable[[str, str], None]


class _UnusableError(Exception):
    """What the cache gave is not the model."""


def grant() -> Grant | None:
    """What the operator has told this worker of its node's cache; None where there is none."""
    text = os.environ.get(protocol.GRANT_VARIABLE)
    if not text:
        return None
    try:
        return msgspec.json.decode(text, type=Grant)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        log.warning("%s: %s; the node's cache is not used", protocol.GRANT_VARIABLE, error)
        return None


def read_model(
    given: Grant,
    namespace: str,
    text: str,
    digest: str,
    *,
    limit: int,
    vouch: Vouch | None,
    fetched: Callable[[], ModelFiles],
) -> ModelFiles:
    """A model from the cache, or else as `fetched` gives it, which raises WorkerError; then the cache gets it, too."""
    place = urlsplit(given.url)
    connection = http.client.HTTPConnection(place.hostname or "", place.port, timeout=_CONNECT_SECONDS)
    path, headers = f"{MODELS_PATH}/{namespace}/{digest}", {"Authorization": f"Bearer {given.token}"}
    try:
        fills = True
        try:
            connection.connect()
            found, fills = _ask(connection, path, headers, limit)
            if found is not None:
                return _checked(found, text, digest, vouch)
        except _UnusableError as error:
            log.warning("what the node's cache has of %s is not used: %s", text, error)
        except (OSError, http.client.HTTPException) as error:
            log.info("the node's cache is not used: %s", str(error) or type(error).__name__)
            return fetched()
        files = fetched()
        if fills:
            _bring(connection, path, headers, text, files)
        return files
    finally:
        connection.close()


def _ask(
    connection: http.client.HTTPConnection, path: str, headers: dict[str, str], limit: int
) -> tuple[dict[str, tuple[bytes, str]] | None, bool]:
    """The files of a model with their digests, and whether this worker is the one to bring them where there are none."""
    connection.sock.settimeout(_ANSWER_SECONDS)
    connection.request("GET", path, headers=headers)
    response = connection.getresponse()
    connection.sock.settimeout(_STALL_SECONDS)
    if response.status != 200:
        response.read(HEAD_BYTES)
        return None, response.status == 404 and response.getheader(FILL_HEADER) is not None
    try:
        head = msgspec.json.decode(response.read(HEAD_BYTES), type=Head)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise _UnusableError(f"its head can't be read: {error}") from error
    if head.length - HEAD_BYTES > limit:
        raise _UnusableError(f"it has more than {limit} bytes")
    return {file.name: _received(response, file.size) for file in head.files}, True


def _received(response: http.client.HTTPResponse, size: int) -> tuple[bytes, str]:
    """The next file of an answer, and its digest. It is in memory once: the buffer that it comes into is given away."""
    buffer, sha = io.BytesIO(), hashlib.sha256()
    if size:
        buffer.seek(size - 1)
        buffer.write(b"\0")
    # Hashed by another thread: both take as long as the disk does.
    with buffer.getbuffer() as view, ThreadPoolExecutor(1) as hashing:
        begun = 0
        while begun < size:
            count = response.readinto(view[begun : min(begun + _BLOCK, size)])
            if not count:
                raise _UnusableError("it ended early")
            hashing.submit(sha.update, view[begun : begun + count])
            begun += count
    return buffer.getvalue(), f"sha256:{sha.hexdigest()}"


def _checked(found: dict[str, tuple[bytes, str]], text: str, digest: str, vouch: Vouch | None) -> ModelFiles:
    """The model, if the files are those of its location. Raises _UnusableError, and WorkerError where nobody vouches for one."""
    digests = {name: own for name, (_, own) in found.items()}
    if model_digest(digests) != digest:
        raise _UnusableError("it has another digest")
    (first, (data, own)), *others = found.items()
    # What sha256sum prints for several files has the digest of these files.
    if not others and len(data) <= HEAD_BYTES * 2 and _SUMS.fullmatch(data):
        raise _UnusableError("it is a list of files")
    # The digest of several files doesn't say which of them is the model's own.
    if others and first != fetch.file_name(text):
        raise _UnusableError(f"its first file is {first!r}")
    if vouch is not None:
        vouch(fetch.file_name(text), own)
        for name, (_, each) in others:
            vouch(name, each)
    beside = {name: each for name, (each, _) in others}
    if others and set(external_data.files_of(data)) != set(beside):
        raise _UnusableError("it has other files than the model names")
    return ModelFiles(data, beside, digest)


def _bring(connection: http.client.HTTPConnection, path: str, headers: dict[str, str], text: str, files: ModelFiles) -> None:
    named: Sequence[tuple[str, bytes]] = [(fetch.file_name(text), files.data), *files.beside.items()]
    head = Head(tuple(BundledFile(name, len(data)) for name, data in named))
    encoded = msgspec.json.encode(head)
    if len(encoded) > HEAD_BYTES:
        return
    begun = time.monotonic()
    try:
        connection.putrequest("PUT", path)
        for name, value in {**headers, "Content-Length": str(head.length)}.items():
            connection.putheader(name, value)
        connection.endheaders()
        for part in (encoded.ljust(HEAD_BYTES), *(data for _, data in named)):
            for start in range(0, len(part), _BLOCK):
                connection.sock.sendall(memoryview(part)[start : start + _BLOCK])
        status = connection.getresponse().status
        log.info("brought %s to the node's cache: %d after %.2f s", text, status, time.monotonic() - begun)
    except (OSError, http.client.HTTPException) as error:
        log.info("%s is not brought to the node's cache: %s", text, str(error) or type(error).__name__)
