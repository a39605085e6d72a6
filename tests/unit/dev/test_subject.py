"""What a commit's subject may be."""

from pathlib import Path

import pytest

from dev.lint import subject
from dev.lint.subject import LIMIT, faults

GOOD = [
    "Add a field for the node's zone",
    "Address what a reader found",
    "Speed up the first list",
    "Bring the images to the nodes",
    "Focus the test on one worker",
    "Give each thing one word, and the field's word",
    "A" + "d" * (LIMIT - 1),
]


@pytest.mark.parametrize("text", GOOD)
def test_an_order_of_at_most_72_characters_is_fine(text: str) -> None:
    assert faults(f"{text}\n\nBecause of this.\n") == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("add a field", "'Add', not 'add'"),
        ("Added a field", "'Added'"),
        ("Adding a field", "'Adding'"),
        ("Adds a field", "'Adds'"),
        ("A field for the zone", "begin with a verb"),
        ("What was found", "begin with a verb"),
        ("KEDA's scaler", "imperative"),
        ("Add a field.", "full stop"),
        ("A" + "d" * LIMIT, f"{LIMIT + 1} characters"),
        ("", "empty"),
        ("Add a field\nand another", "second line"),
    ],
)
def test_anything_else_is_refused_with_a_cure(text: str, says: str) -> None:
    assert says in " ".join(faults(text))


@pytest.mark.parametrize("text", ["Merge branch 'main'", 'Revert "Adds a field."', "fixup! adds a field."])
def test_what_git_itself_writes_passes(text: str) -> None:
    assert faults(text) == []


def test_comments_and_the_diff_below_the_scissors_are_not_read() -> None:
    message = f"\n# On branch main\nAdd a field\n# more\n\n{subject.SCISSORS}\ndiff.\n"

    assert faults(message) == []


def test_the_exit_status_says_whether_the_subject_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "COMMIT_EDITMSG"
    monkeypatch.setattr("sys.argv", ["subject", str(file)])

    file.write_text("Add a field\n")
    assert subject.main() == 0
    file.write_text("Added a field\n")
    assert subject.main() == 1
