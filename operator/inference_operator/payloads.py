"""Copies of requests and answers for somebody who looks at them: the administrator's word on whose, how many, and where to."""

from dataclasses import dataclass
from typing import Annotated
from urllib.parse import urlsplit

import msgspec


class Payloads(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Which payloads the Envoys copy, as CloudEvents."""

    # Who gets them, by POST: http://HOST[:PORT][/PATH]; empty for nobody.
    url: str = ""
    # Of so many of a hundred inference requests.
    percent: Annotated[float, msgspec.Meta(gt=0, le=100)] = 1.0
    # The first bytes of each payload that are copied.
    max_bytes: Annotated[int, msgspec.Meta(ge=1, le=1 << 20)] = 65536
    # In which namespaces. A name that ends in * stands for a prefix.
    namespaces: tuple[str, ...] = ("*",)


NO_PAYLOADS = Payloads()


@dataclass(frozen=True, slots=True)
class Sink:
    """Who gets them."""

    host: str
    port: int
    path: str


def sink_of(payloads: Payloads) -> Sink | None:
    """Who gets them; None where nobody does. Raises ValueError for another kind of URL."""
    if not payloads.url:
        return None
    parts = urlsplit(payloads.url)
    more = parts.username or parts.query or parts.fragment
    if parts.scheme != "http" or not parts.hostname or more or not parts.netloc.isascii():
        raise ValueError("it is written http://HOST[:PORT][/PATH]")
    return Sink(parts.hostname, parts.port or 80, parts.path or "/")


def payloads_fault(payloads: Payloads) -> str | None:
    """What is wrong with the URL, with the cure; None where it can be used."""
    try:
        sink_of(payloads)
    except ValueError as error:
        return f"gateway.payloads.url: {error}"
    return None
