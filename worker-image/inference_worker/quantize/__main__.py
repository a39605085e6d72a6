"""`python -m inference_worker.quantize`: an INT8 variant of a model file, with its report beside it.

Exit codes: 0 written; 1 may work another time; 2 never for these inputs; 3 measured and refused (the report goes to stdout).
"""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import msgspec
import onnxruntime as ort

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.quantize import rows
from inference_worker.quantize.faults import Fault, QuantizeError, RefusedError
from inference_worker.quantize.files import replace_file
from inference_worker.quantize.records import Bounds, Report, Variant
from inference_worker.quantize.variant import quantize

REPORT_SUFFIX = ".quantization.json"
_WRITTEN, _RETRY, _PERMANENT, _REFUSED = 0, 1, 2, 3
_ERRORS_ONLY = 3
_DEFAULTS = Bounds()


def main(arguments: Sequence[str] | None = None) -> int:
    """Make the variant, write it and its report, say how it did; return the exit code."""
    parser = _parser()
    options = parser.parse_args(arguments)
    try:
        bounds = Bounds(max_drop=options.max_drop, min_agreement=options.min_agreement, batch_size=options.batch_size)
    except ValueError as error:
        parser.error(str(error))
    # The quantiser's own sessions warn of what it does itself.
    ort.set_default_logger_severity(_ERRORS_ONLY)
    try:
        _check_output(options.output, options.model)
        variant = _made(options, bounds)
        _write(options.output, variant)
    except RefusedError as error:
        sys.stdout.write(_pretty(error.report).decode())
        sys.stderr.write(f"{error.message}\n")
        return _REFUSED
    except WorkerError as error:
        sys.stderr.write(f"{error.message}\n")
        return _PERMANENT if error.permanent else _RETRY
    sys.stdout.write(f"{options.output} {variant.digest}\n{_summary(variant.report)}\n")
    return _WRITTEN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m inference_worker.quantize", description="Make an INT8 variant of an ONNX model."
    )
    parser.add_argument("--model", type=Path, required=True, help="the FP32 model")
    parser.add_argument("--output", type=Path, required=True, help="where the variant goes; its report goes beside it")
    parser.add_argument("--method", choices=("dynamic", "static"), required=True, help="static for nets of convolutions")
    parser.add_argument("--calibration", type=Path, help=".npy or .npz: rows that static takes its ranges from")
    parser.add_argument("--evaluate", type=Path, help=".npy or .npz: rows that the variant is judged by")
    parser.add_argument("--labels", type=Path, help=".npy: the true class of each of those rows")
    parser.add_argument("--max-drop", type=float, default=_DEFAULTS.max_drop, help="share of rows that accuracy may fall by")
    parser.add_argument(
        "--min-agreement", type=float, default=_DEFAULTS.min_agreement, help="without labels: least share of same answers"
    )
    parser.add_argument("--batch-size", type=int, default=_DEFAULTS.batch_size, help="rows a run, as it will be served")
    return parser


def _made(options: argparse.Namespace, bounds: Bounds) -> Variant:
    data = _read(options.model, WorkerReason.MODEL_NOT_FOUND)
    calibration, evaluation = (
        None if path is None else rows.decode(_read(path, WorkerReason.INPUT_NOT_FOUND), str(path))
        for path in (options.calibration, options.evaluate)
    )
    labels = None
    if options.labels is not None:
        labels = rows.decode_labels(_read(options.labels, WorkerReason.INPUT_NOT_FOUND), str(options.labels))
    return quantize(data, method=options.method, calibration=calibration, evaluation=evaluation, labels=labels, bounds=bounds)


def _read(path: Path, missing: WorkerReason) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise WorkerError(missing, f"{path} can't be read: {error.strerror}; check the path") from error


def _check_output(output: Path, model: Path) -> None:
    """Before the work rather than after it."""
    if output.resolve() == model.resolve():
        raise QuantizeError(Fault.OUTPUT_UNWRITABLE, f"{output} is the model itself; give the variant a name of its own")
    if output.is_dir() or not output.parent.is_dir() or not os.access(output.parent, os.W_OK | os.X_OK):
        raise QuantizeError(
            Fault.OUTPUT_UNWRITABLE, f"{output} can't be written; name a file in a directory that exists and is writable"
        )


def _write(output: Path, variant: Variant) -> None:
    try:
        replace_file(output, variant.data)
        replace_file(output.with_name(output.name + REPORT_SUFFIX), _pretty(variant.report))
    except OSError as error:
        raise QuantizeError(Fault.OUTPUT_UNWRITABLE, f"{output} can't be written: {error.strerror}") from error


def _pretty(report: Report) -> bytes:
    return msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n"


def _summary(report: Report) -> str:
    size = f"{report.source_bytes} -> {report.variant_bytes} bytes"
    time = f"{report.timing.before_ms:g} -> {report.timing.after_ms:g} ms a batch of {report.timing.batch_size}"
    return "\n".join([f"{report.gate.message}; {size}; {time}", *(f"note: {note}" for note in report.notes)])


if __name__ == "__main__":
    sys.exit(main())
