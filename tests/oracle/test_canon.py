"""Values that are equal however two systems spell them, and values that only look equal."""

from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal

import pytest

from demo.oracle.canon import Column, fits, from_mirror, from_source


def mysql_column(declared: str) -> Column:
    return Column("x", declared.partition("(")[0].partition(" ")[0], declared)


EAST = timezone(timedelta(hours=8))
MOMENT = datetime.fromisoformat("9999-12-31T23:59:59.999999")


@pytest.mark.parametrize(
    ("declared", "raw", "value", "equal"),
    [
        ("bigint(20) unsigned", "18446744073709551615", Decimal(2**64 - 1), True),
        ("bigint(20) unsigned", "18446744073709551615", Decimal(-1), False),
        ("tinyint(4)", "-128", -128, True),
        ("decimal(12,4)", "1.5000", Decimal("1.5"), True),
        ("decimal(38,10)", "1234567890123456789012345678.0000000001", None, False),
        ("decimal(40,1)", "123456789012345678901234567890123456789.1",
         "123456789012345678901234567890123456789.1", True),
        ("decimal(40,1)", "1.0", "one", False),
        ("datetime(6)", "9999-12-31 23:59:59.999999", MOMENT, True),
        ("datetime(6)", "9999-12-31 23:59:59.999998", MOMENT, False),
        ("timestamp", "2026-01-01 00:00:00", datetime(2026, 1, 1, 8, tzinfo=EAST), True),
        ("timestamp", "2026-01-01 00:00:00", datetime(2026, 1, 1, 8, tzinfo=UTC), False),
        ("date", "1000-01-01", date(1000, 1, 1), True),
        ("date", "0000-00-00", None, False),
        ("time", "-838:59:59", -(839 * 3600 - 1) * 1_000_000, True),
        ("time(6)", "00:00:00.000001", 1, True),
        ("year(4)", "2155", 2155, True),
        ("bit(1)", b"\x01", True, True),
        ("bit(1)", b"\x00", False, True),
        ("bit(9)", b"\x01\x00", b"\x01\x00", True),
        ("bit(9)", b"\x01\x00", b"\x00\x01", False),
        ("blob", b"", b"", True),
        ("blob", b"", None, False),
        ("float", "0.10000000149011612", 0.1, True),
        ("float", "0.10000000149011612", 0.1001, False),
        ("double", "1.7976931348623157e308", 1.7976931348623157e308, True),
        ("json", '{"a": 1, "b": [true]}', '{"b":[true],"a":1.0}', True),
        ("json", '{"a": true}', '{"a": 1}', False),
        ("json", "null", None, False),
        ("json", "{}", "{", False),
        ("varchar(9)", "", "", True),
        ("varchar(9)", "", None, False),
        ("varchar(9)", "e\u0301", "\u00e9", False),
        ("enum('a','b')", "b", "b", True),
    ],
)  # fmt: skip
def test_values_are_equal_exactly_when_they_mean_the_same(
    declared: str, raw: str | bytes, value: object, equal: bool
) -> None:
    source = from_source(mysql_column(declared), raw)
    mirror = from_mirror(mysql_column(declared), value)

    assert (source == mirror) is equal


@pytest.mark.parametrize(
    ("declared", "right", "wrong"),
    [
        ("tinyint(4)", "byte", "string"),
        ("tinyint(3) unsigned", "short", "byte"),
        ("int(11)", "integer", "short"),
        ("int(10) unsigned", "long", "integer"),
        ("bigint(20)", "long", "integer"),
        ("bigint(20) unsigned", "decimal(20,0)", "long"),
        ("decimal(12,4)", "decimal(12,4)", "decimal(12,2)"),
        ("decimal(39,0)", "string", "decimal(38,0)"),
        ("datetime(6)", "timestamp_ntz", "timestamp"),
        ("timestamp", "timestamp", "timestamp_ntz"),
        ("date", "date", "timestamp"),
        ("time", "long", "integer"),
        ("year(4)", "integer", "date"),
        ("bit(1)", "boolean", "binary"),
        ("bit(9)", "binary", "boolean"),
        ("varbinary(9)", "binary", "string"),
        ("json", "string", "binary"),
        ("set('a')", "string", "integer"),
        ("float", "float", "double"),
        ("double", "double", "float"),
    ],
)
def test_a_mirror_column_has_the_type_of_the_contract(
    declared: str, right: str, wrong: str
) -> None:
    assert fits(mysql_column(declared), right)
    assert not fits(mysql_column(declared), wrong)


def test_a_type_without_a_place_in_the_mirror_is_not_verified() -> None:
    assert not mysql_column("geometry").verifiable
    assert mysql_column("varchar(9)").verifiable


def test_null_is_null_on_both_sides() -> None:
    assert from_source(mysql_column("json"), None) is None
    assert from_mirror(mysql_column("json"), None) is None
