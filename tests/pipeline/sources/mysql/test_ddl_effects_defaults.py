"""A default that fills old rows is exactly what the source itself filled in."""

import json
from datetime import date, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from pipeline.model import Order
from pipeline.schema.decode import type_rows
from pipeline.schema.model import TableSchema, arrow_type
from pipeline.sources.mysql.ddl_effects import default_scalar, read_constant
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import mysql_columns
from tests.pipeline.corpus import messages
from tests.pipeline.reading import parse

UNSURE = {"c", "g", "u", "x"}  # the time of the change, bits without base, a zone, now()
FILLED = {
    "none": (Column("c", "INT"), None),
    "number": (Column("c", "INT", default="-5"), -5),
    "a fraction is rounded": (Column("c", "INT", default="1.5"), 2),
    "an exponent": (Column("c", "INT", default="1e3"), 1000),
    "boolean word": (Column("c", "BOOL", default="TRUE"), 1),
    "the highest number": (
        Column("c", "BIGINT UNSIGNED", default="18446744073709551615"),
        Decimal(2**64 - 1),
    ),
    "rounded": (Column("c", "DECIMAL", 5, 2, default="-1.555"), Decimal("-1.56")),
    "long decimal": (Column("c", "DECIMAL", 38, 30, default="5"), Decimal(5)),
    "as text": (Column("c", "DECIMAL", 65, 30, default="5"), f"5.{'0' * 30}"),
    "float": (Column("c", "FLOAT", default="0.1"), 0.10000000149011612),
    "double": (Column("c", "DOUBLE", default="-0.1"), -0.1),
    "escapes": (Column("c", "VARCHAR", 9, default="x''y\\n\\\\"), "x'y\n\\"),
    "a kept escape": (Column("c", "VARCHAR", 9, default=r"x\%y\k"), r"x\%yk"),
    "label": (Column("c", "ENUM", 1, default="d,e", values=("d,e",)), "d,e"),
    "escaped": (Column("c", "ENUM", 1, default=r"j\\k", values=(r"j\\k",)), r"j\k"),
    "blank at its end": (Column("c", "ENUM", 1, default="l ", values=("l ",)), "l"),
    "time": (Column("c", "TIME", default="-10:00:00.5"), -36_000_500_000),
    "short year": (Column("c", "YEAR", default="69"), 2069),
    "short year of the last century": (Column("c", "YEAR", default="70"), 1970),
    "year zero": (Column("c", "YEAR", default="0"), 0),
    "date": (Column("c", "DATE", default="2020-02-29"), date(2020, 2, 29)),
    "datetime": (
        Column("c", "DATETIME", 6, default="9999-12-31 23:59:59.999999"),
        datetime.fromisoformat("9999-12-31 23:59:59.999999"),
    ),
    "bit": (Column("c", "BIT", 1, default="1"), True),
    "no bit": (Column("c", "BIT", 1, default="0"), False),
    "bits": (Column("c", "BIT", 9, default="1"), b"\0\1"),
    "padded": (Column("c", "BINARY", 3, default="a"), b"a\0\0"),
}
REFUSED = {
    "not null": (Column("c", "INT", nullable=False), "NOT NULL"),
    "computed": (Column("c", "INT", default="5", generated=True), "computed"),
    "expression": (Column("c", "INT", default="uuid()"), "not a constant"),
    "too high": (Column("c", "INT", default="2147483648"), "does not fit"),
    "a double's fraction": (Column("c", "INT", default="15e-1"), "does not fit"),
    "far too high": (Column("c", "INT", default="1e999999999"), "does not fit"),
    "digits": (Column("c", "DECIMAL", 3, 1, default="100"), "does not fit"),
    "text digits": (Column("c", "DECIMAL", 65, 30, default=f"1{'0' * 35}"), "fit"),
    "float too high": (Column("c", "FLOAT", default="1e40"), "does not fit"),
    "odd time": (Column("c", "TIME", default="noon"), "not a plain time"),
    "bits": (Column("c", "BIT", 8, default="101"), "base"),
    "hexadecimal": (Column("c", "BLOB", default="0xFF"), "exactly"),
    "a control character": (Column("c", "BLOB", default="\x01"), "exactly"),
    "letters of a charset": (Column("c", "VARBINARY", 9, default="é"), "exactly"),
    "zone": (Column("c", "TIMESTAMP", default="2020-01-01 00:00:00"), "zone"),
    "now()": (Column("c", "DATETIME", default="1970-01-01 00:00:00"), "time of"),
    "offset": (Column("c", "DATETIME", default="2020-01-01 00:00:00+02:00"), "zone"),
    "zero date": (Column("c", "DATE", default="0000-00-00"), "zero date"),
}


@pytest.mark.parametrize(("column", "expected"), FILLED.values(), ids=FILLED)
def test_a_constant_default_is_a_value_of_the_columns_type(
    column: Column, expected: object
) -> None:
    found = default_scalar(column)

    assert found.type == arrow_type(column)
    assert found.as_py() == expected


@pytest.mark.parametrize(("column", "why"), REFUSED.values(), ids=REFUSED)
def test_a_default_that_is_not_certain_is_refused(column: Column, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        default_scalar(column)


def test_defaults_equal_what_a_real_server_filled_in() -> None:
    schema, row = defaults_of_a_real_table()
    sure = [c for c in mysql_columns(schema) if c.name not in UNSURE and c.name != "id"]

    read = type_rows(pa.array([row]), sure)
    filled = {column.name: default_scalar(column).as_py() for column in sure}

    assert read.misread.to_pylist() == [False]
    assert read.rows.to_pylist() == [filled]


def test_defaults_that_a_real_server_computed_are_refused() -> None:
    schema, _ = defaults_of_a_real_table()

    for name in UNSURE:
        (column,) = [one for one in mysql_columns(schema) if one.name == name]
        with pytest.raises(ValueError, match=r"default|base|computed"):
            read_constant(column)


def defaults_of_a_real_table() -> tuple[TableSchema, str]:
    """Its schema as told, and the row the server made of defaults alone."""
    real = [m for m in messages("debezium_json") if m.id.startswith("captured") and m.value]
    said = {m.id: json.loads(m.value or b"") for m in real}
    created = next(p for p in said.values() if p.get("ddl", "").startswith("CREATE TABLE defs"))
    row = next(p["after"] for i, p in said.items() if "plain.typ.defs/0" in i)
    schema = parse(json.dumps(created), Order(1, 1, 1))[0].schema
    assert schema is not None
    return schema, json.dumps(row)
