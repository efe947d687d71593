"""Rows of a real MySQL in the server's own texts mean what they mean in Connect's."""

import json
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pytest

from demo.mysql import MySQL
from pipeline.model import Shard
from pipeline.schema.model import Notation
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.row_reader import MySqlRowReader
from pipeline.sources.mysql.types import MySqlColumn
from pipeline.sources.mysql.values import to_connect
from pipeline.sources.row_reader import RowsAsked, RowsRead
from tests.pipeline.sources.mysql.test_row_reader_stack import reader_settings

pytestmark = pytest.mark.stack
T = Shard("s", "texts.t")
TYPES = {
    "big": ("BIGINT UNSIGNED", "18446744073709551615"),
    "amount": ("DECIMAL(10,2)", "-1.10"),
    "ratio": ("DOUBLE", "1.5e300"),
    "small": ("FLOAT", "1.1"),
    "made": ("DATETIME(6)", "'2026-01-02 03:04:05.060000'"),
    "seen": ("TIMESTAMP(3) NULL", "'2026-01-02 03:04:05.060'"),
    "day": ("DATE", "'1969-12-31'"),
    "span": ("TIME(2)", "'-838:59:58.50'"),
    "year": ("YEAR", "2026"),
    "flag": ("BIT(1)", "b'1'"),
    "bits": ("BIT(12)", "b'100000000001'"),
    "word": ("VARCHAR(20)", "'Zoë \\\"\\\\ x'"),
    "raw": ("VARBINARY(9)", "x'00ff00'"),
    "code": ("BINARY(4)", "x'00ff'"),
    "label": ("ENUM('a','b,c','d')", "'b,c'"),
    "labels": ("SET('a','b','c')", "'a,c'"),
    "doc": ("JSON", "'{\"a\": [1, null]}'"),
}


@pytest.fixture
def mysql(start_mysql: Callable[[int], MySQL]) -> MySQL:
    server = start_mysql(15)
    columns = ", ".join(f"{name} {kind}" for name, (kind, _) in TYPES.items())
    values = ", ".join(value for _, value in TYPES.values())
    server.execute(
        "CREATE DATABASE texts",
        "CREATE DATABASE sluice",
        "CREATE TABLE sluice.heartbeat (source VARCHAR(64) NOT NULL PRIMARY KEY,"
        " n BIGINT NOT NULL, at DATETIME(6) NOT NULL)",
        f"CREATE TABLE texts.t (id INT, code2 BINARY(3), {columns}, PRIMARY KEY (code2, id))",
        f"INSERT INTO texts.t VALUES (1, x'41', {values})",
        "INSERT INTO texts.t (id, code2) VALUES (2, x'42')",
    )
    return server


def test_each_value_is_the_same_in_both_notations(mysql: MySQL) -> None:
    with closing(MySqlRowReader(reader_settings(mysql))) as reader:
        plain = read_rows(reader, ("code2", "id"))
    with closing(MySqlRowReader(reader_settings(mysql), notation=Notation.TEXTS)) as reader:
        described = reader.describe(T)
        texts = read_rows(reader, ("id", "code2"))

    assert described is not None
    assert texts.description == described
    assert described.key == ("id", "code2")  # as canal names them: in the table's order
    assert texts.rows["key_values"].to_pylist() == ['["1","A"]', '["2","B"]']
    for own, theirs in zip(row_images(texts), row_images(plain), strict=True):
        for told in described.columns:
            column = MYSQL.column(told, "")
            assert isinstance(column, MySqlColumn)
            sent = to_connect(column, pa.array([own[told.name]], pa.string()))[0].as_py()
            assert text_of(sent) == text_of(theirs[told.name]), told.name


def test_the_highest_heartbeat_is_told(mysql: MySQL) -> None:
    with closing(MySqlRowReader(reader_settings(mysql))) as reader:
        server = reader.server
        before = server.newest_heartbeat()
        made = server.write_heartbeat(7, datetime.now(UTC))

        assert (before, server.newest_heartbeat()) == (-1, made.number)


def read_rows(reader: MySqlRowReader, key: tuple[str, ...]) -> RowsRead:
    fence = reader.fence(0, datetime.now(UTC))
    return reader.read(fence, RowsAsked(T, key, None, None, 10))


def row_images(read: RowsRead) -> list[dict[str, Any]]:
    return [json.loads(text, parse_float=str) for text in read.rows["after"].to_pylist()]


def text_of(value: object) -> str | None:
    """A value as a text: JSON's own kinds say the same as texts do."""
    if isinstance(value, bool):
        return str(value).lower()
    return None if value is None else str(value)
