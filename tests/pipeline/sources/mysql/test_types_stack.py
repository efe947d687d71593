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
from pipeline.schema.decode import type_rows
from pipeline.schema.history import History
from pipeline.schema.model import TableSchema
from pipeline.sources.mysql.ddl_effects import find_differences
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.sources.mysql.types import mysql_columns as own
from pipeline.sources.mysql.types import read_column as column_of
from pipeline.sources.mysql.types import why_unverifiable
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
    mirrored = mirror_rows(images, columns)

    assert {c.name for c in own(schema) if why_unverifiable(c) is not None} == UNVERIFIABLE
    assert find_differences(schema, described_columns(servers)) == ()
    for number in every_type.ROWS:
        row = source_row(servers, number + SENT_LATER)
        for id_ in (number, number + SENT_LATER):
            for column in columns[1:]:
                expected = ARRIVES.get((id_, column.name), canonical(column, row[column.name]))
                assert mirrored[id_][column.name] == expected, (id_, column.name)


EDGES: dict[str, tuple[str, ...]] = {
    "DATE": (
        *("0001-01-01", "0100-03-01", "1000-01-01", "1582-10-04", "1582-10-05", "1582-10-10"),
        *("1582-10-14", "1582-10-15", "1582-10-24", "1582-10-25", "1900-01-01", "9999-12-31"),
    ),
    "TIME(6)": ("-838:59:59", "838:59:59", "-00:00:00.000001", "23:59:59.999999", "24:00:00"),
    "TIMESTAMP(6)": ("1970-01-01 00:00:01", "2038-01-19 03:14:07.999999"),
    "TIMESTAMP": ("1970-01-01 00:00:01", "2038-01-19 03:14:07", "2026-03-29 02:30:00"),
    "DECIMAL(65,30)": ("9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30, "0", "1e-30"),
    "DOUBLE": ("1.7976931348623157e308", "2.2250738585072014e-308", "0.1", "-0.0", "1e15", "1e16"),
    "BIGINT UNSIGNED": ("0", "9223372036854775808", "18446744073709551615"),
    "BIGINT": ("-9223372036854775808", "9223372036854775807"),
    "INT UNSIGNED": ("0", "4294967295"),
    "MEDIUMINT UNSIGNED": ("0", "16777215"),
    "TINYINT(1)": ("-128", "127", "0", "1", "2"),
    "BIT(64)": ("x'00'", "x'ffffffffffffffff'", "x'01'"),
    "CHAR(4)": ("''", "'a  '", "'ß€'"),
    "VARCHAR(9)": ("''", "'a  '", "'\\0\\n\\\\'", "'😀'"),
    "BINARY(4)": ("x'61'", "x'00'", "x'61000000'"),
    "VARBINARY(4)": ("x''", "x'00'", "x'ff00'"),
    "ENUM('a','b,c','')": ("'a'", "'b,c'", "''"),
    "SET('a','b','c')": ("''", "'a,c'", "'a,b,c'"),
    "JSON": ("'{}'", "'null'", "'1.10'", "'\"ü\"'", "'18446744073709551615'"),
}
MOMENTS = ("00:00:00", "23:59:59")
MOMENTS_OF = tuple(f"{day} {at}" for day in EDGES["DATE"] for at in MOMENTS)
EDGES |= {f"DATETIME({digits})": MOMENTS_OF for digits in (0, 3, 6)}


def test_f116_the_edges_of_each_type_arrive_alike_from_a_snapshot_and_from_the_log(
    servers: Servers,
) -> None:
    name, rows = "edges", max(map(len, EDGES.values()))
    definitions = [f"c{at} {kind}" for at, kind in enumerate(EDGES)]
    servers.mysql.execute(
        f"CREATE DATABASE {name} CHARACTER SET utf8mb4",
        f"CREATE TABLE {name}.t (id INT PRIMARY KEY, {', '.join(definitions)})",
    )
    for number in range(rows):
        values = [every[number] if number < len(every) else "NULL" for every in EDGES.values()]
        texts = [one if one[0] in "'xN" else f"'{one}'" for one in values]
        insert = f"INSERT INTO {name}.t VALUES ({number}, {', '.join(texts)})"
        servers.mysql.execute("SET sql_mode = 'NO_ENGINE_SUBSTITUTION'", insert)
    config = mysql_connector(
        servers.mysql,
        servers.kafka.bootstrap,
        prefix=name,
        databases=[name],
        settings={"enable.time.adjuster": "false"},
    )
    servers.connect.register(name, config)

    def sent(op: Op) -> dict[int, str]:
        found = [one for one in messages(servers, f"{name}.{name}.t") if one["op"] == op]
        return {json.loads(one["after"])["id"]: one["after"] for one in found}

    wait_until(lambda: len(sent(Op.READ)) == rows, PATIENCE, "rows of the snapshot")
    servers.mysql.execute(f"UPDATE {name}.t SET id = id + 100")
    wait_until(lambda: len(sent(Op.CREATE)) == rows, PATIENCE, "rows of the log")
    servers.connect.deregister(name)

    schema = schema_of([*messages(servers, name)], f"{name}.t")
    assert schema is not None
    columns = [column for column in own(schema) if column.name != "id"]
    read, logged = sent(Op.READ), sent(Op.CREATE)
    snapshot = type_rows(pa.array([read[n] for n in range(rows)], pa.string()), columns)
    log = type_rows(pa.array([logged[n + 100] for n in range(rows)], pa.string()), columns)
    other, doubted = set[tuple[str, int]](), set[tuple[str, int]]()
    for column in columns:
        values, right = snapshot.rows[column.name], log.rows[column.name].to_pylist()
        doubts = column.dialect.altered_by_snapshot(column, values.combine_chunks())
        doubted |= {(column.name, n) for n, one in enumerate(doubts or ()) if one.as_py()}
        pairs = enumerate(zip(values.to_pylist(), right, strict=True))
        other |= {(column.name, n) for n, (a, b) in pairs if a != b}

    assert snapshot.misread.true_count == log.misread.true_count == 0
    days = {f"c{at}" for at, kind in enumerate(EDGES) if kind.startswith("DATETIME")}
    assert {at for at, _ in other} == days
    assert other < doubted  # what a snapshot may send as one of those, too, is doubted with them
    genuine = {MOMENTS_OF[n][:10] for _, n in doubted - other}
    assert genuine == {"1582-10-15", "1582-10-24"}


def test_a_type_told_by_another_name_is_what_the_server_makes_of_it(servers: Servers) -> None:
    """Statements from the log, not from a snapshot: their words are the user's own."""
    servers.mysql.execute("CREATE DATABASE aliases CHARACTER SET utf8mb4")
    servers.mysql.execute(
        "CREATE TABLE aliases.told (id INT PRIMARY KEY)", "INSERT INTO aliases.told VALUES (1)"
    )
    config = mysql_connector(
        servers.mysql, servers.kafka.bootstrap, prefix="aliases", databases=["aliases"]
    )
    servers.connect.register("aliases", config)
    # A table that is altered between its schema and its rows ends a snapshot (MySQL error 1412).
    wait_until(
        lambda: [*records(servers.kafka.bootstrap, "aliases.aliases.told")],
        PATIENCE,
        "row of the snapshot",
    )

    columns = ", ".join(f"ADD c{n} {kind}" for n, kind in enumerate(every_type.ALIASES))
    servers.mysql.execute(f"ALTER TABLE aliases.told {columns}")
    servers.mysql.execute("ALTER TABLE aliases.told ADD last INT AFTER c3, ADD early INT FIRST")
    servers.mysql.execute("ALTER TABLE aliases.told MODIFY c7 INT AFTER id, CHANGE c9 nine BIGINT")
    wait_until(lambda: "nine" in aliases_columns(servers), PATIENCE, "statements")
    servers.connect.deregister("aliases")

    schema = aliases_schema(servers)
    assert schema is not None
    assert len(schema.columns) == len(every_type.ALIASES) + 3
    assert find_differences(schema, described_columns(servers, "aliases", "told")) == ()


def aliases_schema(servers: Servers) -> TableSchema | None:
    return schema_of([*messages(servers, "aliases")], "aliases.told")


def aliases_columns(servers: Servers) -> list[str]:
    schema = aliases_schema(servers)
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
    return decode_records([*records(servers.kafka.bootstrap, topic)])


def decode_records(records: Sequence[Any]) -> list[Change]:
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
        for change in parse(message["after"] or "", order_of(message))
    ]
    return History(*changes).newest(shard)


def order_of(message: Change) -> Order:
    return Order(1, message["log"] or 0, message["pos"] or 0, message["row"] or 0)


def described_columns(
    servers: Servers, database: str = "every_type", table: str = "every"
) -> list[Column]:
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


def mirror_rows(images: dict[str, str | None], columns: list[Column]) -> dict[int, dict[str, Any]]:
    """Typed rows by id; instants as UTC without a zone, JSON as what it means."""
    read = type_rows(pa.array(images.values(), pa.string()), columns)
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
