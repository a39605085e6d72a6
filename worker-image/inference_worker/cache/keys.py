"""What tells one request from all others, as far as its answer goes.

SHA-256, since whoever could make two inputs of one digest could have one answered with the other's answer; the processors that
workers run on compute it at twice BLAKE2b's rate (docs/measurements.md). Each part goes in behind its length, so that no two lists
of parts are the same bytes.
"""

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np

from inference_protocol.messages import ModelFacts
from inference_worker import datatypes
from inference_worker.engines.engine import Tensor, Tensors

STREAM_HEADER = "inference-stream-id"

Key = bytes


class Asked(msgspec.Struct, frozen=True):
    """Whose request it is, and what it asks of which model. `outputs` are in their order, which the answer keeps; empty is all."""

    tenant: str
    model: str
    version: str
    digest: str
    outputs: tuple[str, ...]


def asked(tenant: str, model: str, version: str, facts: ModelFacts, outputs: tuple[str, ...]) -> Asked:
    """What a request asks for. An INT8 variant answers otherwise than the file that it was made of, so both digests count."""
    return Asked(tenant, model, version, f"{facts.digest}/{facts.variant or ''}", outputs)


def key_of(wanted: Asked, feeds: Tensors, *more: str) -> Key:
    """The digest of a request: equal only for equal bytes of equal inputs, of one tenant and model. `more` tells kinds apart."""
    texts = (wanted.tenant, wanted.model, wanted.version, wanted.digest, *wanted.outputs)
    digest = hashlib.sha256()
    for group in (texts, more):
        digest.update(_number(len(group)))
        for text in group:
            _add(digest, (text.encode(errors="surrogatepass"),))
    for name in sorted(feeds):
        array = feeds[name]
        head = f"{name}\0{datatypes.name_of(array)}\0{array.shape}"
        _add(digest, (head.encode(errors="surrogatepass"),))
        _add(digest, _contents(array))
    return digest.digest()


def _number(value: int) -> bytes:
    return value.to_bytes(8, "little")


def _add(digest: "hashlib._Hash", parts: Sequence[bytes | memoryview]) -> None:
    digest.update(_number(sum(len(part) for part in parts)))
    for part in parts:
        digest.update(part)


def _contents(array: Tensor) -> Sequence[bytes | memoryview]:
    if array.dtype.kind not in "OSU":
        return (np.ascontiguousarray(array).reshape(-1).view(np.uint8).data,)
    return tuple(_texts(array.ravel().tolist()))


def _texts(values: Iterable[object]) -> Iterable[bytes]:
    for value in values:
        text = value if isinstance(value, bytes) else str(value).encode(errors="surrogatepass")
        yield _number(len(text))
        yield text
