"""Every mutant of a module, each with a name that outlives shifted lines and changes of other functions."""

import ast
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import accumulate

from dev.mutants import operators
from dev.mutants.operators import Change

_TOP = "<module>"


@dataclass(frozen=True, slots=True)
class Mutant:
    """A module with one fault. `name` is module:function:operator:occurrence; `line` is where it was found, from 1."""

    name: str
    line: int
    before: str
    after: str
    source: str


def mutants(module: str, source: str) -> list[Mutant]:
    """All mutants of a module's source that are Python, in the order of the source."""
    return list(_Module(module, source).mutants())


class _Module:
    """A source whose nodes can be replaced in its text, so that all else stays as it is written."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._data = source.encode()
        self._tree = ast.parse(source)
        self._begins = [0, *accumulate(len(line) for line in self._data.splitlines(keepends=True))]

    def mutants(self) -> Iterator[Mutant]:
        count: Counter[str] = Counter()
        for scope, node, (operator, instead) in _changes(self._tree.body, ()):
            where = f"{self._module}:{'.'.join(scope) or _TOP}:{operator}"
            count[where] += 1
            begin, end = self._span(node)
            # Brackets cost nothing, and keep what is around from reaching in.
            text = f"({ast.unparse(instead)})" if isinstance(instead, ast.expr) else ast.unparse(instead)
            before = self._data[begin:end].decode()
            changed = (self._data[:begin] + text.encode() + self._data[end:]).decode()
            if _is_python(changed):
                yield Mutant(f"{where}:{count[where]}", node.lineno, before, text, changed)

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None and node.end_col_offset is not None
        begin, end = self._begins[node.lineno - 1], self._begins[node.end_lineno - 1]
        return begin + node.col_offset, end + node.end_col_offset


def _is_python(source: str) -> bool:
    try:
        compile(source, "<mutant>", "exec")
    except (SyntaxError, ValueError):
        return False
    return True


_Found = tuple[tuple[str, ...], ast.expr | ast.stmt, Change]


def _changes(nodes: Iterable[ast.AST], scope: tuple[str, ...]) -> Iterator[_Found]:
    """What can be changed in these nodes and below, outside in; types, decorators, patterns and asserts are left alone."""
    for node in nodes:
        match node:
            case ast.ClassDef(name=name):
                yield from _changes(node.body, (*scope, name))
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name):
                defaults = [one for one in (*node.args.defaults, *node.args.kw_defaults) if one is not None]
                yield from _changes([*defaults, *node.body], (*scope, name))
            case ast.Assert() | ast.JoinedStr() | ast.pattern() | ast.Import() | ast.ImportFrom():
                # Before Python 3.12 what stands in an f-string has no place of its own.
                pass
            case ast.If(test=ast.Name(id="TYPE_CHECKING")):
                pass
            case ast.AnnAssign():
                yield from _changes([node.value] if node.value is not None else [], scope)
            case ast.expr() | ast.stmt():
                yield from ((scope, *one) for one in _of(node))
                yield from _changes(ast.iter_child_nodes(node), scope)
            case _:
                yield from ((scope, *one) for one in _conditions(node))
                yield from _changes(ast.iter_child_nodes(node), scope)


def _of(node: ast.expr | ast.stmt) -> Iterator[tuple[ast.expr | ast.stmt, Change]]:
    """What can stand in the place of a node, or of its condition."""
    found: Iterable[Change] = ()
    match node:
        case ast.Compare():
            found = operators.compare(node)
        case ast.BinOp():
            found = operators.arithmetic(node)
        case ast.AugAssign():
            found = operators.augmented(node)
        case ast.BoolOp():
            found = operators.connective(node)
        case ast.UnaryOp():
            found = operators.unary(node)
        case ast.Constant():
            found = operators.constant(node)
        case ast.IfExp():
            found = operators.conditional(node)
        case ast.Call():
            found = operators.call(node)
        case ast.Return():
            found = operators.returned(node)
        case ast.stmt():
            found = operators.statement(node)
    yield from ((node, change) for change in found)
    yield from _conditions(node)


def _conditions(node: ast.AST) -> Iterator[tuple[ast.expr | ast.stmt, Change]]:
    match node:
        case ast.If(test=test) | ast.While(test=test):
            yield from ((test, change) for change in operators.condition(test, branches=bool(node.orelse)))
        case ast.comprehension(ifs=tests):
            for test in tests:
                yield from ((test, change) for change in operators.condition(test, branches=False))
