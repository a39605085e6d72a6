"""Which form an input has, and who reads it: `.npy`, `.npz`, JSON lines, CSV, a directory of raw files, or another job's output."""

import io
import tokenize
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from inference_protocol.messages import InputFormat
from inference_protocol.reasons import WorkerReason
from inference_worker.batch.formats import chunks
from inference_worker.batch.formats.arrays import read_npy, read_npz
from inference_worker.batch.formats.files import open_files
from inference_worker.batch.formats.lines import from_json_lines, read_json_lines
from inference_worker.batch.formats.tables import read_csv
from inference_worker.batch.formats.texts import BYTE_ORDER_MARK, lines_of
from inference_worker.batch.items import Items, invalid
from inference_worker.batch.matching import from_arrays
from inference_worker.batch.ragged import as_columns
from inference_worker.engines.engine import TensorSpec
from inference_worker.errors import WorkerError

_SUFFIXES: dict[str, InputFormat] = {".npy": "npy", ".npz": "npz", ".jsonl": "jsonl", ".ndjson": "jsonl", ".csv": "csv"}
_TEXT_FORMS = ("jsonl", "csv")
# What numpy, zipfile and zlib raise for bytes that are no such file; RuntimeError is for archives with a password.
_FAULTS = (
    *(OSError, EOFError, ValueError, KeyError, AttributeError, MemoryError, RuntimeError, SyntaxError),
    *(tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)


WRITTEN_BY_ANOTHER = "If another job writes it, edit this job once that one has succeeded: an edit runs a failed batch anew"


def open_items(path: Path, form: InputFormat, inputs: Sequence[TensorSpec], *, missing: bool = False) -> Items:
    """Open an input file or directory. Raises WorkerError INPUT_NOT_FOUND or INPUT_INVALID.

    With `missing`, what text writes for a missing number (null, an empty cell) is NaN.
    """
    try:
        if not path.exists():
            text = f"the input {path.name!r} does not exist; check claim and path. {WRITTEN_BY_ANOTHER}"
            raise WorkerError(WorkerReason.INPUT_NOT_FOUND, text)
        if path.is_dir():
            return _open_directory(path, form, inputs, missing=missing)
        if not path.is_file():
            # A pipe would be waited for without end.
            raise invalid(f"{path.name!r} is neither a file nor a directory; copy the data into a file")
        chosen = form if form != "auto" else _guess(path)
        if chosen == "files":
            return open_files(path, inputs)
        return _open_file(path, chosen, inputs, missing=missing)
    except UnicodeDecodeError as error:
        raise invalid(f"{path.name!r} is no UTF-8 text ({error.reason}); save it as UTF-8") from error
    except _FAULTS as error:
        raise invalid(f"{path.name!r} can't be read: {str(error) or type(error).__name__}") from error


def open_text(text: str, form: InputFormat, inputs: Sequence[TensorSpec], *, missing: bool = False) -> Items:
    """Open what a job holds in place. Raises WorkerError INPUT_INVALID."""
    if form == "csv":
        return read_csv(io.StringIO(text.removeprefix(BYTE_ORDER_MARK), newline=""), inputs, empty=missing)
    if form not in ("auto", "jsonl"):
        raise invalid(f"input.data is JSON lines or CSV, not {form}; leave input.format out")
    return from_json_lines(text, inputs, nulls=missing)


def _open_directory(path: Path, form: InputFormat, inputs: Sequence[TensorSpec], *, missing: bool) -> Items:
    if form != "files" and chunks.is_output(path):
        items = chunks.open_output(path, inputs, nulls=missing)
        if form not in ("auto", "jsonl" if items.lines else "npz"):
            raise invalid(f"{path.name!r} holds the answers of a job, which are no {form}; leave input.format out")
        return items
    if form not in ("auto", "files"):
        raise invalid(f"{path.name!r} is a directory, but format {form} is one file; set input.format: files")
    return open_files(path, inputs)


def _open_file(path: Path, chosen: InputFormat, inputs: Sequence[TensorSpec], *, missing: bool) -> Items:
    if chunks.is_chunk(path) and path.suffix == f".{chosen}":
        return chunks.open_chunk(path, inputs, nulls=missing)
    if chosen == "jsonl":
        return read_json_lines(lines_of(path, newline="\n"), inputs, nulls=missing)
    if chosen == "csv":
        return read_csv(lines_of(path, newline=""), inputs, empty=missing)
    if chosen == "npy":
        return from_arrays({"": read_npy(path)}, inputs)
    return from_arrays(as_columns(read_npz(path), {spec.name for spec in inputs}), inputs)


def _guess(path: Path) -> InputFormat:
    name = path.name.lower()
    form = _SUFFIXES.get(Path(name.removesuffix(".gz")).suffix)
    if form is None:
        raise invalid(f"can't tell the format of {path.name!r} by its ending; set input.format to npy, npz, jsonl, csv or files")
    if name.endswith(".gz") and form not in _TEXT_FORMS:
        raise invalid(f"{path.name!r} is compressed, which is for JSON lines and CSV; unpack it, or use numpy.savez_compressed")
    return form
