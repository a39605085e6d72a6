"""From a model to a variant of it that passed the gate, in one call."""

import hashlib
import math
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort

from inference_protocol.reasons import WorkerReason
from inference_worker import cpu
from inference_worker.batch.items import Items
from inference_worker.engines.engine import Engine, Tensor, Tensors
from inference_worker.engines.onnx import OnnxEngine
from inference_worker.errors import WorkerError
from inference_worker.quantize import gate, measure, rows
from inference_worker.quantize import method as methods
from inference_worker.quantize.faults import Fault, QuantizeError, RefusedError
from inference_worker.quantize.records import Bounds, Judgement, Method, Report, Timing, Variant

# INT8 kernels and float kernels alike; an accelerator's own are not what is measured here.
_PROVIDERS = ("CPUExecutionProvider",)
LEAST_CALIBRATION_ROWS = 16
_MOST_NEEDED_ROWS = 1000
_CALIBRATION_BATCH = 32
_FEWEST_ADVICE = "give --calibration a .npy or .npz of some hundred rows like those that it will answer"
_JUDGE_ADVICE = (
    "give --evaluate a .npy or .npz of rows, with --labels where you have them: a variant that was not judged is not used"
)


def quantize(
    data: bytes,
    *,
    method: Method,
    calibration: Mapping[str, Tensor] | None,
    evaluation: Mapping[str, Tensor] | None,
    labels: Tensor | None,
    bounds: Bounds,
) -> Variant:
    """Quantise a model, and judge the variant against the original on the evaluation rows.

    Rows are arrays by input name (the empty name stands for a model's only input); `labels` has one class a row. Raises
    WorkerError MODEL_CORRUPT for what is no model, RefusedError when the gate fails, QuantizeError for all else.
    """
    methods.packages()
    threads = cpu.usable_cpus()
    before = OnnxEngine(data, providers=_PROVIDERS, threads=threads)
    judged = rows.fitted(evaluation, before, purpose="evaluation", advice=_JUDGE_ADVICE, least=least_rows(bounds, labels))
    classes = None if labels is None else _checked_labels(labels, len(judged))
    fed = _calibration(calibration, before) if method == "static" else None
    built = methods.build(
        data, method, () if fed is None else (feeds for feeds, *_ in rows.batches(fed, before, _CALIBRATION_BATCH))
    )
    after = _opened(built.data, threads)
    report = _report(
        data,
        built,
        method,
        judgement=_judged(before, after, judged, classes, bounds),
        timing=measure.timing(before, after, judged, bounds.batch_size, threads),
        calibration_rows=0 if fed is None else len(fed),
        same=fed is not None and rows.digest_of(calibration) == rows.digest_of(evaluation),
    )
    if report.verdict != "passed":
        raise RefusedError(report)
    return Variant(built.data, report.variant_digest, report)


def _report(
    data: bytes, built: methods.Built, method: Method, *, judgement: Judgement, timing: Timing, calibration_rows: int, same: bool
) -> Report:
    return Report(
        verdict="passed" if judgement.passed else "refused",
        method=method,
        source_digest=digest_of(data),
        variant_digest=digest_of(built.data),
        source_bytes=len(data),
        variant_bytes=len(built.data),
        onnxruntime=ort.__version__,
        cpu=processor(),
        quantized=built.quantized,
        calibration_rows=calibration_rows,
        gate=judgement,
        timing=timing,
        notes=(*built.notes, *_notes(len(data), len(built.data), timing, same=same)),
    )


def _notes(before: int, after: int, timing: Timing, *, same: bool) -> Iterator[str]:
    """What is no reason to refuse a variant, but may be one not to use it."""
    if same:
        yield "calibrated and judged by the same rows: fresh rows would judge more strictly"
    if timing.after_ms >= timing.before_ms:
        yield f"not faster here: {timing.before_ms:g} ms before, {timing.after_ms:g} ms after, {timing.batch_size} rows a run"
    if after >= before:
        yield f"not smaller: {before} bytes before, {after} after"


def digest_of(data: bytes) -> str:
    """`sha256:HEX` of a file's bytes."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def least_rows(bounds: Bounds, labels: Tensor | None) -> int:
    """Rows at which one row weighs no more than the bound; fewer could pass by luck."""
    bound = bounds.max_drop if labels is not None else 1 - bounds.min_agreement
    return _MOST_NEEDED_ROWS if bound <= 1 / _MOST_NEEDED_ROWS else math.ceil(round(1 / bound, 6))


def processor(cpuinfo: Path = Path("/proc/cpuinfo")) -> str:
    """The kind of CPU as far as INT8 results depend on it: without VNNI, sums of products may saturate at 16 bits."""
    try:
        flags = cpuinfo.read_text(encoding="utf-8", errors="replace")
    except OSError:
        flags = ""
    return f"{platform.machine()}{'+vnni' if 'vnni' in flags else ''}"


def _calibration(given: Tensors | None, engine: Engine) -> Items:
    return rows.fitted(given, engine, purpose="calibration", advice=_FEWEST_ADVICE, least=LEAST_CALIBRATION_ROWS)


def _checked_labels(labels: Tensor, expected: int) -> Tensor:
    flat = labels.ravel() if labels.shape == (expected, 1) else labels
    if flat.shape != (expected,):
        raise QuantizeError(
            Fault.ROWS_UNFIT,
            f"labels have shape {list(labels.shape)} for {expected} rows; give one class a row, shape [{expected}]",
        )
    if flat.dtype.kind in "OSU":
        return flat.astype(str)
    if flat.dtype.kind in "iub":
        return flat.astype(np.int64)
    raise QuantizeError(Fault.ROWS_UNFIT, f"labels are {labels.dtype}; give whole numbers or text, or leave them out")


def _opened(data: bytes, threads: int) -> Engine:
    try:
        return OnnxEngine(data, providers=_PROVIDERS, threads=threads)
    except WorkerError as error:
        raise QuantizeError(Fault.TOOL_FAILED, f"the variant can't be loaded: {error.message}; serve the original") from error


def _judged(before: Engine, after: Engine, found: Items, labels: Tensor | None, bounds: Bounds) -> Judgement:
    try:
        first = measure.answers(before, found, bounds.batch_size)
    except (ValueError, RuntimeError) as error:
        raise QuantizeError(Fault.ROWS_UNFIT, f"the original can't run the evaluation rows: {error}") from error
    except MemoryError as error:
        raise WorkerError(
            WorkerReason.OUT_OF_MEMORY, f"no memory for {bounds.batch_size} rows a run: {error}; lower the batch size"
        ) from error
    # As it will be served: a scale over all rows of a run keeps callers apart.
    size = 1 if after.mixes(after.inputs) else bounds.batch_size
    try:
        second = measure.answers(after, found, size)
    except (ValueError, RuntimeError, MemoryError) as error:
        raise QuantizeError(Fault.TOOL_FAILED, f"the variant can't run the evaluation rows: {error}; serve the original") from error
    return gate.judge(first, second, labels, bounds, rows=len(found))
