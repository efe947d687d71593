"""Values of Postgres that are equal however two systems spell them, and that only look equal.

What a server says is read in the proof of the Robinhood system.
"""

from datetime import UTC, date, datetime
from decimal import Decimal

import pytest

from demo.oracle.postgres import PostgresColumn

MOMENT = datetime.fromisoformat("9999-12-31T23:59:59.999999")


def postgres_column(declared: str) -> PostgresColumn:
    kind = declared.partition("(")[0].strip()
    return PostgresColumn("x", kind, declared, kind == "mood", declared.endswith("[]"))


@pytest.mark.parametrize(
    ("declared", "raw", "value", "equal"),
    [
        ("boolean", "t", True, True),
        ("boolean", "f", True, False),
        ("bigint", "-9223372036854775808", -(2**63), True),
        ("numeric(12,4)", "1.5000", Decimal("1.5000"), True),
        ("numeric(12,4)", "1.5000", Decimal("1.5001"), False),
        ("numeric", "0.000", "0.000", True),
        ("numeric", "0.000", "0", False),
        ("numeric", "NaN", "NAN", True),
        ("numeric", "NaN", None, False),
        ("numeric", "10000000000", "1E+10", True),
        ("real", "0.1", 0.10000000149011612, True),
        ("real", "0.1", 0.1001, False),
        ("double precision", "NaN", float("nan"), True),
        ("double precision", "-0", 0.0, False),
        ("bytea", "\\x00ff", b"\x00\xff", True),
        ("bytea", "\\x", None, False),
        ("date", "0001-01-01", date(1, 1, 1), True),
        ("time without time zone", "23:59:59.000001", 86_399_000_001, True),
        ("timestamp without time zone", "9999-12-31 23:59:59.999999", MOMENT, True),
        ("timestamp with time zone", "2026-01-01 00:00:00+00",
         datetime(2026, 1, 1, tzinfo=UTC), True),
        ("timestamp with time zone", "2026-01-01 00:00:00+00",
         datetime(2026, 1, 1, 1, tzinfo=UTC), False),
        ("interval", "P-1Y-2M3DT-4H-5M-6.789S", "P-1Y-2M3DT-4H-5M-6.789S", True),
        ("interval", "PT0S", "P0Y0M0DT0H0M0S", True),
        ("interval", "P1M", "P30D", False),
        ("jsonb", '{"a": 1}', '{"a":1}', True),
        ("json", "null", None, False),
        ("text[]", '["a",null]', '["a",null]', True),
        ("text[]", '["a","null"]', '["a",null]', False),
        ("mood", "sad", "sad", True),
        ("text", "", None, False),
        ("bit(9)", "000000001", "000000001", True),
    ],
)  # fmt: skip
def test_values_are_equal_exactly_when_they_mean_the_same(
    declared: str, raw: str, value: object, equal: bool
) -> None:
    one = postgres_column(declared)

    assert (one.from_source(raw) == one.from_mirror(value)) is equal


@pytest.mark.parametrize(
    ("declared", "mirror_type"),
    [
        ("boolean", "boolean"),
        ("bigint", "long"),
        ("numeric(38,10)", "decimal(38,10)"),
        ("numeric(39,10)", "string"),
        ("numeric(3,-2)", "string"),
        ("numeric", "string"),
        ("text[]", "string"),
        ("mood", "string"),
        ("timestamp with time zone", "timestamp"),
    ],
)
def test_a_column_has_its_type_in_the_mirror_and_no_other(declared: str, mirror_type: str) -> None:
    fitting = [
        t for t in ("boolean", "long", "string", "timestamp") if postgres_column(declared).fits(t)
    ]

    assert postgres_column(declared).fits(mirror_type)
    assert fitting in ([mirror_type], [])


def test_a_type_that_the_contract_does_not_name_is_not_compared() -> None:
    assert not postgres_column("money").verifiable
