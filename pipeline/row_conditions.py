"""Refuses row conditions that run code, and those that pandas compares wrongly.

A condition of pandas or Spark is code: it can call any function of the process. So only what is
known to be a comparison is accepted. The text is checked as tokens first, because pandas and Spark
must read the same tokens as Python's parser does.

Without an error, pandas finds no number equal to a text, no time equal to a word, and no decimal
equal to a binary number. An expectation would then be met although its rows were never checked.
Conditions of pandas, those of Great Expectations (`col("x")`), and conditions as objects are read.
What pandas itself refuses is left to it. Pure.
"""

import ast
import math
import re
from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any
from unicodedata import normalize

from pipeline.comparisons import Column, Columns, IncomparableError, Kind, find_kind, read_time

_TEXT = r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\""
_QUOTED = re.compile(_TEXT)
_COL = re.compile(r"\bcol\(\s*(['\"])(.*?)\1\s*\)")
_COMPARED = "(?:==|!=|<=|>=|<|>)"
_COMPARING = frozenset({"==", "!=", "<=", ">=", "<", ">", "in"})
_METHODS = frozenset({"isin", "eq", "ne", "lt", "le", "gt", "ge", "between"})
_TOKEN = re.compile(
    rf"(?P<text>{_TEXT})|`(?P<quoted>[^`]*)`|(?P<number>\d[\w.]*|\.\d+)|(?P<word>\w+)"
    rf"|(?P<sign>{_COMPARED}|\S)"
)
_COMPARISON = (
    *(ast.Expression, ast.Load, ast.Name, ast.List, ast.Tuple),
    *(ast.BoolOp, ast.And, ast.Or, ast.BinOp, ast.BitAnd, ast.BitOr),
    *(ast.UnaryOp, ast.Not, ast.Invert, ast.USub, ast.UAdd),
    *(ast.Compare, ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.In, ast.NotIn),
)
_NULLS = frozenset({"isnull", "notnull", "isna", "notna"})
_STRICT_TOKEN = re.compile(
    r"""(?<![\w'"`])(?:'[^'\\]*'|"[^"\\]*"|`[^`'"\\]+`)(?![\w'"`])|[\w.]+|[-+~&|()\[\],<>=!\s]"""
)
_OWN_TEXT = r"""(?:"[^"'`\\\s][^"'`\\]*"|'[^"'`\\\s][^"'`\\]*')"""
_OWN = re.compile(  # what Great Expectations reads as a whole; it drops leading blanks of a text
    rf"""col\("(?P<column>[^"'`\\]+)"\)(?:\.(?i:notnull)\(\)|[ ]*(?:[=!<>]=|[<>])[ ]*"""
    rf"""(?:[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?|{_OWN_TEXT}|date\({_OWN_TEXT}\)))"""
)
_LOCAL = "__pd_eval_local_"  # the prefix by which pandas replaces the `@` of `@name`


def require_comparisons(condition: Any) -> None:
    """Refuse a row condition that does more than compare columns with values and each other.

    Raises:
        IncomparableError: with what is accepted.
    """
    if condition is not None and not condition:
        raise IncomparableError("its row condition is empty; leave it out")
    try:
        accepted = condition is None or _has_only_comparisons(condition)
    except SyntaxError as error:
        what = f"its row condition cannot be read: {error.msg}"
        fix = """write comparisons, such as `state == "new" and x > 1`"""
        raise IncomparableError(f"{what}; {fix}") from error
    except (ValueError, RecursionError, MemoryError):
        accepted = False
    if accepted:
        return
    if isinstance(condition, str) and condition.strip().startswith("col("):
        what = "its row condition with `col` is not one comparison with a plain value"
        fix = 'write `col("x") == 1`, or `x == 1 and y == 2` with `condition_parser: pandas`'
    else:
        what = "its row condition does more than compare columns with values and each other"
        fix = "leave out functions, `@`, arithmetic, backslashes and quotes in parameters"
    raise IncomparableError(f"{what}; {fix}")


def _has_only_comparisons(condition: Any) -> bool:
    known = condition.dict() if hasattr(condition, "dict") else condition
    if isinstance(known, str):
        return _is_comparison(known.strip())
    if not isinstance(known, Mapping):
        return False
    column = known.get("column", "")
    name = column.get("name") if isinstance(column, Mapping) else column
    is_whole = isinstance(known.get("conditions", []), list | tuple)
    if not is_whole or not _is_name(name) or not _is_parameter(known.get("parameter")):
        return False
    return all(_has_only_comparisons(one) for one in _parts(known))


def _parts(condition: Mapping[str, Any]) -> list[Any]:
    """The conditions in a condition object."""
    listed, passed = condition.get("conditions"), condition.get("pass_through_filter")
    return [*(listed if isinstance(listed, list | tuple) else ()), *([passed] if passed else ())]


def _is_parameter(value: Any) -> bool:
    """Whether pandas and Spark read Python's text of *value* as that value, never as code."""
    if isinstance(value, list | tuple):
        return all(_is_parameter(one) and not isinstance(one, list | tuple) for one in value)
    if isinstance(value, str):
        return _is_quotable(value)
    return (
        value is None
        or isinstance(value, int)
        or (isinstance(value, float) and math.isfinite(value))
    )


def _is_quotable(text: str) -> bool:
    """Whether *text* needs no escape in quotes or backticks of any kind."""
    return repr(text) == f"'{text}'" and not {'"', "`"} & set(text)


def _is_name(name: Any) -> bool:
    """Whether pandas reads *name*, also in backticks, as one column."""
    if not isinstance(name, str) or not _is_quotable(name):
        return False
    return not normalize("NFKC", name).startswith(_LOCAL)


def _is_comparison(text: str) -> bool:
    """Whether *text* is one line of comparisons, to Python, pandas and Spark alike."""
    if text.startswith("col("):
        own = _OWN.fullmatch(text)
        return own is not None and text.isprintable() and _is_name(own["column"])
    if len(text.splitlines()) > 1 or _STRICT_TOKEN.sub("", text):
        return False
    if not all(_is_name(one["quoted"] or "") for one in _TOKEN.finditer(text)):
        return False
    called = set[int]()
    for node in ast.walk(_parse(text, _unused_name(text))):  # a call comes before the names in it
        if isinstance(node, ast.Call) and _is_known_call(node):
            called |= {id(one) for one in ast.walk(node.func)}
        elif id(node) not in called and not _is_part_of_comparison(node):
            return False
    return True


def _parse(text: str, quoted: str) -> ast.Expression:
    """Parse a condition of pandas; each name in backticks becomes *quoted*."""
    named = _TOKEN.sub(lambda one: quoted if one["quoted"] else one.group(), text)
    return ast.parse(named, mode="eval")


def _unused_name(text: str) -> str:
    """Return a name that *text* does not have, also when Python has normalized its names."""
    name, known = "quoted", normalize("NFKC", text)
    while name in known:
        name += "_"
    return name


def list_condition_columns(condition: Any) -> Iterator[str]:
    """Yield the columns of a row condition that `require_comparisons` accepts."""
    known = condition.dict() if hasattr(condition, "dict") else condition
    if isinstance(known, Mapping):
        column = known.get("column")
        name = column.get("name") if isinstance(column, Mapping) else column
        yield from [name] if isinstance(name, str) else []
        for one in _parts(known):
            yield from list_condition_columns(one)
    elif isinstance(known, str) and known.strip():
        text = known.strip()
        if own := _OWN.fullmatch(text):
            yield own["column"]
            return
        yield from (one["quoted"] for one in _TOKEN.finditer(text) if one["quoted"])
        nodes = list(ast.walk(_parse(text, unused := _unused_name(text))))
        called = {id(one.func) for one in nodes if isinstance(one, ast.Call)}
        for node in nodes:
            if isinstance(node, ast.Name) and id(node) not in called and node.id != unused:
                yield node.id


def _is_part_of_comparison(node: ast.AST) -> bool:
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str | int | float | None)
    return isinstance(node, _COMPARISON) and (not isinstance(node, ast.Name) or _is_name(node.id))


def _is_known_call(call: ast.Call) -> bool:
    """Whether the call compares a column, or names a date."""
    if call.keywords:
        return False
    match call.func, call.args:
        case ast.Name("date"), [ast.Constant(str() as text)]:
            return _is_name(text)
        case ast.Attribute(ast.Attribute(ast.Name(name), "str"), "len"), []:
            return _is_name(name)
        case ast.Attribute(ast.Name(name), method), _:
            return _is_name(name) and method in _NULLS | _METHODS
    return False


def require_plain_condition(condition: Any, columns: Columns) -> None:
    """Refuse a row condition that pandas compares wrongly, because it would select other rows.

    Raises:
        IncomparableError: with the column.
    """
    known = condition.dict() if hasattr(condition, "dict") else condition
    if isinstance(known, Mapping):
        for one in _parts(known):
            require_plain_condition(one, columns)
    text = _COL.sub(r"`\2`", known) if isinstance(known, str) else ""
    for name, type_ in columns.types.items():
        kind = find_kind(type_)
        if kind is not None and kind.name not in ("date", "binary") and not kind.is_decimal:
            operands = _operands(text, name) if text else _parameters(known, name)
            if all(_is_alike(one, Column(name, kind), columns) for one in operands):
                continue
            what = f"its row condition compares column {name}, which is {type_}"
            raise IncomparableError(f"{what}, with another kind of value; write one of that type")
        is_decimal = kind is not None and kind.is_decimal
        if text:
            compared = _is_compared(text, name, with_whole=not is_decimal)
        else:
            compared = not all(
                isinstance(one, int) and is_decimal for one in _parameters(known, name)
            )
        if compared:
            what = f"its row condition compares column {name}, which is {type_}"
            raise IncomparableError(f"{what}, and pandas does so wrongly; leave the condition out")


def _is_compared(text: str, name: str, *, with_whole: bool) -> bool:
    """Whether a pandas condition compares a column; *with_whole*, also with whole numbers."""
    column = rf"`?(?<!\w){re.escape(name)}(?!\w)`?"
    nulls = rf"{column}\.(?:isnull|notnull|isna|notna)\(\)"
    left = re.sub(nulls, "", text, flags=re.IGNORECASE)
    if not with_whole:
        alone = r"\s*(?=$|[)&|]|and\b|or\b)"
        whole = rf"(^|[(&|~]|\band\b|\bor\b|\bnot\b)\s*{column}\s*{_COMPARED}\s*-?\d+{alone}"
        left = re.sub(whole, r"\1 ", left)
    is_plain = "'''" not in left and '"""' not in left
    return re.search(column, _QUOTED.sub("", left) if is_plain else left) is not None


def _operands(text: str, name: str) -> list[Any]:
    """What a pandas condition compares a column with: values, and `Named` for other columns."""
    tokens = list(_TOKEN.finditer(text))
    said = [one.group() for one in tokens]
    found = list[re.Match[str]]()
    for at, one in enumerate(tokens):
        if name not in (one["word"], one["quoted"]):
            continue
        after = at + 1 + (said[at + 1 : at + 3] == ["not", "in"])
        if said[at + 1 : at + 2] == ["."] and said[at + 2 : at + 3] and said[at + 2] in _METHODS:
            after = at + 2
        if after > at + 1 or (after < len(said) and said[after] in _COMPARING):
            found += _operand(tokens[after + 1 :], "([", ")]")
        if at and said[at - 1] in _COMPARING:
            found += _operand(tokens[: at - 1][::-1], ")]", "([")
    return [_read_operand(one) for one in found]


def _operand(tokens: Sequence[re.Match[str]], opening: str, closing: str) -> list[re.Match[str]]:
    """The first of *tokens*, or those in its brackets."""
    found, depth = list[re.Match[str]](), 0
    for one in tokens:
        sign = one.group()
        depth += (sign in opening) - (sign in closing)
        if one["sign"] is None:
            found.append(one)
        if depth <= 0 and sign not in ("-", "+"):
            break
    return found


def _read_operand(one: re.Match[str]) -> Any:
    if one["text"] is not None or one["number"] is not None:
        try:
            return literal_eval(one.group())
        except (SyntaxError, ValueError):
            return None
    word = one["word"] or one["quoted"]
    return {"True": True, "False": False}.get(word, Named(word))


@dataclass(frozen=True, slots=True)
class Named:
    """A name in a condition: that of another column, or one that pandas refuses."""

    name: str


def _is_alike(value: Any, column: Column, columns: Columns) -> bool:
    """Whether pandas compares *value* with the column correctly."""
    kind = column.kind
    if isinstance(value, Named):
        other = find_kind(columns.types[value.name]) if value.name in columns.types else None
        return other is None or _family(other) == _family(kind)
    if kind.is_time:
        try:
            read_time(
                value, Column(column.name, Kind("timestamp_ntz"))
            )  # in memory, times have no zone
        except IncomparableError:
            return False
        return True
    return isinstance(value, str if kind.name == "string" else int | float | Decimal)


def _family(kind: Kind) -> str:
    """A name for all kinds whose values pandas compares with each other."""
    if kind.is_exact or kind.is_float or kind.name == "boolean":
        return "number"
    return "time" if kind.is_time else kind.name


def _parameters(known: Any, name: str) -> list[Any]:
    """The values that a condition object compares a column with."""
    if not isinstance(known, Mapping) or known.get("type") != "comparison":
        return []
    column = known["column"]
    if name != (column["name"] if isinstance(column, Mapping) else column):
        return []
    listed = known.get("parameter")
    return list(listed) if isinstance(listed, list | tuple | set | frozenset) else [listed]
