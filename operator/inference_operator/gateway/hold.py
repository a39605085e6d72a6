"""Whether a request may wait for a worker: within bounds, and only if one is expected before its deadline."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass

from inference_protocol import grpc_timeout

_TOO_MANY, _UNAVAILABLE, _TOO_LATE = 429, 503, 504
# What a request counts for that doesn't say how long it is: so much of it Envoy holds.
HELD_BYTES = 1 << 20
# gRPC's timeouts have eight digits.
_MOST_MILLISECONDS = 99_999_999


@dataclass(frozen=True, slots=True)
class Asked:
    """What counts of a request: seconds that its caller allows, and bytes that it keeps."""

    seconds: float | None
    size: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How many requests may wait, and how many bytes of them."""

    requests: int
    size: int


@dataclass(frozen=True, slots=True)
class Refusal:
    """What a request is told in place of waiting."""

    status: int
    text: str
    retry_seconds: int = 1


def asked(headers: Mapping[str, str]) -> Asked:
    """Read a request's headers, whose names are in lower case. What can't be read says nothing here: the worker judges it."""
    allowed = [seconds for seconds in (_milliseconds(headers), _grpc_timeout(headers)) if seconds is not None]
    length = headers.get("content-length", "")
    size = int(length) if re.fullmatch("[0-9]{1,12}", length) else HELD_BYTES
    return Asked(min(allowed, default=None), min(size, HELD_BYTES))


def _milliseconds(headers: Mapping[str, str]) -> float | None:
    try:
        found = float(headers.get("inference-timeout-ms", "nan")) / 1e3
    except ValueError:
        return None
    return max(found, 0.0) if math.isfinite(found) else None


def _grpc_timeout(headers: Mapping[str, str]) -> float | None:
    return grpc_timeout.seconds(headers.get(grpc_timeout.HEADER, ""))


def refusal(request: Asked, waiting: Bounds, most: Bounds, expected_seconds: float | None, problem: str | None) -> Refusal | None:
    """Why a request can't wait; None where it may. `expected_seconds` is when a worker is expected, None where nobody knows."""
    again = max(1, math.ceil(expected_seconds or 1.0))
    if problem is not None:
        return Refusal(_UNAVAILABLE, problem, again)
    if waiting.requests >= most.requests or waiting.size + request.size > most.size:
        return Refusal(_TOO_MANY, "too many requests wait for models without workers", again)
    if request.seconds is not None and expected_seconds is not None and request.seconds < expected_seconds:
        return Refusal(_TOO_LATE, f"the model has no worker yet: one is expected in {expected_seconds:.1f} s", again)
    return None


def left(headers: Mapping[str, str], waited: float) -> dict[str, str]:
    """The request's own headers of time, with what is left of it."""
    found = {
        "inference-timeout-ms": (_milliseconds(headers), "{:d}"),
        grpc_timeout.HEADER: (_grpc_timeout(headers), "{:d}m"),
    }
    return {
        name: form.format(min(max(1, math.floor((seconds - waited) * 1e3)), _MOST_MILLISECONDS))
        for name, (seconds, form) in found.items()
        if seconds is not None
    }
