"""Values in other notations than Connect's are the same values, or none."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from pipeline.model import Order
from pipeline.schema.model import Column, ColumnDescription, Notation, TableSchema
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.types import MySqlColumn, mysql_columns
from pipeline.sources.mysql.values import decode_values, wire_kind

DAY = datetime(2020, 5, 13, 12, 38, 35, 120_000, UTC)
NOON = "2020-05-13 12:38:35.12"
MOST = 2**64 - 1
ABC = ("a", "b", "c")


def mysql_column(kind: str, length: int | None = None, *labels: str) -> MySqlColumn:
    return MySqlColumn("c", kind, length, 2 if kind == "DECIMAL" else None, values=labels)


CASES = {
    "a number": (mysql_column("INT"), "-5", -5),
    "a small one": (mysql_column("TINYINT"), "1", 1),
    "the largest": (mysql_column("BIGINT UNSIGNED"), str(MOST), Decimal(MOST)),
    "a decimal": (mysql_column("DECIMAL", 5), "1.10", Decimal("1.10")),
    "a double": (mysql_column("DOUBLE"), "1e300", 1e300),
    "a day": (mysql_column("DATE"), "1969-12-31", date(1969, 12, 31)),
    "a moment": (mysql_column("DATETIME", 2), NOON, DAY.replace(tzinfo=None)),
    "an instant": (mysql_column("TIMESTAMP", 2), NOON, DAY),
    "a time": (mysql_column("TIME"), "-838:59:59", -3020399000000),
    "a year": (mysql_column("YEAR"), "2020", 2020),
    "a text": (mysql_column("VARCHAR", 9), "Zoë \x00", "Zoë \x00"),
    "JSON": (mysql_column("JSON"), '{"a": 1}', '{"a": 1}'),
    "a shape stays a text": (mysql_column("POINT"), "POINT (1 2)", "POINT (1 2)"),
}
TEXTS = {
    "a bit": (mysql_column("BIT", 1), "1", True),
    "bits": (mysql_column("BIT", 9), "257", b"\x01\x01"),
    "64 bits with a sign": (mysql_column("BIT", 64), "-1", b"\xff" * 8),
    "bytes": (mysql_column("VARBINARY", 9), "\x00ÿ", b"\x00\xff"),
    "bytes without the last": (mysql_column("BINARY", 4), "\x00ÿ", b"\x00\xff\x00\x00"),
    "a byte that is left out": (mysql_column("BINARY"), "", b"\x00"),
    "a label": (mysql_column("ENUM", None, *ABC), "2", "b"),
    "a label that is a number": (mysql_column("ENUM", None, "1", "0"), "2", "0"),
    "no label": (mysql_column("ENUM", None, *ABC), "0", ""),
    "labels": (mysql_column("SET", None, *ABC), "5", "a,c"),
    "no labels": (mysql_column("SET", None, *ABC), "0", ""),
}
PLAIN = {
    "bits": (mysql_column("BIT", 9), "257", b"\x01\x01"),
    "a bit": (mysql_column("BIT", 1), "true", True),
    "a truth": (mysql_column("TINYINT"), "false", 0),
    "bytes": (mysql_column("VARBINARY", 9), "AP8=", b"\x00\xff"),
    "bytes without the last": (mysql_column("BINARY", 4), "AP8=", b"\x00\xff\x00\x00"),
    "all bytes": (mysql_column("BINARY", 2), "AP8=", b"\x00\xff"),
    "a label": (mysql_column("ENUM", None, *ABC), "b", "b"),
    "labels": (mysql_column("SET", None, *ABC), "a,c", "a,c"),
}


def decode_text(own: MySqlColumn, notation: Notation, text: str) -> list[Any]:
    named = replace(own, notation=notation)
    return list(decode_values(named, pa.array([text, None], pa.string())).to_pylist())


@pytest.mark.parametrize("notation", [Notation.TEXTS, Notation.PLAIN])
@pytest.mark.parametrize(("own", "text", "value"), CASES.values(), ids=CASES)
def test_what_both_notations_write_alike(
    own: MySqlColumn, text: str, value: Any, notation: Notation
) -> None:
    assert decode_text(own, notation, text) == [value, None]


@pytest.mark.parametrize(("own", "text", "value"), TEXTS.values(), ids=TEXTS)
def test_the_logs_own_texts(own: MySqlColumn, text: str, value: Any) -> None:
    assert decode_text(own, Notation.TEXTS, text) == [value, None]


@pytest.mark.parametrize(("own", "text", "value"), PLAIN.values(), ids=PLAIN)
def test_plain_json(own: MySqlColumn, text: str, value: Any) -> None:
    assert decode_text(own, Notation.PLAIN, text) == [value, None]


def test_a_list_is_the_labels_of_a_set() -> None:
    own = MySqlColumn("c", "SET", values=ABC, notation=Notation.PLAIN)

    assert decode_values(own, pa.array(['["a","c"]', "[]"])).to_pylist() == ["a,c", ""]


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        pytest.param("DATE", "soon", id="no day"),
        pytest.param("DATE", "2020-13-01", id="a month too many"),
        pytest.param("DATETIME", "2020-05-13", id="no time"),
        pytest.param("TIMESTAMP", "2020-05-13T12:38:35Z", id="another spelling"),
        pytest.param("TIME", "12:00", id="no seconds"),
        pytest.param("INT", "x", id="no number"),
        pytest.param("INT", "99999999999", id="too large"),
        pytest.param("BIT", "512", id="too many bits"),
        pytest.param("BIT", "x", id="no bits"),
        pytest.param("ENUM", "4", id="no such label"),
        pytest.param("SET", "8", id="no such labels"),
        pytest.param("VARBINARY", "€", id="no byte"),
        pytest.param("YEAR", "soon", id="no year"),
    ],
)
def test_what_does_not_fit_is_null(kind: str, text: str) -> None:
    length = {"BIT": 9}.get(kind)
    labels = ABC if kind in ("ENUM", "SET") else ()
    own = MySqlColumn("c", kind, length, values=labels, notation=Notation.TEXTS)

    assert decode_values(own, pa.array([text])).to_pylist() == [None]


def test_sizes_that_only_a_statement_tells_are_read_there_and_remembered() -> None:
    made = "create table t (id int not null, price decimal(10, 2), s varchar(20) default 'a,b')"
    told = [ColumnDescription(n, k, nullable=False, notation=Notation.PLAIN) for n, k in SENT]

    first = schema_of([MYSQL.column(one, made) for one in told])
    later = MYSQL.remembered(
        first, schema_of([MYSQL.column(one, "alter table t add n int") for one in told])
    )

    shown = [(str(one), one.nullable) for one in mysql_columns(first)]
    assert shown == [("INT", False), ("DECIMAL(10,2)", True), ("VARCHAR(20)", False)]
    assert [str(one) for one in mysql_columns(later)] == [str(one) for one in mysql_columns(first)]


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("ALTER TABLE t ADD b INT /* net, gross */ DEFAULT 5", id="comma in a comment"),
        pytest.param(
            "ALTER TABLE t ADD b INT -- see b), below\n NOT NULL", id="comment to the end"
        ),
        pytest.param("ALTER TABLE t ADD b INT # b), below\n NOT NULL", id="comment after a hash"),
        pytest.param(
            "ALTER TABLE t /* b int, later */ ADD b INT NOT NULL", id="column in a comment"
        ),
        pytest.param("ALTER TABLE t ADD b INT /*!80000 NOT NULL */", id="executed by some servers"),
        pytest.param("ALTER TABLE t ADD b INT COMMENT 'a\\', ' NOT NULL", id="backslash in a text"),
        pytest.param("ALTER TABLE t RENAME COLUMN b TO c, ADD b INT NOT NULL", id="name was free"),
        pytest.param("ALTER TABLE t CHANGE b c INT, ADD b INT NOT NULL", id="name was another's"),
    ],
)
def test_old_rows_of_an_added_column_are_null_only_if_the_statement_says_so(statement: str) -> None:
    told = ColumnDescription("b", "INT", nullable=False, notation=Notation.PLAIN)

    (found,) = mysql_columns(schema_of([MYSQL.column(told, statement)]))

    assert not found.nullable


@pytest.mark.parametrize(
    "statement",
    [
        pytest.param("ALTER TABLE t ADD b INT", id="plain"),
        pytest.param("ALTER TABLE t ADD b INT /* NOT NULL */", id="comment"),
        pytest.param("ALTER TABLE t ADD `b` INT COMMENT 'NOT NULL', ADD KEY (b DESC)", id="quoted"),
        pytest.param("ALTER TABLE t RENAME COLUMN b TO c, ADD b INT", id="name was free"),
    ],
)
def test_comments_and_texts_do_not_define_a_column(statement: str) -> None:
    told = ColumnDescription("b", "INT", nullable=False, notation=Notation.PLAIN)

    (found,) = mysql_columns(schema_of([MYSQL.column(told, statement)]))

    assert found.nullable


@pytest.mark.parametrize(
    ("statement", "sizes"),
    [
        pytest.param("ALTER TABLE t ADD d DECIMAL /* ) */ (10, /* , */ 2)", (10, 2), id="comments"),
        pytest.param("ALTER TABLE t /* d DECIMAL(5, 1) */ ADD d DECIMAL(10, 2)", (10, 2), id="old"),
        pytest.param("CREATE TABLE t (d DECIMAL(10, 2), KEY (d DESC))", (10, 2), id="in an index"),
        pytest.param(
            "ALTER TABLE t CHANGE d c DECIMAL(5, 1), ADD d DECIMAL(10, 2)", (None, None), id="two"
        ),
    ],
)
def test_sizes_are_those_of_the_column_alone(
    statement: str, sizes: tuple[int | None, int | None]
) -> None:
    told = ColumnDescription("d", "DECIMAL", nullable=False, notation=Notation.PLAIN)
    (found,) = mysql_columns(schema_of([MYSQL.column(told, statement)]))

    assert (found.length, found.scale) == sizes


def test_a_computed_column_is_found_past_comments() -> None:
    told = ColumnDescription("b", "INT", notation=Notation.PLAIN)
    statement = "ALTER TABLE t ADD b INT /* a, c */ GENERATED /* always */ ALWAYS AS (id + 1)"
    (found,) = mysql_columns(schema_of([MYSQL.column(told, statement)]))

    assert found.generated


SENT = [("id", "INT"), ("price", "DECIMAL"), ("s", "VARCHAR")]


def schema_of(some: Sequence[Column]) -> TableSchema:
    return TableSchema("d.t", Order(1, 1, 1), tuple(some), ("id",))


def test_connects_notation_is_as_before() -> None:
    own = MySqlColumn("c", "DATE")

    assert decode_values(own, pa.array([-1])).to_pylist() == [date(1969, 12, 31)]
    assert wire_kind(own) is not wire_kind(MySqlColumn("c", "DATE", notation=Notation.TEXTS))
