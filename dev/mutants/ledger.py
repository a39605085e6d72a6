"""What became of each mutant, a line of JSON each: a run that was cut off goes on where it was."""

import hashlib
import json
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from threading import Lock

from dev.console import DevError
from dev.mutants.mutate import Mutant
from dev.mutants.packages import ROOT

_ARROW = " -> "


@dataclass(frozen=True, slots=True)
class Entry:
    """One mutant's end. `digest` is of its whole module: a module that has changed since makes the entry worth nothing."""

    name: str
    package: str
    place: str
    before: str
    after: str
    digest: str
    outcome: str
    seconds: float
    why: str


class Ledger:
    """The file of entries."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._lock = Lock()
        lines = file.read_text().splitlines() if file.exists() else []
        # A line that was cut off is no entry.
        self._entries = {entry.name: entry for entry in map(_read, lines) if entry is not None}

    def find(self, mutant: Mutant) -> Entry | None:
        """What is known of a mutant, as its module is now."""
        entry = self._entries.get(mutant.name)
        return entry if entry is not None and entry.digest == digest(mutant) else None

    def add(self, entry: Entry) -> None:
        """Write an entry at once."""
        with self._lock:
            self._entries[entry.name] = entry
            self._file.parent.mkdir(parents=True, exist_ok=True)
            with self._file.open("a") as file:
                file.write(json.dumps(asdict(entry)) + "\n")


def digest(mutant: Mutant) -> str:
    """A short hash of the changed module."""
    return hashlib.sha256(mutant.source.encode()).hexdigest()[:16]


def _read(line: str) -> Entry | None:
    try:
        return Entry(**json.loads(line))
    except (ValueError, TypeError):
        return None


@dataclass
class Harmless:
    """Mutants that no test can notice, or none should: `PATTERN -> why`, a line each, as the shell matches names."""

    patterns: dict[str, str]
    used: set[str] = field(default_factory=set)

    @staticmethod
    def read(file: Path = ROOT / "tests" / "mutants" / "harmless.txt") -> "Harmless":
        """Raises DevError for a line without a reason."""
        found = {}
        for number, line in enumerate(file.read_text().splitlines(), 1):
            if not line.strip() or line.startswith("#"):
                continue
            pattern, arrow, why = line.partition(_ARROW)
            if not arrow or not why.strip():
                raise DevError(f"{file}:{number}: write PATTERN{_ARROW}why it is harmless")
            found[pattern.strip()] = why.strip()
        return Harmless(found)

    def why(self, name: str) -> str | None:
        """Why a mutant is harmless; None when nobody says so."""
        for pattern, why in self.patterns.items():
            if fnmatchcase(name, pattern):
                self.used.add(pattern)
                return why
        return None
