"""What a frontend and its worker tell each other. Both are of one image and one version, so no field is there for older ones.

An `id` is one request or one stream of gRPC, and the frontend's choice. What is told of an id that is over is ignored: its caller
may leave while its answer is on the way.
"""

from http import HTTPStatus

import msgspec


class Extent(msgspec.Struct, frozen=True, array_like=True):
    """Bytes of the frontend's arena."""

    offset: int
    size: int


Body = bytes | Extent


class Asked(msgspec.Struct, frozen=True, array_like=True, tag="asked"):
    """A request over HTTP/1.1, whole. `arrived` and `whole` are instants of CLOCK_MONOTONIC, which all processes share."""

    id: int
    method: str
    path: str
    headers: dict[str, str]
    body: Body
    arrived: float
    whole: float


class Opened(msgspec.Struct, frozen=True, array_like=True, tag="opened"):
    """A stream of gRPC begins."""

    id: int
    headers: dict[str, str]
    arrived: float


class Received(msgspec.Struct, array_like=True, tag="received"):
    """Whole messages of a stream, each behind its prefix; `ended` where its caller sends no more."""

    id: int
    body: Body
    ended: bool = False


class Left(msgspec.Struct, frozen=True, array_like=True, tag="left"):
    """A caller waits no more."""

    id: int


class Parting(msgspec.Struct, frozen=True, array_like=True, tag="parting"):
    """A stream is to end as soon as what is owed to its caller is sent."""

    id: int


class Taken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """So many more bytes of what was written are on their way to a stream's caller; told by the dozen."""

    id: int
    size: int


class Alive(msgspec.Struct, frozen=True, array_like=True, tag="alive"):
    """The frontend runs; so many connections are open, of all that it has taken. While it drains, it has all that it was handed."""

    connections: int
    taken: int
    draining: bool


FromFrontend = Asked | Opened | Received | Left | Parting | Taken | Alive


class Answered(msgspec.Struct, frozen=True, array_like=True, tag="answered"):
    """The answer to a request over HTTP/1.1."""

    id: int
    status: HTTPStatus
    body: bytes
    content_type: str
    headers: tuple[tuple[str, str], ...]


class Respond(msgspec.Struct, frozen=True, array_like=True, tag="respond"):
    """See Stream.respond."""

    id: int
    head: bytes
    body: bytes
    trailers: bytes


class Start(msgspec.Struct, frozen=True, array_like=True, tag="start"):
    """See Stream.start."""

    id: int
    head: bytes


class Write(msgspec.Struct, frozen=True, array_like=True, tag="write"):
    """See Stream.write."""

    id: int
    body: bytes


class Finish(msgspec.Struct, frozen=True, array_like=True, tag="finish"):
    """See Stream.finish."""

    id: int
    trailers: bytes


class Reset(msgspec.Struct, frozen=True, array_like=True, tag="reset"):
    """See Stream.reset."""

    id: int
    code: int


class Hold(msgspec.Struct, frozen=True, array_like=True, tag="hold"):
    """Whether a stream's caller is kept from sending more than it may already."""

    id: int
    held: bool


class Patient(msgspec.Struct, frozen=True, array_like=True, tag="patient"):
    """A stream whose caller may be silent between its messages."""

    id: int


class Free(msgspec.Struct, frozen=True, array_like=True, tag="free"):
    """Nobody reads these extents any more, named by their offsets."""

    offsets: list[int]


class AnnounceEnd(msgspec.Struct, frozen=True, array_like=True, tag="announceEnd"):
    """See Connections.announce_end."""


class Drain(msgspec.Struct, frozen=True, array_like=True, tag="drain"):
    """See Connections.drained; the frontend tells Alive when it begins, and when no connection is left."""


FromWorker = Answered | Respond | Start | Write | Finish | Reset | Hold | Patient | Free | AnnounceEnd | Drain
