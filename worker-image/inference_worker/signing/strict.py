"""JSON and base64 that can be read in one way only: what two parsers read differently is no proof of anything."""

import base64
import binascii
import json
from collections.abc import Sequence
from typing import TypeVar

import msgspec

_T = TypeVar("_T")


class SignatureError(Exception):
    """A signature that proves nothing; the message says why, without the model's name."""


def decode(data: bytes, kind: type[_T], what: str) -> _T:
    """Read a record from JSON without double names and non-finite numbers. Raises SignatureError."""
    try:
        raw = json.loads(data.decode("utf-8"), object_pairs_hook=_once, parse_constant=_refused)
        return msgspec.convert(raw, kind)
    except (ValueError, RecursionError, msgspec.ValidationError) as error:
        raise SignatureError(f"{what} can't be read: {_shortened(str(error))}") from error


def unbase64(text: str, what: str) -> bytes:
    """Read base64 of one form: with its padding, and nothing between. Raises SignatureError."""
    try:
        data = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise SignatureError(f"{what} is no base64") from error
    if base64.b64encode(data).decode() != text:
        raise SignatureError(f"{what} is no base64")
    return data


def _once(pairs: Sequence[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("an object has a name twice")
    return found


def _refused(word: str) -> float:
    raise ValueError(f"{word} is no number")


def _shortened(text: str) -> str:
    return text[:200]
