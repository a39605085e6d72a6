"""What a page is made of: values, so that a test compares what it says, and `draw.py` how it looks."""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum


class Tone(StrEnum):
    """How a text is meant; the terminal gives it a colour."""

    PLAIN = "plain"
    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    DIM = "dim"
    STRONG = "strong"


NONE = "<none>"


@dataclass(frozen=True, slots=True)
class Line:
    """A text in one tone."""

    text: str
    tone: Tone = Tone.PLAIN


def cell(value: object, tone: Tone = Tone.PLAIN) -> Line:
    """A value of a table; kubectl's word where there is none."""
    return Line(NONE, Tone.DIM) if value is None or value == "" else Line(str(value), tone)


@dataclass(frozen=True, slots=True)
class Fact:
    """A name and what it is."""

    name: str
    value: Line


@dataclass(frozen=True, slots=True)
class Table:
    """Rows below the names of their columns."""

    columns: tuple[str, ...]
    rows: tuple[tuple[Line, ...], ...]


@dataclass(frozen=True, slots=True)
class Section:
    """A part of a page that answers one question."""

    title: str
    body: tuple[Line | Fact | Table, ...]

    def texts(self) -> Iterator[str]:
        """All that it says, line by line."""
        for part in self.body:
            match part:
                case Line(text):
                    yield text
                case Fact(name, value):
                    yield f"{name}: {value.text}"
                case Table(columns, rows):
                    yield " ".join(columns)
                    yield from (" ".join(one.text for one in row) for row in rows)


@dataclass(frozen=True, slots=True)
class Page:
    """What a command shows of one job."""

    headline: Line
    sections: tuple[Section, ...]

    def text(self) -> str:
        """All that it says."""
        return "\n".join((self.headline.text, *(f"{one.title}\n" + "\n".join(one.texts()) for one in self.sections)))
