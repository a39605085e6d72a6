"""The mutants themselves: what is changed and what is left alone, names that last, and trials that tell the truth."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

import pytest

from dev.console import DevError
from dev.mutants.ledger import Entry, Harmless, Ledger, digest
from dev.mutants.mutate import Mutant, mutants
from dev.mutants.packages import PACKAGES, ROOT, Package
from dev.mutants.selection import Recorded, selected, words_of
from dev.mutants.table import survivors, table
from dev.mutants.trial import Tree

if TYPE_CHECKING:
    from pathlib import Path


def changes(source: str) -> dict[str, str]:
    """Operators with their numbers, and what is put in the place."""
    return {one.name.split(":", 2)[2]: one.after for one in mutants("m", source)}


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("x = a < b", {"comparison:1": "(a >= b)", "boundary:1": "(a <= b)"}),
        ("x = a <= b < c", {
            "comparison:1": "(a > b < c)", "comparison:2": "(a <= b >= c)", "boundary:1": "(a < b < c)", "boundary:2": "(a <= b <= c)",
        }),
        ("x = a in b", {"comparison:1": "(a not in b)"}),
        ("x = a // b - c", {"arithmetic:1": "(a // b + c)", "arithmetic:2": "(a * b)"}),
        ("x = 'a' + b", {}),
        ("x -= y", {"arithmetic:1": "x += y", "statement:1": "pass"}),
        ("x = 3", {"constant+1:1": "(4)", "constant-1:1": "(2)"}),
        ("x = True", {"truth:1": "(False)"}),
        ("x = -a", {"minus:1": "(a)"}),
        ("x = not a or b", {"and-or:1": "(not a and b)", "not:1": "(a)"}),
        ("x = a if b else c", {"branch:1": "(c if b else a)"}),
        ("x = max(a, b)", {"call:1": "(min(a, b))"}),
        ("x = [a for a in b if a.c]", {"negation:1": "(not a.c)"}),
        ("while a: b()", {"negation:1": "(not a)", "statement:1": "pass"}),
        ("if a: b = c\nelse: c = b", {"branch:1": "(not a)"}),
        ("if a == b: c = d", {"comparison:1": "(a != b)"}),
        ("def f(): return a", {"return:1": "return None"}),
        ("def f(): return False", {"truth:1": "(True)"}),
        ("def f(): raise a", {"statement:1": "pass"}),
        ("for a in b:\n    continue", {"statement:1": "pass"}),
        ("a.b = c", {"statement:1": "pass"}),
    ],
)  # fmt: skip
def test_each_operator_makes_its_fault(source: str, expected: dict[str, str]) -> None:
    assert changes(source) == expected


@pytest.mark.parametrize(
    "source",
    [
        "def f(a: Literal[1] = b) -> int | None: ...",
        "@given(max_examples=60)\ndef f(): ...",
        "class A(Struct, frozen=True): ...",
        "assert a < 3",
        "x = f'{a + 1}'",
        "'''A docstring.'''",
        "log.info('done')",
        "match a:\n    case 3: ...",
        "if TYPE_CHECKING:\n    x = 1",
        "x: Final[Literal[3]]",
    ],
)  # fmt: skip
def test_what_no_test_could_notice_is_left_alone(source: str) -> None:
    assert changes(source) == {}


def test_all_else_stays_as_it_is_written() -> None:
    source = "def f(ü):\n    # why\n    return ('ü' if ü  <  3\n        else b)  # so\n"
    (one,) = [one for one in mutants("m", source) if one.name == "m:f:boundary:1"]

    assert one.source == source.replace("ü  <  3", "(ü <= 3)")
    assert (one.line, one.before) == (3, "ü  <  3")


def test_a_name_outlives_shifted_lines_and_changes_of_other_functions() -> None:
    before = {one.name for one in mutants("m", "class A:\n    def f(self): return a + b\n")}
    after = {one.name for one in mutants("m", "X = 3\n\ndef g(): return 4 + 5\n\nclass A:\n    def f(self): return a + b\n")}

    assert before == {"m:A.f:return:1", "m:A.f:arithmetic:1"}
    assert before < after


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.name)
def test_every_package_has_modules_tests_and_mutants_of_different_names(package: Package) -> None:
    largest = max(package.modules(ROOT), key=lambda path: path.stat().st_size)
    found = mutants(largest.stem, largest.read_text())

    assert all((ROOT / tests).exists() for tests in package.tests)
    assert len({one.name for one in found}) == len(found) > 0
    for one in found[:20]:
        ast.parse(one.source)


A = Mutant("m:f:return:1", 2, "return a", "return None", "def f(): return None")


def an_entry(mutant: Mutant = A, outcome: str = "killed", package: str = "jobs") -> Entry:
    return Entry(mutant.name, package, "m.py:2", mutant.before, mutant.after, digest(mutant), outcome, 1.0, "test_f")


def test_a_run_goes_on_where_it_was_cut_off(tmp_path: Path) -> None:
    file = tmp_path / "build" / "results.jsonl"
    Ledger(file).add(an_entry())
    with file.open("a") as lines:
        lines.write('{"name": "m:g:ret')

    assert Ledger(file).find(A) == an_entry()
    # The module has changed since.
    assert Ledger(file).find(Mutant(A.name, 2, A.before, A.after, A.source + "\n")) is None


def test_the_last_word_on_a_mutant_counts(tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "results.jsonl")
    for outcome in ("survived", "killed"):
        ledger.add(an_entry(outcome=outcome))

    found = Ledger(tmp_path / "results.jsonl").find(A)
    assert found is not None and found.outcome == "killed"


def test_what_is_harmless_has_a_reason_and_is_found_by_its_pattern(tmp_path: Path) -> None:
    file = tmp_path / "harmless.txt"
    file.write_text("# so\n\nm:f:return:* -> nobody reads it\nm:h:* -> gone\n")
    harmless = Harmless.read(file)

    assert (harmless.why(A.name), harmless.why("m:g:return:1")) == ("nobody reads it", None)
    assert harmless.patterns.keys() - harmless.used == {"m:h:*"}
    file.write_text("m:f:*\n")
    with pytest.raises(DevError, match=r"harmless.txt:1: write PATTERN -> why"):
        Harmless.read(file)


def test_the_projects_own_list_is_sound() -> None:
    Harmless.read()


def test_the_table_counts_and_the_survivors_are_shown_with_their_names() -> None:
    entries = [an_entry(), an_entry(outcome="timeout"), an_entry(outcome="survived"), an_entry(package="api")]

    head, *rows = [line.split() for line in table(["api", "jobs", "state"], entries, {"jobs": 2})]
    assert head[1:] == ["mutants", "killed", "timeout", "survived", "harmless", "noticed"]
    assert rows == [
        ["api", "1", "1", "0", "0", "0", "100%"],
        ["jobs", "3", "1", "1", "1", "2", "67%"],
        ["all", "4", "2", "1", "1", "2", "75%"],
    ]
    assert list(survivors(entries)) == ["m.py:2: return a  ->  return None", "    m:f:return:1"]


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """A tree with one module and one test of it."""
    (tmp_path / "conftest.py").write_text("import sys\nsys.path.insert(0, '.')\n")
    (tmp_path / "operator").mkdir()
    (tmp_path / "operator" / "answers.py").write_text("def answer(): return 42\n\ndef other(): return 1\n")
    (tmp_path / "test_answers.py").write_text("import answers\n\ndef test_it(): assert answers.answer() == 42\n")
    (tmp_path / "test_others.py").write_text("import answers\n\ndef test_it(): assert answers.other() == 2\n")
    (tmp_path / "dev").symlink_to(ROOT / "dev")
    return Tree(tmp_path)


IT = [Recorded("test_answers.py::test_it", 0.1, frozenset({"answers:answer"}))]


@pytest.mark.slow
def test_a_trial_tells_who_noticed_who_did_not_and_what_never_ends(tree: Tree) -> None:
    def outcome(source: str) -> tuple[str, str]:
        # Of equal length, and within a second: Python's own bytecode must not be taken for it.
        with tree.changed(ROOT / "operator" / "answers.py", source):
            verdict = tree.test(IT, seconds=10)
        return verdict.outcome, verdict.why

    (recorded,) = tree.record(["test_answers.py"])
    assert (recorded.test, recorded.functions) == (IT[0].test, IT[0].functions)
    assert outcome("def answer(): return 41\n") == ("killed", "test_answers.py::test_it")
    assert outcome("def answer(): return 6*7\n")[0] == "survived"
    assert outcome("def answer(:\n")[0] == "killed"
    with tree.changed(ROOT / "operator" / "answers.py", "while True: pass\n"):
        assert tree.test(IT, seconds=2).outcome == "timeout"
    assert outcome("def answer(): return 42\n")[0] == "survived"


def test_tests_that_can_not_be_run_are_no_verdict(tree: Tree) -> None:
    with pytest.raises(DevError, match="pytest ended with 4"):
        tree.test([Recorded("no_such_file.py::test_it", 0.1, frozenset())], seconds=30)
    with pytest.raises(DevError, match=r"without any mutant: killed, test_others.py::test_it"):
        tree.record(["test_others.py"])


def test_a_mutant_is_tried_on_the_tests_that_run_its_function_the_quickest_first() -> None:
    def recorded(test: str, seconds: float, *functions: str) -> Recorded:
        return Recorded(test, seconds, frozenset(functions))

    slow, quick = recorded("tests/a/test_a.py::slow", 2.0, "m:A.f", "m:g"), recorded("tests/a/test_a.py::quick", 1.0, "m:A.f")
    module, elsewhere = recorded("tests/a/test_a.py::module", 3.0, "m:h"), recorded("tests/b/test_b.py::far", 0.1, "m:A.f")
    every = [slow, quick, module, elsewhere]

    def tests(name: str) -> list[Recorded]:
        return selected(Mutant(name, 1, "", "", ""), every, ("tests/a/",))

    assert tests("m:A.f:return:1") == [quick, slow]
    assert tests("m:<module>:constant+1:1") == tests("m:A:truth:1") == [quick, slow, module]
    assert tests("m:at_import:return:1") == [quick, slow, module]
    assert tests("n:<module>:constant+1:1") == [quick, slow, module]


def test_a_fault_in_a_class_is_tried_on_the_tests_that_only_make_one() -> None:
    """Members of an enumeration and defaults of fields are made without a call of any function of theirs."""
    uses = Recorded("tests/a/test_uses.py::test_it", 1.0, frozenset({"n:f"}))
    names = Recorded("tests/a/test_names.py::test_it", 2.0, frozenset())
    neither = Recorded("tests/a/test_other.py::test_it", 0.1, frozenset({"o:f"}))
    words = {"n": frozenset({"Of"}), "o": frozenset({"Often"}), "tests/a/test_names.py": frozenset({"Of"})}

    def tests(name: str) -> list[Recorded]:
        return selected(Mutant(name, 1, "", "", ""), [names, uses, neither], ("tests/a/",), words)

    assert tests("m:Of:constant+1:1") == [uses, names]
    assert tests("m:_Of:constant+1:1") == [neither, uses, names]


def test_the_words_of_modules_and_of_tests_are_found_by_their_names() -> None:
    words = words_of(ROOT)

    assert "Usage" in words["inference_operator.scheduling.types"]
    assert "words_of" in words["tests/mutants/test_mutants.py"]
