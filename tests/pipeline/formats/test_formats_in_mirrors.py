"""Messages of each format become rows of a mirror, in their types, under one key."""

from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.apply.catalog import Catalog
from pipeline.changelog.table import Stamp
from pipeline.formats.canal_json import CanalJson
from pipeline.formats.dbevents_avro import DbEventsAvro
from pipeline.formats.format import Format, Schemas
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.formats.simple_binlog import SimpleBinlog, SimpleTable
from pipeline.landing.task import SourceContext, TableRouter, shape_rows, slim_columns
from pipeline.model import Op, Order
from pipeline.schema.history import SchemaReader
from pipeline.settings import RegistrySettings, Router
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.standards.table_standards import NO_STANDARDS
from tests.builders.lake import NOW, LocalLake
from tests.pipeline.formats.batches import Raw, batch
from tests.pipeline.formats.canal_writer import CanalTable
from tests.pipeline.formats.dbevents_writer import Event
from tests.pipeline.formats.maxwell_writer import MaxwellTable
from tests.pipeline.formats.simple_binlog_writer import LAG, Collector
from tests.pipeline.formats.sound_messages import ROW, TYPES
from tests.pipeline.formats.test_dbevents_avro import SCHEMAS

DAY = datetime(2020, 5, 13, 12, 38, 35, 123_000, UTC)
CANAL_TYPES = {**TYPES, "seen": "timestamp(3)"}
CANAL_ROW: dict[str, str | None] = {**ROW, "seen": ROW["moment"]}
ROUTES = TableRouter(Router(()), NO_STANDARDS)


class Applied:
    """A lake by hand that the messages of one format go into, offset by offset."""

    def __init__(self, home: Path, form: Format, schemas: Schemas | None = None) -> None:
        self.form, self.schemas = form, schemas or {}
        self.lake = LocalLake(home)
        self.lake.catalog = Catalog(Router(()), {"s": SchemaReader(form.schema_change, MYSQL)})
        self.offset = 0

    def send(self, *messages: Raw) -> str | None:
        """Land and apply them as one batch; why the table is held, if it is."""
        sent = batch(messages)
        offsets = pa.array(range(self.offset, self.offset + len(messages)), pa.int64())
        sent = sent.set_column(4, sent.schema.field(4), offsets)
        self.offset += len(messages)
        came = SourceContext("s", "sluice.heartbeat", ordering=self.form.ordering)
        stamp = Stamp("main", self.lake.checkpoint.batch + 1, NOW)
        decoded = self.form.decode(sent, self.schemas)
        rows = shape_rows(decoded, sent, came, routes=ROUTES, stamp=stamp).to_pylist()
        placed = [{**row, "order": Order(**row["order"])} for row in rows]
        self._learn([row for row in placed if row["op"] == Op.DDL])
        self.lake.land(*(row for row in placed if row["op"] != Op.DDL))
        hold = self.lake.apply().hold
        return None if hold is None else hold.reason

    def mirror(self) -> list[dict[str, Any]]:
        return [
            {name: value for name, value in row.items() if name != "_sluice"}
            for row in self.lake.mirror()
        ]

    def _learn(self, statements: Sequence[dict[str, Any]]) -> None:
        reading = SchemaReader(self.form.schema_change, MYSQL)
        for row in statements:
            _, told = reading.read(row["after"], row["order"])
            self.lake.catalog.learn([("s", one) for one in told])


def value(data: bytes) -> Raw:
    return None, data, "topic.db.t"


BEAT = {"id": "1", "source": "s", "n": "41", "at": "2020-05-13 12:38:35"}
CANAL_BEATS = CanalTable("sluice", "heartbeat", dict.fromkeys(BEAT, "varchar(9)"), ("id",))
MAXWELL_BEATS = MaxwellTable("sluice", "heartbeat", ("id",))


@pytest.mark.parametrize(
    ("form", "sent"),
    [
        pytest.param(CanalJson("UTC"), (None, CANAL_BEATS.insert(BEAT), "s"), id="canal"),
        pytest.param(MaxwellJson(), MAXWELL_BEATS.insert({**BEAT, "n": 41}), id="maxwell"),
        pytest.param(
            SimpleBinlog(),
            (None, Collector(9).message("UPDATE", "sluice.heartbeat", BEAT), "s"),
            id="simple_binlog",
        ),
    ],
)
def test_the_number_of_a_heartbeat_is_read_in_each_format(form: Format, sent: Raw) -> None:
    came = SourceContext("s", "sluice.heartbeat", ordering=form.ordering)
    raw, stamp = batch([sent]), Stamp("main", 1, NOW)

    rows = shape_rows(form.decode(raw, {}), raw, came, routes=ROUTES, stamp=stamp)

    notes = [one["note"] for one in slim_columns(rows).to_pylist() if one["op"] == Op.HEARTBEAT]
    assert notes == ["41"]


def test_canals_texts_are_values_of_their_types(tmp_path: Path) -> None:
    table = CanalTable("db", "t", CANAL_TYPES, ("id",))
    empty = {**dict.fromkeys(CANAL_ROW, None), "id": "7"}
    paid = {**CANAL_ROW, "kind": "1"}
    applied = Applied(tmp_path, CanalJson("UTC"))

    held = applied.send(
        value(table.insert(CANAL_ROW, empty)),
        value(table.update((CANAL_ROW, paid))),
        value(table.update((empty, {**empty, "id": "8"}))),
    )

    assert held is None
    assert applied.mirror() == [
        {**dict.fromkeys(CANAL_ROW, None), "id": Decimal(8)},
        {
            "id": Decimal(2**64 - 1),
            "name": 'Zoë "q"',
            "amount": Decimal("1.10"),
            "day": date(1969, 12, 31),
            "moment": DAY.replace(tzinfo=None),
            "seen": DAY,
            "kind": "new",
            "flags": "a,c",
            "bits": b"\x01\x01",
            "raw": b"\x00\xff",
        },
    ]


def test_a_text_of_canals_that_does_not_fit_holds_the_table(tmp_path: Path) -> None:
    table = CanalTable("db", "t", {"id": "int", "day": "date"}, ("id",))
    applied = Applied(tmp_path, CanalJson("UTC"))

    assert applied.send(value(table.insert({"id": "1", "day": "soon"}))) == "misread"


def test_what_canal_sends_again_goes_over_newer_rows_until_those_come_again(tmp_path: Path) -> None:
    """What an order by offsets cannot prove: `inversions` finds it by the messages' clock."""
    table = CanalTable("db", "t", {"id": "int", "v": "int"}, ("id",))
    old, new = {"id": "1", "v": "1"}, {"id": "1", "v": "2"}
    messages = [value(table.insert(old, at=1)), value(table.update((old, new), at=2))]
    applied = Applied(tmp_path, CanalJson("UTC"))
    applied.send(*messages)

    applied.send(messages[0])
    assert applied.mirror() == [{"id": 1, "v": 1}]
    applied.send(messages[1])
    assert applied.mirror() == [{"id": 1, "v": 2}]


def test_maxwells_rows_follow_its_statements_by_their_places(tmp_path: Path) -> None:
    table = MaxwellTable("db", "t", ("id",))
    applied = Applied(tmp_path, MaxwellJson())
    made = table.statement(
        "table-create",
        "create table t (id bigint unsigned, price decimal(10,2), tags set('a','b'), raw blob)",
        [("id", "bigint", False), ("price", "decimal", None), ("tags", "set", None)],
    )
    row = {"id": 2**64 - 1, "price": 1.5, "tags": ["a", "b"]}

    held = applied.send(made, table.insert(row, "binlog.000002:7"))

    assert held is None
    assert applied.mirror() == [{"id": Decimal(2**64 - 1), "price": Decimal("1.50"), "tags": "a,b"}]
    older = table.update(row, {**row, "price": 9.5}, "binlog.000001:9")
    assert applied.send(older) is None
    assert [one["price"] for one in applied.mirror()] == [Decimal("1.50")]


def test_a_replay_of_simple_binlog_goes_under_what_is_newer(tmp_path: Path) -> None:
    tables = {"db.t": SimpleTable(("id",), {"id": "int", "v": "varchar(9)"})}
    applied, collector = Applied(tmp_path, SimpleBinlog(tables)), Collector(1_000_000)
    for key, text in [(1, "old"), (2, "old")]:
        applied.send(value(collector.message("INSERT", "db.t", {"id": key, "v": text})))
    collector.now += 2 * LAG
    applied.send(value(collector.message("UPDATE", "db.t", {"id": 1, "v": "live"})))

    again = [value(collector.replay("db.t", {"id": n, "v": "again"}, 5)) for n in (1, 2, 3)]

    assert applied.send(*again) is None
    assert [(one["id"], one["v"]) for one in applied.mirror()] == [
        *[(1, "live"), (2, "again"), (3, "again")],
    ]


@pytest.mark.parametrize("apart", [False, True], ids=["in one slice", "in slices of their own"])
def test_dbevents_are_merged_column_by_column(tmp_path: Path, *, apart: bool) -> None:
    applied = Applied(tmp_path, DbEventsAvro(RegistrySettings("http://r")), SCHEMAS)
    events = [
        Event("k", 10, {"id": 1, "fare": 1.5, "note": "first", "raw": b"\xff", "tags": ["a"]}),
        Event("k", 11, {"fare": 2.5}, [(11, ["fare"])]),
        Event("k", 13, {"note": "third", "tags": ["b"]}, [(13, ["note"]), (12, ["tags"])]),
        Event("gone", 14, {"id": 2}),
        Event("gone", 15, {}, deleted=True),
    ]
    sent = [value(one.value) for one in events]

    holds = [applied.send(*some) for some in ([[one] for one in sent] if apart else [sent])]

    assert set(holds) == {None}
    (row,) = applied.mirror()
    assert {name: row[name] for name in ("row_key", "id", "fare", "note", "raw", "tags")} == {
        "row_key": "k",
        "id": 1,
        "fare": 2.5,
        "note": "third",
        "raw": b"\xff",
        "tags": '["b"]',
    }
    assert '"ref_key":13' in row["hadoop_metadata"]


def test_a_row_of_dbevents_that_begins_with_some_columns_holds_its_table(tmp_path: Path) -> None:
    """What nobody has told is never NULL."""
    applied = Applied(tmp_path, DbEventsAvro(RegistrySettings("http://r")), SCHEMAS)

    held = applied.send(value(Event("k", 11, {"fare": 2.5}, [(11, ["fare"])]).value))

    assert held == "partial_row"
