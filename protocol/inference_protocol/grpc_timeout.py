"""The time that a gRPC caller allows, as its header says it (grpc/grpc, doc/PROTOCOL-HTTP2.md)."""

import re

HEADER = "grpc-timeout"
_VALUE = re.compile(r"([0-9]{1,8})([HMSmun])")
_UNIT_SECONDS = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}


def seconds(text: str) -> float | None:
    """The time in seconds; None for what is no time-out."""
    match = _VALUE.fullmatch(text)
    return int(match[1]) * _UNIT_SECONDS[match[2]] if match is not None else None
