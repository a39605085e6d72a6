"""Which tests run the function that a mutant changes; and the pytest plugin that runs these alone, the quickest first.

A test that never runs a function can't notice a fault in it. Mutation testing by coverage: Just et al., "The Major Mutation
Framework", ISSTA 2014.
"""

import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dev.mutants.mutate import Mutant

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


def read(file: Path) -> list[Recorded]:
    """What the recorder wrote."""
    told: dict[str, tuple[float, list[str], bool]] = json.loads(file.read_text())
    return [
        Recorded(test, seconds, frozenset(name.replace("<locals>.", "") for name in names), failed)
        for test, (seconds, names, failed) in told.items()
    ]


def selected(mutant: Mutant, recorded: Iterable[Recorded], folders: Iterable[str]) -> list[Recorded]:
    """The tests below these folders that run the mutant's function, the quickest first.

    A fault outside functions, as in a constant or a field's default, shows in every test that runs any function of the module.
    So may one in a function that only an import runs. Where no function of the module is ever run, all tests remain.
    """
    module, function, *_ = mutant.name.split(":")
    below = tuple(folders)
    near = [one for one in recorded if one.test.startswith(below)]
    exactly = [one for one in near if f"{module}:{function}" in one.functions]
    if not exactly or function == "<module>" or function.rpartition(".")[2][:1].isupper():
        exactly = [one for one in near if any(name.startswith(f"{module}:") for name in one.functions)] or near
    return sorted(exactly, key=lambda one: one.seconds)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keep the tests that are listed, in that order."""
    if SELECT_FROM not in os.environ:
        return
    listed = {test: number for number, test in enumerate(json.loads(Path(os.environ[SELECT_FROM]).read_text()))}
    kept = [item for item in items if item.nodeid in listed]
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid not in listed])
    items[:] = sorted(kept, key=lambda item: listed[item.nodeid])
