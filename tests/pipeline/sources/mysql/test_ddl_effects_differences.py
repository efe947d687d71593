"""What a server says of a table, held against what its log has told."""

import pytest

from pipeline.model import Order
from pipeline.schema.model import TableSchema
from pipeline.sources.mysql.ddl_effects import find_differences
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import read_column as column_of

ID = Column("id", "INT", nullable=False)


def table_schema(*columns: Column) -> TableSchema:
    return TableSchema("s.t", Order(1, 1, 0), columns)


def test_the_server_that_agrees_with_the_log_differs_in_nothing() -> None:
    table = table_schema(
        ID, Column("n", "DECIMAL UNSIGNED", 10, 2), Column("e", "ENUM", values=("a", "b'c"))
    )

    assert find_differences(table, SERVER) == ()


@pytest.mark.parametrize(
    ("column", "kind"),
    [
        pytest.param(Column("C", "INT"), "int", id="the case of a name"),
        pytest.param(Column("c", "INT", nullable=False), "int", id="null, which loses nothing"),
        pytest.param(Column("c", "TEXT", 100), "tinytext", id="a text type the server chose"),
        pytest.param(Column("c", "JSON"), "longtext", id="MariaDB's JSON"),
        pytest.param(Column("c", "VARCHAR", 20_000), "mediumtext", id="a text it had to become"),
        pytest.param(Column("c", "TEXT BINARY"), "text", id="an attribute of a text"),
        pytest.param(Column("c", "BLOB", 70_000), "mediumblob", id="a blob the server chose"),
        pytest.param(Column("c", "DATETIME"), "datetime /* mariadb-5.3 */", id="a comment"),
        pytest.param(
            Column("c", "ENUM", values=("a ", "\U0001f600", "b\\c")),
            "enum('a','?','b\\\\c')",
            id="labels as the server can say them",
        ),
    ],
)
def test_what_changes_no_value_is_no_difference(column: Column, kind: str) -> None:
    assert find_differences(table_schema(column), [described_column("c", kind)]) == ()


def test_labels_in_another_order_are_a_difference() -> None:
    table = table_schema(Column("c", "ENUM", values=("a", "b")))

    assert find_differences(table, [described_column("c", "enum('b','a')")]) != ()


def test_where_server_and_log_differ_is_named() -> None:
    table = table_schema(ID, Column("n", "DECIMAL", 10, 2), Column("x", "INT"))

    assert find_differences(table, SERVER) == (
        "n: the log says DECIMAL(10,2), the server DECIMAL(10,2) UNSIGNED",
        "x: the log has it, the server does not",
        "e: the server has it, the log does not",
    )


def test_columns_in_another_order_are_a_difference() -> None:
    """Values stand in a row image by place: each would be read as another column's."""
    table = table_schema(Column("a", "INT"), Column("b", "INT"))

    assert find_differences(
        table, [described_column("b", "int"), described_column("a", "int")]
    ) == (
        "a: column 1 of the log, where the server has b",
        "b: column 2 of the log, where the server has a",
    )


def described_column(name: str, kind: str, nullable: str = "YES", **sizes: int) -> Column:
    empty = dict.fromkeys(("numeric_precision", "numeric_scale", "datetime_precision"))
    own = {"column_name": name, "column_type": kind, "is_nullable": nullable}
    return column_of({**empty, "character_maximum_length": None, **own, **sizes})


SERVER = [
    described_column("id", "int(11)", "NO", numeric_precision=10, numeric_scale=0),
    described_column("n", "decimal(10,2) unsigned", numeric_precision=10, numeric_scale=2),
    described_column("e", "enum('a','b''c')", character_maximum_length=3),
]
