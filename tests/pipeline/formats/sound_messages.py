"""Messages of other formats than Debezium's that nothing is wrong with, of one table each."""

from pipeline.formats.simple_binlog import SimpleTable
from tests.pipeline.formats.batches import Raw
from tests.pipeline.formats.canal_writer import CanalTable
from tests.pipeline.formats.dbevents_writer import Event
from tests.pipeline.formats.maxwell_writer import MaxwellTable
from tests.pipeline.formats.simple_binlog_writer import Collector

TYPES = {
    "id": "bigint(20) unsigned",
    "name": "varchar(80)",
    "amount": "decimal(10,2)",
    "day": "date",
    "moment": "datetime(3)",
    "kind": "enum('new','paid')",
    "flags": "set('a','b','c')",
    "bits": "bit(9)",
    "raw": "varbinary(16)",
}
ROW: dict[str, str | None] = {
    "id": "18446744073709551615",
    "name": 'Zoë "q"',
    "amount": "1.10",
    "day": "1969-12-31",
    "moment": "2020-05-13 12:38:35.123",
    "kind": "2",
    "flags": "5",
    "bits": "257",
    "raw": "\x00ÿ",
}
EMPTY = {**dict.fromkeys(ROW, None), "id": "7"}
TABLES = {"shop.orders": SimpleTable(("id",), TYPES)}


def canal() -> tuple[Raw, ...]:
    """Rows and statements; a row whose key changes, too."""
    table = CanalTable("shop", "orders", TYPES, ("id",))
    values = (
        table.insert(ROW, EMPTY, at=1_589_373_515_000),
        table.update((ROW, {**ROW, "kind": "1"}), at=1_589_373_516_000),
        table.update((EMPTY, {**EMPTY, "id": "8"})),
        table.delete(ROW),
        table.statement("ALTER", "alter table orders add column note text"),
        table.statement("TRUNCATE", "truncate table orders"),
    )
    return tuple((None, one, "shop") for one in values)


def maxwell() -> tuple[Raw, ...]:
    """Rows at places of their own, behind the table's CREATE."""
    table = MaxwellTable("shop", "orders", ("id",))
    sql = "create table orders (id bigint unsigned, price decimal(10,2), raw blob, at datetime(3))"
    columns = [("id", "bigint", False), ("price", "decimal", None), ("raw", "blob", None)]
    row = {"id": 2**64 - 1, "price": 1.5, "raw": "AP8="}
    return (
        table.statement("table-create", sql, columns),
        table.insert(row, "b.000001:9"),
        table.update(row, {**row, "price": None}, "b.000001:19"),
        table.update(row, {**row, "id": 8}, "b.000002:4"),
        table.delete({**row, "raw": None}, "b.000002:44"),
    )


def simple_binlog() -> tuple[Raw, ...]:
    """Rows of a collector, and one of a replay."""
    collector = Collector(1_589_373_515_000)
    values = (
        collector.message("INSERT", "shop.orders", ROW),
        collector.message("UPDATE", "shop.orders", EMPTY),
        collector.message("DELETE", "shop.orders", ROW),
        collector.replay("shop.orders", ROW, 1_589_300_000_000),
    )
    return tuple((b"shoporders", one, "instance-1") for one in values)


def dbevents() -> tuple[Raw, ...]:
    """Whole rows, some columns, two versions, a delete."""
    row = {"id": 1, "fare": 12.5, "note": "Zoë", "raw": b"\x00\xff", "tags": ["a"]}
    events = (
        Event("r1", 10, row),
        Event("r1", 11, row, [(11, ["fare"])]),
        Event("r1", 13, row, [(13, ["note"]), (12, ["tags", "raw"])]),
        Event("r1", 14, {}, deleted=True),
    )
    return tuple((None, one.value, "dbevents.rides.trips") for one in events)
