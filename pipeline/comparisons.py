"""Compares columns with values of a suite, and with each other, exactly and alike in two engines.

Great Expectations compares by the rules of its engine: pandas never finds a number equal to a
decimal, reads bounds as binary numbers, and Spark converts texts. So each comparison is planned
here, from the expectation and the types of its columns, as one expression. It becomes an Arrow
array or a SQL expression of Spark: true, false, or null for a row that is not counted.

A number of a suite is the decimal that is written: 1.1 is not its nearest binary number. Only for a
FLOAT or DOUBLE column it is the nearest of 32 or 64 bits. Times without a zone are UTC. A NaN is a
value, is not between any bounds and equals nothing. A comparison that cannot be exact raises
`IncomparableError`. Pure.
"""

import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, localcontext
from functools import reduce
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema.model import ARROW

Kwargs = Mapping[str, Any]
EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001  - in UTC, without a zone
DAY = timedelta(days=1)
MICROSECOND = timedelta(microseconds=1)
MOST_DIGITS = 38  # of a decimal in Spark
LONGEST = {"tinyint": 8, "smallint": 16, "int": 32, "bigint": 64}
DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 19}
EXACT_SCALE = 6  # Python writes decimals of a larger scale with an exponent


class IncomparableError(Exception):
    """Why a column cannot be compared exactly; the text contains no value of a row."""


@dataclass(frozen=True, slots=True)
class Kind:
    """A type of a mirror's column by its name in Spark; digits and scale are those of a decimal."""

    name: str
    digits: int = 0
    scale: int = 0

    @property
    def sql(self) -> str:
        """The type in Spark."""
        return f"decimal({self.digits},{self.scale})" if self.is_decimal else self.name

    @property
    def arrow(self) -> pa.DataType:
        """The type in Arrow."""
        if self.is_decimal:
            return pa.decimal128(self.digits, self.scale)
        return ARROW[self.name]

    @property
    def is_decimal(self) -> bool:
        """Whether it is DECIMAL."""
        return self.name == "decimal"

    @property
    def is_exact(self) -> bool:
        """Whether it is a whole number or a decimal."""
        return self.is_decimal or self.name in LONGEST

    @property
    def is_time(self) -> bool:
        """Whether it is a date or a time."""
        return self.name in ("date", "timestamp", "timestamp_ntz")

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number."""
        return self.name in ("float", "double")

    @property
    def whole_digits(self) -> int:
        """Digits before the decimal point of an exact number."""
        return self.digits - self.scale if self.is_decimal else DIGITS[self.name]


KINDS = {kind: name for name, kind in ARROW.items()} | {
    pa.large_string(): "string",
    pa.large_binary(): "binary",
    pa.string_view(): "string",
    pa.binary_view(): "binary",
}


def find_kind(type_: pa.DataType) -> Kind | None:
    """Return the kind of an Arrow type; None if no mirror has such a column."""
    if pa.types.is_dictionary(type_):
        return find_kind(type_.value_type)
    if pa.types.is_decimal128(type_) and type_.scale >= 0:
        return Kind("decimal", type_.precision, type_.scale)
    if pa.types.is_timestamp(type_) and type_.unit == "us":
        return Kind("timestamp" if type_.tz else "timestamp_ntz")
    name = KINDS.get(type_)
    return Kind(name) if name else None


class Expression(Protocol):
    """A column of booleans or values, null where SQL has NULL."""

    def evaluate(self, rows: pa.Table) -> pa.Array | pa.Scalar:
        """Evaluate in memory."""
        ...

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        ...


@dataclass(frozen=True, slots=True)
class Column:
    """A column, cast to *kind*."""

    name: str
    kind: Kind

    def evaluate(self, rows: pa.Table) -> pa.Array:
        """Evaluate in memory."""
        found = rows[self.name].combine_chunks()
        if isinstance(found, pa.ChunkedArray):
            found = pa.concat_arrays(found.chunks)
        if pa.types.is_dictionary(found.type):
            found = found.dictionary_decode()
        return found.cast(self.kind.arrow)

    @property
    def quoted(self) -> str:
        """The name for Spark, with any characters."""
        return f"`{self.name.replace('`', '``')}`"

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        return f"CAST({self.quoted} AS {self.kind.sql})"


@dataclass(frozen=True, slots=True)
class Literal:
    """One value of *kind*."""

    value: Any
    kind: Kind

    def evaluate(self, rows: pa.Table) -> pa.Scalar:
        """Evaluate in memory."""
        return pa.scalar(self.value, self.kind.arrow)

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        if self.kind.name in ("string", "binary"):
            text = isinstance(self.value, str)
            code = (self.value.encode() if text else self.value).hex()
            return f"CAST(X'{code}' AS STRING)" if text else f"X'{code}'"
        if self.kind.name == "timestamp":
            return f"TIMESTAMP'{self.value.replace(tzinfo=None)}Z'"
        if self.kind.name == "timestamp_ntz":
            return f"TIMESTAMP_NTZ'{self.value}'"
        plain = f"{self.value:f}" if self.kind.is_decimal else str(self.value)
        return f"CAST('{plain}' AS {self.kind.sql})"


@dataclass(frozen=True, slots=True)
class Call:
    """A function of expressions, named by its SQL operator."""

    name: str
    args: tuple[Any, ...]

    def evaluate(self, rows: pa.Table) -> pa.Array | pa.Scalar:
        """Evaluate in memory."""
        return FUNCTIONS[self.name](*(one.evaluate(rows) for one in self.args))

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        args = [one.sql for one in self.args]
        if self.name == "IS NULL":
            return f"({args[0]} IS NULL)"
        if self.name == "NOT":
            return f"(NOT {args[0]})"
        made = f"({f' {self.name} '.join(args)})"
        floats = [one for one in self.args if isinstance(one, Column) and one.kind.is_float]
        numbers = "".join(f" AND NOT isnan({one.sql})" for one in floats)  # unlike NaN in Spark
        return f"({made}{numbers})" if numbers else made


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "=": pc.equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "<": pc.less,
    "<=": pc.less_equal,
    "AND": pc.and_kleene,
    "OR": pc.or_kleene,
    "NOT": pc.invert,
    "+": pc.add,
    "IS NULL": pc.is_null,
}


@dataclass(frozen=True, slots=True)
class OneOf:
    """Whether a column has one of *values*, all of its kind."""

    column: Column
    values: tuple[Any, ...]

    def evaluate(self, rows: pa.Table) -> pa.Array:
        """Evaluate in memory."""
        kind = self.column.kind
        return pc.is_in(self.column.evaluate(rows), pa.array(self.values, kind.arrow))

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        if not self.values:
            return "FALSE"
        listed = ", ".join(Literal(one, self.column.kind).sql for one in self.values)
        return f"({self.column.sql} IN ({listed}))"


@dataclass(frozen=True, slots=True)
class Always:
    """The same value for each row."""

    value: bool

    def evaluate(self, rows: pa.Table) -> pa.Array:
        """Evaluate in memory."""
        return pa.array([self.value] * rows.num_rows, pa.bool_())

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        return str(self.value).upper()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a row meets an expectation; null where it is *ignored*."""

    met: Expression
    ignored: Expression

    def evaluate(self, rows: pa.Table) -> pa.BooleanArray:
        """Evaluate in memory, a boolean for each of *rows*."""
        met = pc.fill_null(self.met.evaluate(rows), False)
        return pc.if_else(self.ignored.evaluate(rows), pa.scalar(None, pa.bool_()), met)

    @property
    def sql(self) -> str:
        """The expression for Spark."""
        return f"CASE WHEN {self.ignored.sql} THEN NULL ELSE coalesce({self.met.sql}, FALSE) END"


@dataclass(frozen=True, slots=True)
class WholeVerdict:
    """Whether an aggregate of a column (``min``, ``max``, ``sum``) is between two bounds.

    ``name`` is that of the aggregate; ``column`` has the kind of its result.
    """

    name: str
    column: Column
    met: Verdict

    def evaluate(self, rows: pa.Table) -> bool:
        """Evaluate in memory; false without a value."""
        found = self.column.evaluate(rows)
        value = getattr(pc, self.name)(found)
        one = pa.table({self.column.name: pa.array([value.as_py()], self.column.kind.arrow)})
        return self.met.evaluate(one)[0].as_py() is True

    def evaluate_by_spark(self, frame: Any) -> bool:
        """Evaluate by one aggregate over a Spark frame."""
        value = frame.selectExpr(f"{self.name}({self.column.sql}) AS {self.column.quoted}")
        return value.selectExpr(f"{self.met.sql} AS met").first()["met"] is True


Plan = Verdict | WholeVerdict
Planner = Callable[[Kwargs, "Columns"], Plan | None]


@dataclass(frozen=True, slots=True)
class Columns:
    """The columns of some rows, by name."""

    types: Mapping[str, pa.DataType]

    def find(self, name: Any) -> Column:
        """Return the column *name*, which must have a known kind.

        Raises:
            IncomparableError: its type cannot be compared exactly.
        """
        kind = find_kind(self.types[str(name)])
        if kind is None:
            why = f"column {name} is of type {self.types[str(name)]}, which is not compared exactly"
            raise IncomparableError(why)
        return Column(str(name), kind)


@dataclass(frozen=True, slots=True)
class TextMatch:
    """Whether the text of a value matches one of *patterns*, or ``every`` one, anywhere in it.

    RE2 reads the patterns: its time grows with the text alone, and it releases Python's lock.
    """

    column: str
    patterns: tuple[str, ...]
    every: bool
    negated: bool

    def evaluate(self, rows: pa.Table) -> pa.BooleanArray:
        """Evaluate in memory, a boolean for each of *rows*; null where the value is null."""
        texts = rows[self.column].combine_chunks().cast(pa.string())
        found = [pc.match_substring_regex(texts, one) for one in self.patterns]
        met = reduce(pc.and_ if self.every else pc.or_, found)
        return pc.invert(met) if self.negated else met


def plan_match(name: str, kwargs: Kwargs) -> TextMatch | None:
    """Return how to evaluate a regular-expression expectation in memory; None for other ones."""
    if name not in MATCHES:
        return None
    every = kwargs.get("match_on") == "all"
    return TextMatch(kwargs["column"], list_patterns(name, kwargs), every, "_to_not_" in name)


def list_patterns(name: str, kwargs: Kwargs) -> tuple[str, ...]:
    """Return the regular expressions of the expectation *name*; empty for other expectations."""
    if name not in MATCHES:
        return ()
    return tuple(kwargs["regex_list"] if name.endswith("_list") else (kwargs["regex"],))


def plan_comparison(name: str, kwargs: Kwargs, columns: Columns) -> Plan | None:
    """Return how to evaluate the expectation *name* exactly; None leaves it to its engine.

    All columns that it names must be in *columns*.

    Raises:
        IncomparableError: neither this plan nor the engine would give the right result.
    """
    planner = PLANNERS.get(name)
    return planner(kwargs, columns) if planner else None


def _in_set(kwargs: Kwargs, columns: Columns, *, negated: bool = False) -> Verdict | None:
    values = kwargs.get("value_set")
    if values is None:
        return None  # without a set each value is expected
    column = columns.find(kwargs["column"])
    met: Expression = _one_of(column, values)
    return Verdict(_not(met) if negated else met, _is_null(column))


def _not_in_set(kwargs: Kwargs, columns: Columns) -> Verdict | None:
    return _in_set(kwargs, columns, negated=True)


def _one_of(column: Column, values: Iterable[Any]) -> OneOf:
    fitted = [_fit(one, column) for one in values if one is not None]
    kept = {repr(one): one for one in fitted if one is not None}
    if column.kind.is_float:
        zeros = {"0.0": 0.0, "-0.0": -0.0} if 0.0 in kept.values() else {}  # one value, two forms
        return OneOf(Column(column.name, Kind("double")), tuple((kept | zeros).values()))
    return OneOf(column, tuple(kept.values()))


def _between(kwargs: Kwargs, columns: Columns) -> Verdict | None:
    column = columns.find(kwargs["column"])
    return Verdict(_bounded(column, kwargs), _is_null(column))


def _bounded(column: Column, kwargs: Kwargs) -> Expression:
    least, most = kwargs.get("min_value"), kwargs.get("max_value")
    strict = bool(kwargs.get("strict_min")), bool(kwargs.get("strict_max"))
    kind = column.kind
    if kind.is_float:
        wide = Column(column.name, Kind("double"))
        bounds = [(">" if strict[0] else ">=", least), ("<" if strict[1] else "<=", most)]
        return _all(
            Call(how, (wide, Literal(_fit(one, column), wide.kind)))
            for how, one in bounds
            if one is not None
        )
    if not kind.is_exact and not kind.is_time:
        raise IncomparableError(f"column {column.name} is {kind.sql}, which has no bounds")
    read: Callable[[Any, Column], Any] = read_time if kind.is_time else _number
    if least is not None and most is not None and read(least, column) > read(most, column):
        raise IncomparableError("min_value is above max_value; correct them")
    unit = Units(column)
    low = None if least is None else unit.first(least, above=strict[0])
    high = None if most is None else unit.last(most, below=strict[1])
    if (low is not None and low > unit.most) or (high is not None and high < unit.least):
        return Always(False)
    tests = []
    if low is not None and low > unit.least:
        tests.append(Call(">=", (column, unit.literal(low))))
    if high is not None and high < unit.most:
        tests.append(Call("<=", (column, unit.literal(high))))
    return _all(tests)


@dataclass(frozen=True, slots=True)
class Units:
    """Values of an exact kind as whole numbers: of a decimal's last digit, days, microseconds."""

    column: Column

    @property
    def least(self) -> int:
        """The least value of the kind."""
        kind = self.column.kind
        if kind.name in LONGEST:
            return int(-(2 ** (LONGEST[kind.name] - 1)))
        if kind.is_decimal:
            return int(1 - 10**kind.digits)
        return self._of_time(datetime.min)  # noqa: DTZ901  - in UTC, without a zone

    @property
    def most(self) -> int:
        """The greatest value of the kind."""
        if not self.column.kind.is_time:
            return -self.least - (self.column.kind.name in LONGEST)
        return self._of_time(datetime.max)  # noqa: DTZ901  - in UTC, without a zone

    def first(self, bound: Any, *, above: bool) -> int:
        """The least value that is at least, or *above*, a bound of a suite."""
        whole, rest = self._split(bound)
        return whole + 1 if rest or above else whole

    def last(self, bound: Any, *, below: bool) -> int:
        """The greatest value that is at most, or *below*, a bound of a suite."""
        whole, rest = self._split(bound)
        return whole - 1 if below and not rest else whole

    def find(self, value: Any) -> int | None:
        """The value that equals one of a suite; None if the kind has no such value."""
        whole, rest = self._split(value)
        return whole if not rest and self.least <= whole <= self.most else None

    def literal(self, units: int) -> Literal:
        """The value of that many units."""
        kind = self.column.kind
        value: Any = units
        if kind.is_decimal:
            value = Decimal((int(units < 0), _digits(units), -kind.scale))
        elif kind.name == "date":
            value = (EPOCH + units * DAY).date()
        elif kind.is_time:
            value = EPOCH + units * MICROSECOND
        return Literal(value, kind)

    def _split(self, value: Any) -> tuple[int, bool]:
        """The whole units at or below *value*, and whether it is above them."""
        if not self.column.kind.is_time:
            return _split_number(_number(value, self.column), self.column.kind.scale)
        at = read_time(value, self.column)
        unit = DAY if self.column.kind.name == "date" else MICROSECOND
        return (at - EPOCH) // unit, bool((at - EPOCH) % unit)

    def _of_time(self, at: datetime) -> int:
        return (at - EPOCH) // (DAY if self.column.kind.name == "date" else MICROSECOND)


def _digits(units: int) -> tuple[int, ...]:
    return tuple(map(int, str(abs(units))))


def _split_number(number: Decimal, scale: int) -> tuple[int, bool]:
    sign, digits, exponent = number.as_tuple()
    power = min(int(exponent) + scale, 2 * MOST_DIGITS)  # already far beyond each kind
    whole = int("".join(map(str, digits)) or "0") * (-1 if sign else 1)
    if power >= 0:
        return whole * 10**power, False
    unit = 10 ** min(-power, 4 * MOST_DIGITS + len(digits))
    return whole // unit, bool(whole % unit)


def _number(value: Any, column: Column) -> Decimal:
    """The number as it is written; for a float, its shortest form."""
    try:
        with localcontext() as exact:
            exact.prec = 400
            text = str(int(value)) if isinstance(value, bool) else str(value)
            number = (
                Decimal(text.strip()) if isinstance(value, int | float | str | Decimal) else None
            )
    except InvalidOperation:
        number = None
    if number is None or not number.is_finite():
        raise _mismatch(value, column)
    return number


def read_time(value: Any, column: Column) -> datetime:
    """Return a time of a suite in UTC, without a zone.

    Raises:
        IncomparableError: it is not a time, or has a zone although the column has none.
    """
    at = value
    if isinstance(value, str):
        try:
            at = datetime.fromisoformat(value.strip())
        except ValueError as error:
            raise _mismatch(value, column) from error
    if isinstance(at, date) and not isinstance(at, datetime):
        at = datetime(at.year, at.month, at.day)  # noqa: DTZ001  - in UTC, without a zone
    if not isinstance(at, datetime) or (at.tzinfo and column.kind.name != "timestamp"):
        raise _mismatch(value, column)
    try:
        return at.astimezone(UTC).replace(tzinfo=None) if at.tzinfo else at
    except OverflowError as error:
        raise _mismatch(value, column) from error


def _mismatch(value: Any, column: Column) -> IncomparableError:
    """An error without the value, because suites may hold secrets."""
    kind = column.kind.sql
    what = f"a {type(value).__name__} of the suite does not compare with column {column.name}"
    return IncomparableError(f"{what}, which is {kind}; write it as a value of that type")


def _fit(value: Any, column: Column) -> Any | None:
    """The value of the column's kind that equals *value*; None if the kind has no such value."""
    kind = column.kind
    if kind.is_exact or kind.is_time:
        units = Units(column)
        found = units.find(value)
        return None if found is None else units.literal(found).value
    if kind.is_float:
        number = float(_number(value, column))
        return number if kind.name == "double" else _round_to_float(number)
    if kind.name == "boolean" and isinstance(value, int | float) and value in (0, 1):
        return bool(value)
    if isinstance(value, {"string": str, "binary": bytes}.get(kind.name, ())):
        return value
    raise _mismatch(value, column)


def _round_to_float(number: float) -> float:
    """The nearest 32-bit float, as a double; beyond its range the number itself."""
    try:
        return float(struct.unpack("f", struct.pack("f", number))[0])
    except OverflowError:
        return number


def _all(tests: Iterable[Expression]) -> Expression:
    return _fold("AND", tests, Always(True))


def _any(tests: Iterable[Expression]) -> Expression:
    return _fold("OR", tests, Always(False))


def _fold(name: str, tests: Iterable[Expression], none: Expression) -> Expression:
    made = list(tests)
    return reduce(lambda one, other: Call(name, (one, other)), made) if made else none


def _is_null(column: Column) -> Expression:
    return Call("IS NULL", (column,))


def _not(one: Expression) -> Expression:
    return Call("NOT", (one,))


def _alike(found: Sequence[Column]) -> tuple[Column, ...]:
    """The columns cast to one kind that holds all their values exactly.

    Raises:
        IncomparableError: there is no such kind.
    """
    kinds = [one.kind for one in found]
    if all(kind.is_exact for kind in kinds):
        scale = max(kind.scale for kind in kinds)
        digits = max(kind.whole_digits for kind in kinds) + scale
        if digits <= MOST_DIGITS:
            return tuple(Column(one.name, Kind("decimal", digits, scale)) for one in found)
    elif all(kind.is_time for kind in kinds):
        if len(set(kinds)) == 1:
            return tuple(found)
        return tuple(Column(one.name, Kind("timestamp_ntz")) for one in found)
    elif all(kind.is_float or kind.name in ("tinyint", "smallint", "int") for kind in kinds):
        return tuple(Column(one.name, Kind("double")) for one in found)
    elif len(set(kinds)) == 1:
        return tuple(found)
    listed = ", ".join(f"{one.name} ({one.kind.sql})" for one in found)
    raise IncomparableError(f"columns {listed} do not compare exactly")


def _pair(kwargs: Kwargs, columns: Columns) -> tuple[Column, ...]:
    return _alike([columns.find(kwargs[name]) for name in ("column_A", "column_B")])


def _ignored(kwargs: Kwargs, found: Sequence[Column], default: str) -> Expression:
    """Rows that an expectation about several columns ignores."""
    rule = kwargs.get("ignore_row_if", default)
    nulls = [_is_null(one) for one in found]
    if rule in ("both_values_are_missing", "all_values_are_missing"):
        return _all(nulls)
    if rule in ("either_value_is_missing", "any_value_is_missing"):
        return _any(nulls)
    return Always(False)


def _pair_equal(kwargs: Kwargs, columns: Columns) -> Verdict:
    found = _pair(kwargs, columns)
    return Verdict(Call("=", found), _ignored(kwargs, found, "both_values_are_missing"))


def _pair_greater(kwargs: Kwargs, columns: Columns) -> Verdict:
    found = _pair(kwargs, columns)
    if found[0].kind.name in ("boolean", "binary"):
        raise IncomparableError(f"column {found[0].name} is {found[0].kind.sql}, without an order")
    met = Call(">=" if kwargs.get("or_equal") else ">", found)
    return Verdict(met, _ignored(kwargs, found, "both_values_are_missing"))


def _pair_in_set(kwargs: Kwargs, columns: Columns) -> Verdict | None:
    pairs = kwargs.get("value_pairs_set")
    if pairs is None:
        return None
    found = [columns.find(kwargs[name]) for name in ("column_A", "column_B")]
    met = _any(
        _all(_has(column, value) for column, value in zip(found, pair, strict=True))
        for pair in pairs
    )
    return Verdict(met, _ignored(kwargs, found, "both_values_are_missing"))


def _has(column: Column, value: Any) -> Expression:
    return _is_null(column) if value is None else _one_of(column, [value])


def _all_equal(kwargs: Kwargs, columns: Columns) -> Verdict:
    found = _alike([columns.find(name) for name in kwargs["column_list"]])
    met = _all(_same(found[0], one) for one in found[1:])
    return Verdict(met, _ignored(kwargs, found, "all_values_are_missing"))


def _all_different(kwargs: Kwargs, columns: Columns) -> Verdict:
    found = _alike([columns.find(name) for name in kwargs["column_list"]])
    pairs = [(one, other) for at, one in enumerate(found) for other in found[at + 1 :]]
    met = _not(_any(_same(*pair) for pair in pairs))
    return Verdict(met, _ignored(kwargs, found, "all_values_are_missing"))


def _same(one: Column, other: Column) -> Expression:
    """Whether two are equal; two NULLs are equal."""
    nulls = _is_null(one), _is_null(other)
    both = _all([_not(nulls[0]), _not(nulls[1]), Call("=", (one, other))])
    return _any([_all(nulls), both])


def _sum_equal(kwargs: Kwargs, columns: Columns) -> Verdict | None:
    found = [columns.find(name) for name in kwargs["column_list"]]
    if not all(one.kind.is_exact for one in found):
        if any(not one.kind.is_float for one in found):
            raise IncomparableError("a sum of several columns is exact for numbers alone")
        return None
    same = _alike(found)
    kind = Kind("decimal", same[0].kind.digits + len(same) - 1, same[0].kind.scale)
    if kind.digits > MOST_DIGITS:
        raise IncomparableError(f"the sum has more than {MOST_DIGITS} digits")
    total = Units(Column("sum", kind)).find(kwargs.get("sum_total"))
    met: Expression = Always(False)
    if total is not None:
        met = Call("=", (_fold("+", same, Always(False)), Units(Column("", kind)).literal(total)))
    return Verdict(met, _ignored(kwargs, found, "all_values_are_missing"))


def _not_null(kwargs: Kwargs, columns: Columns, *, negated: bool = False) -> Verdict | None:
    """Plan only for float columns, because pandas takes a NaN for a NULL."""
    kind = find_kind(columns.types[kwargs["column"]])
    if kind is None or not kind.is_float:
        return None
    null = _is_null(Column(kwargs["column"], kind))
    return Verdict(null if negated else _not(null), Always(False))


def _null(kwargs: Kwargs, columns: Columns) -> Verdict | None:
    return _not_null(kwargs, columns, negated=True)


def _aggregate(name: str) -> Planner:
    def plan(kwargs: Kwargs, columns: Columns) -> Plan | None:
        kind = find_kind(columns.types[kwargs["column"]])
        if kind is None or not (kind.is_exact or (kind.is_time and name != "sum")):
            return None
        if kind.name in ("tinyint", "smallint", "int") and name != "sum":
            return None
        if kwargs.get("row_condition"):
            what = f"the {name} of a column of {kind.sql} is not exact with a row condition"
            raise IncomparableError(f"{what}; leave the condition out")
        if name == "sum":
            kind = Kind("decimal", MOST_DIGITS, kind.scale)
        column = Column(kwargs["column"], kind)
        return WholeVerdict(name, column, Verdict(_bounded(column, kwargs), _is_null(column)))

    return plan


def _text(*, number: bool = True) -> Planner:
    """Refuse an expectation about texts for kinds that the engines write differently."""

    def plan(kwargs: Kwargs, columns: Columns) -> None:
        kind = find_kind(columns.types[kwargs["column"]])
        plain = kind is not None and kind.name in (*LONGEST, "date")
        plain = plain or (kind is not None and kind.is_decimal and kind.scale <= EXACT_SCALE)
        if kind is not None and (kind.name == "string" or (number and plain)):
            return
        type_ = columns.types[kwargs["column"]]
        raise IncomparableError(f"column {kwargs['column']} is {type_}, which has no one text form")

    return plan


def _plain_values(kwargs: Kwargs, columns: Columns) -> None:
    """Refuse an aggregate for kinds that the engine does not compare exactly."""
    column = columns.find(kwargs["column"])
    if column.kind.name not in (*LONGEST, "string", "boolean"):
        why = f"column {column.name} is {column.kind.sql}, which it does not compare exactly"
        raise IncomparableError(why)


def fit_values(name: str, kwargs: Kwargs, columns: Columns) -> Kwargs:
    """Return the arguments of an expectation with its values converted to those of its column.

    This is needed only where the engine compares them: ``"1"`` of a suite is 1 of a BIGINT. Nulls
    are dropped. A value that the column cannot have is kept, and equals nothing.

    Raises:
        IncomparableError: a value does not compare with the column.
    """
    values = kwargs.get("value_set")
    if PLANNERS.get(name) is not _plain_values or not values:
        return kwargs
    column = columns.find(kwargs["column"])
    fitted = [(one, _fit(one, column)) for one in values if one is not None]
    kept = [one if same is None else same for one, same in fitted]
    return {**kwargs, "value_set": kept or values}


MATCHES = frozenset(
    f"expect_column_values_to_{one}match_regex{several}"
    for one in ("", "not_")
    for several in ("", "_list")
)
PLANNERS: dict[str, Planner] = {
    "expect_column_values_to_be_in_set": _in_set,
    "expect_column_distinct_values_to_be_in_set": _in_set,
    "expect_column_values_to_not_be_in_set": _not_in_set,
    "expect_column_values_to_be_between": _between,
    "expect_column_values_to_be_null": _null,
    "expect_column_values_to_not_be_null": _not_null,
    "expect_column_pair_values_to_be_equal": _pair_equal,
    "expect_column_pair_values_a_to_be_greater_than_b": _pair_greater,
    "expect_column_pair_values_to_be_in_set": _pair_in_set,
    "expect_multicolumn_sum_to_equal": _sum_equal,
    "expect_multicolumn_values_to_be_equal": _all_equal,
    "expect_select_column_values_to_be_unique_within_record": _all_different,
    "expect_column_max_to_be_between": _aggregate("max"),
    "expect_column_min_to_be_between": _aggregate("min"),
    "expect_column_sum_to_be_between": _aggregate("sum"),
    "expect_column_distinct_values_to_contain_set": _plain_values,
    "expect_column_distinct_values_to_equal_set": _plain_values,
    "expect_column_most_common_value_to_be_in_set": _plain_values,
    "expect_column_value_lengths_to_be_between": _text(),
    "expect_column_value_lengths_to_equal": _text(),
    "expect_column_values_to_match_like_pattern": _text(),
    "expect_column_values_to_match_like_pattern_list": _text(),
    "expect_column_values_to_match_regex": _text(),
    "expect_column_values_to_match_regex_list": _text(),
    "expect_column_values_to_not_match_like_pattern": _text(),
    "expect_column_values_to_not_match_like_pattern_list": _text(),
    "expect_column_values_to_not_match_regex": _text(),
    "expect_column_values_to_not_match_regex_list": _text(),
    "expect_column_values_to_be_dateutil_parseable": _text(number=False),
    "expect_column_values_to_be_json_parseable": _text(number=False),
    "expect_column_values_to_match_json_schema": _text(number=False),
    "expect_column_values_to_match_strftime_format": _text(number=False),
}
