"""Which tests run the function that a mutant changes; and the pytest plugin that runs these alone, the quickest first.

A test that never runs a function can't notice a fault in it. Mutation testing by coverage: Just et al., "The Major Mutation
Framework", ISSTA 2014.
"""

import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.mutants.mutate import Mutant
from dev.mutants.recorder import SOURCES

SELECT_FROM = "MUTANTS_SELECT_FROM"


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a test took, in seconds, and the functions that it ran, as module:function. One may fail of being watched."""

    test: str
    seconds: float
    functions: frozenset[str]
    failed: bool = False

    @property
    def file(self) -> str:
        """The file of the test."""
        return self.test.partition("::")[0]

    @property
    def modules(self) -> frozenset[str]:
        """The modules of these functions."""
        return frozenset(name.partition(":")[0] for name in self.functions)


def read(file: Path) -> list[Recorded]:
    """What the recorder wrote."""
    told: dict[str, tuple[float, list[str], bool]] = json.loads(file.read_text())
    return [
        Recorded(test, seconds, frozenset(name.replace("<locals>.", "") for name in names), failed)
        for test, (seconds, names, failed) in told.items()
    ]


def words_of(root: Path) -> dict[str, frozenset[str]]:
    """Return the words of each module of the product, by its dotted name, and of each file of tests, by its path below the root."""
    found = {}
    for source in SOURCES:
        for path in (root / source).rglob("*.py"):
            found[".".join(path.relative_to(root / source).with_suffix("").parts)] = _words(path)
    for path in (root / "tests").rglob("*.py"):
        found[path.relative_to(root).as_posix()] = _words(path)
    return found


def _words(path: Path) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", path.read_text()))


def selected(
    mutant: Mutant, recorded: Iterable[Recorded], folders: Iterable[str], words: Mapping[str, frozenset[str]] | None = None
) -> list[Recorded]:
    """The tests below these folders that run the mutant's function, the quickest first.

    A fault outside functions, as in a constant, shows in every test that runs any function of the module. So may one in a function
    that only an import runs. Where no function of the module is ever run, all tests remain.

    A fault in the body of a class, as in a field's default or a member of an enumeration, shows without a call of any function of
    the class. Files of tests that name the class may notice it, and so may tests that run a function of a module that names it.
    `words` are those of `words_of`.
    """
    module, function, *_ = mutant.name.split(":")
    below = tuple(folders)
    near = [one for one in recorded if one.test.startswith(below)]
    exactly = [one for one in near if f"{module}:{function}" in one.functions]
    name = function.rpartition(".")[2]
    if name.lstrip("_")[:1].isupper():
        users = {module, *(user for user, said in (words or {}).items() if name in said)}
        exactly = [one for one in near if one.file in users or not users.isdisjoint(one.modules)] or near
    elif not exactly or function == "<module>":
        exactly = [one for one in near if module in one.modules] or near
    return sorted(exactly, key=lambda one: one.seconds)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are listed, in that order."""
    if SELECT_FROM not in os.environ:
        return
    listed = {test: number for number, test in enumerate(json.loads(Path(os.environ[SELECT_FROM]).read_text()))}
    kept = [item for item in items if item.nodeid in listed]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in listed])
    items[:] = sorted(kept, key=lambda item: listed[item.nodeid])
