"""Thousands of shards: each is asked for what it gained, at the cost of that."""

import pytest

from pipeline.apply.catalog import Catalog
from pipeline.model import Order, ShardId
from pipeline.schema.history import SchemaChange
from pipeline.schema.model import TableSchema
from pipeline.settings import Router
from pipeline.sources.mysql.types import MySqlColumn
from tests.pipeline.reading import readings


def test_what_a_shard_gained_is_found_without_going_through_all_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog, id_, more = (
        Catalog(Router(), readings("s")),
        MySqlColumn("id", "BIGINT"),
        MySqlColumn("n", "BIGINT", nullable=False, default="7", has_default=True),
    )
    names = [f"db.t{number}" for number in range(100)]
    for name in names:
        for place, columns in ((1, (id_,)), (2, (id_, more))):
            at = Order(1, 1, place)
            kind = "create" if place == 1 else "alter"
            schema = TableSchema(name, at, columns, ("id",))
            catalog.learn([("s", SchemaChange(kind, name, at, schema, ""))])
    catalog.fills(f"s/{names[0]}")
    named: list[ShardId] = []
    told = ShardId.__str__

    def counted(shard: ShardId) -> str:
        named.append(shard)
        return told(shard)

    monkeypatch.setattr(ShardId, "__str__", counted)

    found = [catalog.fills(f"s/{name}") for name in names]

    assert [[fill.column for fill in own] for own in found] == [["n"]] * len(names)
    assert named == []
