"""Each value that a query returns is told as the log would send it, and is typed as the same."""

import base64
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pipeline.schema.decode import type_rows
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.mysql.values import to_wire_texts
from pipeline.sources.row_reader import encode_rows


def column(kind: str, length: int | None = None, scale: int | None = None) -> MySqlColumn:
    return MySqlColumn("c", kind, length, scale)


def fragments(own: MySqlColumn, *raw: Any) -> list[Any]:
    return list(to_wire_texts(own, pa.array(raw)).fragments.to_pylist())


@pytest.mark.parametrize(
    ("own", "raw", "fragment", "value"),
    [
        pytest.param(column("INT"), "-5", "-5", -5, id="a number"),
        pytest.param(column("INT UNSIGNED ZEROFILL"), "0007", "7", 7, id="zeros in front"),
        pytest.param(column("BIGINT UNSIGNED"), "0", '"AA=="', Decimal(0), id="no bits"),
        pytest.param(column("BIGINT UNSIGNED"), "128", '"AIA="', Decimal(128), id="the sign's bit"),
        pytest.param(
            column("BIGINT UNSIGNED"),
            "18446744073709551615",
            '"AP//////////"',
            Decimal(2**64 - 1),
            id="most of all",
        ),
        pytest.param(column("DECIMAL", 5, 2), "1.10", '"1.10"', Decimal("1.10"), id="decimal"),
        pytest.param(column("DECIMAL ZEROFILL", 5, 2), "001.10", '"1.10"', Decimal("1.10"), id="0"),
        pytest.param(column("DOUBLE"), "1e300", "1e300", 1e300, id="a double"),
        pytest.param(column("BIT", 1), b"\x01", "true", True, id="a bit"),
        pytest.param(column("BIT", 12), b"\x0f\xa0", '"oA8="', b"\x0f\xa0", id="bits"),
        pytest.param(
            column("DATE"), "1969-12-31", "-1", date(1969, 12, 31), id="a day before 1970"
        ),
        pytest.param(column("DATE"), "0000-00-00", "null", None, id="a day that is none"),
        pytest.param(column("DATE"), "2026-02-30", "null", None, id="a 30th of February"),
        pytest.param(
            column("DATETIME", 3),
            "1970-01-01 00:00:01.500",
            "1500",
            datetime.fromisoformat("1970-01-01T00:00:01.500"),
            id="milliseconds",
        ),
        pytest.param(
            column("DATETIME", 6),
            "1000-01-01 00:00:00.000001",
            "-30610223999999999",
            datetime.fromisoformat("1000-01-01T00:00:00.000001"),
            id="microseconds",
        ),
        pytest.param(
            column("TIMESTAMP", 6),
            "2026-01-02 03:04:05.120000",
            '"2026-01-02T03:04:05.120Z"',
            datetime(2026, 1, 2, 3, 4, 5, 120_000, UTC),
            id="an instant",
        ),
        pytest.param(column("TIME", 6), "-00:00:00.000001", "-1", -1, id="just before 0"),
        pytest.param(column("TIME"), "-838:59:59", "-3020399000000", -3020399000000, id="long"),
        pytest.param(column("YEAR"), "0000", "1900", 0, id="the year 0"),
        pytest.param(column("VARCHAR", 9), 'é"\\\n', '"é\\"\\\\\\n"', 'é"\\\n', id="text"),
        pytest.param(column("VARBINARY", 9), b"\x00\xff", '"AP8="', b"\x00\xff", id="bytes"),
        pytest.param(column("JSON"), '{"a": 1}', '"{\\"a\\": 1}"', '{"a": 1}', id="json"),
        pytest.param(column("INT"), None, "null", None, id="nothing"),
    ],
)
def test_a_value_is_told_and_typed(own: MySqlColumn, raw: Any, fragment: str, value: Any) -> None:
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
    own = MySqlColumn("c", kind, nullable=False)
    raw = "0000-00-00" if kind == "DATE" else "0000-00-00 00:00:00"

    assert fragments(own, raw) == [fragment]


def test_a_name_may_hold_what_means_something_elsewhere() -> None:
    own = MySqlColumn('a%s"b', "INT")

    rows = encode_rows([own.name], [to_wire_texts(own, pa.array(["1"]))])

    assert rows.to_pylist() == ['{"a%s\\"b":1}']


def test_a_place_is_told_with_its_wkb_and_without_a_system_of_none() -> None:
    wkb = bytes.fromhex("0101000000000000000000f03f0000000000000040")

    (told,) = fragments(column("POINT"), b"\0\0\0\0" + wkb)

    assert told == '{"x":1.0,"y":2.0,"wkb":"AQEAAAAAAAAAAADwPwAAAAAAAABA","srid":null}'


def test_all_naturals_are_told_as_each_by_itself() -> None:
    edges = [n for bits in range(64) for n in (2**bits - 1, 2**bits, 2**bits + 1)]
    numbers = [None, *edges, 2**64 - 1, *(random.Random(3).getrandbits(64) for _ in range(999))]
    raw = [None if n is None else str(n) for n in numbers]

    told = fragments(column("BIGINT UNSIGNED"), *raw, "00000000000000000007")

    each = [
        "null"
        if n is None
        else f'"{base64.b64encode(n.to_bytes(n.bit_length() // 8 + 1, "big")).decode()}"'
        for n in (*numbers, 7)
    ]
    assert told == each


def test_a_number_beyond_64_bits_is_told_all_the_same() -> None:
    """As a key that somebody asks for, which no row has."""
    assert fragments(column("BIGINT UNSIGNED"), str(2**64)) == ['"AQAAAAAAAAAA"']
