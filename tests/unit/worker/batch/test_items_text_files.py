"""Files of text: UTF-8 with or without a mark, plain or gzip. What is neither is refused by its name, and no small file grows large."""

from __future__ import annotations

import bz2
import gzip
import lzma
from typing import TYPE_CHECKING

import numpy as np
import pytest

from inference_worker.batch.formats import texts
from inference_worker.batch.formats.opening import open_items
from tests.unit.worker.batch.test_items_arrays import X, refusal, saved, spec

if TYPE_CHECKING:
    from pathlib import Path

TEXT = spec("text", "BYTES")
LINES = '{"text": "größe"}\n{"text": "two"}\n'
TABLE = "text\ngröße\ntwo\n"


def read(path: Path) -> list[str]:
    items = open_items(path, "auto", (TEXT,))
    assert items.lines
    return [str(value) for value in items.rows(0, len(items))["text"]]


@pytest.mark.parametrize("mark", ["", "\ufeff"], ids=["plain", "with a mark"])
@pytest.mark.parametrize("ending", ["\n", "\r\n"], ids=["LF", "CRLF"])
@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.jsonl.gz", "in.ndjson.gz", "in.csv.gz", "IN.CSV.GZ"])
def test_a_text_is_read_with_any_mark_line_end_and_compression(tmp_path: Path, mark: str, ending: str, name: str) -> None:
    """wbolster/jsonlines#68: a byte order mark, as Windows writes it, made the first line unreadable."""
    text = LINES if "csv" not in name.lower() else TABLE
    data = (mark + text.replace("\n", ending)).encode()
    (tmp_path / name).write_bytes(gzip.compress(data) if name.lower().endswith(".gz") else data)

    assert read(tmp_path / name) == ["größe", "two"]


def test_compression_is_seen_by_the_bytes_whatever_the_name(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_bytes(gzip.compress(LINES.encode()))

    assert read(tmp_path / "in.jsonl") == ["größe", "two"]


def test_a_name_that_says_gzip_may_lie(tmp_path: Path) -> None:
    """Servers that send Content-Encoding: gzip have their files unpacked on the way, and the name stays."""
    (tmp_path / "in.jsonl.gz").write_text(LINES)

    assert read(tmp_path / "in.jsonl.gz") == ["größe", "two"]


def test_gzip_files_that_were_put_together_are_read_to_the_end(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl.gz").write_bytes(b"".join(gzip.compress(line.encode()) for line in LINES.splitlines(keepends=True)))

    assert read(tmp_path / "in.jsonl.gz") == ["größe", "two"]


@pytest.mark.parametrize("name", ["in.jsonl.gz", "in.csv.gz"])
def test_a_small_gzip_file_does_not_take_all_memory(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """alphagov/backdrop#360, headroomlabs-ai/headroom#3284: 16 KB on the wire, gigabytes in memory."""
    monkeypatch.setattr(texts, "INFLATED_LIMIT_BYTES", 1 << 20)
    (tmp_path / name).write_bytes(gzip.compress(("text\n" if "csv" in name else "").encode() + b" " * (2 << 20)))

    assert "1048576 bytes" in refusal(tmp_path / name, TEXT)


def test_the_limit_itself_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(texts, "INFLATED_LIMIT_BYTES", len(LINES.encode()))
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(LINES.encode()))

    assert read(tmp_path / "in.jsonl.gz") == ["größe", "two"]


@pytest.mark.parametrize("cut", [1, 8, 12, 20])
def test_a_cut_gzip_file_is_refused(tmp_path: Path, cut: int) -> None:
    (tmp_path / "in.jsonl.gz").write_bytes(gzip.compress(LINES.encode())[:-cut])

    refusal(tmp_path / "in.jsonl.gz", TEXT)


def test_a_gzip_file_with_a_flipped_byte_is_refused(tmp_path: Path) -> None:
    raw = bytearray(gzip.compress(LINES.encode()))
    raw[-6] ^= 0xFF
    (tmp_path / "in.jsonl.gz").write_bytes(raw)

    refusal(tmp_path / "in.jsonl.gz", TEXT)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32", "utf-32-le", "utf-32-be"])
@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.csv.gz"])
def test_another_encoding_is_named_with_the_way_to_mend_it(tmp_path: Path, encoding: str, name: str) -> None:
    """Windows PowerShell writes UTF-16 by default."""
    data = (TABLE if "csv" in name else LINES).encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    message = refusal(tmp_path / name, TEXT)

    assert encoding.upper()[:6] in message and "save it as UTF-8" in message


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_an_old_encoding_is_refused_with_the_way_to_mend_it(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes((TABLE if "csv" in name else LINES).encode("latin-1"))

    assert "save it as UTF-8" in refusal(tmp_path / name, TEXT)


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (bz2.compress(b"text\n"), "bzip2"),
        (lzma.compress(b"text\n"), "xz"),
        (b"\x28\xb5\x2f\xfd....", "zstd"),
        (b"PAR1....", "Parquet"),
        (b"PK\x03\x04....", "zip"),
        (gzip.compress(gzip.compress(b"text\n", mtime=0), mtime=0), "gzip"),
    ],
)
def test_another_kind_of_file_is_named(tmp_path: Path, content: bytes, word: str) -> None:
    (tmp_path / "in.csv").write_bytes(content)

    assert word in refusal(tmp_path / "in.csv", TEXT)


@pytest.mark.parametrize("name", ["in.npy.gz", "in.npz.gz"])
def test_compressed_arrays_are_refused_with_the_way_to_compress_them(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(gzip.compress(b"x"))

    assert "savez_compressed" in refusal(tmp_path / name, X)


def test_a_compressed_array_under_another_name_is_told_apart(tmp_path: Path) -> None:
    saved(tmp_path / "x.npy", np.ones((1, 2), np.float32))
    (tmp_path / "x.npy").write_bytes(gzip.compress((tmp_path / "x.npy").read_bytes()))

    assert "gzip" in refusal(tmp_path / "x.npy", X)


def test_line_ends_inside_of_a_text_end_no_line(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"text": "line\u2028separator\u0085"}\r\n', newline="")

    assert read(tmp_path / "in.jsonl") == ["line\u2028separator\u0085"]


@pytest.mark.parametrize("name", ["in.jsonl", "in.csv", "in.jsonl.gz", "in.csv.gz"])
def test_a_line_without_end_is_not_read_into_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """A file with holes, of three gigabytes that no disk holds, was read as one line."""
    monkeypatch.setattr(texts, "_LINE_CHARACTERS", 1000)
    whole = TABLE if "csv" in name else LINES
    data = whole.encode() + b"\0" * 5000
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)

    assert f"line {len(whole.splitlines()) + 1} has more than 1000" in refusal(tmp_path / name, TEXT)


@pytest.mark.parametrize("ending", ["\n", "\r\n", ""], ids=["LF", "CRLF", "none"])
@pytest.mark.parametrize("name", ["in.jsonl", "in.csv"])
def test_a_line_of_the_largest_size_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, ending: str) -> None:
    line = "a" * 100 if "csv" in name else '"' + "a" * 98 + '"'
    monkeypatch.setattr(texts, "_LINE_CHARACTERS", len(line + ending))
    (tmp_path / name).write_bytes((("text\n" if "csv" in name else "") + line + ending).encode())

    assert read(tmp_path / name) == [line.strip('"')]
