"""A source with thousands of tables tells of one: the catalog does what that one asks."""

from collections.abc import Sequence

import pytest

from pipeline.apply.catalog import Catalog
from pipeline.model import Order, Shard
from pipeline.schema.model import Effect, KnownTables, SchemaEvent
from pipeline.settings import Router
from pipeline.sources.mysql.dialect import MySqlDialect
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described, message


def rows(first: int, last: int) -> list[tuple[str, Order, str]]:
    names = [f"t{n}" for n in range(first, last)]
    texts = [f"CREATE TABLE {name} (id BIGINT PRIMARY KEY)" for name in names]
    told = zip(range(first, last), texts, names, strict=True)
    return [
        ("s", Order(1, 1, n), message(text, described(text, name, "id BIGINT")))
        for n, text, name in told
    ]


def test_what_a_collector_sends_again_is_not_worked_out_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(Router(), readings("s"))
    catalog.add(rows(0, 50))
    worked: list[int] = []
    follow = MySqlDialect.follow

    def counted(
        told: Sequence[SchemaEvent], known: KnownTables
    ) -> tuple[tuple[Effect, ...], KnownTables]:
        worked.append(len(told))
        return follow(told, known)

    monkeypatch.setattr(MySqlDialect, "follow", staticmethod(counted))

    again = catalog.reading(rows(10, 30))

    assert sum(worked) == 0
    assert again.newest("s", "db.t20") == catalog.newest("s", "db.t20") is not None


def test_tables_are_found_without_going_through_all_shards_for_each(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = Catalog(Router(), readings("s"))
    shards = {f"s/db.t{n}": f"db.t{n % 10}" for n in range(50)}
    made: list[str] = []
    begin = Shard.__init__

    def counted(shard: Shard, source: str, name: str) -> None:
        made.append(name)
        begin(shard, source, name)

    monkeypatch.setattr(Shard, "__init__", counted)

    tables = [catalog.table(f"db.t{n}", shards) for n in range(10)]

    assert [len(table.shards) for table in tables] == [5] * 10
    assert len(made) == 50
