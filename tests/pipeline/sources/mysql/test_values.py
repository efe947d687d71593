"""Every MySQL type becomes its lake type exactly, and what does not fit is told, never lost."""

import base64
import json
import math
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.schema.decode import TypedRows, type_rows
from pipeline.schema.model import arrow_type
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.values import to_wire_texts
from pipeline.sources.row_reader import encode_rows


def mysql_column(kind: str, length: int | None = None, scale: int | None = None) -> Column:
    return Column("c", kind, length, scale)


moment = datetime.fromisoformat
NTZ, INSTANT = pa.timestamp("us"), pa.timestamp("us", "UTC")
NINES = "9" * 38


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        pytest.param(mysql_column("TINYINT"), pa.int8(), id="tinyint"),
        pytest.param(mysql_column("BOOL"), pa.int8(), id="bool stays a number"),
        pytest.param(mysql_column("TINYINT UNSIGNED"), pa.int16(), id="tinyint unsigned"),
        pytest.param(mysql_column("SMALLINT UNSIGNED"), pa.int32(), id="smallint unsigned"),
        pytest.param(mysql_column("MEDIUMINT UNSIGNED ZEROFILL"), pa.int32(), id="mediumint"),
        pytest.param(mysql_column("INT ZEROFILL"), pa.int64(), id="zerofill has no sign"),
        pytest.param(mysql_column("BIGINT", 20), pa.int64(), id="bigint"),
        pytest.param(mysql_column("BIGINT UNSIGNED"), pa.decimal128(20, 0), id="bigint unsigned"),
        pytest.param(mysql_column("SERIAL"), pa.decimal128(20, 0), id="serial"),
        pytest.param(mysql_column("DECIMAL"), pa.decimal128(10, 0), id="decimal without digits"),
        pytest.param(
            mysql_column("DECIMAL", 38, 30), pa.decimal128(38, 30), id="the longest decimal"
        ),
        pytest.param(mysql_column("DECIMAL", 39, 0), pa.string(), id="a decimal too long"),
        pytest.param(mysql_column("FLOAT"), pa.float32(), id="float"),
        pytest.param(mysql_column("FLOAT", 53), pa.float64(), id="a float that is a double"),
        pytest.param(mysql_column("BIT", 1), pa.bool_(), id="one bit"),
        pytest.param(mysql_column("BIT", 2), pa.binary(), id="bits"),
        pytest.param(mysql_column("DATE"), pa.date32(), id="date"),
        pytest.param(mysql_column("DATETIME", 6), NTZ, id="datetime"),
        pytest.param(mysql_column("TIMESTAMP"), INSTANT, id="timestamp"),
        pytest.param(mysql_column("TIME", 3), pa.int64(), id="time"),
        pytest.param(mysql_column("YEAR"), pa.int32(), id="year"),
        pytest.param(mysql_column("NATIONAL CHARACTER VARYING", 9), pa.string(), id="text"),
        pytest.param(mysql_column("LONGBLOB"), pa.binary(), id="blob"),
        pytest.param(mysql_column("VECTOR"), pa.string(), id="a type nobody knows"),
    ],
)
def test_the_map_of_types_is_fixed(kind: Column, expected: pa.DataType) -> None:
    assert arrow_type(kind) == expected


READ = {
    "tinyint, lowest": (mysql_column("TINYINT"), "-128", -128),
    "bool of the log, true": (mysql_column("TINYINT", 1), "true", 1),
    "bool of the log, false": (mysql_column("BOOL"), "false", 0),
    "bool of a snapshot": (mysql_column("BOOL"), "1", 1),
    "tinyint unsigned, highest": (mysql_column("TINYINT UNSIGNED"), "255", 255),
    "smallint unsigned, highest": (mysql_column("SMALLINT UNSIGNED"), "65535", 65535),
    "mediumint, highest": (mysql_column("MEDIUMINT UNSIGNED"), "16777215", 16777215),
    "int, lowest": (mysql_column("INT"), "-2147483648", -(2**31)),
    "int in quotes": (mysql_column("INT"), '"7"', 7),
    "int unsigned, highest": (mysql_column("INT UNSIGNED"), "4294967295", 2**32 - 1),
    "bigint, lowest": (mysql_column("BIGINT"), "-9223372036854775808", -(2**63)),
    "bigint, highest": (mysql_column("BIGINT"), "9223372036854775807", 2**63 - 1),
    "bigint in quotes": (mysql_column("BIGINT"), '"9223372036854775807"', 2**63 - 1),
    "bigint beyond a double": (mysql_column("BIGINT"), "9007199254740993", 2**53 + 1),
    "unsigned, highest": (mysql_column("BIGINT UNSIGNED"), '"AP//////////"', Decimal(2**64 - 1)),
    "top bit": (mysql_column("BIGINT UNSIGNED"), '"AIAAAAAAAAAA"', Decimal(2**63)),
    "unsigned zero": (mysql_column("BIGINT UNSIGNED"), '"AA=="', Decimal(0)),
    "unsigned one": (mysql_column("BIGINT UNSIGNED"), '"AQ=="', Decimal(1)),
    "eight bytes": (mysql_column("BIGINT UNSIGNED"), '"f/////////8="', Decimal(2**63 - 1)),
    "digits": (mysql_column("BIGINT UNSIGNED"), "18446744073709551615", Decimal(2**64 - 1)),
    "quoted digits": (
        mysql_column("BIGINT UNSIGNED"),
        '"18446744073709551615"',
        Decimal(2**64 - 1),
    ),
    "decimal, lowest": (mysql_column("DECIMAL", 10, 2), '"-99999999.99"', Decimal("-99999999.99")),
    "38 digits": (mysql_column("DECIMAL", 38, 0), f'"{NINES}"', Decimal(NINES)),
    "38 digits, 30 of them behind the point": (
        mysql_column("DECIMAL", 38, 30),
        f'"-{NINES[:8]}.{NINES[:30]}"',
        Decimal(f"-{NINES[:8]}.{NINES[:30]}"),
    ),
    "no whole digits": (mysql_column("DECIMAL", 3, 3), '"-0.999"', Decimal("-0.999")),
    "65 digits are text": (
        mysql_column("DECIMAL", 65, 30),
        f'"-{NINES[:35]}.{NINES[:30]}"',
        f"-{NINES[:35]}.{NINES[:30]}",
    ),
    "decimal zero": (mysql_column("DECIMAL", 12, 4), '"0.0000"', Decimal("0.0000")),
    "a decimal as a number": (mysql_column("DECIMAL", 5, 0), "12345", Decimal(12345)),
    "zeros in front": (mysql_column("DECIMAL", 5, 2), '"007.5"', Decimal("7.50")),
    "float, highest": (mysql_column("FLOAT"), "3.40282e38", 3.402820018375656e38),
    "float": (mysql_column("FLOAT"), "0.1", 0.10000000149011612),
    "float, nearest": (mysql_column("FLOAT"), "16777217", 16777216.0),
    "lowest": (mysql_column("DOUBLE"), "-1.7976931348623157E308", -1.7976931348623157e308),
    "double, smallest": (mysql_column("DOUBLE"), "4.9E-324", 5e-324),
    "a word for no number": (mysql_column("DOUBLE"), '"-Infinity"', -math.inf),
    "one bit, set": (mysql_column("BIT", 1), "true", True),
    "one bit as a number": (mysql_column("BIT", 1), "0", False),
    "bits are turned": (mysql_column("BIT", 12), '"AQg="', b"\x08\x01"),
    "64 bits": (mysql_column("BIT", 64), '"//////////8="', b"\xff" * 8),
    "lowest bit": (mysql_column("BIT", 64), '"AQAAAAAAAAA="', b"\0\0\0\0\0\0\0\1"),
    "date, lowest": (mysql_column("DATE"), "-719162", date(1, 1, 1)),
    "date, highest": (mysql_column("DATE"), "2932896", date(9999, 12, 31)),
    "datetime, lowest": (mysql_column("DATETIME"), "-62135596800000", moment("0001-01-01")),
    "milliseconds, highest": (
        mysql_column("DATETIME", 3),
        "253402300799999",
        moment("9999-12-31 23:59:59.999"),
    ),
    "four digits are microseconds": (
        mysql_column("DATETIME", 4),
        "-30610223999999900",
        moment("1000-01-01 00:00:00.000100"),
    ),
    "microseconds, highest": (
        mysql_column("DATETIME", 6),
        "253402300799999999",
        moment("9999-12-31 23:59:59.999999"),
    ),
    "before 1970": (mysql_column("DATETIME", 6), "-1", moment("1969-12-31 23:59:59.999999")),
    "timestamp, lowest": (
        mysql_column("TIMESTAMP"),
        '"1970-01-01T00:00:01Z"',
        datetime(1970, 1, 1, 0, 0, 1, tzinfo=UTC),
    ),
    "timestamp, highest": (
        mysql_column("TIMESTAMP", 6),
        '"9999-12-31T23:59:59.999999Z"',
        datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
    ),
    "timestamp of the first year": (
        mysql_column("TIMESTAMP", 6),
        '"0001-01-01T00:00:00Z"',
        datetime(1, 1, 1, tzinfo=UTC),
    ),
    "timestamp of a zone": (
        mysql_column("TIMESTAMP", 3),
        '"2024-03-31T02:30:00.120+05:30"',
        datetime(2024, 3, 30, 21, 0, 0, 120000, tzinfo=UTC),
    ),
    "timestamp without seconds": (
        mysql_column("TIMESTAMP"),
        '"2024-03-31T02:30Z"',
        datetime(2024, 3, 31, 2, 30, tzinfo=UTC),
    ),
    "time, lowest": (mysql_column("TIME"), "-3020399000000", -3020399000000),
    "time below zero": (mysql_column("TIME", 6), "-1", -1),
    "year zero": (mysql_column("YEAR"), "1900", 0),
    "year, lowest": (mysql_column("YEAR"), "1901", 1901),
    "year, highest": (mysql_column("YEAR"), "2155", 2155),
    "the empty text": (mysql_column("VARCHAR", 9), '""', ""),
    "escapes": (mysql_column("VARCHAR", 9), r'"\"q\\ \n\u0000 é\uD83D\uDE00"', '"q\\ \n\0 é😀'),
    "the word null": (mysql_column("TEXT"), '"null"', "null"),
    "a number for a text, as sent": (mysql_column("VARCHAR", 9), "1.50", "1.50"),
    "json": (mysql_column("JSON"), r'"{\"a\": 1e3}"', '{"a": 1e3}'),
    "no bytes": (mysql_column("VARBINARY", 9), '""', b""),
    "bytes": (mysql_column("BINARY", 4), '"AP8BAA=="', b"\0\xff\1\0"),
    "blob": (mysql_column("BLOB"), '"8J+YgA=="', "😀".encode()),
    "geometry": (mysql_column("POINT"), '{"wkb":"AQ==","srid":null}', '{"wkb":"AQ==","srid":null}'),
    "a type nobody knows, as sent": (mysql_column("VECTOR"), "[1, 2.50]", "[1, 2.50]"),
}
LOST = {
    "tinyint too high": (mysql_column("TINYINT"), "128"),
    "smallint too low": (mysql_column("SMALLINT"), "-32769"),
    "int too high": (mysql_column("INT"), "2147483648"),
    "int with a fraction": (mysql_column("INT"), "1.5"),
    "int with an exponent": (mysql_column("INT"), "1e3"),
    "a boolean for an int": (mysql_column("INT"), "true"),
    "a word for an int": (mysql_column("INT"), '"x"'),
    "hexadecimal for an int": (mysql_column("INT"), '"0x10"'),
    "a plus for an int": (mysql_column("INT"), '"+7"'),
    "the empty text for an int": (mysql_column("INT"), '""'),
    "an object for an int": (mysql_column("INT"), "{}"),
    "bigint too high": (mysql_column("BIGINT"), "9223372036854775808"),
    "endless digits": (mysql_column("BIGINT"), "9" * 5000),
    "unsigned below zero": (mysql_column("BIGINT UNSIGNED"), "-1"),
    "unsigned text below zero": (mysql_column("BIGINT UNSIGNED"), '"-1"'),
    "unsigned bytes below zero": (mysql_column("BIGINT UNSIGNED"), '"/w=="'),
    "unsigned bytes too high": (mysql_column("BIGINT UNSIGNED"), '"AQAAAAAAAAAA"'),
    "no base64 for an unsigned": (mysql_column("BIGINT UNSIGNED"), '"!"'),
    "nothing for an unsigned": (mysql_column("BIGINT UNSIGNED"), '""'),
    "a digit too many behind the point": (mysql_column("DECIMAL", 10, 2), '"1.234"'),
    "a digit too many before it": (mysql_column("DECIMAL", 10, 2), '"123456789.00"'),
    "39 digits": (mysql_column("DECIMAL", 38, 0), f'"{NINES}9"'),
    "40 digits of 39": (mysql_column("DECIMAL", 39, 0), f'"{NINES}99"'),
    "no room before the point": (mysql_column("DECIMAL", 3, 3), '"1.000"'),
    "base64 for a decimal": (mysql_column("DECIMAL", 10, 2), '"BQA="'),
    "an exponent in a decimal": (mysql_column("DECIMAL", 10, 2), '"1E+3"'),
    "nothing before the point": (mysql_column("DECIMAL", 10, 2), '".5"'),
    "base64 for a long decimal": (mysql_column("DECIMAL", 65, 30), '"BQA="'),
    "an exponent in a long decimal": (mysql_column("DECIMAL", 65, 30), "1.5E40"),
    "a word for a double": (mysql_column("DOUBLE"), '"x"'),
    "a double too high": (mysql_column("DOUBLE"), "1e400"),
    "a float too low": (mysql_column("FLOAT"), "-1e40"),
    "bytes for one bit": (mysql_column("BIT", 1), '"AQ=="'),
    "a boolean for bits": (mysql_column("BIT", 12), "true"),
    "a byte too few for bits": (mysql_column("BIT", 12), '"AQ=="'),
    "text for a date": (mysql_column("DATE"), '"2020-01-01"'),
    "a date after all dates": (mysql_column("DATE"), "2932897"),
    "text for a datetime": (mysql_column("DATETIME", 6), '"2020-01-01T00:00:00Z"'),
    "the year 10000": (mysql_column("DATETIME", 6), "253402300800000000"),
    "microseconds for milliseconds": (mysql_column("DATETIME"), "1700000000000000"),
    "a datetime beyond 64 bits": (mysql_column("DATETIME"), "9223372036854775807"),
    "a word for a timestamp": (mysql_column("TIMESTAMP"), '"noon"'),
    "a timestamp without zone": (mysql_column("TIMESTAMP"), '"2020-01-01T00:00:00"'),
    "no such day": (mysql_column("TIMESTAMP"), '"2023-02-30T00:00:00Z"'),
    "nanoseconds": (mysql_column("TIMESTAMP", 6), '"2023-01-01T00:00:00.1234567Z"'),
    "an instant after all": (mysql_column("TIMESTAMP"), '"9999-12-31T23:59:59-01:00"'),
    "text for a time": (mysql_column("TIME"), '"10:00:00"'),
    "a word for a year": (mysql_column("YEAR"), '"now"'),
    "no base64": (mysql_column("BLOB"), '"no base64!"'),
    "base64 cut short": (mysql_column("BLOB"), '"AQ"'),
    "letters that are no base64": (mysql_column("BLOB"), '"é"'),
}


@pytest.mark.parametrize(("kind", "wire", "expected"), READ.values(), ids=READ)
def test_a_value_at_the_edge_of_its_type_arrives_exactly(
    kind: Column, wire: str, expected: object
) -> None:
    found = type_rows(pa.array([f'{{"c":{wire}}}']), [kind])

    assert found.rows["c"].to_pylist() == [expected]
    assert found.misread.to_pylist() == [False]


@pytest.mark.parametrize(("kind", "wire"), LOST.values(), ids=LOST)
def test_a_value_that_does_not_fit_is_told(kind: Column, wire: str) -> None:
    found = type_rows(pa.array([f'{{"c":{wire}}}']), [kind])

    assert found.rows["c"].to_pylist() == [None]
    assert found.misread.to_pylist() == [True]


@pytest.mark.parametrize("kind", [case[0] for case in READ.values()], ids=READ)
def test_null_and_absent_are_null_and_no_misreading(kind: Column) -> None:
    found = type_rows(pa.array(['{"c":null}', "{}", None]), [kind])

    assert found.rows["c"].to_pylist() == [None] * 3
    assert found.misread.to_pylist() == [False] * 3


def test_a_double_keeps_its_negative_zero_and_what_is_no_number() -> None:
    found = type_rows(pa.array(['{"c":-0.0}', '{"c":"NaN"}']), [mysql_column("DOUBLE")])

    zero, none = found.rows["c"].to_pylist()
    assert math.copysign(1, zero) == -1
    assert math.isnan(none)
    assert found.misread.to_pylist() == [False, False]


@pytest.mark.parametrize(
    ("text", "lost"),
    [
        pytest.param(None, False, id="no row at all"),
        pytest.param('{"a":1,"b.c":null}', False, id="a row"),
        pytest.param(' {"a":1}\n', False, id="blanks around it"),
        pytest.param("{}", False, id="columns the row does not know yet"),
        pytest.param('{"a":1,', True, id="broken"),
        pytest.param("", True, id="empty"),
        pytest.param("null", True, id="a null in words"),
        pytest.param("[]", True, id="no object"),
        pytest.param('{"a":1}{"a":2}', True, id="two objects"),
        pytest.param('{"a":NaN}', True, id="no JSON number"),
        pytest.param('{"a":1,"z":"\\x"}', True, id="no JSON escape"),
        pytest.param('{"a":1,"z":"\\ud83d"}', True, id="half an emoji"),
        pytest.param('{"a":1,"z":"\n"}', True, id="a bare line end in a text"),
        pytest.param('{"a":' + "[" * 100_000, True, id="endless depth"),
    ],
)
def test_a_row_that_cannot_be_read_is_told(text: str | None, lost: bool) -> None:
    columns = [Column("a", "INT"), Column("b.c", "INT"), Column("Ü `x`", "INT")]

    found = type_rows(pa.array([text], pa.string()), columns)

    assert found.misread.to_pylist() == [lost]
    assert not lost or found.rows.to_pylist() == [{"a": None, "b.c": None, "Ü `x`": None}]


def test_bytes_that_are_no_utf8_are_a_misreading_of_their_row_alone() -> None:
    data = pa.py_buffer(b'{"c":"\xff"}{"c":"x"}')
    offsets = pa.array([0, 9, 18], pa.int32()).buffers()[1]
    texts = pa.StringArray.from_buffers(2, offsets, data)

    found = type_rows(texts, [mysql_column("TEXT")])

    assert found.rows["c"].to_pylist() == [None, "x"]
    assert found.misread.to_pylist() == [True, False]


def test_one_odd_row_does_not_spoil_another() -> None:
    texts = [f'{{"c":{n},"d":"{n}"}}' for n in range(5000)]
    texts[7], texts[8], texts[4999] = '{"c":"70","d":7.50}', "{broken", '{"c":1,"new":1}'

    found = type_rows(pa.array(texts), [mysql_column("INT"), Column("d", "TEXT")])

    numbers, words = ([str(n) for n in range(5000)] for _ in range(2))
    assert found.rows["c"].to_pylist() == [*range(7), 70, None, *range(9, 4999), 1]
    assert found.rows["d"].to_pylist() == [*words[:7], "7.50", None, *numbers[9:4999], None]
    assert [n for n, lost in enumerate(found.misread.to_pylist()) if lost] == [8]
    assert found.unknown == ("new",)


def test_of_a_field_that_is_there_twice_the_last_one_counts() -> None:
    texts = pa.array(['{"c":1,"c":2}', '{"c":1,"c":null}', '{"c":"x","c":2,"new":0}'])

    found = type_rows(texts, [mysql_column("INT")])

    assert found.rows["c"].to_pylist() == [2, None, 2]
    assert found.misread.to_pylist() == [False] * 3


def test_fields_without_a_column_are_named_in_order() -> None:
    texts = ['{"c":1,"b.c":{"d":1},"new":null}', '{"c":1}', '{"C":1}', "{broken", None]

    found = type_rows(pa.array(texts), [mysql_column("INT")])

    assert found.unknown == ("C", "b.c", "new")


NAMES = {
    "a dot": ("b.c", '"b.c"'),
    "back-ticks and blanks": ("Ü `x`", '"Ü `x`"'),
    "an emoji, escaped": ("😀", r'"\ud83d\ude00"'),
    "a quote": ('q"q', r'"q\"q"'),
    "a backslash": ("b\\s", r'"b\\s"'),
    "a tab": ("a\tb", r'"a\tb"'),
    "a name of our own": ("c0", '"c0"'),
    "no name": ("", '""'),
}


@pytest.mark.parametrize(("name", "wire"), NAMES.values(), ids=NAMES)
def test_a_column_may_have_any_name(name: str, wire: str) -> None:
    columns = [Column("id", "INT"), Column(name, "INT"), Column("ID", "INT")]

    found = type_rows(pa.array([f'{{"id":1,{wire}:2,"ID":3}}', None]), columns)

    assert found.rows.column_names == ["id", name, "ID"]
    assert [column.to_pylist() for column in found.rows.columns] == [
        [1, None],
        [2, None],
        [3, None],
    ]
    assert (found.misread.to_pylist(), found.unknown) == ([False, False], ())


def test_rows_come_in_the_columns_order_with_their_types() -> None:
    columns = [Column("b", "INT"), Column("d", "DATE"), Column("a", "DECIMAL", 9, 2)]

    found = type_rows(pa.array(['{"a":"1.00","d":0,"b":7}']), columns)

    expected = [("b", pa.int32()), ("d", pa.date32()), ("a", pa.decimal128(9, 2))]
    assert found.rows.schema == pa.schema(expected)
    assert found.rows.to_pylist() == [{"b": 7, "d": date(1970, 1, 1), "a": Decimal("1.00")}]


@pytest.mark.parametrize(
    "texts",
    [
        pytest.param(pa.chunked_array([['{"c":1}'], [], ['{"c":2,"x":0}']]), id="chunks"),
        pytest.param(pa.array(["", '{"c":1}', '{"c":2,"x":0}'])[1:], id="a slice"),
        pytest.param(pa.array(['{"c":1}', '{"c":2,"x":0}'], pa.string_view()), id="views"),
    ],
)
def test_texts_may_lie_in_memory_as_they_like(texts: pa.StringArray | pa.ChunkedArray) -> None:
    found = type_rows(texts, [mysql_column("INT")])

    assert found.rows["c"].to_pylist() == [1, 2]
    assert found.misread == pa.array([False, False])
    assert found.unknown == ("x",)


def test_no_rows_are_no_rows_of_the_same_columns() -> None:
    for texts in (pa.array([], pa.string()), pa.chunked_array([], pa.string())):
        found = type_rows(texts, [mysql_column("INT")])

        assert found.rows.schema == pa.schema([("c", pa.int32())])
        assert (found.rows.num_rows, len(found.misread), found.unknown) == (0, 0, ())


Wired = tuple[str, object]
Kind = tuple[Column, st.SearchStrategy[Wired]]
UNSAYABLE = Column('"', "INT")  # with it, every row is read one by one
EPOCH = moment("1970-01-01")


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
    (mysql_column("TINYINT"), integers(-128, 127)),
    (mysql_column("BOOL"), st.sampled_from([("true", 1), ("false", 0), ("7", 7)])),
    (mysql_column("MEDIUMINT"), integers(-(2**23), 2**23 - 1)),
    (mysql_column("INT UNSIGNED"), integers(0, 2**32 - 1)),
    (mysql_column("BIGINT"), integers(-(2**63), 2**63 - 1)),
    (
        mysql_column("BIGINT UNSIGNED"),
        st.integers(0, 2**64 - 1).map(
            lambda n: (coded(n.to_bytes(n.bit_length() // 8 + 1, "big")), Decimal(n))
        ),
    ),
    (mysql_column("DECIMAL", 12, 2), decimals(12, 2)),
    (mysql_column("DECIMAL", 38, 38), decimals(38, 38)),
    (mysql_column("DECIMAL", 38, 0), decimals(38, 0)),
    (
        mysql_column("DOUBLE"),
        st.floats(allow_nan=False, allow_infinity=False).map(lambda f: (repr(f), f)),
    ),
    (
        mysql_column("FLOAT"),
        st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda f: (repr(f), f)),
    ),
    (
        mysql_column("BIT", 20),
        st.binary(min_size=3, max_size=3).map(lambda data: (coded(data[::-1]), data)),
    ),
    (mysql_column("DATE"), st.dates().map(lambda day: (str((day - date(1970, 1, 1)).days), day))),
    (mysql_column("DATETIME", 3), moments(timedelta(milliseconds=1), "milliseconds")),
    (mysql_column("DATETIME", 6), moments(timedelta(microseconds=1), "microseconds")),
    (mysql_column("TIMESTAMP", 6), st.datetimes().map(instant)),
    (mysql_column("TIME"), integers(-3_020_399_000_000, 3_020_399_000_000)),
    (mysql_column("VARCHAR", 99), words(json.dumps)),
    (mysql_column("TEXT"), words(lambda word: json.dumps(word, ensure_ascii=False))),
    (
        Column("c", "ENUM", values=("a", "b,c")),
        st.sampled_from([('"a"', "a"), (r'"b\\,c"', "b,c")]),
    ),
    (mysql_column("BLOB"), st.binary().map(lambda data: (coded(data), data))),
)
NULL: Wired = ("null", None)
ODD = st.sampled_from(
    ["true", "1.5", "-0", "1e3", "{}", "[1]", '"x"', '""', '"7"', "9223372036854775808", '"NaN"']
)
DAMAGE = st.tuples(st.integers(0, 200), st.sampled_from([*'"{}[]:,\\', "1", "e", "-", "\n", ""]))


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=6))
def test_what_a_collector_writes_is_read_back(data: st.DataObject, kinds: list[Kind]) -> None:
    columns = name_columns(kinds)
    row = st.tuples(*(st.one_of(wire, st.just(NULL)) for _, wire in kinds))
    rows = data.draw(st.lists(row, min_size=1, max_size=5))

    found = type_rows(
        pa.array([json_row(columns, [wire for wire, _ in row]) for row in rows]), columns
    )

    assert found.rows.to_pylist() == [
        {column.name: value for column, (_, value) in zip(columns, row, strict=True)}
        for row in rows
    ]
    assert (found.misread.to_pylist(), found.unknown) == ([False] * len(rows), ())


@given(st.data(), st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
def test_a_row_is_the_same_read_with_others_and_read_alone(
    data: st.DataObject, kinds: list[Kind]
) -> None:
    columns = name_columns(kinds)
    wires = [st.one_of(wire.map(lambda w: w[0]), st.just("null"), ODD) for _, wire in kinds]
    rows = st.tuples(*wires).map(lambda row: json_row(columns, list(row)))
    odd = st.one_of(st.none(), st.text(), rows.map(with_another), rows.map(twice))
    damaged = st.tuples(rows, DAMAGE).map(hurt)
    texts = data.draw(st.lists(st.one_of(rows, rows, odd, damaged), max_size=8))

    together = type_rows(pa.array(texts, pa.string()), columns)
    exactly = type_rows(pa.array(texts, pa.string()), [*columns, UNSAYABLE])
    alone = [type_rows(pa.array([one], pa.string()), columns) for one in texts]

    assert comparable_values(together) == comparable_values(exactly)[: len(columns)]
    assert together.misread.to_pylist() == exactly.misread.to_pylist()
    assert together.unknown == exactly.unknown
    assert together.misread.to_pylist() == [one.misread[0].as_py() for one in alone]
    assert [*zip(*comparable_values(together), strict=True)] == [
        tuple(column[0] for column in comparable_values(one)) for one in alone
    ]


def name_columns(kinds: list[Kind]) -> list[Column]:
    return [
        Column(f"é{n}", kind.type, kind.length, kind.scale, values=kind.values)
        for n, (kind, _) in enumerate(kinds)
    ]


def json_row(columns: list[Column], wires: list[str]) -> str:
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


def comparable_values(found: TypedRows) -> list[list[object]]:
    """Values by column, comparable where Python has none: bits of floats, days, microseconds."""
    return [_comparable(column.combine_chunks()) for column in found.rows.columns]


def _comparable(values: pa.Array) -> list[object]:
    if pa.types.is_floating(values.type) or pa.types.is_temporal(values.type):
        values = values.view(pa.int32() if values.type.bit_width == 32 else pa.int64())
    plain: list[object] = values.to_pylist()
    return plain


def fragments(own: Column, *raw: Any) -> list[Any]:
    return list(to_wire_texts(own, pa.array(raw)).fragments.to_pylist())


TYPED = {
    "a number": (mysql_column("INT"), "-5", "-5", -5),
    "zeros in front": (mysql_column("INT UNSIGNED ZEROFILL"), "0007", "7", 7),
    "no bits": (mysql_column("BIGINT UNSIGNED"), "0", '"AA=="', Decimal(0)),
    "the sign's bit": (mysql_column("BIGINT UNSIGNED"), "128", '"AIA="', Decimal(128)),
    "most of all": (
        mysql_column("BIGINT UNSIGNED"),
        "18446744073709551615",
        '"AP//////////"',
        Decimal(2**64 - 1),
    ),
    "decimal": (mysql_column("DECIMAL", 5, 2), "1.10", '"1.10"', Decimal("1.10")),
    "0": (mysql_column("DECIMAL ZEROFILL", 5, 2), "001.10", '"1.10"', Decimal("1.10")),
    "a double": (mysql_column("DOUBLE"), "1e300", "1e300", 1e300),
    "a bit": (mysql_column("BIT", 1), b"\x01", "true", True),
    "bits": (mysql_column("BIT", 12), b"\x0f\xa0", '"oA8="', b"\x0f\xa0"),
    "a day before 1970": (mysql_column("DATE"), "1969-12-31", "-1", date(1969, 12, 31)),
    "a day that is none": (mysql_column("DATE"), "0000-00-00", "null", None),
    "a 30th of February": (mysql_column("DATE"), "2026-02-30", "null", None),
    "milliseconds": (
        mysql_column("DATETIME", 3),
        "1970-01-01 00:00:01.500",
        "1500",
        moment("1970-01-01T00:00:01.500"),
    ),
    "microseconds": (
        mysql_column("DATETIME", 6),
        "1000-01-01 00:00:00.000001",
        "-30610223999999999",
        moment("1000-01-01T00:00:00.000001"),
    ),
    "an instant": (
        mysql_column("TIMESTAMP", 6),
        "2026-01-02 03:04:05.120000",
        '"2026-01-02T03:04:05.120Z"',
        datetime(2026, 1, 2, 3, 4, 5, 120_000, UTC),
    ),
    "just before 0": (mysql_column("TIME", 6), "-00:00:00.000001", "-1", -1),
    "long": (mysql_column("TIME"), "-838:59:59", "-3020399000000", -3020399000000),
    "the year 0": (mysql_column("YEAR"), "0000", "1900", 0),
    "text": (mysql_column("VARCHAR", 9), 'é"\\\n', '"é\\"\\\\\\n"', 'é"\\\n'),
    "bytes": (mysql_column("VARBINARY", 9), b"\x00\xff", '"AP8="', b"\x00\xff"),
    "json": (mysql_column("JSON"), '{"a": 1}', '"{\\"a\\": 1}"', '{"a": 1}'),
    "nothing": (mysql_column("INT"), None, "null", None),
}


@pytest.mark.parametrize(("own", "raw", "fragment", "value"), TYPED.values(), ids=TYPED)
def test_a_value_is_told_and_typed(own: Column, raw: Any, fragment: str, value: Any) -> None:
    assert fragments(own, raw) == [fragment]

    rows = encode_rows([own.name], [to_wire_texts(own, pa.array([raw]))])
    read = type_rows(rows, (own,))
    assert read.misread.true_count == 0
    assert read.rows.to_pylist() == [{"c": value}]


@pytest.mark.parametrize(
    ("kind", "fragment"),
    [("DATE", "0"), ("DATETIME", "0"), ("TIMESTAMP", '"1970-01-01T00:00:00Z"')],
)
def test_a_day_that_is_none_is_sent_as_1970_where_null_cannot_be(kind: str, fragment: str) -> None:
    own = Column("c", kind, nullable=False)
    raw = "0000-00-00" if kind == "DATE" else "0000-00-00 00:00:00"

    assert fragments(own, raw) == [fragment]


def test_a_name_may_hold_what_means_something_elsewhere() -> None:
    own = Column('a%s"b', "INT")

    rows = encode_rows([own.name], [to_wire_texts(own, pa.array(["1"]))])

    assert rows.to_pylist() == ['{"a%s\\"b":1}']


def test_a_place_is_told_with_its_wkb_and_without_a_system_of_none() -> None:
    wkb = bytes.fromhex("0101000000000000000000f03f0000000000000040")

    (told,) = fragments(mysql_column("POINT"), b"\0\0\0\0" + wkb)

    assert told == '{"x":1.0,"y":2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":null}'


def test_all_naturals_are_told_as_each_by_itself() -> None:
    edges = [n for bits in range(64) for n in (2**bits - 1, 2**bits, 2**bits + 1)]
    numbers = [None, *edges, 2**64 - 1, *(random.Random(3).getrandbits(64) for _ in range(999))]
    raw = [None if n is None else str(n) for n in numbers]

    told = fragments(mysql_column("BIGINT UNSIGNED"), *raw, "00000000000000000007")

    each = [
        "null"
        if n is None
        else f'"{base64.b64encode(n.to_bytes(n.bit_length() // 8 + 1, "big")).decode()}"'
        for n in (*numbers, 7)
    ]
    assert told == each


def test_a_number_beyond_64_bits_is_told_all_the_same() -> None:
    """As a key that somebody asks for, which no row has."""
    assert fragments(mysql_column("BIGINT UNSIGNED"), str(2**64)) == ['"AQAAAAAAAAAA"']
