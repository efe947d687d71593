"""Each type's edges as a real server and connector tell them, against what the server says."""

import json
import math
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from demo.debezium import postgres_connector
from demo.postgres import Postgres
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.model import Op, Order
from pipeline.schema.decode import type_rows
from pipeline.schema.history import SchemaReader
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.types import (
    CATALOGUE,
    PostgresColumn,
    postgres_columns,
    read_column,
    why_unverifiable,
)
from tests.pipeline.every_postgres_type import CREATE, KINDS, MADE, insert
from tests.pipeline.formats.batches import Raw, batch
from tests.topic_records import records

pytestmark = pytest.mark.stack
SOON = timedelta(minutes=5)  # against hanging only
ROWS = (1, 2, 3, 4)
EARLY = {"c_ts": (1,), "c_ts3": (1,), "c_tstz": (1,)}  # before Gregory's calendar
OTHERWISE = {"c_num": {2}, "c_interval": {1, 2}, "c_timetz": {1, 2}}  # NaN, ISO, UTC


def test_each_type_arrives_as_the_server_tells_it(servers: Servers, postgres: Postgres) -> None:
    name = f"types_{postgres.version}"
    made = (*MADE, CREATE.format(table="every"), *(insert("every", row) for row in ROWS[:2]))
    postgres.create_database(name, *made)
    servers.connect.register(name, postgres_connector(postgres, name, prefix=name))
    topic, bootstrap = f"{name}.public.every", servers.kafka.bootstrap
    wait_until(lambda: len(list(records(bootstrap, topic))) == 2, SOON, "the snapshot")
    postgres.execute(*(insert("every", row) for row in ROWS[2:]), database=name)
    wait_until(lambda: len(list(records(bootstrap, topic))) == 4, SOON, "the changes")
    sent: list[Raw] = [(one.key, one.value, topic) for one in records(bootstrap, topic)]
    servers.connect.deregister(name)

    changes = DebeziumJson().decode(batch(sent), {}).to_pylist()
    reading = SchemaReader(DebeziumJson().schema_change, POSTGRES)
    (change,) = reading.read(changes[0]["after"], Order(1, 1, 1))[1]
    assert change.schema is not None
    own = postgres_columns(change.schema)
    texts = pa.array([row["after"] for row in changes if row["op"] != Op.DDL])
    read = type_rows(texts, own)

    assert not read.misread.true_count
    assert change.schema.key == ("id",)
    assert POSTGRES.differences(change.schema, _catalogue(postgres, name)) == ()
    wrong: dict[tuple[str, int], tuple[Any, Any]] = {}
    for column in own:
        if column.name in KINDS and (why_unverifiable(column) is None or column.name in EARLY):
            is_text = POSTGRES.lake_type(column) == "string"
            server = _server(postgres, name, column.name, is_text=is_text)
            told = dict(zip(ROWS, read.rows[column.name], strict=True))
            left_out = {*EARLY.get(column.name, ()), *OTHERWISE.get(column.name, ())}
            wrong |= {
                (column.name, row): (told[row].as_py(), server[row])
                for row in set(ROWS) - left_out
                if _plain(told[row].as_py()) != _plain(server[row])
            }
    assert wrong == {}


DAYS = (
    *("0001-01-01", "1000-01-01", "1582-10-04", "1582-10-05", "1582-10-10", "1582-10-14"),
    *("1582-10-15", "1582-10-24", "1900-01-01", "9999-12-31", "infinity", "-infinity"),
)
MOMENTS = tuple(one if "inf" in one else f"{one} 23:59:59.999999" for one in DAYS)
EDGES: dict[str, tuple[str, ...]] = {
    "date": DAYS,
    "timestamp": MOMENTS,
    "timestamp(3)": DAYS,
    "timestamptz": MOMENTS,
    "time": ("00:00", "23:59:59.999999", "24:00"),
    "timetz": ("00:00+14", "24:00-12"),
    "interval": ("-178000000 years", "1 mon -1 day 00:00:00.000001", "0"),
    "numeric": ("NaN", "1e-30", "9" * 38),
    "numeric(10,2)": ("0", "-99999999.99"),
    "float4": ("3.4028235e38", "1e-45", "NaN", "-0", "0.1", "16777217"),
    "float8": ("1.7976931348623157e308", "5e-324", "NaN", "-infinity", "-0", "1e15", "1e16"),
    "bigint": ("-9223372036854775808", "9223372036854775807"),
    "char(4)": ("", "a  ", "ß€"),
    "text": ("", "\n\\", "😀"),
    "bytea": ("\\x", "\\x00ff"),
    "bit(3)": ("000", "101"),
    "bit varying": ("", "1" * 70),
    "boolean": ("t", "f"),
    "uuid": ("00000000-0000-0000-0000-000000000000",),
    "json": ("{}", ' {"a" : 1.10}', "null"),
    "jsonb": ("{}", '{"a" : 1.10}', "1e400"),
    "int[]": ("{}", "{1,NULL}"),
    "text[]": ("{}", '{"a,b",NULL,"NULL"}'),
    "inet": ("::1", "10.0.0.0/8"),
    "int4range": ("empty", "[1,5]", "(,)"),
}


def test_f116_the_edges_of_each_type_arrive_alike_from_a_snapshot_and_from_the_log(
    servers: Servers, postgres: Postgres
) -> None:
    name, count = f"edges_{postgres.version}", max(map(len, EDGES.values()))
    kinds = ", ".join(f"c{at} {kind}" for at, kind in enumerate(EDGES))
    every = [[v[n] if n < len(v) else None for v in EDGES.values()] for n in range(count)]
    values = [["NULL" if v is None else "'" + v.replace("'", "''") + "'" for v in r] for r in every]
    inserts = [f"INSERT INTO t VALUES ({n}, {', '.join(row)})" for n, row in enumerate(values)]
    postgres.create_database(name, f"CREATE TABLE t (id INT PRIMARY KEY, {kinds})", *inserts)
    servers.connect.register(name, postgres_connector(postgres, name, prefix=name))

    def images() -> dict[int, dict[str, Any]]:
        sent = [
            json.loads(one.value) for one in records(servers.kafka.bootstrap, topic) if one.value
        ]
        told = [one["payload"]["after"] for one in sent]
        return {after["id"]: after for after in told if after}

    topic = f"{name}.public.t"
    wait_until(lambda: len(images()) == count, SOON, "the snapshot")
    postgres.execute("UPDATE t SET id = id + 100", database=name)
    wait_until(lambda: len(images()) == 2 * count, SOON, "the changes")
    servers.connect.deregister(name)

    found = images()
    other = {
        (kind, value): (found[n][f"c{at}"], found[n + 100][f"c{at}"])
        for at, (kind, edges) in enumerate(EDGES.items())
        for n, value in enumerate(edges)
        if repr(found[n][f"c{at}"]) != repr(found[n + 100][f"c{at}"])
    }
    spelled = ("infinity", "-infinity")  # `values` reads both spellings
    days = {value: pair for (kind, value), pair in other.items() if value not in spelled}
    assert {kind for kind, _ in other} == {"date"}
    assert days.keys() == {"1582-10-05", "1582-10-10", "1582-10-14"}
    shifted = pa.array([read for read, _ in days.values()], pa.int32()).cast(pa.date32())
    day = PostgresColumn("d", "date")
    assert pc.all(POSTGRES.altered_by_snapshot(day, shifted)).as_py()


def _catalogue(postgres: Postgres, name: str) -> list[Any]:
    with postgres.connect(name) as connection:
        oid = connection.execute(b"SELECT 'every'::regclass::oid::int").fetchall()[0]
        cursor = connection.execute(CATALOGUE.encode(), oid)
        names = [one.name for one in cursor.description or ()]
        return [read_column(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


def _server(postgres: Postgres, name: str, column: str, *, is_text: bool) -> dict[int, Any]:
    wanted = f"{column}::text" if is_text else column
    if column in ("c_time", "c_time3"):
        wanted = f"(extract(epoch FROM {column}) * 1000000)::bigint"
    if column == "c_char":
        wanted = column  # as a text it would lose its blanks
    if column == "c_float4":
        wanted = f"{column}::float8"  # not the shortest text
    if column == "c_bit1":
        wanted = f"{column}::int = 1"
    return dict(postgres.execute(f"SELECT id, {wanted} FROM every", database=name))


def _plain(value: Any) -> Any:
    return "NaN" if isinstance(value, float) and math.isnan(value) else value
