"""What the page for readers says of an output: whether it is whole, by the page's own code."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from inference_worker.batch.manifest import SUMMARY
from tests.unit.worker.batch.test_output import TOTAL, answers, chunk, go_on, opened

if TYPE_CHECKING:
    from collections.abc import Callable

PAGE = Path(__file__).parents[4] / "docs" / "tasks" / "read-an-output.md"


@pytest.fixture(scope="module")
def check_output() -> Callable[[str], str]:
    """The function on the page."""
    known: dict[str, Any] = {}
    (code,) = (text for text in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL) if "def check_output" in text)
    exec(code, known)
    check: Callable[[str], str] = known["check_output"]
    return check


def test_an_output_that_two_attempts_wrote_is_whole(tmp_path: Path, check_output: Callable[[str], str]) -> None:
    first = opened(tmp_path, attempt=1)
    first.commit(0, 7, answers(0, 7))
    go_on(tmp_path, attempt=2)
    # What the first wrote since counts for nobody.
    (tmp_path / "chunk-0000000007-00000000-1.jsonl").write_bytes(b"wrong\n")

    assert check_output(str(tmp_path)) == ""


def test_an_output_that_has_not_ended_is_not_whole(tmp_path: Path, check_output: Callable[[str], str]) -> None:
    go_on(tmp_path, commits=1)

    assert "manifest.json is missing" in check_output(str(tmp_path))


@pytest.mark.parametrize("harm", ["changed", "cut", "missing"])
def test_a_chunk_that_is_not_as_it_was_written_is_named(tmp_path: Path, check_output: Callable[[str], str], harm: str) -> None:
    go_on(tmp_path)
    file = chunk(tmp_path, 7)
    if harm == "missing":
        file.unlink()
    else:
        file.write_bytes(b"x" + file.read_bytes()[1:] if harm == "changed" else file.read_bytes()[:-1])

    assert check_output(str(tmp_path)) == f"{file.name} is missing, or has changed"


@pytest.mark.parametrize(("line", "says"), [(1, "items 7 to 14 are missing"), (-1, f"items 28 to {TOTAL} are missing")])
def test_items_that_no_chunk_answers_are_told(tmp_path: Path, check_output: Callable[[str], str], line: int, says: str) -> None:
    go_on(tmp_path)
    summary = json.loads((tmp_path / SUMMARY).read_text())
    del summary["chunks"][line]
    (tmp_path / SUMMARY).write_text(json.dumps(summary))

    assert check_output(str(tmp_path)) == says
