"""Values of every MySQL type through a real collector equal what MySQL itself returns."""

import json
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest
from pymysql.cursors import DictCursor

from demo.debezium import mysql_connector
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import RAW
from pipeline.model import Op, Order
from pipeline.schema.column import TableSchema
from pipeline.schema.history import History
from pipeline.schema.typed import typed
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.sources.mysql.column import columns as own
from pipeline.sources.mysql.column import described as column_of
from pipeline.sources.mysql.differences import differences
from pipeline.sources.mysql.typemap import unverifiable
from tests.pipeline import every_type
from tests.pipeline.reading import parse
from tests.topic_records import records

PREFIX, SHARD = "types", "every_type.every"
SENT_LATER = 10  # ids of rows that came through the log, above those of the snapshot
UNVERIFIABLE = {"c_emoji", "c_year"}
UNKNOWN = ("c_emoji",)  # left out of the columns: its labels are not known
ARRIVES = {(1, "c_year"): 2000}  # the year 0000, as a snapshot sends it
PATIENCE = timedelta(minutes=5)  # against hanging only
MICROSECOND = timedelta(microseconds=1)

pytestmark = pytest.mark.stack

Change = dict[str, Any]  # a row of DECODED


def test_every_value_arrives_as_mysql_tells_it(servers: Servers) -> None:
    prepare(servers)

    sent = changes(servers)
    schema = schema_of(sent)
    assert schema is not None
    columns = [column for column in own(schema) if column.name != "c_emoji"]
    images = {json.loads(c["key_values"])[0]: c["after"] for c in sent if c["op"] in ROWS}
    mirrored = mirror(images, columns)

    assert {c.name for c in own(schema) if unverifiable(c) is not None} == UNVERIFIABLE
    assert differences(schema, described(servers)) == ()
    for number in every_type.ROWS:
        row = source_row(servers, number + SENT_LATER)
        for id_ in (number, number + SENT_LATER):
            for column in columns[1:]:
                expected = ARRIVES.get((id_, column.name), canonical(column, row[column.name]))
                assert mirrored[id_][column.name] == expected, (id_, column.name)


def test_a_type_told_by_another_name_is_what_the_server_makes_of_it(servers: Servers) -> None:
    """Statements from the log, not from a snapshot: their words are the user's own."""
    servers.mysql.execute("CREATE DATABASE aliases CHARACTER SET utf8mb4")
    servers.mysql.execute("CREATE TABLE aliases.told (id INT PRIMARY KEY)")
    config = mysql_connector(
        servers.mysql, servers.kafka.bootstrap, prefix="aliases", databases=["aliases"]
    )
    servers.connect.register("aliases", config)
    wait_until(lambda: told(servers) is not None, PATIENCE, "the snapshot's schema")

    columns = ", ".join(f"ADD c{n} {kind}" for n, kind in enumerate(every_type.ALIASES))
    servers.mysql.execute(f"ALTER TABLE aliases.told {columns}")
    servers.mysql.execute("ALTER TABLE aliases.told ADD last INT AFTER c3, ADD early INT FIRST")
    servers.mysql.execute("ALTER TABLE aliases.told MODIFY c7 INT AFTER id, CHANGE c9 nine BIGINT")
    wait_until(lambda: "nine" in known(servers), PATIENCE, "the statements")
    servers.connect.deregister("aliases")

    schema = told(servers)
    assert schema is not None
    assert len(schema.columns) == len(every_type.ALIASES) + 3
    assert differences(schema, described(servers, "aliases", "told")) == ()


def told(servers: Servers) -> TableSchema | None:
    return schema_of([*messages(servers, "aliases")], "aliases.told")


def known(servers: Servers) -> list[str]:
    schema = told(servers)
    return [column.name for column in schema.columns] if schema else []


ROWS = (Op.READ, Op.CREATE)


def prepare(servers: Servers) -> None:
    """Rows 1-4 in a snapshot; then the same rows under other ids through the log."""
    servers.mysql.execute("CREATE DATABASE every_type CHARACTER SET utf8mb4")
    servers.mysql.execute(every_type.CREATE.format(table=SHARD))
    for number in every_type.ROWS:
        servers.mysql.execute(every_type.insert(SHARD, number))
    config = mysql_connector(
        servers.mysql,
        servers.kafka.bootstrap,
        prefix=PREFIX,
        databases=["every_type"],
        settings={"enable.time.adjuster": "false"},
    )
    servers.connect.register(PREFIX, config)
    wait_until(
        lambda: sum(c["op"] == Op.READ for c in changes(servers)) == len(every_type.ROWS),
        PATIENCE,
        "snapshot",
    )
    servers.mysql.execute(f"UPDATE {SHARD} SET id = id + {SENT_LATER}")
    wait_until(
        lambda: sum(c["op"] == Op.CREATE for c in changes(servers)) == len(every_type.ROWS),
        PATIENCE,
        "rows from the log",
    )
    servers.connect.deregister(PREFIX)


def changes(servers: Servers) -> list[Change]:
    """Everything sent so far about the table and its schema."""
    topics = (PREFIX, f"{PREFIX}.{SHARD}")
    return [change for topic in topics for change in messages(servers, topic)]


def messages(servers: Servers, topic: str) -> list[Change]:
    return decoded([*records(servers.kafka.bootstrap, topic)])


def decoded(records: Sequence[Any]) -> list[Change]:
    columns = [[getattr(record, name) for record in records] for name in RAW.names]
    raw = pa.RecordBatch.from_arrays(
        [pa.array(values, field.type) for values, field in zip(columns, RAW, strict=True)],
        schema=RAW,
    )
    found: list[Change] = DebeziumJson().decode(raw, {}).to_pylist()
    return found


def schema_of(sent: list[Change], shard: str = SHARD) -> TableSchema | None:
    changes = [
        change
        for message in sent
        if message["op"] == Op.DDL
        for change in parse(message["after"] or "", order(message))
    ]
    return History(*changes).newest(shard)


def order(message: Change) -> Order:
    return Order(1, message["log"] or 0, message["pos"] or 0, message["row"] or 0)


def described(servers: Servers, database: str = "every_type", table: str = "every") -> list[Column]:
    """What information_schema tells, its keys in small letters."""
    with closing(servers.mysql.connect(cursorclass=DictCursor)) as connection:
        cursor = connection.cursor()
        cursor.execute(
            "SELECT * FROM information_schema.columns WHERE table_schema = %s AND table_name = %s"
            " ORDER BY ordinal_position",
            (database, table),
        )
        rows = [{name.lower(): value for name, value in row.items()} for row in cursor]
        return [column_of(row) for row in rows]


def source_row(servers: Servers, id_: int) -> dict[str, Any]:
    """The row as MySQL returns it; a FLOAT as the double that equals it."""
    with closing(servers.mysql.connect(cursorclass=DictCursor, charset="utf8mb4")) as connection:
        cursor = connection.cursor()
        cursor.execute("SET time_zone = '+00:00'")
        cursor.execute(f"SELECT *, c_float + 0e0 AS exact FROM {SHARD} WHERE id = %s", (id_,))
        row = cursor.fetchone()
        assert row is not None
        return {**row, "c_float": row["exact"]}


def canonical(column: Column, value: Any) -> Any:
    """What the source returned, in the terms of the lake's type."""
    if value is None:
        return None
    if column.kind == "BIT" and column.width == 1:
        return value == b"\x01"
    if column.kind == "DECIMAL" and column.digits > 38:
        return format(value, "f")
    if column.kind == "TIME":
        return value // MICROSECOND
    if column.kind == "JSON":
        return json.loads(value)
    return value


def mirror(images: dict[str, str | None], columns: list[Column]) -> dict[int, dict[str, Any]]:
    """Typed rows by id; instants as UTC without a zone, JSON as what it means."""
    read = typed(pa.array(images.values(), pa.string()), columns)
    assert read.unknown == UNKNOWN
    assert read.misread.true_count == 0
    found = {}
    for id_, values in zip(images, read.rows.to_pylist(), strict=True):
        for column in columns:
            value = values[column.name]
            if value is not None and column.kind == "TIMESTAMP":
                assert value.utcoffset() == timedelta()
                values[column.name] = value.replace(tzinfo=None)
            elif value is not None and column.kind == "JSON":
                values[column.name] = json.loads(value)
        found[int(id_)] = values
    return found
