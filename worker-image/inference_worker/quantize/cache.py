"""A variant is made once and kept: what a worker loads after it has verified the original.

The directory is private, because whoever can write into it decides what the worker runs; and every entry is verified all the same.
"""

import hashlib
import logging
import os
import stat
from collections.abc import Mapping
from pathlib import Path

import msgspec
import onnxruntime as ort

from inference_worker.engines.engine import Tensor
from inference_worker.quantize import rows
from inference_worker.quantize.faults import Fault, QuantizeError
from inference_worker.quantize.files import replace_file
from inference_worker.quantize.records import Bounds, Method, Report, Variant
from inference_worker.quantize.variant import digest_of, processor, quantize

log = logging.getLogger("inference_worker")

# A part of every key: raised when the same inputs are to give another variant, or entries get another form.
_RECIPE = 1
_PRIVATE = 0o700


def variant_for(
    data: bytes,
    digest: str,
    *,
    method: Method,
    calibration: Mapping[str, Tensor] | None,
    evaluation: Mapping[str, Tensor] | None,
    labels: Tensor | None,
    bounds: Bounds,
    cache: Path | None,
) -> Variant:
    """The variant of an original whose `digest` was verified: kept from before, or made, judged and kept now.

    `cache` is a directory of this worker's own (made if it is missing, with its last name only); None keeps nothing. A cache that
    can't be written costs the next start its time, not this one its variant. Raises what `quantize` raises, and QuantizeError
    CACHE_UNSAFE for a directory that others may write to.
    """
    key = _key(digest, method, calibration, evaluation, labels, bounds)
    if cache is not None:
        _make_private(cache)
        if (kept := _read(cache, key, digest)) is not None:
            log.info("the %s INT8 variant %s was made before", method, kept.digest)
            return kept
    made = quantize(data, method=method, calibration=calibration, evaluation=evaluation, labels=labels, bounds=bounds)
    if cache is not None:
        try:
            # The report last: an entry without one is none, so a cut-off write is never taken for a variant.
            replace_file(cache / f"{key}.onnx", made.data)
            replace_file(cache / f"{key}.json", msgspec.json.encode(made.report))
        except OSError as error:
            log.warning("the INT8 variant is not kept in %s: %s; the next start makes it again", cache, error.strerror)
    return made


def _key(
    digest: str,
    method: Method,
    calibration: Mapping[str, Tensor] | None,
    evaluation: Mapping[str, Tensor] | None,
    labels: Tensor | None,
    bounds: Bounds,
) -> str:
    """All that decides the bytes or the verdict; the kind of CPU too, since sums of INT8 products differ between them."""
    parts = [str(_RECIPE), digest, method, ort.__version__, processor(), repr(bounds)]
    parts += [rows.digest_of(arrays) for arrays in (calibration, evaluation, None if labels is None else {"": labels})]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


def _make_private(cache: Path) -> None:
    try:
        cache.mkdir(mode=_PRIVATE, exist_ok=True)
        found = cache.lstat()
    except OSError as error:
        raise QuantizeError(
            Fault.CACHE_UNSAFE, f"the cache {cache} can't be made: {error.strerror}; name a directory in a writable volume"
        ) from error
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
        raise QuantizeError(
            Fault.CACHE_UNSAFE,
            f"others may write to the cache {cache}; name a directory that only user {os.geteuid()} can write to",
        )


def _read(cache: Path, key: str, source: str) -> Variant | None:
    try:
        report = msgspec.json.decode((cache / f"{key}.json").read_bytes(), type=Report)
        data = (cache / f"{key}.onnx").read_bytes()
    except (OSError, msgspec.DecodeError, UnicodeDecodeError):
        return None
    digest = digest_of(data)
    if (report.variant_digest, report.source_digest, report.verdict) != (digest, source, "passed"):
        log.warning("the kept INT8 variant %s is damaged and made again", key)
        return None
    return Variant(data, digest, report)
