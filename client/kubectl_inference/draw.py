"""Draws pages and tables. stdout has what was asked for, stderr all else. A terminal obeys nothing of what others have written."""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import yaml
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from kubectl_inference import visible
from kubectl_inference.pages.parts import Fact, Line, Page, Section, Table, Tone

_STYLES = {
    Tone.PLAIN: "",
    Tone.GOOD: "green",
    Tone.WARNING: "yellow",
    Tone.BAD: "bold red",
    Tone.DIM: "dim",
    Tone.STRONG: "bold",
}
# Of what is not a terminal, and so has no width of its own.
_WIDTH = 160
_GAP = 3
# With less room than this, prose is cut into single words.
_PROSE = 32
# More than any message of the API server has; a model server's may have any length.
_MESSAGE = 32_768


def stdout() -> Console:
    """Where the answer goes."""
    return _console(stderr=False)


def stderr() -> Console:
    """Where errors and progress go."""
    return _console(stderr=True)


def _console(*, stderr: bool) -> Console:
    console = Console(stderr=stderr, highlight=False)
    return console if console.is_terminal else Console(stderr=stderr, highlight=False, width=_WIDTH)


def warn(text: str) -> None:
    """Say something beside the answer."""
    stderr().print(note(text), soft_wrap=True)


def note(text: str) -> Text:
    """What is said beside the answer."""
    return Text(f"note: {visible.block(_cut(text))}", "dim")


def _cut(text: str) -> str:
    return text if len(text) <= _MESSAGE else f"{text[:_MESSAGE]}..."


def styled(line: Line) -> Text:
    """A line in its colour."""
    return Text(visible.block(line.text), _STYLES[line.tone])


def page(found: Page) -> RenderableType:
    """A whole page."""
    return Group(styled(_one_line(found.headline)), *(_section(one) for one in found.sections))


def _one_line(line: Line) -> Line:
    return replace(line, text=visible.line(line.text))


def _kept(table: Table, *, prose: bool) -> Table:
    """A table whose cells stay in their lines; the last column may be prose."""
    return replace(table, rows=tuple((*map(_one_line, row[:-1]), row[-1] if prose else _one_line(row[-1])) for row in table.rows))


def sections(found: Iterable[Section]) -> RenderableType:
    """Some sections alone."""
    return Group(*(_section(one) for one in found))


def _section(section: Section) -> RenderableType:
    parts: list[RenderableType] = [Text(f"\n{section.title}", "bold")]
    facts: list[Fact] = []
    for part in section.body:
        if isinstance(part, Fact):
            facts.append(part)
            continue
        parts += _facts(facts)
        facts = []
        parts.append(
            Padding(_Wrapped(_kept(part, prose=True)) if isinstance(part, Table) else styled(part), (0, 0, 0, 2), expand=False)
        )
    return Group(*parts, *_facts(facts))


def _facts(facts: list[Fact]) -> list[RenderableType]:
    if not facts:
        return []
    grid = Grid.grid(padding=(0, 2))
    for one in facts:
        grid.add_row(Text(visible.line(one.name), "dim"), styled(one.value))
    return [Padding(grid, (0, 0, 0, 2), expand=False)]


@dataclass(frozen=True, slots=True)
class _Wrapped:
    """A table of a page: the last column is prose and wraps, on lines of its own where a terminal leaves it too little room."""

    table: Table

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        *others, prose = _widths(self.table)
        if options.max_width - sum(others) >= min(prose, _PROSE):
            yield _grid(self.table)
            return
        heads = Table(self.table.columns[:-1], tuple(row[:-1] for row in self.table.rows))
        for line, row in zip(columns(heads).split(), ((), *self.table.rows), strict=True):
            yield line
            if row:
                yield Padding(styled(row[-1]), (0, 0, 0, 2))


def _grid(table: Table) -> RenderableType:
    grid = Grid(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="dim")
    for name in table.columns[:-1]:
        grid.add_column(name, no_wrap=True)
    grid.add_column(table.columns[-1])
    for row in table.rows:
        grid.add_row(*(styled(one) for one in row))
    return grid


def columns(table: Table) -> Text:
    """A list as kubectl shows it: nothing is cut off or wrapped, also where it is wider than the terminal."""
    table = _kept(table, prose=False)
    widths = _widths(table)
    lines = [Text("".join(name.ljust(width) for name, width in zip(table.columns, widths, strict=True)).rstrip())]
    for row in table.rows:
        line = Text()
        for one, width in zip(row, widths, strict=True):
            line.append(one.text, _STYLES[one.tone]).append(" " * (width - len(one.text)))
        line.rstrip()
        lines.append(line)
    return Text("\n").join(lines)


def _widths(table: Table) -> list[int]:
    return [max([len(name), *(len(row[at].text) for row in table.rows)]) + _GAP for at, name in enumerate(table.columns)]


def show(what: RenderableType) -> None:
    """Print to stdout."""
    stdout().print(what, soft_wrap=isinstance(what, Text))


def show_error(what: RenderableType) -> None:
    """Print to stderr: why what was asked for can't be shown."""
    stderr().print(what)


def document(found: Mapping[str, Any], form: str) -> None:
    """Print an object as JSON or YAML, for programs."""
    text = as_json(found, indent=2) if form == "json" else dump(found)
    print(text.rstrip("\n"))  # noqa: T201 -- programs read it: neither colour nor wrapping


def as_json(found: Any, *, indent: int | None = None) -> str:
    """A value as JSON that people can read."""
    return visible.json(json.dumps(found, indent=indent, ensure_ascii=False, default=str))


def dump(found: Mapping[str, Any]) -> str:
    """An object as YAML."""
    text: str = yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=True, width=120)
    # YAML lets characters stand that turn a line around.
    return text if visible.is_plain(text) else str(yaml.safe_dump(dict(found), sort_keys=False, allow_unicode=False, width=120))


def of_page(found: Page) -> dict[str, Any]:
    """A page for programs."""
    return {"headline": found.headline.text, "sections": {one.title: [_plain(part) for part in one.body] for one in found.sections}}


def _plain(part: Line | Fact | Table) -> Any:
    match part:
        case Line(text):
            return text
        case Fact(name, value):
            return {name: value.text}
        case Table(names, rows):
            return [dict(zip(names, (one.text for one in row), strict=True)) for row in rows]


def clear() -> None:
    """Begin the screen anew; a line between two pages where there is no screen."""
    console = stdout()
    if console.is_terminal:
        console.clear()
    else:
        console.print()


def lines(found: Iterable[str]) -> None:
    """Lines for programs, which get them as they are; a terminal gets what it would obey as an escape."""
    watched = sys.stdout.isatty()
    for one in found:
        print(visible.line(one) if watched else one)  # noqa: T201 -- neither colour nor wrapping


def error(text: str) -> None:
    """An error, to stderr as all of them."""
    stderr().print(Text(visible.block(_cut(text)), "red"), soft_wrap=True)
