"""What a run has shown: how many mutants of each package were noticed, and those that were not."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from dev.mutants.ledger import Entry

_HEAD = ("package", "mutants", "killed", "timeout", "survived", "harmless", "noticed")
_SHOWN = 100


def table(packages: Iterable[str], entries: Sequence[Entry], harmless: Mapping[str, int]) -> Iterator[str]:
    """A row for each package, and one for all."""
    rows: list[tuple[str, ...]] = [_HEAD]
    for name in packages:
        mine = [entry for entry in entries if entry.package == name]
        if mine or harmless.get(name):
            rows.append(_row(name, mine, harmless.get(name, 0)))
    rows.append(_row("all", entries, sum(harmless.values())))
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for name, *figures in rows:
        yield "  ".join((name.ljust(widths[0]), *(text.rjust(width) for text, width in zip(figures, widths[1:], strict=True))))


def _row(name: str, entries: Sequence[Entry], harmless: int) -> tuple[str, ...]:
    killed, timeout, survived = (sum(entry.outcome == what for entry in entries) for what in ("killed", "timeout", "survived"))
    noticed = f"{(killed + timeout) / len(entries):.0%}" if entries else ""
    return name, str(len(entries)), str(killed), str(timeout), str(survived), str(harmless), noticed


def survivors(entries: Iterable[Entry]) -> Iterator[str]:
    """Those that no test noticed, with the name that harmless.txt would have them by."""
    for entry in entries:
        if entry.outcome == "survived":
            yield f"{entry.place}: {_short(entry.before)}  ->  {_short(entry.after)}"
            yield f"    {entry.name}"


def _short(text: str) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= _SHOWN else f"{plain[:_SHOWN]} ..."
