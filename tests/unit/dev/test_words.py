"""The check for retired words: what it finds, what it leaves alone, and that it is quick enough for a hook."""

from pathlib import Path
from time import process_time

import pytest

from dev.lint import words
from dev.lint.words import Allowed, Finding, files, findings

SCHEDULER = "operator/inference_operator/scheduling/scheduler.py"
EVERYWHERE = "worker-image/inference_worker/model.py"


def found(root: Path, path: str, text: str) -> list[Finding]:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_text(text)
    return list(findings(root, [path]))


def test_a_planted_word_is_found_with_its_line_and_the_word_to_use(tmp_path: Path) -> None:
    (one,) = found(tmp_path, EVERYWHERE, '"""A model."""\n\nTENURE_SECONDS = 3\n')

    assert str(one) == f"{EVERYWHERE}:3: TENURE -> use RunningWork"


@pytest.mark.parametrize(
    "text",
    [
        "tenure = 1",
        "of_tenures = 1",
        "ofTenure = 1",
        "class TenureIndex: ...",
        "# Its tenure ends.",
        'raise ValueError("the tenure ended")',
        "def tenure_2() -> None: ...",
    ],
)
def test_a_word_is_found_in_identifiers_comments_and_strings(tmp_path: Path, text: str) -> None:
    assert [one.use for one in found(tmp_path, EVERYWHERE, text)] == ["RunningWork"]


@pytest.mark.parametrize("text", ["outstanding = 1", "plane = 1", "tickets = 1", "background = 1", "ghostly = 1", "hosted = 1"])
def test_a_word_within_another_is_none(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, SCHEDULER, text) == []


@pytest.mark.parametrize(
    ("path", "text", "use"),
    [
        (SCHEDULER, "# A need on the board.", ["NodeCapacity", "request"]),
        (EVERYWHERE, "# A need on the board.", []),
        (SCHEDULER, "# A job needs room, and answers.", []),
        (SCHEDULER, "def shape(self) -> str: ...", ["PodRequirements"]),
        (EVERYWHERE, "rows = array.shape[0]", []),
        (SCHEDULER, "# a lane", ["timeline"]),
        ("examples/models/lane.py", "lanes = 3", []),
        ("worker-image/inference_worker/batch/output.py", "class Block:", ["segment, or the chunk of an output"]),
        ("worker-image/inference_worker/serve/http2.py", "block = headers.block", []),
        ("bench/plane/run.py", "cells = ()", ["scenario"]),
        ("examples/demo/__main__.py", "cells = ()", []),
        ("worker-image/inference_worker/start.py", "life = Life(config)", ["WorkerState"]),
        ("docs/tasks/batch.md", "after the last committed part", ["chunk"]),
        ("docs/tasks/gitops.md", "The CRDs are part of the chart", []),
    ],
)
def test_a_word_with_other_meanings_is_found_only_where_it_had_ours(tmp_path: Path, path: str, text: str, use: list[str]) -> None:
    assert sorted(one.use for one in found(tmp_path, path, text)) == use


def test_a_word_in_a_file_name_is_found(tmp_path: Path) -> None:
    path = "operator/inference_operator/scheduling/lookahead.py"

    (one,) = found(tmp_path, path, "")

    assert (one.line, one.word) == (0, "lookahead")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("operator/inference_operator/workers/attempts.py", '    {"Evicted", "NodeLost"}'),
        ("tests/cluster/test_rbac.py", '    ("create", CORE, "pods", "eviction"),'),
        ("docs/tasks/deadlines.md", "  name: lane-detection-v2"),
        ("docs/concepts/glossary.md", "| lodger | hosted task |"),
    ],
)
def test_an_allowed_use_passes(tmp_path: Path, path: str, text: str) -> None:
    assert found(tmp_path, path, text) == []


def test_an_allowance_holds_for_its_line_and_word_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "ALLOWED", (Allowed("^ghost$", "docs/*", "a story", "Hamlet"),))

    assert found(tmp_path, "docs/a.md", "Hamlet's ghost") == []
    assert [one.word for one in found(tmp_path, "docs/a.md", "a ghost\nHamlet's ghost and grave\n")] == ["ghost", "grave"]
    assert [one.word for one in found(tmp_path, "dev/a.md", "Hamlet's ghost")] == ["ghost"]


def test_the_checkout_has_none_where_it_is_read() -> None:
    assert [str(one) for one in findings(words.ROOT, files(words.ROOT))] == []


def test_every_allowance_is_still_used(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {Allowed("", one.where, one.why) for one in words.ALLOWED if one.word == ""}
    narrow = [one for one in words.ALLOWED if one.word != ""]
    paths = files(words.ROOT)
    monkeypatch.setattr(words, "ALLOWED", tuple(whole))
    before = set(findings(words.ROOT, paths))

    for one in narrow:
        monkeypatch.setattr(words, "ALLOWED", (*whole, one))
        assert set(findings(words.ROOT, paths)) < before, one


def test_all_of_the_checkout_is_read_in_seconds_of_cpu() -> None:
    """It takes one; a pattern that backtracks took minutes."""
    begun = process_time()

    list(findings(words.ROOT, files(words.ROOT)))

    assert process_time() - begun < 10


def test_the_exit_status_says_whether_anything_was_found(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["words", "dev/lint"])
    assert words.main() == 0

    monkeypatch.setattr(words, "ALLOWED", ())
    assert words.main() == 1
    assert "dev/lint/words.py:" in capsys.readouterr().out
