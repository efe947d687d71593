"""Makes the mutants of a module: each one changes one decision.

Decisions are bent and texts are not: a condition that is dropped, a boundary that is off by one, a
branch that is always or never taken, a filter, a step or an element that is left out.  Pure.
"""

import ast
import copy
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

Bend = Callable[[ast.AST], ast.AST]

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
TURNED = {"any": "all", "all": "any", "min": "max", "max": "min"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


@dataclass(frozen=True, slots=True)
class Mutant:
    """One bent module; ``name`` says where and how, and is the same as long as its code is.

    ``function`` is the outermost function it lies in, as Python spells it; empty outside of all.
    """

    name: str
    line: int
    function: str
    tree: Callable[[], ast.Module]


@dataclass(frozen=True, slots=True)
class _Site:
    """A node by its place in the walk."""

    number: int
    node: ast.AST
    function: str


def mutants(source: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its text."""
    tree = ast.parse(source)
    seen: Counter[str] = Counter()
    for site in list(_sites(tree)):
        for told, bend in _bends(site.node):
            name = f"{site.function or '-'}: {told}"
            seen[name] += 1
            again = f" #{seen[name]}" if seen[name] > 1 else ""
            bent = partial(_bent, tree, site.number, bend)
            yield Mutant(name + again, getattr(site.node, "lineno", 0), site.function, bent)


def _sites(tree: ast.Module) -> Iterator[_Site]:
    """All nodes that decide: no texts, annotations or decorators, nothing for type checkers."""
    for number, (node, function) in enumerate(_walk(tree, "", inside=False)):
        yield _Site(number, node, function)


def _walk(node: ast.AST, scope: str, *, inside: bool) -> Iterator[tuple[ast.AST, str]]:
    yield node, scope if inside else ""
    for name, value in ast.iter_fields(node):
        if name in {"annotation", "returns", "decorator_list", "bases"}:
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST) and not _is_text(child):
                yield from _below(child, scope, inside=inside)


def _below(child: ast.AST, scope: str, *, inside: bool) -> Iterator[tuple[ast.AST, str]]:
    named = isinstance(child, (*FUNCTIONS, ast.ClassDef))
    if isinstance(child, ast.arguments) and scope:
        yield from _walk(child, scope, inside=False)  # defaults are worked out before any call
    elif named and not inside:
        own = f"{scope}.{child.name}" if scope else child.name  # type: ignore[attr-defined]
        yield from _walk(child, own, inside=isinstance(child, FUNCTIONS))
    else:
        yield from _walk(child, scope, inside=inside)


def _is_text(node: ast.AST) -> bool:
    if isinstance(node, ast.JoinedStr):
        return True
    if isinstance(node, ast.keyword) and node.arg == "strict":
        return True  # what zip() asserts of lengths decides nothing
    if isinstance(node, ast.If):
        return ast.unparse(node.test) == "TYPE_CHECKING"
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _bent(tree: ast.Module, number: int, bend: Bend) -> ast.Module:
    whole = copy.deepcopy(tree)
    target = next(node for n, (node, _) in enumerate(_walk(whole, "", inside=False)) if n == number)

    class Swap(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST:
            return bend(node) if node is target else self.generic_visit(node)

    Swap().visit(whole)
    return ast.fix_missing_locations(whole)


def _bends(node: ast.AST) -> Iterator[tuple[str, Bend]]:
    """What can be bent at *node*, with words for it."""
    match node:
        case ast.BoolOp():
            yield from _operands(node)
        case ast.Compare():
            yield from _comparisons(node)
        case ast.If() | ast.IfExp() | ast.While():
            for value in (True, False):
                if not (isinstance(node, ast.While) and value):
                    yield f"{value} for `{_told(node.test)}`", _condition(value)
        case ast.comprehension():
            for n, each in enumerate(node.ifs):
                yield f"no filter `{_told(each)}`", _without("ifs", n)
        case ast.Call(func=ast.Name(id=name)) if name in TURNED:
            yield f"{TURNED[name]} for `{_told(node)}`", _called(TURNED[name])
        case ast.UnaryOp(op=ast.Not()):
            yield f"no `not` in `{_told(node)}`", _affirmed
        case ast.Constant(value=int(value)):
            yield f"{_other(value)} for {value}", _constant(_other(value))
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.BitOr() | ast.BitAnd()):
            yield f"another sign in `{_told(node)}`", _signed
        case _:
            yield from _left_out(node)


def _left_out(node: ast.AST) -> Iterator[tuple[str, Bend]]:
    """Steps and elements that can be left out."""
    match node:
        case ast.Set(elts=several) | ast.List(elts=several, ctx=ast.Load()) if len(several) > 1:
            for n, each in enumerate(several):
                yield f"no element `{_told(each)}` in `{_told(node)}`", _without("elts", n)
        case ast.Dict(keys=keys, values=values) if None in keys and len(keys) > 1:
            for n, value in enumerate(values):
                yield f"no part `{_told(value)}` in `{_told(node)}`", _partless(n)
        case ast.Expr(value=ast.Call() | ast.Yield() | ast.YieldFrom()):
            yield f"without `{_told(node)}`", _undone
        case ast.AugAssign() | ast.Raise() | ast.Continue() | ast.Break() | ast.Delete():
            yield f"without `{_told(node)}`", _passed
        case ast.Return(value=ast.Compare() | ast.BoolOp() | ast.UnaryOp(op=ast.Not())):
            for answer in (True, False):
                yield f"{answer} for `{_told(node)}`", _returned(answer)


def _operands(node: ast.BoolOp) -> Iterator[tuple[str, Bend]]:
    for n, each in enumerate(node.values):
        yield f"no `{_told(each)}` in `{_told(node)}`", _operandless(n)


def _comparisons(node: ast.Compare) -> Iterator[tuple[str, Bend]]:
    for n, each in enumerate(node.ops):
        if type(each) in SWAPPED:
            word = f"{SWAPPED[type(each)].__name__} for {type(each).__name__}"
            more = f" {n + 1}" if len(node.ops) > 1 else ""
            yield f"{word}{more} in `{_told(node)}`", _compared(n)


def _other(value: int) -> int:
    return not value if isinstance(value, bool) else value + 1


def _told(node: ast.AST) -> str:
    """The node's text in one line, without what only tells where."""
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= 90 else f"{text[:87]}..."


def _condition(value: bool) -> Bend:
    def bend(node: ast.AST) -> ast.AST:
        node.test = ast.Constant(value)  # type: ignore[attr-defined]
        return node

    return bend


def _without(name: str, number: int) -> Bend:
    def bend(node: ast.AST) -> ast.AST:
        del getattr(node, name)[number]
        return node

    return bend


def _partless(number: int) -> Bend:
    def bend(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Dict)
        del node.keys[number], node.values[number]
        return node

    return bend


def _operandless(number: int) -> Bend:
    def bend(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.BoolOp)
        del node.values[number]
        return node if len(node.values) > 1 else node.values[0]

    return bend


def _compared(number: int) -> Bend:
    def bend(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Compare)
        node.ops[number] = SWAPPED[type(node.ops[number])]()
        return node

    return bend


def _called(name: str) -> Bend:
    def bend(node: ast.AST) -> ast.AST:
        assert isinstance(node, ast.Call)
        node.func = ast.Name(name, ast.Load())
        return node

    return bend


def _constant(value: int) -> Bend:
    return lambda _: ast.Constant(value)


def _returned(value: bool) -> Bend:
    return lambda _: ast.Return(ast.Constant(value))


def _affirmed(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.UnaryOp)
    return node.operand


def _signed(node: ast.AST) -> ast.AST:
    assert isinstance(node, ast.BinOp)
    signs: dict[type[ast.operator], type[ast.operator]] = {
        ast.Add: ast.Sub,
        ast.Sub: ast.Add,
        ast.BitOr: ast.BitAnd,
        ast.BitAnd: ast.BitOr,
    }
    node.op = signs[type(node.op)]()
    return node


def _undone(node: ast.AST) -> ast.AST:
    """The statement does nothing; a generator stays one."""
    assert isinstance(node, ast.Expr)
    if isinstance(node.value, ast.Call):
        return ast.Pass()
    nothing = ast.YieldFrom(ast.Tuple([], ast.Load()))
    return ast.Expr(nothing)


def _passed(_: ast.AST) -> ast.AST:
    return ast.Pass()
