"""Parses conditions that select rows: columns compared with values, and nothing else.

``day >= '2026-03-01' AND (state IN ('open', 'paid') OR total IS NULL)``.  Functions, subqueries and
columns on the right are rejected, so a condition cannot change or hide anything.  A name is bare,
or in double quotes or backticks; a text is in single quotes.  Double a quote inside quotes.  Each
source renders the condition as its own SQL, with the values as arguments.  Pure.
"""

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from decimal import Decimal

from pipeline.errors import ConfigError

Value = int | str | bytes | Decimal | bool
SqlCondition = tuple[str, tuple[Value, ...]]
"""SQL with ``%s`` for each value, and the values."""
SIGNS = ("=", "<>", "!=", "<", "<=", ">", ">=")
LONGEST = 10_000  # characters
MOST_DIGITS = 100  # digits of a number; columns have at most 65, and Python parses 4,300
_TOKEN = re.compile(
    r"""\s*(?:
    (?P<text>'(?:[^']|'')*')
  | (?P<name>"(?:[^"]|"")+" | `(?:[^`]|``)+`)
  | (?P<number>[+-]?\d+(?:\.\d+)?(?![\w.]))
  | (?P<word>[^\W\d]\w*)
  | (?P<sign><>|!=|<=|>=|[=<>(),])
    )""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A column compared with a value; ``sign`` is one of ``SIGNS``, or LIKE."""

    column: str
    sign: str
    value: Value


@dataclass(frozen=True, slots=True)
class In:
    """A column that is one of some values."""

    column: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True)
class IsNull:
    """A column that is NULL."""

    column: str


@dataclass(frozen=True, slots=True)
class Not:
    """A condition that does not hold."""

    part: "Condition"


@dataclass(frozen=True, slots=True)
class BoolOp:
    """All parts hold (``word`` is AND), or any (OR)."""

    word: str
    parts: tuple["Condition", ...]


Condition = Comparison | In | IsNull | Not | BoolOp


def parse_condition(text: str) -> Condition:
    """Parse a condition.

    Raises:
        ConfigError: its syntax is not supported; the message shows the text at the error.
    """
    if len(text) > LONGEST:
        raise ConfigError(f"the condition has {len(text)} characters, the limit is {LONGEST}")
    reading = _Parser(text, list(_tokens(text)))
    found = reading.any_of()
    if reading.at < len(reading.tokens):
        raise reading.refusal()
    return found


def list_columns(condition: Condition) -> frozenset[str]:
    """Names of all columns in the condition."""
    match condition:
        case Not(part):
            return list_columns(part)
        case BoolOp(_, parts):
            return frozenset().union(*map(list_columns, parts))
        case _:
            return frozenset({condition.column})


def list_values(condition: Condition) -> Iterator[tuple[str, Value]]:
    """Each column with each value that it is compared with, except by LIKE."""
    match condition:
        case Comparison(column, sign, value) if sign != "LIKE":
            yield column, value
        case In(column, values):
            yield from ((column, value) for value in values)
        case Not(part):
            yield from list_values(part)
        case BoolOp(_, parts):
            for part in parts:
                yield from list_values(part)


def require_known(condition: Condition, shard: str, columns: Collection[str]) -> None:
    """Reject a condition on a column that *shard* does not have.

    Raises:
        ConfigError: names it, and the known *columns*.
    """
    if strange := sorted(list_columns(condition) - {*columns}):
        known = ", ".join(sorted(columns))
        raise ConfigError(f"{shard} has no column {strange[0]}; known: {known}")


def to_sql(condition: Condition, quoted: Callable[[str], str]) -> SqlCondition:
    """Render as SQL; *quoted* renders the name of a column, with ``%`` doubled."""
    match condition:
        case Comparison(column, sign, value):
            return f"{quoted(column)} {sign} %s", (value,)
        case In(column, values):
            return f"{quoted(column)} IN ({', '.join(['%s'] * len(values))})", values
        case IsNull(column):
            return f"{quoted(column)} IS NULL", ()
        case Not(part):
            text, values = to_sql(part, quoted)
            return f"NOT ({text})", values
        case BoolOp(word, parts):
            each = [to_sql(part, quoted) for part in parts]
            joined = f" {word} ".join(f"({text})" for text, _ in each)
            return joined, tuple(value for _, values in each for value in values)


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int

    @property
    def word(self) -> str:
        """The text in capitals; empty if the token is not a word or sign."""
        return self.text.upper() if self.kind in ("word", "sign") else ""


def _tokens(text: str) -> Iterator[_Token]:
    at = 0
    while text[at:].strip():
        found = _TOKEN.match(text, at)
        if found is None:
            raise ConfigError(_syntax_error(text, at + len(text[at:]) - len(text[at:].lstrip())))
        kind = str(found.lastgroup)
        yield _Token(kind, found.group(kind), found.start(kind))
        at = found.end()


@dataclass(eq=False)
class _Parser:
    """A recursive descent parser; OR binds less than AND, AND less than NOT."""

    text: str
    tokens: list[_Token]
    at: int = 0
    depth: int = 0

    def any_of(self) -> Condition:
        return self._joined("OR", lambda: self._joined("AND", self._one))

    def refusal(self) -> ConfigError:
        place = self.tokens[self.at].at if self.at < len(self.tokens) else len(self.text)
        return ConfigError(_syntax_error(self.text, place))

    def _joined(self, word: str, part: Callable[[], Condition]) -> Condition:
        parts = [part()]
        while self._took(word):
            parts.append(part())
        return parts[0] if len(parts) == 1 else BoolOp(word, tuple(parts))

    def _one(self) -> Condition:
        if self._took("NOT"):
            return Not(self._deeper(self._one))
        if self._took("("):
            found = self._deeper(self.any_of)
            self._need(")")
            return found
        return self._of(self._column())

    def _deeper(self, read: Callable[[], Condition]) -> Condition:
        self.depth += 1
        if self.depth > 50:  # far below the interpreter's recursion limit
            raise self.refusal()
        found = read()
        self.depth -= 1
        return found

    def _of(self, column: str) -> Condition:
        if self._took("IS"):
            negated = self._took("NOT")
            self._need("NULL")
            return Not(IsNull(column)) if negated else IsNull(column)
        negated = self._took("NOT")
        if self._took("IN"):
            found: Condition = In(column, self._values())
        elif self._took("LIKE"):
            found = Comparison(column, "LIKE", self._value())
        elif self._took("BETWEEN"):
            low = self._value()
            self._need("AND")
            ends = (Comparison(column, ">=", low), Comparison(column, "<=", self._value()))
            found = BoolOp("AND", ends)
        elif not negated and self._next().text in SIGNS:
            sign = self._take().text
            return Comparison(column, "<>" if sign == "!=" else sign, self._value())
        else:
            raise self.refusal()
        return Not(found) if negated else found

    def _values(self) -> tuple[Value, ...]:
        self._need("(")
        found = [self._value()]
        while self._took(","):
            found.append(self._value())
        self._need(")")
        return tuple(found)

    def _column(self) -> str:
        token = self._next()
        if token.kind == "name":
            quote = self._take().text[0]
            return token.text[1:-1].replace(quote * 2, quote)
        if token.kind != "word" or token.word in ("AND", "OR", "NOT", "NULL", "TRUE", "FALSE"):
            raise self.refusal()
        return self._take().text

    def _value(self) -> Value:
        token = self._next()
        if token.kind == "text":
            return self._take().text[1:-1].replace("''", "'")
        if token.kind == "number":
            if len(token.text) > MOST_DIGITS:
                raise ConfigError(f"a number in the condition has more than {MOST_DIGITS} digits")
            return Decimal(self._take().text) if "." in token.text else int(self._take().text)
        if token.word in ("TRUE", "FALSE"):
            return self._take().word == "TRUE"
        raise self.refusal()

    def _next(self) -> _Token:
        return self.tokens[self.at] if self.at < len(self.tokens) else _Token("end", "", 0)

    def _take(self) -> _Token:
        self.at += 1
        return self.tokens[self.at - 1]

    def _took(self, word: str) -> bool:
        if self._next().word != word:
            return False
        self.at += 1
        return True

    def _need(self, word: str) -> None:
        if not self._took(word):
            raise self.refusal()


def _syntax_error(text: str, at: int) -> str:
    there = repr(text[at : at + 20]) if text[at:].strip() else "its end"
    return (
        f"unsupported condition at {there}; compare columns with values, for example "
        "day >= '2026-03-01' AND state IN (1, 2)"
    )
