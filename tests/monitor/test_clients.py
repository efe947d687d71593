"""The newest landed columns of a shard, from a change log that grows."""

from pathlib import Path
from typing import Any

import pytest

from monitor.clients import LandedSchemas
from pipeline.changelog.reader import LogReader
from pipeline.delta.reader import SnapshotReader
from pipeline.model import Op, Shard
from tests.builders.change_log import change, log_reader, write_changes
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described, dropped, message

SHARD = Shard("shop", "s.orders")


def schema_row(
    pos: int, *names: str, shard: str = "s.orders", kind: str = "ALTER", ddl: str = ""
) -> dict[str, Any]:
    """A schema change as it stands in the log, of columns that are all numbers."""
    database, _, name = shard.partition(".")
    columns = ", ".join(f"{one} INT" for one in names)
    table = described(ddl, name, columns, database=database, key=(), kind=kind)
    one = dropped(name, database=database) if kind == "DROP" else table
    payload = message(ddl, one, database=database)
    return change(Op.DDL, pos, shard=shard, after=payload)


def none_seen() -> LandedSchemas:
    return LandedSchemas(readings("shop", "other"))


def column_names(schemas: LandedSchemas, log: LogReader, shard: Shard = SHARD) -> list[str] | None:
    found = schemas.newest(shard, log)
    return None if found is None else [column.name for column in found.columns]


def test_the_newest_schema_is_that_of_the_highest_order(tmp_path: Path) -> None:
    write_changes(tmp_path, 0, [schema_row(20, "a", "b"), schema_row(10, "a")])
    write_changes(tmp_path, 1, [change(Op.CREATE, 30, key="k")])

    assert column_names(none_seen(), log_reader(tmp_path)) == ["a", "b"]
    assert column_names(none_seen(), log_reader(tmp_path), Shard("other", "s.orders")) is None


def test_it_grows_with_the_log_and_forgets_what_was_dropped(tmp_path: Path) -> None:
    schemas = none_seen()
    write_changes(
        tmp_path, 0, [schema_row(10, "a", kind="CREATE"), schema_row(11, "z", shard="s.users")]
    )
    first = column_names(schemas, log_reader(tmp_path))
    write_changes(tmp_path, 1, [schema_row(20, "a", "b")])
    second = column_names(schemas, log_reader(tmp_path))
    write_changes(tmp_path, 2, [schema_row(30, kind="DROP")])

    assert (first, second) == (["a"], ["a", "b"])
    assert column_names(schemas, log_reader(tmp_path)) is None
    assert column_names(schemas, log_reader(tmp_path), Shard("shop", "s.users")) == ["z"]


def test_a_batch_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    schemas = none_seen()
    write_changes(tmp_path, 0, [schema_row(10, "a")])
    assert column_names(schemas, log_reader(tmp_path)) == ["a"]
    monkeypatch.delattr(SnapshotReader, "select")

    assert column_names(schemas, log_reader(tmp_path)) == ["a"]


def test_a_swap_of_two_tables_is_read_as_it_has_landed(tmp_path: Path) -> None:
    """`RENAME TABLE t TO old, new TO t`: two changes at one order; files are sorted by table."""
    statement = "RENAME TABLE orders TO _orders_del, _orders_gho TO orders"
    away = schema_row(20, "a", shard="s._orders_del", ddl=statement)
    here = schema_row(20, "a", "b", ddl=statement)
    write_changes(
        tmp_path, 0, [schema_row(10, "a"), schema_row(11, "a", "b", shard="s._orders_gho")]
    )
    write_changes(tmp_path, 1, [here | {"offset": 8}, away | {"offset": 7}])

    assert column_names(none_seen(), log_reader(tmp_path)) == ["a", "b"]


def test_a_log_that_was_put_back_is_read_anew(tmp_path: Path) -> None:
    schemas = none_seen()
    for batch, columns in enumerate(("a", "ab", "abc")):
        write_changes(tmp_path / "one", batch, [schema_row(batch, *columns)])
    write_changes(tmp_path / "other", 0, [schema_row(0, "z")])
    first = column_names(schemas, log_reader(tmp_path / "one"))

    assert first == ["a", "b", "c"]
    assert column_names(schemas, log_reader(tmp_path / "other")) == ["z"]


def test_another_lanes_changes_are_not_ours(tmp_path: Path) -> None:
    write_changes(tmp_path, 0, [schema_row(10, "a"), schema_row(20, "b") | {"lane": "other"}])

    assert column_names(none_seen(), log_reader(tmp_path)) == ["a"]
