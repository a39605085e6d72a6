"""What serves the models, and a summary of what became of them."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from tests.conformance.serving import OwnWorkers, Serving, SharedWorker
from tests.process.harness import Place

if TYPE_CHECKING:
    from collections.abc import Iterator

OUTCOME = "conformance"


@pytest.fixture(scope="session")
def serving(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Who asks for a SAMPLE waits for workers of their own."""
    place = Place(tmp_path_factory.mktemp("conformance"))
    yield OwnWorkers(place) if "SAMPLE" in os.environ else SharedWorker(place)
    place.end()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Count the outcomes."""
    reports = [report for kind in ("passed", "failed") for report in terminalreporter.stats.get(kind, ())]
    counted = Counter(value for report in reports for name, value in report.user_properties if name == OUTCOME)
    for outcome, count in counted.most_common():
        terminalreporter.write_line(f"{count} models: {outcome}")
