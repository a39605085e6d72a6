"""What the words of the API mean, and how to cure what they name: read from texts.json, which `make crds` writes."""

from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec


class Text(msgspec.Struct, frozen=True):
    """What a reason means and how to cure it, a sentence each. `final`: no further attempt is made without a change."""

    meaning: str
    cure: str
    final: bool = False


class Texts(msgspec.Struct, frozen=True, rename="camel"):
    """All of them: condition types by meaning, reasons and events by their texts."""

    conditions: Mapping[str, str]
    reasons: Mapping[str, Text]
    events: Mapping[str, Text]
    # Reasons for which a worker waits until there is room for it.
    no_place: frozenset[str]


@cache
def texts() -> Texts:
    """The texts that this version of the client knows."""
    return msgspec.json.decode(files("inference_client").joinpath("texts.json").read_bytes(), type=Texts)


def reason_text(word: str) -> Text | None:
    """The text of a condition's reason; none for a word of a newer operator."""
    return texts().reasons.get(word)
