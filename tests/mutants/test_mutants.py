"""The mutator bends what decides, each in one place, and what it bends is noticed."""

import ast

import pytest

from tests.mutants.operators import mutants
from tests.mutants.survivors import Survivor, named
from tests.mutants.targets import TARGETS
from tests.mutants.trial import ROOT


def bent(source: str) -> dict[str, str]:
    """Name -> text of each mutant."""
    return {one.name: ast.unparse(one.tree()) for one in mutants(source)}


@pytest.mark.parametrize(
    ("source", "name", "text"),
    [
        pytest.param("a and b", "no `b` in `a and b`", "a", id="an operand"),
        pytest.param("a < b", "LtE for Lt in `a < b`", "a <= b", id="a boundary"),
        pytest.param("a < b < c", "LtE for Lt 2 in `a < b < c`", "a < b <= c", id="the second"),
        pytest.param("any(x)", "all for `any(x)`", "all(x)", id="any"),
        pytest.param("not x", "no `not` in `not x`", "x", id="not"),
        pytest.param("[x for x in y if x]", "no filter `x`", "[x for x in y]", id="a filter"),
        pytest.param("x if y else z", "False for `y`", "x if False else z", id="a branch"),
        pytest.param("x + 1", "2 for 1", "x + 2", id="a number"),
        pytest.param("x - y", "another sign in `x - y`", "x + y", id="a sign"),
        pytest.param("{*x, *y}", "no element `*y` in `{*x, *y}`", "{*x}", id="an element"),
        pytest.param("{**x, 'a': y}", "no part `x` in `{**x, 'a': y}`", "{'a': y}", id="a part"),
        pytest.param("keep(x)", "without `keep(x)`", "pass", id="a step"),
    ],
)
def test_a_decision_is_bent_in_one_place(source: str, name: str, text: str) -> None:
    assert bent(source)[f"-: {name}"] == text


@pytest.mark.parametrize(
    "source",
    [
        pytest.param('"""One of 2."""', id="a docstring"),
        pytest.param("f'{x if y else z}'", id="a text"),
        pytest.param("def f(x: 'int | None' = None) -> 'int | None': ...", id="annotations"),
        pytest.param("@cache(maxsize=1)\ndef f(x): return x", id="a decorator"),
        pytest.param("z = zip(x, y, strict=True)", id="what is asserted of lengths"),
        pytest.param("if TYPE_CHECKING:\n    import x", id="for type checkers alone"),
    ],
)
def test_what_decides_nothing_is_left_alone(source: str) -> None:
    assert bent(source) == {}


def test_two_mutants_of_one_text_are_told_apart_and_by_the_function_they_lie_in() -> None:
    source = "class A:\n    def f(self):\n        def g(): return x and y\n        return x and y"

    names = [name for name in bent(source) if "no `x`" in name]

    assert names == ["A.f: no `x` in `x and y`", "A.f: no `x` in `x and y` #2"]


def test_a_default_lies_outside_of_its_function() -> None:
    assert [(one.name, one.function) for one in mutants("def f(x=0): return x + 1")] == [
        ("-: 1 for 0", ""),
        ("f: another sign in `x + 1`", "f"),
        ("f: 2 for 1", "f"),
    ]


def test_each_target_and_each_of_its_tests_is_there() -> None:
    files = [path for target, tests in TARGETS.items() for path in (target, *tests)]

    assert [path for path in files if not (ROOT / path).is_file()] == []


def test_each_named_survivor_is_a_mutant_of_its_module_and_has_a_reason() -> None:
    known: dict[str, set[str]] = {}
    for one in named():
        if one.module not in known:
            source = (ROOT / one.module).read_text("utf-8")
            known[one.module] = {each.name for each in mutants(source)}

    assert {one.module for one in named()} <= TARGETS.keys()
    assert [one for one in named() if one.mutant not in known[one.module]] == []


def test_survivors_share_the_reason_that_follows_them() -> None:
    text = "# note\na.py\n  f: one\n  f: two\n    why\nb.py\n  g: three\n    else\n"

    assert named(text) == (
        Survivor("a.py", "f: one", "why"),
        Survivor("a.py", "f: two", "why"),
        Survivor("b.py", "g: three", "else"),
    )


@pytest.mark.parametrize("text", ["a.py\n  f: one\n", "a.py\n  f: one\nb.py\n", "a.py\n    why\n"])
def test_a_survivor_without_a_reason_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"without a reason|reason of nothing"):
        named(text)
