"""HTTP/2's frames and codes, and header blocks as they are written (RFC 9113, RFC 7541). Knows no connection and no I/O."""

import struct
from collections.abc import Iterable, Iterator
from enum import IntEnum

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
