"""Evaluates a Debezium connector's lists: which tables it sends, and which columns it alters.

A list has Java regular expressions separated by commas. Each must match a whole name, ignoring
case. A comma inside an expression is escaped with a backslash. Debezium describes the schema of
every table, captured or not.

A Java expression is translated into a Python expression of the same meaning, or rejected. A
misread list would claim that rows are sent which are not. Some syntax is valid in both languages
with different meanings. In Java, word classes and case folding are ASCII only, and `&&` or a
bracket inside a character class builds sets of sets. The tests compare with Java itself.

Python tries the ways in which an expression may match one after another, and cannot be stopped.
An expression with too many ways is rejected before use, because it would stop all sources.

Expressions of column lists match `database.table.column` (Postgres: `schema.table.column`). A
column list that cannot be read counts as altering every column. The names of some settings
contain a salt, so these names are never shown.
"""

import importlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from math import comb
from types import ModuleType
from typing import Any

from pipeline.collectors.connect.database import database_of_connector
from pipeline.model import CaptureScope, ShardId

_parser: ModuleType = importlib.import_module("re._parser")  # it has no public name
_op: ModuleType = importlib.import_module("re._constants")

# Escapes with the same meaning in both languages; not \b, for which Java uses Unicode.
_NUMBERS = frozenset("123456789")  # group numbers; Java may read two digits, see `_escape`
_ALIKE = frozenset("dDwWsSAtnrfaxu") | _NUMBERS
_ALIKE_IN_SETS = _ALIKE - _NUMBERS - {"A"}
_SETS = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "ASCII": r"\x00-\x7f",
}
_SET = re.compile(r"\\([pP])\{(\w+)\}")
_GROUP = re.compile(r"\(\?(?:[=!>]|<[=!]|(?P<flags>i?(?:-[is]+)?)[:)])")
_DOT_ALL = re.compile(r"\(\?(?:s|is|si)\)")  # for the whole pattern; rejected elsewhere
_NAMED = re.compile(r"\(\?<([a-zA-Z][a-zA-Z0-9]*)>")
_AGAIN = re.compile(r"\\k<([a-zA-Z][a-zA-Z0-9]*)>")
# Java's dot excludes more line terminators than Python's, and its $ may precede the last one.
_DOT = r"[^\n\r\x85\u2028\u2029]"
_END = r"(?=(?:\r\n|(?<!\r)\n|[\r\x85\u2028\u2029])?\Z)"
_ODD_IN_SETS = ("&&", "--", "||", "~~", "[")  # set operations in Java or in Python
_FLAGS = re.IGNORECASE | re.ASCII
_SHOWN = 100  # characters of a pattern in a message
_LONGEST = 130  # characters of a name: two parts of at most 64, and the dot
_MOST = 100_000_000  # ways to try a pattern on one name, which take about a second
_MOST_OF_LIST = 10 * _MOST
_FEW = 8  # repeats that are counted one by one
_ONE_WAY = frozenset((_op.LITERAL, _op.NOT_LITERAL, _op.ANY, _op.IN, _op.AT, _op.GROUPREF))
_REPEATS = (_op.MAX_REPEAT, _op.MIN_REPEAT, _op.POSSESSIVE_REPEAT)
_TOO_MANY = "it has too many *, + and |, and one name may take hours"

# Numbers of ways, by the number of unbounded repeats that share the characters of a name.
Ways = dict[int, int]
_ONE: Ways = {0: 1}


def compile_patterns(texts: Iterable[str]) -> tuple[re.Pattern[str], ...]:
    """Compile each of *texts* as connectors do: ignoring the case of ASCII characters.

    Raises:
        re.error: one cannot be read here, or all together may take too long for one name.
    """
    found = tuple(map(_counted, texts))
    if sum(ways for _, ways in found) > _MOST_OF_LIST:
        raise re.error(f"{len(found)} patterns have too many * and +, and may take minutes")
    return tuple(pattern for pattern, _ in found)


@lru_cache(maxsize=4096)
def _counted(text: str) -> tuple[re.Pattern[str], int]:
    """The compiled pattern, and an upper bound of the ways that Python tries for one name."""
    try:
        translated = _translated(text)
        return re.compile(translated, _FLAGS), _ways(translated)
    except (re.error, ValueError, OverflowError, RecursionError) as error:
        shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
        raise re.error(f"{shown!r}: {error}") from None


def _translated(text: str) -> str:
    dot_all = _DOT_ALL.match(text)
    found, at = ("", 0) if dot_all is None else (dot_all[0], dot_all.end())
    while at < len(text):
        said, at = _sign(text, at, "." if dot_all else _DOT)
        found += said
    return found


def _sign(text: str, at: int, dot: str) -> tuple[str, int]:
    """Return the token at *at* as a Python expression, and its end."""
    if text[at] in ".$":
        return dot if text[at] == "." else _END, at + 1
    if text[at] == "\\":
        return _escape(text, at)
    if text[at] == "[":
        return _letters(text, at)
    if text.startswith("(?", at):
        return _group(text, at, scoped=dot == _DOT)
    return text[at], at + 1


def _escape(text: str, at: int) -> tuple[str, int]:
    if text.startswith(r"\Q", at):
        ends = text.find(r"\E", at)
        quoted = text[at + 2 :] if ends < 0 else text[at + 2 : ends]
        return re.escape(quoted), len(text) if ends < 0 else ends + 2
    if again := _AGAIN.match(text, at):
        return f"(?P={again[1]})", again.end()
    if (one := _SET.match(text, at)) and one[2] in _SETS:
        negated = "^" if one[1] == "P" else ""
        return f"[{negated}{_SETS[one[2]]}]", one.end()
    if text.startswith((r"\z", r"\Z"), at):
        return r"\Z" if text[at + 1] == "z" else _END, at + 2
    if text[at + 1 : at + 2] in _NUMBERS and text[at + 2 : at + 3].isdigit():
        raise re.error("figures after a number of a group cannot be read here", text, at)
    return _alike(text, at, _ALIKE)


def _alike(text: str, at: int, known: frozenset[str]) -> tuple[str, int]:
    sign = text[at + 1 : at + 2]
    if (
        not sign
        or (sign.isascii() and sign.isalnum() and sign not in known)
        or text.startswith(r"\x{", at)
    ):
        raise re.error(f"\\{sign} cannot be read here", text, at)
    return text[at : at + 2], at + 2


def _letters(text: str, at: int) -> tuple[str, int]:
    """Translate a set of characters; nested sets and intersections are rejected."""
    ends = at + (2 if text.startswith("[^", at) else 1)
    found = text[at:ends]
    if text.startswith("]", ends):
        raise re.error("a set that begins with ] cannot be read here", text, at)
    while not text.startswith("]", ends):
        if ends >= len(text) or text.startswith(_ODD_IN_SETS, ends):
            raise re.error("a set of sets cannot be read here", text, ends)
        if (one := _SET.match(text, ends)) and one[1] == "p" and one[2] in _SETS:
            said, ends = _SETS[one[2]], one.end()
        elif text[ends] == "\\":
            said, ends = _alike(text, ends, _ALIKE_IN_SETS)
        else:
            said, ends = text[ends], ends + 1
        found += said
    return found + "]", ends + 1


def _group(text: str, at: int, *, scoped: bool) -> tuple[str, int]:
    """Translate the beginning of a group; *scoped*: its flags may remove the unset flag s."""
    if named := _NAMED.match(text, at):
        return f"(?P<{named[1]}>", named.end()
    if (plain := _GROUP.match(text, at)) and (scoped or "s" not in (plain["flags"] or "")):
        return plain[0], plain.end()
    raise re.error("this kind of group cannot be read here", text, at)


def _ways(translated: str) -> int:
    ways = _total(_sum(*_sequence(_parser.parse(translated, _FLAGS))))
    if ways > _MOST:
        raise re.error(_TOO_MANY)
    return ways


def _sequence(items: Iterable[tuple[Any, Any]]) -> tuple[Ways, Ways]:
    """Number of ways in which *items* match from one position, and number of ways tried."""
    ways, tried = _ONE, Ways()
    for op, argument in items:
        its_ways, its_tried = _item(op, argument)
        tried = _sum(tried, _times(ways, its_tried))
        ways = _times(ways, its_ways)
        if _total(ways) > _MOST:
            raise re.error(_TOO_MANY)
    return ways, tried


def _item(op: Any, argument: Any) -> tuple[Ways, Ways]:
    if op in _ONE_WAY:
        return _ONE, {}
    if op in _REPEATS:
        ways, tried = _repeat(*argument)
        return (_ONE, _sum(ways, tried)) if op is _op.POSSESSIVE_REPEAT else (ways, tried)
    if op is _op.SUBPATTERN:
        return _sequence(argument[-1])
    if op is _op.BRANCH:
        return _branch(argument[1])
    if op in (_op.ASSERT, _op.ASSERT_NOT):
        return _ONE, _sum(*_sequence(argument[1]))
    if op is _op.ATOMIC_GROUP:
        return _ONE, _sum(*_sequence(argument))
    raise re.error(f"{str(op).lower()} cannot be read here")


def _branch(branches: Iterable[Any]) -> tuple[Ways, Ways]:
    ways, tried = Ways(), Ways()
    for one in branches:
        its_ways, its_tried = _sequence(one)
        ways, tried = _sum(ways, its_ways), _sum(tried, its_tried)
    return ways, _sum(tried, ways)


def _repeat(least: int, most: Any, items: Any) -> tuple[Ways, Ways]:
    """Count the ways to match a repetition; reject one whose ways double with each character."""
    inner, tried_once = _sequence(items)
    most = min(int(most), _LONGEST)
    least = min(least, most)
    if inner == _ONE and most - least > _FEW:
        ways: Ways = {1: 1}
        return ways, _sum(ways, _times(ways, tried_once))
    if inner != _ONE and most > _FEW:
        raise re.error("a * or + repeats what has another *, + or | in it: one name may take hours")
    ways, tried, power = Ways(), Ways(), _ONE
    for count in range(most + 1):
        ways = _sum(ways, power) if count >= least else ways
        tried = _sum(tried, _times(power, tried_once))
        power = _times(power, inner)
        if _total(power) > _MOST:
            raise re.error(_TOO_MANY)
    return ways, _sum(ways, tried)


def _sum(one: Ways, other: Ways) -> Ways:
    return {n: one.get(n, 0) + other.get(n, 0) for n in one.keys() | other.keys()}


def _times(one: Ways, other: Ways) -> Ways:
    found = Ways()
    for n, many in one.items():
        for m, more in other.items():
            found[n + m] = found.get(n + m, 0) + many * more
    return found


def _total(ways: Ways) -> int:
    """Number of ways for the longest name."""
    return sum(many * comb(_LONGEST + n, n) for n, many in ways.items())


TABLES = ("table.include.list", "table.exclude.list")
Patterns = tuple[re.Pattern[str], ...] | None
_BETWEEN_COMMAS = re.compile(r"(?:[^\\,]|\\.|\\$)+")


@dataclass(frozen=True, slots=True)
class TableFilter:
    """The table lists of a connector; a list that is not set is None.

    If a list cannot be read here, no table is included; ``fault`` names the list and the reason.
    ``outer`` matches the first part of a table's name: its database, or its schema.
    """

    outer: Patterns = None
    no_outer: Patterns = None
    tables: Patterns = None
    no_tables: Patterns = None
    built_in: tuple[str, ...] = ()
    fault: str = ""

    @classmethod
    def of(cls, config: Mapping[str, str]) -> "TableFilter":
        """Build the filter of a connector with *config*."""
        database = database_of_connector(config)
        found = list[Patterns]()
        for name in (*list_setting_names(database.lists), *TABLES):
            try:
                found.append(read_patterns(config.get(name, "")))
            except re.error as error:
                return cls(tables=(), fault=f"{name}: {error}")
        outer, no_outer, tables, no_tables = found
        return cls(outer, no_outer, tables, no_tables, database.built_in)

    def captures(self, shard: ShardId) -> bool:
        """Whether the connector sends rows of *shard*."""
        if shard.database.lower() in self.built_in:
            return False
        name = f"{shard.database}.{shard.relation}"
        inside = is_included(shard.database, self.outer, self.no_outer)
        return inside and is_included(name, self.tables, self.no_tables)


def list_setting_names(outer: str) -> tuple[str, str]:
    """Names of the include and exclude list of *outer*: ``database`` or ``schema``."""
    return f"{outer}.include.list", f"{outer}.exclude.list"


def read_capture(config: Mapping[str, str]) -> CaptureScope:
    """The tables whose rows a connector with *config* sends."""
    names = (*list_setting_names(database_of_connector(config).lists), *TABLES)
    found, lists = TableFilter.of(config), {name: config.get(name, "") for name in names}
    if found.fault:
        said_by = f"the collector's lists ({found.fault})"
        return CaptureScope(found.captures, json.dumps(lists), known=False, said_by=said_by)
    return CaptureScope(found.captures, json.dumps(lists))


def is_included(name: str, include: Patterns, exclude: Patterns) -> bool:
    """Whether the lists include *name*; *exclude* counts only without *include*."""
    if include is not None:
        return any(pattern.fullmatch(name) for pattern in include)
    return not any(pattern.fullmatch(name) for pattern in exclude or ())


def read_patterns(text: str) -> Patterns:
    """Compile the expressions of a list; None if it is empty.

    Raises:
        re.error: an expression cannot be read here.
    """
    if not text.strip():
        return None
    parts = _BETWEEN_COMMAS.findall(text)
    return compile_patterns(part.strip().replace("\\,", ",") for part in parts if part.strip())


INCLUDED, EXCLUDED = "column.include.list", "column.exclude.list"
CHANGING = ("column.mask.", "column.truncate.to.")
EVERY = (re.compile(".*", re.DOTALL),)


def find_column_settings(config: Mapping[str, str]) -> Callable[[str], str] | None:
    """A function that returns the setting that alters a column, or an empty text.

    None if no setting alters any column.
    """
    lists = [(EXCLUDED, _read(config.get(EXCLUDED, ""), EVERY))]
    for begins in CHANGING:
        own = [text for name, text in config.items() if name.startswith(begins)]
        lists += [(f"{begins}*", _read(text, EVERY)) for text in own]
    included = _read(config.get(INCLUDED, ""), ())
    named = [(name, some) for name, some in lists if some is not None]
    if not named and included is None:
        return None

    def describe(column: str) -> str:
        for name, some in named:
            if any(pattern.fullmatch(column) for pattern in some):
                return name
        left_out = included is not None and not any(one.fullmatch(column) for one in included)
        return INCLUDED if left_out else ""

    return describe


def _read(text: str, otherwise: Patterns) -> Patterns:
    try:
        return read_patterns(text)
    except re.error:
        return otherwise
