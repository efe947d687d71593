"""Converts JSON rows and wire texts into typed Arrow columns, and flags values that do not fit.

A value that does not fit its type becomes null and its row is flagged as misread; nothing is
rounded or lost silently. No text raises, and one row never affects another. The other values of
a misread row may be correct, but the row must not be used.

The value functions are shared by all dialects. Their input is what `pipeline.schema.wire`
returns: texts and whole numbers.
"""

import binascii
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Generic, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from pipeline.schema import wire
from pipeline.schema.model import Column, arrow_type
from pipeline.schema.wire import HIGHEST, LOWEST, SentAs


@dataclass(frozen=True, slots=True)
class TypedRows:
    """Typed rows in the order of the texts, one column for each of the table's, in its order.

    ``misread`` is never null: true if a value did not fit and is now null, or the text is not a
    JSON object. ``unknown``: sorted names of fields without a column.
    """

    rows: pa.Table
    misread: pa.BooleanArray
    unknown: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _TypedBlock:
    columns: tuple[pa.Array, ...]
    misread: pa.BooleanArray
    unknown: frozenset[str] = frozenset()


def type_rows(texts: pa.StringArray | pa.ChunkedArray, columns: Sequence[Column]) -> TypedRows:
    """Type whole rows; a null text is a row of nulls and, like an absent field, not misread."""
    schema = pa.schema([(column.name, arrow_type(column)) for column in columns])
    chunks = texts.chunks if isinstance(texts, pa.ChunkedArray) else [texts]
    parts = [_typed(_sound(chunk), columns) for chunk in chunks]
    batches = [pa.RecordBatch.from_arrays(list(part.columns), schema=schema) for part in parts]
    return TypedRows(
        rows=pa.Table.from_batches(batches, schema),
        misread=pa.concat_arrays([pa.array([], pa.bool_()), *(part.misread for part in parts)]),
        unknown=tuple(sorted(frozenset().union(*(part.unknown for part in parts)))),
    )


def _sound(texts: pa.StringArray) -> pa.StringArray:
    """Texts in Arrow's plain layout; invalid UTF-8 becomes the empty text, which is not JSON."""
    texts = texts.cast(pa.string())
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        sent_ = texts.cast(pa.binary()).to_pylist()
        return pa.array([None if data is None else _utf8(data) for data in sent_], pa.string())
    return texts


def _utf8(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return ""


def _typed(texts: pa.StringArray, columns: Sequence[Column]) -> _TypedBlock:
    """Read the expected rows together; then insert the odd ones, read one by one."""
    read = wire.read_expected(texts, tuple(wire.Field(c.name, c.dialect.sent(c)) for c in columns))
    most = _part(columns, read.columns, pa.array([False] * len(texts), pa.bool_()))
    if not read.odd:
        return most
    odd = pa.array(read.odd, pa.int64())
    exact = wire.read_exact(texts.take(odd), [column.name for column in columns])
    rest = _part(columns, exact.columns, exact.broken)
    places = pc.replace_with_mask(
        pa.array(range(len(texts)), pa.int64()),
        pc.is_in(pa.array(range(len(texts)), pa.int64()), odd),
        pa.array(range(len(texts), len(texts) + len(odd)), pa.int64()),
    )
    return _TypedBlock(
        columns=tuple(
            pa.concat_arrays(pair).take(places)
            for pair in zip(most.columns, rest.columns, strict=True)
        ),
        misread=pa.concat_arrays([most.misread, rest.misread]).take(places),
        unknown=exact.unknown,
    )


def _part(
    columns: Sequence[Column], sent_: Sequence[pa.Array], broken: pa.BooleanArray
) -> _TypedBlock:
    read = tuple(
        column.dialect.values(column, array) for column, array in zip(columns, sent_, strict=True)
    )
    misread = broken
    for before, after in zip(sent_, read, strict=True):
        if before.null_count != after.null_count:
            misread = pc.or_(misread, pc.and_(before.is_valid(), after.is_null()))
    return _TypedBlock(read, misread)


MOST_DIGITS = 38
FIRST_DAY, LAST_DAY = -719_528, 2_932_896  # 0000-01-01 and 9999-12-31, the limits of a lake
DAY = 86_400_000_000  # microseconds
FIRST, LAST = FIRST_DAY * DAY, (LAST_DAY + 1) * DAY - 1
WHOLE = r"^-?0*[0-9]{1,19}$"
NUMBER = r"^(-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|-?Infinity)$"
INSTANT = (
    r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})$"
)


def keep_fitting(fits: pa.BooleanArray, wire: pa.Array) -> pa.Array:
    """*wire* where it *fits*, else null; *fits* is null where *wire* is."""
    if pc.all(fits, min_count=0).as_py():  # nulls are skipped, and stay null
        return wire
    return pc.if_else(fits, wire, pa.scalar(None, wire.type))


def keep_between(wire: pa.Array, low: pa.Scalar, high: pa.Scalar) -> pa.Array:
    """*wire* where it is from *low* to *high*, both inclusive, else null."""
    return keep_fitting(pc.and_(pc.greater_equal(wire, low), pc.less_equal(wire, high)), wire)


def parse_whole_numbers(wire: pa.StringArray) -> pa.Int64Array:
    """Parse texts of whole numbers; by way of decimals, which hold more than 64 bits."""
    found = keep_fitting(pc.match_substring_regex(wire, WHOLE), wire)
    wide = found.cast(pa.decimal128(MOST_DIGITS, 0))
    low, high = (pa.scalar(Decimal(edge), wide.type) for edge in (LOWEST, HIGHEST))
    return keep_between(wide, low, high).cast(pa.int64())


def to_integers(wire: pa.Int64Array, kind: pa.DataType) -> pa.Array:
    """Whole numbers as the integer type *kind*; null where one does not fit."""
    edge = 2 ** (kind.bit_width - 1)
    low, high = (pa.scalar(one, pa.int64()) for one in (-edge, edge - 1))
    return keep_between(wire, low, high).cast(kind)


def parse_decimals(wire: pa.StringArray, kind: pa.DataType, digits: int, fraction: int) -> pa.Array:
    """Parse decimals as *kind*; never rounded, so a text with more digits does not fit.

    The digits are counted here: Arrow lets a number of 39 digits overflow.
    """
    before_point = digits - fraction
    before = rf"(0*[0-9]{{1,{before_point}}}|0+)" if before_point else "0+"
    after = rf"(\.[0-9]{{1,{fraction}}})?" if fraction else ""
    return keep_fitting(pc.match_substring_regex(wire, f"^-?{before}{after}$"), wire).cast(kind)


def parse_floats(wire: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Parse numbers as the float type *kind*; one that is too large does not fit."""
    numbers = keep_fitting(pc.match_substring_regex(wire, NUMBER), wire).cast(kind)
    fits = pc.or_(pc.invert(pc.is_inf(numbers)), pc.ends_with(wire, "Infinity"))
    return keep_fitting(fits, numbers)


def parse_booleans(wire: pa.StringArray) -> pa.BooleanArray:
    """Parse true and false, as words or digits."""
    true, false = (pc.is_in(wire, pa.array(words)) for words in (["true", "1"], ["false", "0"]))
    return keep_fitting(pc.or_(true, false), true)


def decode_bytes(wire: pa.StringArray) -> pa.BinaryArray:
    """Decode base64 texts."""
    return pa.array([decode_base64(text) for text in wire.to_pylist()], pa.binary())


def decode_base64(text: str | None) -> bytes | None:
    """Decode one base64 text; None if it is not base64."""
    try:
        return None if text is None else binascii.a2b_base64(text, strict_mode=True)
    except ValueError:
        return None


def to_dates(wire: pa.Int64Array) -> pa.Date32Array:
    """Dates from days since 1970."""
    first, last = (pa.scalar(day, pa.int64()) for day in (FIRST_DAY, LAST_DAY))
    return keep_between(wire, first, last).cast(pa.int32()).cast(pa.date32())


def to_timestamps(wire: pa.Int64Array, unit: int, kind: pa.DataType) -> pa.TimestampArray:
    """Timestamps from counts of *unit* microseconds since 1970."""
    first, last = (pa.scalar(edge // unit, pa.int64()) for edge in (FIRST, LAST))
    return pc.multiply(keep_between(wire, first, last), unit).cast(kind)


def parse_instants(wire: pa.StringArray, kind: pa.DataType) -> pa.TimestampArray:
    """Parse ISO texts with a zone; a text without a zone does not fit."""
    found = cast_or_null(keep_fitting(pc.match_substring_regex(wire, INSTANT), wire), kind)
    first, last = (pa.scalar(edge, pa.int64()).cast(kind) for edge in (FIRST, LAST))
    return keep_between(found, first, last)


def cast_or_null(texts: pa.StringArray, kind: pa.DataType) -> pa.Array:
    """Cast; values that cannot be cast (a 30th of February) become null, found by bisection."""
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        if len(texts) == 1:
            return pa.nulls(1, kind)
        half = len(texts) // 2
        return pa.concat_arrays(
            [cast_or_null(texts[:half], kind), cast_or_null(texts[half:], kind)]
        )


C = TypeVar("C", bound=Column)


@dataclass(frozen=True, slots=True)
class ColumnReading(Generic[C]):
    """How a kind of column is typed: int64 or text -> the Arrow type of its lake type."""

    sent: SentAs
    read: Callable[[C, pa.Array], pa.Array]

    def values(self, column: C, wire: pa.Array) -> pa.Array:
        """Values of *column*'s Arrow type; null where a *wire* value does not fit.

        In: texts; int64 is accepted, too, if whole numbers are expected.
        """
        if self.sent is SentAs.WHOLE and pa.types.is_string(wire.type):
            wire = parse_whole_numbers(wire)
        return self.read(column, wire)


def as_sent(_: Column, wire: pa.StringArray) -> pa.StringArray:
    """The texts themselves."""
    return wire


def as_integer(column: Column, wire: pa.Int64Array) -> pa.Array:
    """Whole numbers as *column*'s integer type."""
    return to_integers(wire, arrow_type(column))
