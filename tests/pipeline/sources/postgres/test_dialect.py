"""Types, values and what a mirror follows, of Postgres; on the wire as Debezium 3.7 sends them."""

import datetime as dt
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pipeline.model import Order, ShardId
from pipeline.schema.decode import type_rows
from pipeline.schema.model import (
    ColumnDescription,
    Compatible,
    Incompatible,
    Keep,
    KnownTables,
    SchemaEvent,
    TableSchema,
    arrow_type,
)
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.types import PostgresColumn, read_column, why_unverifiable

TIME = "time."
ANY = 2_147_483_647
DATE, MICROS = f"DATE as {TIME}Date", f"TIMESTAMP as {TIME}MicroTimestamp"
ZONED = f"TIMESTAMPTZ as {TIME}ZonedTimestamp"
moment = dt.datetime.fromisoformat


def postgres_column(
    kind: str, length: int | None = None, scale: int | None = None, name: str = "c", **more: Any
) -> PostgresColumn:
    found = POSTGRES.column(ColumnDescription(name, kind, length, scale, **more), "")
    assert isinstance(found, PostgresColumn)
    return found


@pytest.mark.parametrize(
    ("kind", "sizes", "lake", "wire", "value"),
    [
        ("INT2 as int16", (5, 0), "smallint", "-32768", -32768),
        ("SERIAL as int32", (10, 0), "int", "1", 1),
        ("INT8 as int64", (19, 0), "bigint", "9223372036854775807", 2**63 - 1),
        ("OID as int64", (10, 0), "bigint", "4294967295", 2**32 - 1),
        ("BOOL as boolean", (1, 0), "boolean", "true", True),
        ("FLOAT4 as float", (8, 8), "float", '"-Infinity"', float("-inf")),
        ("FLOAT8 as double", (17, 17), "double", "0.1", 0.1),
        ("NUMERIC as string", (10, 2), "decimal(10,2)", '"-99999999.99"', Decimal("-99999999.99")),
        ("NUMERIC as string", (50, 20), "string", '"1.50"', "1.50"),
        ("NUMERIC as string", (131089, 0), "string", '"NAN"', "NAN"),
        ("NUMERIC as string", (3, -2), "string", '"12300"', "12300"),
        ("NUMERIC as string", (2, 5), "string", '"0.00012"', "0.00012"),
        ("MONEY as string", (ANY, 0), "string", '"1.5"', "1.5"),
        ("BPCHAR as string", (5, 0), "string", '"x    "', "x    "),
        ("TEXT as string", (ANY, 0), "string", '"null"', "null"),
        ("BYTEA as bytes", (ANY, 0), "binary", '"AP+A"', b"\x00\xff\x80"),
        (DATE, (13, 0), "date", "-719162", dt.date(1, 1, 1)),
        (DATE, (13, 0), "date", "-2147472692", dt.date(9999, 12, 31)),
        (DATE, (13, 0), "date", "-2147472691", dt.date(1, 1, 1)),
        (DATE, (13, 0), "date", "2146033979", dt.date(9999, 12, 31)),
        (DATE, (13, 0), "date", "-622191234", dt.date(9999, 12, 31)),
        (DATE, (13, 0), "date", "-625821272", dt.date(1, 1, 1)),
        (
            MICROS,
            (29, 6),
            "timestamp_ntz",
            "9223372036854775807",
            moment("9999-12-31T23:59:59.999999"),
        ),
        (MICROS, (29, 6), "timestamp_ntz", "-9223372036854775808", moment("0001-01-01T00:00:00")),
        (f"TIME as {TIME}MicroTime", (15, 6), "bigint", "86400000000", 86_400_000_000),
        (f"TIME as {TIME}Time", (15, 6), "bigint", "1", 1_000),
        (f"TIMETZ as {TIME}ZonedTime", (21, 6), "string", '"10:00:00Z"', "10:00:00Z"),
        (MICROS, (29, 6), "timestamp_ntz", "-1", moment("1969-12-31T23:59:59.999999")),
        (
            f"TIMESTAMP as {TIME}Timestamp",
            (26, 3),
            "timestamp_ntz",
            "1",
            moment("1970-01-01T00:00:00.001"),
        ),
        (
            MICROS,
            (29, 6),
            "timestamp_ntz",
            "9223372036825200000",
            moment("9999-12-31T23:59:59.999999"),
        ),
        (MICROS, (29, 6), "timestamp_ntz", "-9223372036832400000", moment("0001-01-01T00:00:00")),
        (
            ZONED,
            (35, 6),
            "timestamp",
            '"2024-10-27T01:30:00.500000Z"',
            dt.datetime(2024, 10, 27, 1, 30, 0, 500000, tzinfo=dt.UTC),
        ),
        (ZONED, (35, 6), "timestamp", '"-infinity"', dt.datetime(1, 1, 1, tzinfo=dt.UTC)),
        ("UUID as data.Uuid", (ANY, 0), "string", '"a-b"', "a-b"),
        ("BIT as boolean", (1, 0), "boolean", "false", False),
        ("BIT as data.Bits", (12, 0), "string", '"AQg="', "100000000001"),
        ("VARBIT as data.Bits", (20, 0), "string", '"FQ=="', "FQ=="),
        ("MOOD as data.Enum", (ANY, 0), "string", '"h,app\'y"', "h,app'y"),
        ("POSINT as int32", (10, 0), "int", "7", 7),
        ("PRICE as string", (8, 3), "string", '"1.500"', "1.500"),
        ("_INT4 as array", (10, 0), "string", "[1,null,-3]", "[1,null,-3]"),
        ("INT4RANGE as string", (ANY, 0), "string", '"[1,10)"', "[1,10)"),
        ("POINT as struct", (ANY, 0), "string", '{"x":1.5}', '{"x":1.5}'),
    ],
)
def test_a_value_arrives_as_its_lake_type(
    kind: str, sizes: tuple[int, int], lake: str, wire: str, value: object
) -> None:
    made = postgres_column(kind, *sizes)

    read = type_rows(pa.array([f'{{"c":{wire}}}', '{"c":null}', None]), [made])

    assert POSTGRES.lake_type(made) == lake
    assert read.rows["c"].to_pylist() == [value, None, None]
    assert read.rows["c"].type == arrow_type(made)
    assert not read.misread.true_count


@pytest.mark.parametrize(
    ("kind", "sizes", "wire"),
    [
        pytest.param("NUMERIC as string", (10, 2), '"NAN"', id="no number in a decimal"),
        pytest.param("NUMERIC as string", (10, 2), '"POSITIVE_INFINITY"', id="infinity, too"),
        pytest.param("NUMERIC as string", (10, 2), '"1.234"', id="a digit too many"),
        pytest.param("INT2 as int16", (5, 0), "32768", id="too large"),
        pytest.param(DATE, (13, 0), "2932897", id="the year 10000"),
        pytest.param(f"TIMESTAMP as {TIME}NanoTimestamp", (29, 6), "1", id="nanoseconds"),
        pytest.param(ZONED, (35, 6), '"-0043-03-15T00:00:00Z"', id="BC"),
        pytest.param("BIT as data.Bits", (2, 0), '"AQg="', id="too many bits"),
        pytest.param("BYTEA as bytes", (ANY, 0), '"?"', id="no base64"),
    ],
)
def test_what_does_not_fit_is_told_and_never_guessed(
    kind: str, sizes: tuple[int, int], wire: str
) -> None:
    read = type_rows(pa.array([f'{{"c":{wire}}}']), [postgres_column(kind, *sizes)])

    assert read.misread.to_pylist() == [True]


@pytest.mark.parametrize(
    ("told", "row"),
    [
        (postgres_column("INT4 as int32", 10, 0), {"type": "int4", "modifier": -1}),
        (
            postgres_column("NUMERIC as string", 10, 2),
            {"type": "numeric", "modifier": (10 << 16 | 2) + 4},
        ),
        (postgres_column("NUMERIC as string", 131089, 0), {"type": "numeric", "modifier": -1}),
        (
            postgres_column("NUMERIC as string", 3, -2),
            {"type": "numeric", "modifier": (3 << 16 | (-2 & 0x7FF)) + 4},
        ),
        (postgres_column("VARCHAR as string", 20, 0), {"type": "varchar", "modifier": 24}),
        (postgres_column("VARCHAR as string", ANY, 0), {"type": "varchar", "modifier": -1}),
        (postgres_column("BIT as data.Bits", 12, 0), {"type": "bit", "modifier": 12}),
        (postgres_column("_INT4 as array", 10, 0), {"type": "_int4", "modifier": -1}),
        (postgres_column("MOOD as data.Enum", ANY, 0), {"type": "mood", "made": "e"}),
        (postgres_column("POSINT as int32", 10, 0), {"type": "int4", "domain": True}),
        (
            postgres_column("PRICE as string", 8, 3),
            {"type": "numeric", "domain": True, "modifier": (8 << 16 | 3) + 4},
        ),
    ],
    ids=str,
)
def test_rows_and_the_catalogue_tell_the_same(told: PostgresColumn, row: dict[str, Any]) -> None:
    plain = {"name": "c", "made": "b", "domain": False, "filled": False, "default": None}
    there = read_column({"modifier": -1, **plain, **row})

    assert POSTGRES.differences(schema_of(told), [there]) == ()
    assert POSTGRES.lake_type(told) == POSTGRES.lake_type(there)


def schema_of(*columns: PostgresColumn, shard: str = "public.t", key: str = "id") -> TableSchema:
    return TableSchema(shard, Order(1, 1, 1), columns, (key,))


ID = postgres_column("INT4 as int32", 10, 0, "id")


@pytest.mark.parametrize(
    ("server", "told"),
    [
        pytest.param([ID], ("b: rows have it, the server does not",), id="gone"),
        pytest.param(
            [
                ID,
                postgres_column("TEXT as string", name="b"),
                postgres_column("TEXT as string", name="x"),
            ],
            ("x: the server has it, no row has described it yet",),
            id="new",
        ),
        pytest.param(
            [ID, postgres_column("VARCHAR as string", 5, 0, "b")],
            ("b: rows say TEXT, the server VARCHAR(5)",),
            id="other",
        ),
    ],
)
def test_differences_are_told(server: list[PostgresColumn], told: tuple[str, ...]) -> None:
    rows = schema_of(ID, postgres_column("TEXT as string", name="b"))

    assert POSTGRES.differences(rows, server) == told


@pytest.mark.parametrize(
    ("old", "new", "follows"),
    [
        ("INT4 as int32", "INT8 as int64", True),
        ("INT8 as int64", "INT4 as int32", False),
        ("VARCHAR(5) as string", "VARCHAR(9) as string", True),
        ("VARCHAR(5) as string", "TEXT as string", True),
        ("TEXT as string", "VARCHAR(5) as string", False),
        ("NUMERIC(10,2) as string", "NUMERIC(12,2) as string", True),
        ("NUMERIC(10,2) as string", "NUMERIC(12,4) as string", False),
        ("NUMERIC(10,2) as string", "NUMERIC as string", False),
        ("INT4 as int32", "TEXT as string", False),
    ],
)
def test_a_wider_type_is_followed(old: str, new: str, follows: bool) -> None:
    before, after = (sized(one) for one in (old, new))

    step = POSTGRES.compare(schema_of(ID, before), schema_of(ID, after))

    assert isinstance(step, Compatible) is follows


def sized(text: str) -> PostgresColumn:
    kind, _, way = text.partition(" as ")
    name, _, numbers = kind.removesuffix(")").partition("(")
    length, _, scale = (numbers or "-1").partition(",")
    return postgres_column(f"{name} as {way}", int(length), int(scale or 0))


def test_a_column_that_old_rows_are_without_is_followed_and_no_other() -> None:
    old, plain = schema_of(ID), postgres_column("TEXT as string", name="n")
    defaulted, filled = replace(plain, has_default=True), replace(plain, nullable=False)

    assert POSTGRES.compare(old, schema_of(ID, plain)) == Compatible((plain,))
    assert not POSTGRES.default(plain).is_valid
    for one in (defaulted, filled):
        step = POSTGRES.compare(old, schema_of(ID, one))
        assert isinstance(step, Incompatible)
        assert "take a new base of public.t" in step.statement


@pytest.mark.parametrize(
    ("new", "why"),
    [
        pytest.param(schema_of(ID), "column n is gone", id="dropped"),
        pytest.param(
            schema_of(ID, postgres_column("TEXT as string", name="m")),
            "column n is gone, and m is at its position",
            id="renamed",
        ),
        pytest.param(
            schema_of(ID, postgres_column("TEXT as string", name="n"), key="n"),
            "the key changed",
            id="key",
        ),
    ],
)
def test_what_changes_the_meaning_of_rows_is_held(new: TableSchema, why: str) -> None:
    step = POSTGRES.compare(schema_of(ID, postgres_column("TEXT as string", name="n")), new)

    assert isinstance(step, Incompatible)
    assert step.why.startswith(why)


def test_shards_at_different_steps_are_one_table() -> None:
    narrow, wide = (
        postgres_column("VARCHAR as string", 5, 0, "a"),
        postgres_column("TEXT as string", name="a"),
    )
    later = postgres_column("INT8 as int64", name="b")

    merged = POSTGRES.merge([schema_of(ID, narrow), schema_of(ID, wide, later, shard="public.u")])

    assert merged == schema_of(ID, wide, later)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(schema_of(ID, key="x", shard="public.u"), id="another key"),
        pytest.param(
            schema_of(postgres_column("TEXT as string", name="id"), shard="public.u"), id="a type"
        ),
        pytest.param(
            schema_of(
                ID, postgres_column("INT4 as int32", name="z", nullable=False), shard="public.u"
            ),
            id="a column that the other one has not",
        ),
    ],
)
def test_shards_that_do_not_fit_are_refused(other: TableSchema) -> None:
    assert isinstance(POSTGRES.merge([schema_of(ID), other, schema_of(ID)]), Incompatible)


def test_columns_that_are_told_leave_all_rows_as_they_are() -> None:
    told = SchemaEvent(Order(1, 5, 5), "", None, ((ShardId("public", "t"), schema_of(ID)),))

    effects, known = POSTGRES.follow([told, told], KnownTables(captured=lambda _: True))

    assert effects == (Keep(ShardId("public", "t"), Order(1, 5, 5), schema_of(ID)),)
    assert known.schemas == {ShardId("public", "t"): schema_of(ID)}
    assert known.based == frozenset()
    assert POSTGRES.renamed_from("", ShardId("public", "t")) is None
    assert not POSTGRES.makes_anew("", there=False)
    assert POSTGRES.database_dropped("") is None
    assert POSTGRES.remembered(schema_of(ID), schema_of()) == schema_of()
    assert POSTGRES.spelled_alike(ID)
    assert POSTGRES.whole(ID)
    assert POSTGRES.spellings(ID, -7) == ("-7",)


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (postgres_column("INT4 as int32"), None),
        (postgres_column("MONEY as string"), "money"),
        (postgres_column("_FLOAT8 as array"), "a large array"),
        (postgres_column("_INT4 as array"), "dimension"),
        (postgres_column("BOX as bytes"), "not compared"),
        (postgres_column(MICROS), "infinity"),
    ],
    ids=str,
)
def test_what_cannot_be_compared_is_named(one: PostgresColumn, why: str | None) -> None:
    told = why_unverifiable(one)

    assert (told is None) if why is None else (told is not None and why in told)
