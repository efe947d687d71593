"""Each type's edges as a real server and connector tell them, against what the server says."""

import math
from datetime import timedelta
from typing import Any

import pyarrow as pa
import pytest

from demo.debezium import postgres_connector
from demo.postgres import Postgres
from demo.processes import wait_until
from demo.servers import Servers
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.model import Op, Order
from pipeline.schema.reading import SchemaReading
from pipeline.schema.typed import typed
from pipeline.sources.postgres.column import CATALOGUE, columns, described
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.typemap import unverifiable
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
    reading = SchemaReading(DebeziumJson().schema_change, POSTGRES)
    (change,) = reading.read(changes[0]["after"], Order(1, 1, 1))[1]
    assert change.schema is not None
    own = columns(change.schema)
    texts = pa.array([row["after"] for row in changes if row["op"] != Op.DDL])
    read = typed(texts, own)

    assert not read.misread.true_count
    assert change.schema.key == ("id",)
    assert POSTGRES.differences(change.schema, _catalogue(postgres, name)) == ()
    wrong: dict[tuple[str, int], tuple[Any, Any]] = {}
    for column in own:
        if column.name in KINDS and (unverifiable(column) is None or column.name in EARLY):
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


def _catalogue(postgres: Postgres, name: str) -> list[Any]:
    with postgres.connect(name) as connection:
        oid = connection.execute(b"SELECT 'every'::regclass::oid::int").fetchall()[0]
        cursor = connection.execute(CATALOGUE.encode(), oid)
        names = [one.name for one in cursor.description or ()]
        return [described(dict(zip(names, row, strict=True))) for row in cursor.fetchall()]


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
