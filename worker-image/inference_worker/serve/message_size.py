"""Whether a request may be parsed: a short text can say a great many small things, each of which takes memory and time.

An empty message within another has two bytes on the wire, and ninety in memory; an empty list of JSON has three, and sixty-four.
The parsers hold the interpreter all the while, so that every caller waits. What is counted here takes less time than they do.
"""

import re
from collections.abc import Mapping
from http import HTTPStatus
from itertools import islice

from inference_worker.errors import RequestError

MOST_FIELDS = 16_384
"""Fields of a ModelInferRequest and of the messages within; a model of a thousand inputs has a third of that."""
MOST_ELEMENTS = 1 << 17
"""Members of typed contents that each stand for themselves: texts, and numbers that are not packed."""
MOST_VARINT_BYTES = 8 << 20
"""Packed numbers of varying length: a byte becomes sixteen while the array grows."""
MOST_LISTS = 1 << 20
"""Lists and objects of a JSON document. An object is one for each tensor, a list mostly one for each row."""
SMALL_BYTES = 64 << 10
"""Messages that ask for a document."""

_CURE = "send tensors as raw_input_contents"
_Table = Mapping[int, "_Table"]
_PARAMETERS: _Table = {2: {}}
_CONTENTS: _Table = {}
_REQUEST: _Table = {4: _PARAMETERS, 5: {4: _PARAMETERS, 5: _CONTENTS}, 6: {2: _PARAMETERS}}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_SHAPE, _PACKED, _PACKED_FIXED = 3, frozenset({1, 2, 3, 4, 5, 6, 7}), frozenset({1, 6, 7})
_VARINT_BYTES = 10
# The end is found once behind what is there, and once more behind nothing.
_ENDS = 2
# To the next list or object outside of texts, or to the end. Possessive, and always found: whatever stands there is looked at once.
_NEXT_LIST = re.compile(rb'(?:[^"\[{]++|"(?:[^"\\]++|\\.)*+"?)*+(?:[\[{]|\Z)', re.DOTALL)


def require_few_fields(data: bytes) -> None:
    """Raise RequestError(413) for a ModelInferRequest that says too many small things; what is no message is left to protobuf."""
    _Count().walk(data, 0, len(data), _REQUEST)


def of_few_lists(document: memoryview) -> memoryview:
    """Return a JSON document. Raises RequestError(413) for one of too many lists and objects."""
    if len(document) <= MOST_LISTS:
        return document
    data = bytes(document)
    few = data.count(b"[") + data.count(b"{") <= MOST_LISTS
    # Most are in texts, or this is an attack. Texts are skipped without a step for each.
    if not few and next(islice(_NEXT_LIST.finditer(data), MOST_LISTS + _ENDS, None), None) is not None:
        raise _refused(f"the JSON has more than {MOST_LISTS} lists and objects; send flat data, or binary tensors")
    return document


def small(payload: bytes | memoryview) -> bytes:
    """Return a message that asks for a document. Raises RequestError(413) for one that is too long to be that."""
    if len(payload) > SMALL_BYTES:
        raise _refused(f"a message of this method has at most {SMALL_BYTES} bytes")
    return bytes(payload)


def _refused(why: str) -> RequestError:
    return RequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, why)


class _Count:
    """What was met of one message."""

    def __init__(self) -> None:
        self._fields = self._elements = self._varint_bytes = 0

    def walk(self, data: bytes, position: int, end: int, table: _Table) -> None:
        """Count the fields of a message, and of those within. Ends where it is no message."""
        while position < end:
            if (tag := data[position]) < 0x80:
                position += 1
            else:
                tag, position = varint(data, position)
            number, kind = tag >> 3, tag & 7
            length = 0
            if kind == _LENGTH:
                if 0 <= position < end and (length := data[position]) < 0x80:
                    position += 1
                else:
                    length, position = varint(data, position)
            elif kind == _VARINT:
                _, position = varint(data, position)
            elif kind in (_FIXED64, _FIXED32):
                length = 8 if kind == _FIXED64 else 4
            if position < 0 or length > end - position:
                return
            self._met(number, kind, length, table)
            if kind == _LENGTH and (within := table.get(number)) is not None:
                self.walk(data, position, position + length, within)
            position += length

    def _met(self, number: int, kind: int, length: int, table: _Table) -> None:
        packed = kind == _LENGTH and number in _PACKED
        if table is not _CONTENTS or packed:
            self._fields += 1
        else:
            self._elements += 1
        if packed and number not in _PACKED_FIXED and (table is _CONTENTS or (number == _SHAPE and table is _REQUEST[5])):
            self._varint_bytes += length
        if self._fields > MOST_FIELDS:
            raise _refused(f"the message has more than {MOST_FIELDS} fields; {_CURE}")
        if self._elements > MOST_ELEMENTS:
            raise _refused(f"the message has more than {MOST_ELEMENTS} texts, or numbers that are not packed; {_CURE}")
        if self._varint_bytes > MOST_VARINT_BYTES:
            raise _refused(f"the message has more than {MOST_VARINT_BYTES} bytes of whole numbers; {_CURE}")


def varint(data: bytes | memoryview, position: int) -> tuple[int, int]:
    """A number and where the next one begins; a negative place where none ends here."""
    if 0 <= position < len(data) and (byte := data[position]) < 0x80:
        return byte, position + 1
    if position < 0:
        return 0, position
    value = 0
    for shift, byte in enumerate(data[position : position + _VARINT_BYTES]):
        value |= (byte & 0x7F) << 7 * shift
        if byte < 0x80:
            return value, position + shift + 1
    return 0, -1
