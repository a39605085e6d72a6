"""Places for real workers; every process that a test starts ends with it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.process.harness import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    made = Place(tmp_path)
    yield made
    made.end()


@pytest.fixture(scope="module")
def shared_place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """For workers that several tests of a module only talk to."""
    made = Place(tmp_path_factory.mktemp("place"))
    yield made
    made.end()
