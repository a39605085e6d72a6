"""Text files line by line: UTF-8 with or without a byte order mark, plain or gzip; anything else is refused by its name."""

import gzip
import io
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

BYTE_ORDER_MARK = "\ufeff"
# As much as a download may have: text takes several times its size while it is read.
INFLATED_LIMIT_BYTES = 1 << 30
# As much as a request's body may have. A file with holes is one line to its end, which no disk holds and no memory either.
_LINE_CHARACTERS = 64 << 20
_GZIP = b"\x1f\x8b"
_HEAD_BYTES = 8
_BUFFER_BYTES = 1 << 17
# The longer mark of UTF-32 begins with that of UTF-16.
_ENCODINGS = ((b"\xff\xfe\0\0", "UTF-32"), (b"\0\0\xfe\xff", "UTF-32"), (b"\xff\xfe", "UTF-16"), (b"\xfe\xff", "UTF-16"))
_FILES = (
    (_GZIP, "compressed with gzip"),
    (b"\x28\xb5\x2f\xfd", "compressed with zstd"),
    (b"BZh", "compressed with bzip2"),
    (b"\xfd7zXZ", "compressed with xz"),
    (b"PK\x03\x04", "a zip archive"),
    (b"\x93NUMPY", "a .npy array"),
    (b"PAR1", "a Parquet file"),
)


class _Inflated(io.RawIOBase):
    """The contents of a gzip file, up to a limit: a small file must not take all memory. Raises ValueError beyond."""

    def __init__(self, file: gzip.GzipFile, limit: int) -> None:
        self._file = file
        self._limit = limit
        self._left = limit

    def readable(self) -> bool:
        """See io.RawIOBase."""
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        """See io.RawIOBase."""
        data = self._file.read(min(len(buffer), self._left + 1))
        self._left -= len(data)
        if self._left < 0:
            raise ValueError(f"it inflates to more than {self._limit} bytes; split it, or give it as .npz")
        buffer[: len(data)] = data
        return len(data)


def lines_of(path: Path, *, newline: Literal["\n", ""]) -> Iterator[str]:
    r"""The lines of a file, without its byte order mark; they end at "\n" alone, or at each line end of a CSV ("").

    Raises UnicodeDecodeError for bytes that are no UTF-8, ValueError for other files and for a line without bounds, OSError,
    EOFError and zlib.error.
    """
    with path.open("rb") as file:
        stream: io.BufferedReader = file
        if file.peek(_HEAD_BYTES).startswith(_GZIP):
            stream = io.BufferedReader(_Inflated(gzip.GzipFile(fileobj=file), INFLATED_LIMIT_BYTES), _BUFFER_BYTES)
        _require_utf8(stream.peek(_HEAD_BYTES)[:_HEAD_BYTES])
        text = io.TextIOWrapper(stream, encoding="utf-8-sig", newline=newline)
        limit = _LINE_CHARACTERS
        for number, line in enumerate(iter(lambda: text.readline(limit + 1), ""), start=1):
            if len(line) > limit:
                raise ValueError(f"line {number} has more than {limit} characters; write one item a line, or give it as .npz")
            yield line


def kind_of(head: bytes) -> str | None:
    """What a file is by its first bytes, for messages; None for what is not known."""
    return next((name for magic, name in _FILES if head.startswith(magic)), None)


def _require_utf8(head: bytes) -> None:
    if (kind := kind_of(head)) is not None:
        raise ValueError(f"it is {kind}; unpack it, or give it in its own format")
    encoding = next((name for mark, name in _ENCODINGS if head.startswith(mark)), None)
    if encoding is None and b"\0" in head[:4]:
        # Letters of the first lines are ASCII in practice: with a NUL beside each, they are wider than a byte.
        encoding = "UTF-16 or UTF-32"
    if encoding is not None:
        raise ValueError(f"it is {encoding} text; save it as UTF-8")
