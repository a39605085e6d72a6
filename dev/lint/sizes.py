"""`python3 -m dev.lint.sizes [ROOT]`: how long modules and functions are, in lines, in what is shipped.

A module longer than MODULE_LINES must say in its docstring why; the exit status is 1 where one does not.
"""

import argparse
import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median, quantiles

from dev.console import run_main

FOLDERS = (
    "operator/inference_operator",
    "worker-image/inference_worker",
    "protocol/inference_protocol",
    "client/inference_client",
    "client/kubectl_inference",
)
MODULE_LINES = 300
FUNCTION_LINES = 40
# The words by which a docstring gives its reason.
REASON = "longer than others"


@dataclass(frozen=True, slots=True)
class Module:
    """One module's lines, and those of each of its functions."""

    path: str
    lines: int
    functions: tuple[int, ...]
    reasoned: bool


def modules(root: Path) -> Iterator[Module]:
    """Read all modules below a checkout."""
    for folder in FOLDERS:
        for path in sorted((root / folder).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
            lengths = tuple(
                (node.end_lineno or node.lineno) - node.lineno + 1
                for node in ast.walk(tree)
                if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
            )
            said = REASON in " ".join((ast.get_docstring(tree) or "").split())
            yield Module(path.relative_to(root).as_posix(), text.count("\n"), lengths, said)


def spread(values: Iterable[int]) -> str:
    """Return count, median, 90th percentile and maximum."""
    found = sorted(values)
    return f"{len(found)}, median {median(found):.0f}, p90 {quantiles(found, n=10)[-1]:.0f}, most {found[-1]}"


def main() -> int:
    """Print the spreads, and the modules that are too long; 1 when one of them gives no reason."""
    parser = argparse.ArgumentParser(prog="python3 -m dev.lint.sizes", description=__doc__.splitlines()[0])
    parser.add_argument("root", nargs="?", type=Path, default=Path(__file__).resolve().parents[2])
    found = list(modules(parser.parse_args().root))
    functions = [length for module in found for length in module.functions]
    print(f"modules: {spread(module.lines for module in found)}; {sum(m.lines for m in found)} lines")
    print(f"functions: {spread(functions)}; {sum(length > FUNCTION_LINES for length in functions)} over {FUNCTION_LINES}")
    long = [module for module in found if module.lines > MODULE_LINES]
    for module in long:
        print(f"{module.path}: {module.lines} lines, {'its docstring says why' if module.reasoned else 'and no reason given'}")
    return 1 if any(not module.reasoned for module in long) else 0


if __name__ == "__main__":
    run_main(main)
