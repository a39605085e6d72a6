"""Modules that grow too long say why, or are named."""

from pathlib import Path

from dev.lint.sizes import MODULE_LINES, modules, spread


def a_module(root: Path, docstring: str, lines: int) -> None:
    folder = root / "operator" / "inference_operator"
    folder.mkdir(parents=True)
    (folder / "long.py").write_text(f'"""{docstring}"""\n\n\ndef one() -> int:\n    return 1\n' + "# more\n" * lines)


def test_a_module_that_is_too_long_is_named_unless_its_docstring_says_why(tmp_path: Path) -> None:
    a_module(tmp_path / "a", "A module.", MODULE_LINES)
    a_module(tmp_path / "b", "A module, longer\nthan others for a reason.", MODULE_LINES)

    (silent,) = modules(tmp_path / "a")
    (reasoned,) = modules(tmp_path / "b")

    assert silent.lines > MODULE_LINES and not silent.reasoned
    assert reasoned.reasoned
    assert silent.functions == (2,)


def test_a_spread_tells_the_middle_and_the_end() -> None:
    assert spread(range(1, 12)) == "11, median 6, p90 11, most 11"
