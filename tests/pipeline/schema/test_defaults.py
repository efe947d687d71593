"""A default that fills old rows is exactly what the source itself filled in."""

import json
from datetime import date

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.model import Order
from pipeline.schema.column import Column, TableSchema
from pipeline.schema.defaults import Value, constant
from pipeline.schema.history import default_of, parse, unknown_fields
from pipeline.schema.types import typed
from tests.pipeline.corpus import messages

UNSURE = {"c", "g", "u", "x"}  # the time of the change, bits without base, a zone, now()
CASES = [
    pytest.param(Column("c", "INT"), None, id="none"),
    pytest.param(Column("c", "INT", default="-5"), "-5", id="number"),
    pytest.param(Column("c", "BOOL", default="TRUE"), "1", id="boolean word"),
    pytest.param(Column("c", "VARCHAR", 9, default="x''y\\n\\\\"), "x'y\n\\", id="escapes"),
    pytest.param(Column("c", "TIME", default="-10:00:00.5"), -36_000_500_000, id="time"),
    pytest.param(Column("c", "YEAR", default="69"), 2069, id="short year"),
    pytest.param(Column("c", "YEAR", default="70"), 1970, id="short year of the last century"),
    pytest.param(Column("c", "YEAR", default="0"), 0, id="year zero"),
    pytest.param(Column("c", "DATE", default="2020-02-29"), date(2020, 2, 29), id="date"),
    pytest.param(Column("c", "BIT", 9, default="1"), b"\0\1", id="bits"),
    pytest.param(Column("c", "BINARY", 3, default="a"), b"a\0\0", id="padded"),
]
REFUSED = [
    pytest.param(Column("c", "INT", nullable=False), "NOT NULL", id="not null"),
    pytest.param(Column("c", "INT", default="5", generated=True), "computed", id="computed"),
    pytest.param(Column("c", "INT", default="uuid()"), "no constant", id="expression"),
    pytest.param(Column("c", "TIME", default="noon"), "no plain time", id="odd time"),
    pytest.param(Column("c", "BIT", 8, default="101"), "base", id="bits"),
    pytest.param(Column("c", "BLOB", default="0xFF"), "exactly", id="hexadecimal"),
    pytest.param(Column("c", "VARBINARY", 9, default="é"), "exactly", id="letters of a charset"),
    pytest.param(Column("c", "TIMESTAMP", default="2020-01-01 00:00:00"), "zone", id="zone"),
    pytest.param(Column("c", "DATETIME", default="1970-01-01 00:00:00"), "time of", id="now()"),
    pytest.param(Column("c", "DATE", default="0000-00-00"), "zero date", id="zero date"),
]


def defaults_of_a_real_table() -> tuple[TableSchema, str]:
    """Its schema as told, and the row the server made of defaults alone."""
    real = [m for m in messages("debezium_json") if m.id.startswith("captured") and m.value]
    said = {m.id: json.loads(m.value or b"") for m in real}
    created = next(p for p in said.values() if p.get("ddl", "").startswith("CREATE TABLE defs"))
    row = next(p["after"] for i, p in said.items() if "plain.typ.defs/0" in i)
    schema = parse(json.dumps(created), Order(1, 1, 1))[0].schema
    assert schema is not None
    return schema, json.dumps(row)


@pytest.mark.parametrize(("column", "expected"), CASES)
def test_a_constant_default_is_read_as_the_server_reads_it(column: Column, expected: Value) -> None:
    assert constant(column) == expected


@pytest.mark.parametrize(("column", "why"), REFUSED)
def test_a_default_that_is_not_certain_is_refused(column: Column, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        constant(column)


@pytest.mark.spark
def test_defaults_equal_what_a_real_server_filled_in(spark: SparkSession) -> None:
    schema, row = defaults_of_a_real_table()
    sure = [c for c in schema.columns if c.name not in UNSURE and c.name != "id"]
    frame = spark.createDataFrame([(row,)], "after string")

    read = typed(frame, F.col("after"), sure).select("_row.*", "_misread")
    filled = frame.select(*(default_of(column).alias(column.name) for column in sure))

    assert filled.dtypes == read.dtypes[:-1]
    assert (*filled.collect()[0], False) == tuple(read.collect()[0])


def test_defaults_that_a_real_server_computed_are_refused() -> None:
    schema, _ = defaults_of_a_real_table()

    for name in UNSURE:
        column = schema.column(name)
        assert column is not None
        with pytest.raises(ValueError, match=r"default|base|computed"):
            constant(column)


@pytest.mark.spark
def test_fields_without_a_column_are_named(spark: SparkSession) -> None:
    rows = [('{"a":1,"b.c":{"d":1},"new":null}',), ('{"a":1}',), ("{broken",), (None,)]
    frame = spark.createDataFrame(rows, "after string")

    found = frame.select(unknown_fields(F.col("after"), [Column("a", "INT")])).collect()

    assert [row[0] for row in found] == [["b.c", "new"], [], [], []]
