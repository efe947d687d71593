"""What a collector writes is read back, and how a row is read never changes what it is."""

import base64
import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from pipeline.schema.decode import TypedRows, type_rows
from pipeline.sources.mysql.types import MySqlColumn as Column

Wired = tuple[str, object]
Kind = tuple[Column, st.SearchStrategy[Wired]]
UNSAYABLE = Column('"', "INT")  # with it, every row is read one by one
EPOCH = datetime.fromisoformat("1970-01-01")


def integers(low: int, high: int) -> st.SearchStrategy[Wired]:
    return st.integers(low, high).map(lambda number: (str(number), number))


def decimals(digits: int, fraction: int) -> st.SearchStrategy[Wired]:
    highest = 10**digits - 1
    numbers = st.integers(-highest, highest).map(lambda n: Decimal(f"{n}e-{fraction}"))
    return numbers.map(lambda number: (f'"{number:f}"', number))


def moments(unit: timedelta, step: str) -> st.SearchStrategy[Wired]:
    times = st.datetimes().map(lambda at: datetime.fromisoformat(at.isoformat(timespec=step)))
    return times.map(lambda at: (str((at - EPOCH) // unit), at))


def words(wire: Callable[[str], str]) -> st.SearchStrategy[Wired]:
    return st.text(st.characters(exclude_categories=["Cs"])).map(lambda word: (wire(word), word))


def coded(data: bytes) -> str:
    return f'"{base64.b64encode(data).decode()}"'


def instant(at: datetime) -> Wired:
    return f'"{at.isoformat()}Z"', at.replace(tzinfo=UTC)


KINDS: tuple[Kind, ...] = (
    (Column("c", "TINYINT"), integers(-128, 127)),
    (Column("c", "BOOL"), st.sampled_from([("true", 1), ("false", 0), ("7", 7)])),
    (Column("c", "MEDIUMINT"), integers(-(2**23), 2**23 - 1)),
    (Column("c", "INT UNSIGNED"), integers(0, 2**32 - 1)),
    (Column("c", "BIGINT"), integers(-(2**63), 2**63 - 1)),
    (
        Column("c", "BIGINT UNSIGNED"),
        st.integers(0, 2**64 - 1).map(
            lambda n: (coded(n.to_bytes(n.bit_length() // 8 + 1, "big")), Decimal(n))
        ),
    ),
    (Column("c", "DECIMAL", 12, 2), decimals(12, 2)),
    (Column("c", "DECIMAL", 38, 38), decimals(38, 38)),
    (Column("c", "DECIMAL", 38, 0), decimals(38, 0)),
    (
        Column("c", "DOUBLE"),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda f: (repr(f), f)),
    ),
    (
        Column("c", "FLOAT"),
        st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda f: (repr(f), f)),
    ),
    (
        Column("c", "BIT", 20),
        st.binary(min_size=3, max_size=3).map(lambda data: (coded(data[::-1]), data)),
    ),
    (
        Column("c", "DATE"),
        st.dates().map(lambda day: (str((day - date(1970, 1, 1)).days), day)),
    ),
    (Column("c", "DATETIME", 3), moments(timedelta(milliseconds=1), "milliseconds")),
    (Column("c", "DATETIME", 6), moments(timedelta(microseconds=1), "microseconds")),
    (Column("c", "TIMESTAMP", 6), st.datetimes().map(instant)),
    (Column("c", "TIME"), integers(-3_020_399_000_000, 3_020_399_000_000)),
    (Column("c", "VARCHAR", 99), words(json.dumps)),
    (Column("c", "TEXT"), words(lambda word: json.dumps(word, ensure_ascii=False))),
    (
        Column("c", "ENUM", values=("a", "b,c")),
        st.sampled_from([('"a"', "a"), (r'"b\\,c"', "b,c")]),
    ),
    (Column("c", "BLOB"), st.binary().map(lambda data: (coded(data), data))),
)
NULL: Wired = ("null", None)
ODD = st.sampled_from(
    ["true", "1.5", "-0", "1e3", "{}", "[1]", '"x"', '""', '"7"', "9223372036854775808", '"NaN"']
)
DAMAGE = st.tuples(st.integers(0, 200), st.sampled_from([*'"{}[]:,\\', "1", "e", "-", "\n", ""]))


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_what_a_collector_writes_is_read_back(data: st.DataObject, kinds: list[Kind]) -> None:
    columns = named(kinds)
    row = st.tuples(*(st.one_of(wire, st.just(NULL)) for _, wire in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=5))

    found = type_rows(pa.array([text(columns, [wire for wire, _ in row]) for row in rows]), columns)

    assert found.rows.to_pylist() == [
        {column.name: value for column, (_, value) in zip(columns, row, strict=True)}
        for row in rows
    ]
    assert (found.misread.to_pylist(), found.unknown) == ([False] * len(rows), ())


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
def test_a_row_is_the_same_read_with_others_and_read_alone(
    data: st.DataObject, kinds: list[Kind]
) -> None:
    columns = named(kinds)
    wires = [st.one_of(wire.map(lambda w: w[0]), st.just("null"), ODD) for _, wire in kinds]
    rows = st.tuples(*wires).map(lambda row: text(columns, list(row)))
    odd = st.one_of(st.none(), st.text(), rows.map(with_another), rows.map(twice))
    damaged = st.tuples(rows, DAMAGE).map(hurt)
    texts = data.draw(st.lists(st.one_of(rows, rows, odd, damaged), max_size=8))

    together = type_rows(pa.array(texts, pa.string()), columns)
    exactly = type_rows(pa.array(texts, pa.string()), [*columns, UNSAYABLE])
    alone = [type_rows(pa.array([one], pa.string()), columns) for one in texts]

    assert told(together) == told(exactly)[: len(columns)]
    assert together.misread.to_pylist() == exactly.misread.to_pylist()
    assert together.unknown == exactly.unknown
    assert together.misread.to_pylist() == [one.misread[0].as_py() for one in alone]
    assert [*zip(*told(together), strict=True)] == [
        tuple(column[0] for column in told(one)) for one in alone
    ]


def named(kinds: list[Kind]) -> list[Column]:
    return [
        Column(f"é{n}", kind.type, kind.length, kind.scale, values=kind.values)
        for n, (kind, _) in enumerate(kinds)
    ]


def text(columns: list[Column], wires: list[str]) -> str:
    fields = zip(columns, wires, strict=True)
    return "{" + ",".join(f'"{column.name}":{wire}' for column, wire in fields) + "}"


def with_another(row: str) -> str:
    return f'{{"new":[1.50],{row[1:]}'


def twice(row: str) -> str:
    return f"{row[:-1]},{row[1:]}"


def hurt(case: tuple[str, tuple[int, str]]) -> str:
    """The row with one of its letters replaced, or dropped."""
    row, (place, mark) = case
    at = place % len(row)
    return row[:at] + mark + row[at + 1 :]


def told(found: TypedRows) -> list[list[object]]:
    """Values by column, comparable where Python has none: bits of floats, days, microseconds."""
    return [_comparable(column.combine_chunks()) for column in found.rows.columns]


def _comparable(values: pa.Array) -> list[object]:
    if pa.types.is_floating(values.type) or pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    plain: list[object] = values.to_pylist()
    return plain
