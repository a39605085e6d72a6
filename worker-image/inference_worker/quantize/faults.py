"""Why there is no variant.

WorkerError            files that are no model, rows that don't fit the model: as everywhere in the worker
  QuantizeError        what only quantisation can stumble over; `fault` tells which
    RefusedError       the variant was made and measured, and is not good enough; carries the report
"""

from enum import StrEnum

from inference_protocol.reasons import WorkerReason
from inference_worker.errors import WorkerError
from inference_worker.quantize.records import Report


class Fault(StrEnum):
    """A closed list; the message beside it says what to do."""

    PACKAGE_MISSING = "PackageMissing"
    ALREADY_QUANTIZED = "AlreadyQuantized"
    NOTHING_TO_QUANTIZE = "NothingToQuantize"
    ROWS_MISSING = "RowsMissing"
    ROWS_UNFIT = "RowsUnfit"
    TOO_FEW_ROWS = "TooFewRows"
    TOOL_FAILED = "ToolFailed"
    REFUSED = "Refused"
    OUTPUT_UNWRITABLE = "OutputUnwritable"
    CACHE_UNSAFE = "CacheUnsafe"


# The operator's words for them.
_REASONS: dict[Fault, WorkerReason] = {
    Fault.PACKAGE_MISSING: WorkerReason.QUANTIZATION_REFUSED,
    Fault.ALREADY_QUANTIZED: WorkerReason.QUANTIZATION_REFUSED,
    Fault.NOTHING_TO_QUANTIZE: WorkerReason.QUANTIZATION_REFUSED,
    Fault.ROWS_MISSING: WorkerReason.INPUT_NOT_FOUND,
    Fault.ROWS_UNFIT: WorkerReason.INPUT_INVALID,
    Fault.TOO_FEW_ROWS: WorkerReason.INPUT_INVALID,
    Fault.TOOL_FAILED: WorkerReason.QUANTIZATION_REFUSED,
    Fault.REFUSED: WorkerReason.QUANTIZATION_REFUSED,
    Fault.OUTPUT_UNWRITABLE: WorkerReason.OUTPUT_UNWRITABLE,
    Fault.CACHE_UNSAFE: WorkerReason.INTERNAL,
}


class QuantizeError(WorkerError):
    """There is no variant. The message says what is wrong and what to do."""

    def __init__(self, fault: Fault, message: str) -> None:
        super().__init__(_REASONS[fault], message)
        self.fault = fault


class RefusedError(QuantizeError):
    """The variant was measured and failed the gate; `report` holds what was measured."""

    def __init__(self, report: Report) -> None:
        super().__init__(Fault.REFUSED, f"the {report.method} INT8 variant is refused: {report.gate.message}")
        self.report = report
