"""Post-training INT8 quantisation: a smaller, often faster variant of a model, with its own digest and an accuracy gate.

`quantize` makes one, `variant_for` keeps it for the next start, `python -m inference_worker.quantize` is both for people.
It never touches the original, and it never hands out a variant that was not measured against the original on given rows.
"""

from inference_worker.quantize.cache import variant_for
from inference_worker.quantize.faults import Fault, QuantizeError, RefusedError
from inference_worker.quantize.records import Bounds, Method, Report, Variant
from inference_worker.quantize.rows import decode
from inference_worker.quantize.variant import quantize

__all__ = ["Bounds", "Fault", "Method", "QuantizeError", "RefusedError", "Report", "Variant", "decode", "quantize", "variant_for"]
