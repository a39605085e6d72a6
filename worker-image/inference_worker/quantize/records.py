"""What goes into a quantisation and what comes out. Values only: nothing here computes or reads."""

from dataclasses import dataclass
from typing import Literal

import msgspec

Method = Literal["dynamic", "static"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a variant has to hold; ValueError for bounds that bound nothing.

    With labels, `max_drop` is the share of rows (0 to 1) that accuracy may fall by. Without, `min_agreement` is the share of
    answers that must be the original's, or one less the relative error of outputs that are no classes. `batch_size` is how many
    rows the variant will be run with: time and accuracy are taken there.
    """

    max_drop: float = 0.01
    min_agreement: float = 0.99
    batch_size: int = 1

    def __post_init__(self) -> None:
        if not 0 <= self.max_drop < 1:
            raise ValueError(f"max_drop {self.max_drop:g} must be at least 0 and less than 1, for example 0.01")
        if not 0 < self.min_agreement <= 1:
            raise ValueError(f"min_agreement {self.min_agreement:g} must be more than 0 and at most 1, for example 0.99")
        if self.batch_size < 1:
            raise ValueError(f"batch_size {self.batch_size} must be at least 1")


class _Record(msgspec.Struct, frozen=True, rename="camel"):
    """Base of what is written as JSON."""


class Judgement(_Record, frozen=True):
    """What the gate saw. `before` and `after` are shares (0 to 1) of `rows`: right answers, or answers like the original's."""

    kind: Literal["accuracy", "agreement", "none"]
    passed: bool
    message: str
    rows: int
    before: float = 0.0
    after: float = 0.0
    outputs: dict[str, float] = {}


class Timing(_Record, frozen=True):
    """Median milliseconds of one run of `batch_size` rows, original and variant in turns on `threads` threads."""

    batch_size: int
    runs: int
    threads: int
    before_ms: float
    after_ms: float


class Report(_Record, frozen=True):
    """All that is known of a variant; `verdict` is the gate's. Sizes in bytes, digests as `sha256:HEX`."""

    verdict: Literal["passed", "refused"]
    method: Method
    source_digest: str
    variant_digest: str
    source_bytes: int
    variant_bytes: int
    onnxruntime: str
    cpu: str
    quantized: dict[str, int]
    calibration_rows: int
    gate: Judgement
    timing: Timing
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Variant:
    """A model that passed the gate: its bytes, their `sha256:HEX`, and what was measured."""

    data: bytes
    digest: str
    report: Report
