"""Header blocks of HTTP/2 as they are read (RFC 7541): bounded before they are decoded, checked, and remembered."""

from collections.abc import Iterable
from typing import Any

import hpack
from hpack.table import HeaderTable

from inference_worker.serve.budget import Budget, memory_of
from inference_worker.serve.http2_frames import HEADER_LIST_BYTES, Code, ConnectionFaultError


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
_CACHED_BLOCK_BYTES = 8 << 10
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
        size = len(raw) + memory_of(headers or {})
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
