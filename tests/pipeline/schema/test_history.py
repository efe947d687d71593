from dataclasses import replace

import pytest

from pipeline.model import Order, ShardId
from pipeline.schema.history import History, SchemaChange, Step, added_columns
from pipeline.schema.model import TableSchema
from pipeline.sources.mysql.types import MySqlColumn as Column

A, B, T_NEW = ShardId("s0", "t"), ShardId("s1", "t"), ShardId("s0", "t_new")


def at(pos: int) -> Order:
    return Order(1, 1, pos)


def history_step(
    shard: ShardId, pos: int, columns: str | None, rows_of: ShardId | None = None
) -> Step:
    if columns is None:
        return Step(shard, at(pos), None)
    found = tuple(Column(name, "INT") for name in columns.split())
    return Step(shard, at(pos), TableSchema(str(shard), at(pos), found), rows_of)


def test_f13_each_shard_has_its_own_birth_of_a_column() -> None:
    steps = [
        history_step(A, 1, "id"),
        history_step(B, 2, "id"),
        history_step(A, 5, "id v"),
        history_step(B, 9, "id v"),
    ]

    assert added_columns(steps) == {(A, "v"): at(5), (B, "v"): at(9)}


def test_a_column_there_from_the_first_is_not_born() -> None:
    assert added_columns([history_step(A, 1, "id v"), history_step(A, 2, "id v")]) == {}


def test_a_column_dropped_and_added_later_is_born_again() -> None:
    steps = [
        history_step(A, 1, "id"),
        history_step(A, 2, "id v"),
        history_step(A, 3, "id"),
        history_step(A, 4, "id v"),
    ]

    assert added_columns(steps) == {(A, "v"): at(4)}


@pytest.mark.parametrize("created", [4, 3], ids=["by a statement", "at one order by a snapshot"])
def test_a_table_made_anew_has_no_rows_that_lack_a_column(created: int) -> None:
    steps = [
        history_step(A, 1, "id"),
        history_step(A, 2, "id v"),
        history_step(A, 3, None),
        history_step(A, created, "id v w"),
    ]

    assert added_columns(steps) == {}


def test_rows_take_their_births_along_when_their_table_is_renamed() -> None:
    steps = [
        *(
            history_step(A, 1, "id"),
            history_step(T_NEW, 2, "id"),
            history_step(T_NEW, 3, "id v"),
            history_step(A, 4, "id w"),
        ),
        *(
            history_step(A, 5, None),
            history_step(A, 5, "id v", T_NEW),
            history_step(T_NEW, 5, None),
        ),
    ]

    assert added_columns(steps) == {(A, "v"): at(3)}


def test_two_tables_that_change_places_change_their_births() -> None:
    steps = [
        *(
            history_step(A, 1, "id"),
            history_step(B, 2, "id"),
            history_step(A, 3, "id v"),
            history_step(B, 4, "id w"),
        ),
        *(
            history_step(A, 5, None),
            history_step(A, 5, "id w", B),
            history_step(B, 5, None),
            history_step(B, 5, "id v", A),
        ),
    ]

    assert added_columns(steps) == {(A, "w"): at(4), (B, "v"): at(3)}


def altered(pos: int, columns: str, clause: str) -> SchemaChange:
    found = tuple(Column(name, "INT") for name in columns.split())
    statement = f"ALTER TABLE t {clause}"
    schema = TableSchema(str(A), at(pos), found, ("id",), statement)
    return SchemaChange("alter", str(A), at(pos), schema, statement)


def test_columns_hold_since_the_newest_statement_that_may_have_changed_values() -> None:
    changes = [
        altered(1, "id v", "ADD v INT"),
        altered(2, "id v", "ADD PARTITION (PARTITION p VALUES LESS THAN (9))"),
        altered(3, "id v", "ADD INDEX (v)"),
        altered(4, "id v", "MODIFY v INT"),
        altered(5, "id v", "COMMENT 'x'"),
        altered(6, "id v", "DROP PARTITION p"),
        altered(7, "id v w", "COMMENT 'of other columns'"),
    ]

    found = []
    for count in range(1, len(changes) + 1):
        newest = History(*changes[:count]).newest(str(A))
        assert newest is not None
        assert newest.order == at(count)
        found.append(newest.valid_from.pos)

    assert found == [1, 1, 1, 4, 4, 6, 7]


def test_a_table_that_was_dropped_or_has_another_key_holds_its_columns_since_then() -> None:
    first, comment = altered(1, "id v", "ADD v INT"), altered(3, "id v", "COMMENT 'x'")
    dropped = SchemaChange("drop", str(A), at(2), None, "DROP TABLE t")
    assert comment.schema is not None
    rekeyed = replace(comment, schema=replace(comment.schema, key=("v",)))

    for changes in ((first, dropped, comment), (first, rekeyed)):
        newest = History(*changes).newest(str(A))
        assert newest is not None
        assert newest.valid_from == at(3)
