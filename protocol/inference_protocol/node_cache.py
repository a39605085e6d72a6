"""What the cache of models on a node says to workers and to the operator (ADR 0040).

A model travels and lies on disk as a bundle: a head of HEAD_BYTES, JSON filled up with spaces, and then the files' bytes.
"""

import hashlib
import hmac
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from inference_protocol.messages import Count, Digest, ModelSource

# The variable by which a worker has its Grant.
GRANT_VARIABLE = "INFERENCE_NODE_CACHE"
# And the one by which the cache itself has its CacheConfig.
CONFIG_VARIABLE = "INFERENCE_NODE_CACHE_CONFIG"
PORT = 8006
METRICS_PORT = 8007
# GET and PUT MODELS_PATH/NAMESPACE/DIGEST with the grant's token as bearer; the body is a bundle.
MODELS_PATH = "/v1/models"
# The operator POSTs a Wanted here, with SIGNATURE_HEADER; the answer is a WantedState.
WANTED_PATH = "/v1/wanted"
SIGNATURE_HEADER = "Inference-Signature"
# On a 404: whoever asked is the one who fetches the model and PUTs it, over the same connection. Others wait for that.
FILL_HEADER = "Inference-Fill"
HEAD_BYTES = 64 << 10
# Models of one order, so that an order and its answer stay below a megabyte.
MOST_WANTED = 256
WANTED_LIMIT_BYTES = 1 << 20

Namespace = Annotated[str, msgspec.Meta(pattern="^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", max_length=63)]


class _Record(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True):
    """Base of all records: immutable, unknown fields ignored so that either side may be newer."""


class CacheConfig(_Record, frozen=True):
    """What a node's cache is told. `key_file` is what tokens are made of.

    With `shared` each namespace reads what any has brought. Models are prefetched from `fetch_from` alone (`hosts.host_fault`).
    """

    folder: str
    limit_bytes: Annotated[int, msgspec.Meta(ge=HEAD_BYTES)]
    key_file: str
    shared: bool = False
    fetch_from: tuple[str, ...] = ()


class Grant(_Record, frozen=True):
    """Where a worker finds its node's cache, and the token for its own model there."""

    url: str
    token: str


class BundledFile(_Record, frozen=True):
    """A file of a bundle; the model's own is the first."""

    name: Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
    size: Count


class Head(_Record, frozen=True):
    """What a bundle begins with."""

    files: Annotated[tuple[BundledFile, ...], msgspec.Meta(min_length=1, max_length=1024)]

    @property
    def length(self) -> int:
        """Bytes of the whole bundle."""
        return HEAD_BYTES + sum(file.size for file in self.files)


class WantedModel(_Record, frozen=True):
    """A model that a node should have before its workers start. `source.digest` is set."""

    namespace: Namespace
    source: ModelSource


class Wanted(_Record, frozen=True):
    """All models that a node should have now. An order that was `sent` (Unix seconds) no later than another one is refused."""

    sent: float
    models: Annotated[tuple[WantedModel, ...], msgspec.Meta(max_length=MOST_WANTED)]


class CachedModel(_Record, frozen=True):
    """How a wanted model stands on a node; `message` says why it could not be fetched."""

    namespace: Namespace
    digest: Digest
    state: Literal["Cached", "Fetching", "Failed"]
    message: Annotated[str, msgspec.Meta(max_length=512)] = ""


class WantedState(_Record, frozen=True):
    """How the models of an order stand."""

    models: Annotated[tuple[CachedModel, ...], msgspec.Meta(max_length=MOST_WANTED)]


def token(key: bytes, namespace: str, digest: str) -> str:
    """The token by which workers of a namespace read and write one model: HMAC-SHA256 in hex."""
    return hmac.new(key, f"model\0{namespace}\0{digest}".encode(), hashlib.sha256).hexdigest()


def signature(key: bytes, order: bytes) -> str:
    """What proves an order to be the operator's: HMAC-SHA256 in hex."""
    return hmac.new(key, b"wanted\0" + order, hashlib.sha256).hexdigest()


def model_digest(digests: Mapping[str, str]) -> str:
    """The `sha256:HEX` of a model by those of its files: of one file its own, of several that of what sha256sum prints for them."""
    if len(digests) == 1:
        return next(iter(digests.values()))
    lines = "".join(f"{digests[name].removeprefix('sha256:')}  {name}\n" for name in sorted(digests))
    return f"sha256:{hashlib.sha256(lines.encode()).hexdigest()}"
