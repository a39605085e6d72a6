"""What a bucket is asked, as values, and what one kind of store has to know for it.

`bucket.py` decides what to ask, when to ask again, and what an answer means to its caller. `s3.py` and `gcs.py` write requests.
"""

import html
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.client import HTTPMessage
from typing import NamedTuple, Protocol

from inference_worker.download import Place

_ERROR_LIMIT_BYTES = 64 << 10
PAGE_LIMIT_BYTES = 4 << 20
# What answers mean to who reads, and to who removes. What they mean to who writes differs between stores.
READ = (200, 206, 404, 416)
REMOVED = (200, 204, 404)


class Found(NamedTuple):
    """An object of a listing; `mark` stands for its bytes."""

    key: str
    mark: str
    size: int


class Page(NamedTuple):
    """Some objects of a listing; `token` asks for the next ones, and is empty where there are none."""

    found: list[Found]
    token: str


@dataclass(frozen=True, slots=True)
class Request:
    """A request about an object, or about a bucket. `expected` are the statuses that its caller knows."""

    method: str
    url: str
    told: str
    expected: tuple[int, ...]
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes | None = None
    limit: int = _ERROR_LIMIT_BYTES

    @property
    def limit_of_errors(self) -> int:
        """How much is read of an answer that has no object in it."""
        return _ERROR_LIMIT_BYTES


class Dialect(Protocol):
    """A bucket of one kind of store. A `mark` stands for an object's bytes, and is empty for an object that isn't there."""

    @property
    def authorities(self) -> str:
        """CAs (PEM) that are trusted beside the system's."""
        ...

    @property
    def cure(self) -> str:
        """What to do about a request that the store refuses."""
        ...

    @property
    def endpoint_key(self) -> str:
        """The key of the Secret that says where the store is."""
        ...

    @property
    def strange_mark(self) -> str:
        """A mark that no object has."""
        ...

    def proof(self, request: Request) -> Mapping[str, str]:
        """The headers that prove who asks."""
        ...

    def read(self, key: str, told: str, limit: int) -> Request:
        """Ask for the first bytes of an object."""
        ...

    def write(self, key: str, told: str, data: bytes, mark: str) -> Request:
        """Write an object that has this mark. 412 is the answer where it has another."""
        ...

    def removal(self, key: str, told: str) -> Request:
        """Remove an object."""
        ...

    def listing(self, prefix: str, told: str, token: str) -> Request:
        """Ask what a folder holds, without what is in folders below it."""
        ...

    def mark(self, headers: HTTPMessage, data: bytes) -> str:
        """What stands for the bytes that were read or written."""
        ...

    def page(self, data: bytes) -> Page:
        """What a listing says."""
        ...

    def place(self, key: str, told: str, mark: str = "") -> Place:
        """Where an object is fetched from; with a mark, no other than the one that has it."""
        ...


def first_bytes(limit: int) -> dict[str, str]:
    """The header that asks for no more."""
    return {"Range": f"bytes=0-{limit - 1}"}


def element(name: str, document: bytes) -> str:
    """The text of an element without markup within, so that no parser of XML, with what documents can do to it, is needed."""
    found = re.search(rf"<{name}>([^<]*)</{name}>".encode(), document)
    return html.unescape(found[1].decode(errors="replace")) if found is not None else ""
