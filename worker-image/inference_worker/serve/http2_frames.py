"""HTTP/2's frames, codes and header blocks (RFC 9113, RFC 7541), as far as a server needs them. Knows no connection and no I/O."""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum
from typing import Any

import hpack
from hpack.table import HeaderTable

from inference_worker.serve.budget import Budget

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
FRAME_HEADER_BYTES = 9
DEFAULT_WINDOW = 65_535
LARGEST_WINDOW = 2**31 - 1
DEFAULT_FRAME_BYTES = 16_384
HEADER_LIST_BYTES = 64 << 10


class Kind(IntEnum):
    """Frame types."""

    DATA = 0
    HEADERS = 1
    PRIORITY = 2
    RST_STREAM = 3
    SETTINGS = 4
    PUSH_PROMISE = 5
    PING = 6
    GOAWAY = 7
    WINDOW_UPDATE = 8
    CONTINUATION = 9


class Flag:
    """Frame flags; ACK shares END_STREAM's bit on other frames. Plain numbers, since they are looked at for every frame."""

    END_STREAM = 0x1
    ACK = 0x1
    END_HEADERS = 0x4
    PADDED = 0x8
    PRIORITY = 0x20


class Setting(IntEnum):
    """Settings."""

    HEADER_TABLE_SIZE = 1
    ENABLE_PUSH = 2
    MAX_CONCURRENT_STREAMS = 3
    INITIAL_WINDOW_SIZE = 4
    MAX_FRAME_SIZE = 5
    MAX_HEADER_LIST_SIZE = 6


class Code(IntEnum):
    """Error codes."""

    NO_ERROR = 0
    PROTOCOL_ERROR = 1
    INTERNAL_ERROR = 2
    FLOW_CONTROL_ERROR = 3
    STREAM_CLOSED = 5
    FRAME_SIZE_ERROR = 6
    REFUSED_STREAM = 7
    CANCEL = 8
    COMPRESSION_ERROR = 9
    ENHANCE_YOUR_CALM = 11


class ConnectionFaultError(Exception):
    """The peer broke the protocol in a way that ends the connection."""

    def __init__(self, code: Code, text: str) -> None:
        super().__init__(text)
        self.code = code


class StreamFaultError(Exception):
    """The peer broke the protocol in a way that ends one stream."""

    def __init__(self, stream: int, code: Code) -> None:
        super().__init__(code.name)
        self.stream = stream
        self.code = code


_FRAME_HEAD = struct.Struct(">IBI").pack
"""Length (24 bits) and type (8 bits) as one word, flags, stream."""


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """One frame."""
    return _FRAME_HEAD(len(payload) << 8 | kind, flags, stream) + payload


read_frame_head = struct.Struct(">IBI").unpack_from
"""The same words of a frame that comes in: (length and type, flags, stream)."""


def settings_frame(values: dict[Setting, int]) -> bytes:
    """A SETTINGS frame."""
    return frame(Kind.SETTINGS, 0, 0, b"".join(struct.pack(">HI", key, value) for key, value in values.items()))


def read_settings(payload: bytes) -> Iterator[tuple[int, int]]:
    """The settings in a frame's payload, in their order. Raises ConnectionFaultError for a value that is out of bounds."""
    for key, value in struct.iter_unpack(">HI", payload):
        if key == Setting.INITIAL_WINDOW_SIZE and value > LARGEST_WINDOW:
            raise ConnectionFaultError(Code.FLOW_CONTROL_ERROR, "a window is too large")
        if key == Setting.MAX_FRAME_SIZE and not DEFAULT_FRAME_BYTES <= value < 1 << 24:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a frame size is out of bounds")
        if key == Setting.ENABLE_PUSH and value > 1:
            raise ConnectionFaultError(Code.PROTOCOL_ERROR, "push is on or off")
        yield key, value


def goaway(last: int, code: Code, text: str = "") -> bytes:
    """A GOAWAY frame: streams after `last` are not taken any more."""
    return frame(Kind.GOAWAY, 0, 0, last.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode())


def window_update(stream: int, increment: int) -> bytes:
    """A WINDOW_UPDATE frame."""
    return frame(Kind.WINDOW_UPDATE, 0, stream, increment.to_bytes(4, "big"))


def unpadded(payload: bytes, flags: int) -> bytes:
    """The payload without its padding. Raises ConnectionFaultError when there is more padding than payload."""
    if not flags & Flag.PADDED:
        return payload
    if not payload or payload[0] >= len(payload):
        raise ConnectionFaultError(Code.PROTOCOL_ERROR, "more padding than payload")
    return payload[1 : len(payload) - payload[0]]


def without_priority(payload: bytes, stream: int) -> bytes:
    """The payload of a HEADERS frame behind its priority, which means nothing here. Raises ConnectionFaultError."""
    if len(payload) < 5:
        raise ConnectionFaultError(Code.FRAME_SIZE_ERROR, "a priority is cut off")
    if int.from_bytes(payload[:4], "big") & LARGEST_WINDOW == stream:
        raise ConnectionFaultError(Code.PROTOCOL_ERROR, "a stream depends on itself")
    return payload[5:]


def literal(name: str, value: str) -> bytes:
    """A header that is indexed nowhere, so that encoding needs no state. Lengths are written in HPACK's seven-bit form."""
    return b"\x00" + _text(name.encode()) + _text(value.encode("utf-8", "replace"))


def block(status: int, headers: Iterable[tuple[str, str]] = ()) -> bytes:
    """A header block with a status."""
    start = b"\x88" if status == 200 else literal(":status", str(status))
    return start + b"".join(literal(name, value) for name, value in headers)


def _text(raw: bytes) -> bytes:
    if len(raw) < 127:
        return bytes((len(raw),)) + raw
    rest = len(raw) - 127
    prefix = bytearray(b"\x7f")
    while rest >= 128:
        prefix.append(rest & 127 | 128)
        rest >>= 7
    prefix.append(rest)
    return bytes(prefix) + raw


class _Table(HeaderTable):
    """Counts its changes."""

    def __init__(self) -> None:
        super().__init__()
        self.changes = 0

    def add(self, name: bytes, value: bytes) -> None:
        self.changes += 1
        super().add(name, value)

    @property
    def maxsize(self) -> int:
        return int(super().maxsize)

    @maxsize.setter
    def maxsize(self, newmax: int) -> None:
        self.changes += 1
        super(_Table, type(self)).maxsize.fset(self, newmax)  # type: ignore[attr-defined]


_CACHED_BLOCKS = 256
_CACHED_BLOCK_BYTES = 4 << 10
_CACHED_BYTES = 64 << 10
# A block of more is walked before it is decoded: each of its bytes may cost as much as a whole header.
_WALKED_BYTES = 512
_FIELDS = 1000
_INTEGER_BYTES = 5
_TABLE_UPDATES = 2


class HeaderReader:
    """Decodes header blocks, and remembers what a block meant for as long as the shared table does not change.

    A client sends the same block again and again once all of it is in the table, and decoding costs more than all the rest of a
    small request.
    """

    def __init__(self, budget: Budget) -> None:
        self._budget = budget
        self._bytes = 0
        self._decoder = hpack.Decoder(max_header_list_size=HEADER_LIST_BYTES)
        self._table = _Table()
        self._decoder.header_table = self._table
        self._known: dict[bytes, dict[str, str] | None] = {}

    def read(self, raw: bytes) -> dict[str, str] | None:
        """Headers by name; None for a request that is malformed. Raises ConnectionFaultError for a block that can't be decoded."""
        if raw in self._known:
            return self._known[raw]
        before = self._table.changes
        if len(raw) > _WALKED_BYTES or (raw[:1] >= b"\x20" and raw[0] & 0xE0 == 0x20):
            require_bounded(raw)
        try:
            pairs = self._decoder.decode(raw)
        except hpack.OversizedHeaderListError as error:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many headers") from error
        except (hpack.HPACKError, UnicodeDecodeError, IndexError) as error:
            raise ConnectionFaultError(Code.COMPRESSION_ERROR, "a header block can't be decoded") from error
        headers = _checked(pairs)
        if self._table.changes != before:
            self.forget()
        elif len(self._known) < _CACHED_BLOCKS:
            self._remember(raw, headers)
        return headers

    def _remember(self, raw: bytes, headers: dict[str, str] | None) -> None:
        size = len(raw) + sum(len(name) + len(value) for name, value in (headers or {}).items())
        if size <= _CACHED_BLOCK_BYTES and self._bytes + size <= _CACHED_BYTES and self._budget.has(size):
            self._bytes += size
            self._known[raw] = headers

    def forget(self) -> None:
        """Forget what blocks meant."""
        if self._known:
            self._known.clear()
            self._budget.give(self._bytes)
            self._bytes = 0


def require_bounded(raw: bytes) -> None:
    """Raise ConnectionFaultError for a header block (RFC 7541, 6) that takes long to decode for its size.

    Those are blocks of very many fields, of more changes of the table's size than have a meaning, and of endless integers.
    """
    position = fields = updates = 0
    while position < len(raw):
        first = raw[position]
        if first & 0x80:
            _, position = _integer(raw, position, 0x7F)
        elif first & 0xE0 == 0x20:
            updates += 1
            _, position = _integer(raw, position, 0x1F)
        else:
            index, position = _integer(raw, position, 0x3F if first & 0x40 else 0x0F)
            for _ in range(1 if index else 2):
                length, position = _integer(raw, position, 0x7F)
                position += length
        fields += 1
        if updates > _TABLE_UPDATES:
            raise ConnectionFaultError(Code.COMPRESSION_ERROR, "the table changes its size without end")
        if fields > _FIELDS:
            raise ConnectionFaultError(Code.ENHANCE_YOUR_CALM, "too many headers")


def _integer(raw: bytes, position: int, mask: int) -> tuple[int, int]:
    """The integer at `position` (RFC 7541, 5.1), and where it ends."""
    value = raw[position] & mask if position < len(raw) else 0
    position += 1
    if value < mask:
        return value, position
    for step, byte in enumerate(raw[position : position + _INTEGER_BYTES]):
        value += (byte & 0x7F) << 7 * step
        if byte < 0x80:
            return value, position + step + 1
    raise ConnectionFaultError(Code.COMPRESSION_ERROR, "an integer without an end")


_PSEUDO = frozenset({":method", ":scheme", ":path", ":authority"})
_FORBIDDEN = frozenset({"connection", "proxy-connection", "keep-alive", "transfer-encoding", "upgrade"})


def _checked(pairs: Iterable[Any]) -> dict[str, str] | None:
    """RFC 9113, 8.2 and 8.3. A name that comes twice keeps both values, as RFC 9110 joins them."""
    headers: dict[str, str] = {}
    regular = False
    for name, value in pairs:
        if name.startswith(":"):
            if regular or name not in _PSEUDO or name in headers:
                return None
        else:
            regular = True
            if name in _FORBIDDEN or name != name.lower() or not name or (name == "te" and value != "trailers"):
                return None
        headers[name] = f"{headers[name]},{value}" if name in headers else value
    return headers
