"""Every MySQL type becomes its lake type exactly, and what does not fit is told, never lost."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from pyspark.sql import Column as Spark
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.schema.types import Column, lake_type, misread, row, typed, unverifiable


def column(kind: str, length: int | None = None, scale: int | None = None) -> Column:
    return Column("c", kind, length, scale)


LAKE = [
    ("TINYINT", None, None, "tinyint"),
    ("TINYINT", 1, None, "tinyint"),
    ("BOOL", None, None, "tinyint"),
    ("TINYINT UNSIGNED", None, None, "smallint"),
    ("SMALLINT", None, None, "smallint"),
    ("SMALLINT UNSIGNED", None, None, "int"),
    ("MEDIUMINT", None, None, "int"),
    ("MEDIUMINT UNSIGNED ZEROFILL", None, None, "int"),
    ("INT", 11, None, "int"),
    ("INTEGER", None, None, "int"),
    ("INT ZEROFILL", None, None, "bigint"),
    ("INT UNSIGNED", None, None, "bigint"),
    ("BIGINT", 20, None, "bigint"),
    ("BIGINT UNSIGNED", None, None, "decimal(20,0)"),
    ("SERIAL", None, None, "decimal(20,0)"),
    ("DECIMAL", None, None, "decimal(10,0)"),
    ("NUMERIC", 5, None, "decimal(5,0)"),
    ("DECIMAL UNSIGNED", 38, 30, "decimal(38,30)"),
    ("DECIMAL", 39, 0, "string"),
    ("DECIMAL", 65, 30, "string"),
    ("FLOAT", None, None, "float"),
    ("FLOAT UNSIGNED", 10, 2, "float"),
    ("FLOAT", 53, None, "double"),
    ("DOUBLE PRECISION", None, None, "double"),
    ("BIT", 1, None, "boolean"),
    ("BIT", 2, None, "binary"),
    ("DATE", None, None, "date"),
    ("DATETIME", 6, None, "timestamp_ntz"),
    ("TIMESTAMP", None, None, "timestamp"),
    ("TIME", 3, None, "bigint"),
    ("YEAR", 4, None, "int"),
    ("CHAR", 10, None, "string"),
    ("NATIONAL CHARACTER VARYING", 10, None, "string"),
    ("LONGTEXT", None, None, "string"),
    ("ENUM", 1, None, "string"),
    ("SET", 1, None, "string"),
    ("JSON", None, None, "string"),
    ("BINARY", 4, None, "binary"),
    ("LONGBLOB", None, None, "binary"),
    ("GEOMETRY", None, None, "string"),
    ("VECTOR", None, None, "string"),
]


@pytest.mark.parametrize(("kind", "length", "scale", "expected"), LAKE)
def test_the_map_of_types_is_fixed(
    kind: str, length: int | None, scale: int | None, expected: str
) -> None:
    assert lake_type(column(kind, length, scale)) == expected


@pytest.mark.parametrize(
    ("unclear", "zero_dates", "reason"),
    [
        pytest.param(column("POINT"), False, "geometry", id="geometry"),
        pytest.param(column("VECTOR"), False, "not known", id="a type of another server"),
        pytest.param(Column("c", "DATE", default="0000-00-00"), False, "0000", id="zero default"),
        pytest.param(column("DATETIME"), True, "0000-00-00", id="zero dates let in"),
        pytest.param(Column("c", "ENUM", values=("a", "é?")), False, "label", id="lost label"),
        pytest.param(column("YEAR"), False, "0000", id="year zero"),
        pytest.param(column("DATETIME"), False, None, id="zero dates kept out"),
        pytest.param(column("BOOL"), False, None, id="an alias"),
        pytest.param(column("DECIMAL UNSIGNED", 65, 30), False, None, id="a long decimal"),
        pytest.param(column("BIT", 64), False, None, id="bits"),
    ],
)
def test_what_cannot_be_compared_is_named(
    unclear: Column, zero_dates: bool, reason: str | None
) -> None:
    found = unverifiable(unclear, zero_dates=zero_dates)

    assert (found is None) if reason is None else (found is not None and reason in found)


NINES = "9" * 38
READ = [
    (column("TINYINT"), "-128", "-128"),
    (column("TINYINT", 1), "true", "1"),
    (column("BOOL"), "false", "0"),
    (column("BOOL"), "1", "1"),
    (column("TINYINT UNSIGNED"), "255", "255"),
    (column("SMALLINT UNSIGNED"), "65535", "65535"),
    (column("MEDIUMINT UNSIGNED"), "16777215", "16777215"),
    (column("INT"), "-2147483648", "-2147483648"),
    (column("INT UNSIGNED"), "4294967295", "4294967295"),
    (column("BIGINT"), "-9223372036854775808", "-9223372036854775808"),
    (column("BIGINT"), "9007199254740993", "9007199254740993"),
    (column("BIGINT UNSIGNED"), '"AP//////////"', "18446744073709551615"),
    (column("BIGINT UNSIGNED"), '"AIAAAAAAAAAA"', "9223372036854775808"),
    (column("BIGINT UNSIGNED"), '"AA=="', "0"),
    (column("BIGINT UNSIGNED"), '"AQ=="', "1"),
    (column("BIGINT UNSIGNED"), '"f/////////8="', "9223372036854775807"),
    (column("BIGINT UNSIGNED"), "18446744073709551615", "18446744073709551615"),
    (column("BIGINT UNSIGNED"), '"18446744073709551615"', "18446744073709551615"),
    (column("DECIMAL", 10, 2), '"-99999999.99"', "-99999999.99"),
    (column("DECIMAL", 38, 0), f'"{NINES}"', NINES),
    (column("DECIMAL", 38, 30), f'"-{NINES[:8]}.{NINES[:30]}"', f"-{NINES[:8]}.{NINES[:30]}"),
    (column("DECIMAL", 65, 30), f'"-{NINES[:35]}.{NINES[:30]}"', f"-{NINES[:35]}.{NINES[:30]}"),
    (column("DECIMAL", 12, 4), '"0.0000"', "0.0000"),
    (column("DECIMAL", 5, 0), "12345", "12345"),
    (column("FLOAT"), "3.40282e38", "3.40282E38"),
    (column("FLOAT"), "0.1", "0.1"),
    (column("DOUBLE"), "-1.7976931348623157E308", "-1.7976931348623157E308"),
    (column("DOUBLE"), "4.9E-324", "4.9E-324"),
    (column("BIT", 1), "true", "true"),
    (column("BIT", 1), "false", "false"),
    (column("BIT", 12), '"AQg="', "0x0801"),
    (column("BIT", 64), '"//////////8="', "0xFFFFFFFFFFFFFFFF"),
    (column("BIT", 64), '"AQAAAAAAAAA="', "0x0000000000000001"),
    (column("DATE"), "-354285", "1000-01-01"),
    (column("DATE"), "2932896", "9999-12-31"),
    (column("DATETIME"), "-30610224000000", "1000-01-01 00:00:00"),
    (column("DATETIME", 3), "253402300799999", "9999-12-31 23:59:59.999"),
    (column("DATETIME", 4), "-30610223999999900", "1000-01-01 00:00:00.0001"),
    (column("DATETIME", 6), "253402300799999999", "9999-12-31 23:59:59.999999"),
    (column("DATETIME", 6), "-1", "1969-12-31 23:59:59.999999"),
    (column("TIMESTAMP"), '"1970-01-01T00:00:01Z"', "1970-01-01 00:00:01"),
    (column("TIMESTAMP", 6), '"2038-01-19T03:14:07.999999Z"', "2038-01-19 03:14:07.999999"),
    (column("TIME"), "-3020399000000", "-3020399000000"),
    (column("TIME", 6), "-1", "-1"),
    (column("YEAR"), "1900", "0"),
    (column("YEAR"), "1901", "1901"),
    (column("YEAR"), "2155", "2155"),
    (column("VARCHAR", 9), '""', ""),
    (column("VARCHAR", 9), r'"\"q\\ \n\u0000 é\uD83D\uDE00"', '"q\\ \n\0 é😀'),
    (column("TEXT"), '"null"', "null"),
    (column("ENUM"), '"b c"', "b c"),
    (column("SET"), '""', ""),
    (column("JSON"), r'"{\"a\": 18446744073709551615}"', '{"a": 18446744073709551615}'),
    (column("VARBINARY", 9), '""', "0x"),
    (column("BINARY", 4), '"AP8BAA=="', "0x00FF0100"),
    (column("BLOB"), '"8J+YgA=="', "0xF09F9880"),
    (column("POINT"), '{"wkb":"AQ==","srid":null}', '{"wkb":"AQ==","srid":null}'),
]
LOST = [
    (column("TINYINT"), "128"),
    (column("INT"), "2147483648"),
    (column("INT"), "1.5"),
    (column("INT"), '"x"'),
    (column("INT"), '""'),
    (column("INT"), "{}"),
    (column("BIGINT"), "9223372036854775808"),
    (column("BIGINT UNSIGNED"), "-1"),
    (column("BIGINT UNSIGNED"), '"-1"'),
    (column("BIGINT UNSIGNED"), '"/w=="'),
    (column("BIGINT UNSIGNED"), '"AQAAAAAAAAAA"'),
    (column("BIGINT UNSIGNED"), '"!"'),
    (column("DECIMAL", 10, 2), '"1.234"'),
    (column("DECIMAL", 10, 2), '"123456789.00"'),
    (column("DECIMAL", 10, 2), '"BQA="'),
    (column("DECIMAL", 10, 2), '"1E+3"'),
    (column("DECIMAL", 65, 30), '"BQA="'),
    (column("DECIMAL", 65, 30), "1.5E40"),
    (column("DOUBLE"), '"x"'),
    (column("BIT", 1), '"AQ=="'),
    (column("BIT", 12), "true"),
    (column("BIT", 12), '"AQ=="'),
    (column("DATE"), '"2020-01-01"'),
    (column("DATETIME", 6), '"2020-01-01T00:00:00Z"'),
    (column("TIMESTAMP"), '"noon"'),
    (column("TIME"), '"10:00:00"'),
    (column("YEAR"), '"now"'),
    (column("BLOB"), '"no base64!"'),
]


@pytest.mark.spark
def test_values_at_the_edges_of_their_types_arrive_exactly(spark: SparkSession) -> None:
    columns, after = as_one_row((kind, wire) for kind, wire, _ in READ)
    frame = spark.createDataFrame([(after,)], "after string")

    out = typed(frame, F.col("after"), columns)
    found = out.select("_misread", *texts(columns)).collect()[0]

    assert list(found) == [False, *(expected for _, _, expected in READ)]


@pytest.mark.spark
def test_nulls_stay_null_and_are_no_misreading(spark: SparkSession) -> None:
    columns, after = as_one_row((kind, "null") for kind, _, _ in READ)
    frame = spark.createDataFrame([(after,)], "after string")

    out = typed(frame, F.col("after"), columns)

    assert list(out.select("_misread", *texts(columns)).collect()[0]) == [
        False,
        *([None] * len(READ)),
    ]


@pytest.mark.spark
def test_a_value_that_does_not_fit_is_told(spark: SparkSession) -> None:
    columns, after = as_one_row(LOST)
    frame = spark.createDataFrame([(after,)], "after string")

    out = typed(frame, F.col("after"), columns)
    told = frame.select(*(misread(F.col("after"), [one]) for one in columns)).collect()[0]

    assert list(out.select("_misread", *texts(columns)).collect()[0]) == [
        True,
        *([None] * len(LOST)),
    ]
    assert list(told) == [True] * len(LOST)


@pytest.mark.spark
@pytest.mark.parametrize(
    ("after", "lost"),
    [
        pytest.param(None, False, id="no row at all"),
        pytest.param('{"a":1,"b.c":null}', False, id="a row"),
        pytest.param("{}", False, id="columns the row does not know yet"),
        pytest.param('{"a":1,', True, id="broken"),
        pytest.param("", True, id="empty"),
        pytest.param("[]", True, id="no object"),
    ],
)
def test_a_row_that_cannot_be_read_is_told(
    after: str | None, lost: bool, spark: SparkSession
) -> None:
    columns = [Column("a", "INT"), Column("b.c", "INT"), Column("Ü `x`", "INT")]
    frame = spark.createDataFrame([(after,)], "after string")

    found = typed(frame, F.col("after"), columns).select(
        "_misread", misread(F.col("after"), columns)
    )

    assert list(found.collect()[0]) == [lost, lost]


@pytest.mark.spark
def test_a_row_is_typed_in_its_columns_order_under_their_names(spark: SparkSession) -> None:
    columns = [Column("Ü `x`", "INT"), Column("b.c", "DATE"), Column("a", "DECIMAL", 9, 2)]
    frame = spark.createDataFrame([('{"a":"1.00","b.c":0,"Ü `x`":7}',)], "after string")

    out = frame.select(*row(F.col("after"), columns))
    same = typed(frame, F.col("after"), columns)

    assert same.columns == ["after", "_row", "_misread"]
    assert same.select("_row.*").collect() == out.collect()
    assert out.dtypes == [("Ü `x`", "int"), ("b.c", "date"), ("a", "decimal(9,2)")]
    assert [str(value) for value in out.collect()[0]] == ["7", "1970-01-01", "1.00"]


def as_one_row(cases: Iterable[tuple[Column, str]]) -> tuple[list[Column], str]:
    """Columns c0, c1, ... of these kinds, and the JSON of a row that holds these values."""
    named = [(replace(kind, name=f"c{n}"), wire) for n, (kind, wire) in enumerate(cases)]
    fields = ",".join(f'"{kind.name}":{wire}' for kind, wire in named)
    return [kind for kind, _ in named], f"{{{fields}}}"


def texts(columns: list[Column]) -> list[Spark]:
    """Typed columns of ``_row`` as text, bytes in hex."""
    return [
        F.concat(F.lit("0x"), F.hex(F.col("_row")[column.name]))
        if lake_type(column) == "binary"
        else F.col("_row")[column.name].cast("string")
        for column in columns
    ]
