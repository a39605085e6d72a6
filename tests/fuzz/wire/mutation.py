"""How a good input becomes one that is nearly good. The same generator makes the same inputs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from random import Random

_TOKEN = re.compile(rb'"[^"]*"|[-\w.]+|[\[\]{},:]')
_VALUES = (
    *(b"null", b"true", b"{}", b"[]", b"[[]]", b"-1", b"0", b"1e999", b"-0.0", b"9223372036854775808", b"1.5", b'""', b'"x"'),
    *(b'"FP32"', b'"BYTES"', b'"BOOL"', b'"INT64"', b'"\\ud800"', b'"\xff"', b"NaN", b"[" * 40, b'{"a":' * 20, b'"y"', b'"net"'),
)
_BYTES = (b"\0", b"\xff", b"\x80", b"\x7f", b"\r\n", b" ", b"\t", b"%00", b"%2f", b"\xff\xff\xff\xff\x0f", b"\x0a\x00", b"A" * 300)


def mutated(rng: Random, data: bytes, most: int = 4) -> bytes:
    """Change a few places: bytes are put in, taken away, turned or doubled."""
    for _ in range(rng.randint(0, most)):
        at = rng.randrange(len(data) + 1)
        kind, size = rng.randrange(5), rng.randint(1, 8)
        if kind == 0:
            data = data[:at] + rng.choice(_BYTES) + data[at:]
        elif kind == 1:
            data = data[:at] + data[at + size :]
        elif kind == 2:
            data = data[:at] + rng.randbytes(size) + data[at + size :]
        elif kind == 3:
            data = data[:at] + data[at : at + size] * rng.randint(2, 20) + data[at + size :]
        else:
            data = data[:at] + bytes(one ^ 1 << rng.randrange(8) for one in data[at : at + 1]) + data[at + 1 :]
    return data


def mutated_json(rng: Random, text: bytes) -> bytes:
    """Mostly a document still: tokens of it become others."""
    if rng.random() < 0.3:
        return mutated(rng, text)
    for _ in range(rng.randint(0, 2)):
        places = list(_TOKEN.finditer(text))
        if not places:
            break
        found = rng.choice(places)
        put = rng.choice(_VALUES) if rng.random() < 0.7 else rng.choice(places)[0]
        text = text[: found.start()] + put + text[found.end() :]
    return text
