"""The mutation operators: what is put in the place of an expression or a statement. Each is a small fault that people make."""

import ast
import copy
from collections.abc import Iterator

# A name, and what stands in the node's place.
Change = tuple[str, ast.AST]

_OPPOSITE: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.GtE,
    ast.GtE: ast.Lt,
    ast.Gt: ast.LtE,
    ast.LtE: ast.Gt,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_BOUNDARY: dict[type[ast.cmpop], type[ast.cmpop]] = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt}
_ARITHMETIC: dict[type[ast.operator], type[ast.operator]] = {
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Div,
    ast.Div: ast.Mult,
    ast.FloorDiv: ast.Mult,
    ast.Mod: ast.Mult,
    ast.Pow: ast.Mult,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
# What a log says is for people to judge.
_LOGS = frozenset({"log", "logger", "logging"})


def compare(node: ast.Compare) -> Iterator[Change]:
    """Each comparison turned round, and each bound moved by one."""
    for name, table in (("comparison", _OPPOSITE), ("boundary", _BOUNDARY)):
        for number, operator in enumerate(node.ops):
            if (other := table.get(type(operator))) is not None:
                changed = copy.deepcopy(node)
                changed.ops[number] = other()
                yield name, changed


def arithmetic(node: ast.BinOp) -> Iterator[Change]:
    """Another operator; texts are put together by one, too, and are left alone."""
    if (other := _ARITHMETIC.get(type(node.op))) is not None and not (_is_text(node.left) or _is_text(node.right)):
        yield "arithmetic", ast.BinOp(node.left, other(), node.right)


def augmented(node: ast.AugAssign) -> Iterator[Change]:
    """`+=` for `-=`, and the whole left out."""
    if (other := _ARITHMETIC.get(type(node.op))) is not None and not _is_text(node.value):
        yield "arithmetic", ast.AugAssign(node.target, other(), node.value)
    yield "statement", ast.Pass()


def connective(node: ast.BoolOp) -> Iterator[Change]:
    """`and` for `or`."""
    yield "and-or", ast.BoolOp(ast.Or() if isinstance(node.op, ast.And) else ast.And(), node.values)


def unary(node: ast.UnaryOp) -> Iterator[Change]:
    """A `not` or a minus left out."""
    if isinstance(node.op, ast.Not):
        yield "not", node.operand
    elif isinstance(node.op, ast.USub):
        yield "minus", node.operand


def constant(node: ast.Constant) -> Iterator[Change]:
    """A number one more and one less; the other truth."""
    value = node.value
    if isinstance(value, bool):
        yield "truth", ast.Constant(not value)
    elif isinstance(value, int | float):
        yield "constant+1", ast.Constant(value + 1)
        yield "constant-1", ast.Constant(value - 1)


def conditional(node: ast.IfExp) -> Iterator[Change]:
    """The branches swapped; where a comparison decides, turning that round does the same."""
    if not _is_turned_round_itself(node.test):
        yield "branch", ast.IfExp(node.test, node.orelse, node.body)


def condition(test: ast.expr, *, branches: bool) -> Iterator[Change]:
    """The condition of an `if`, a loop or a comprehension negated: with an `else` this swaps the branches."""
    if not _is_turned_round_itself(test):
        yield "branch" if branches else "negation", ast.UnaryOp(ast.Not(), test)


def call(node: ast.Call) -> Iterator[Change]:
    """`min` for `max`, `any` for `all`."""
    if isinstance(node.func, ast.Name) and (other := _CALLS.get(node.func.id)) is not None:
        yield "call", ast.Call(ast.Name(other), node.args, node.keywords)


def returned(node: ast.Return) -> Iterator[Change]:
    """None in the place of what is returned, unless that is as good as None already."""
    if node.value is not None and not (isinstance(node.value, ast.Constant) and not node.value.value):
        yield "return", ast.Return(ast.Constant(None))


def statement(node: ast.stmt) -> Iterator[Change]:
    """A statement left out: a call, what ends a loop or a function, and what is put into an object."""
    match node:
        case ast.Raise() | ast.Break() | ast.Continue() | ast.Delete():
            yield "statement", ast.Pass()
        case ast.Expr(ast.Call() | ast.Await()) if not _is_log(node.value):
            yield "statement", ast.Pass()
        case ast.Assign(targets) if not all(isinstance(target, ast.Name) for target in targets):
            yield "statement", ast.Pass()


def _is_turned_round_itself(test: ast.expr) -> bool:
    """Whether another operator makes the same of it."""
    one = isinstance(test, ast.Compare) and len(test.ops) == 1
    return one or (isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not))


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and isinstance(node.value, str | bytes))


def _is_log(node: ast.expr) -> bool:
    match node:
        case ast.Call(ast.Attribute(ast.Name(name))):
            return name in _LOGS
    return False
