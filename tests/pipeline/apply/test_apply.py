"""What an apply must never do, on real Delta tables."""

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.apply.account import Counted
from pipeline.model import Op, Order, Origin
from pipeline.schema.types import Column
from pipeline.settings import TableRule
from tests.pipeline.bench_lake import ID, NAME, NOW, BenchLake, row

pytestmark = pytest.mark.spark
C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
T, S, TOMB = Op.TRUNCATE, Op.SETTLE, Op.TOMBSTONE


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> BenchLake:
    return BenchLake(spark, tmp_path)


def tomb(key: int) -> dict[str, object]:
    return {**row(TOMB, 0, key), "order": None, "before": None}


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
        pytest.param([[row(C, 10, 1, "a")]], {1: "a"}, id="a row appears"),
        pytest.param([[row(C, 10, 1, "a"), row(U, 20, 1, "b")]], {1: "b"}, id="the newest wins"),
        pytest.param([[row(U, 20, 1, "b"), row(C, 10, 1, "a")]], {1: "b"}, id="whatever the place"),
        pytest.param([[row(C, 10, 1, "a")], [row(D, 20, 1, "a"), tomb(1)]], {}, id="a delete"),
        pytest.param(
            [[row(C, 10, 1, "a"), row(D, 20, 1, "a"), tomb(1)]], {}, id="born and gone in one batch"
        ),
        pytest.param(
            [[row(C, 10, 1, "a")], [row(D, 20, 1), tomb(1)], [row(C, 30, 1, "z")]],
            {1: "z"},
            id="inserted again after a delete",
        ),
        pytest.param(
            [[row(C, 10, 1, "a")], [row(D, 20, 1, "a"), row(C, 20, 2, "a")]],
            {2: "a"},
            id="a key update is a delete and a create at one place",
        ),
        pytest.param(
            [[row(C, 10, 1, "a"), row(C, 11, 2, "b")], [row(T, 20, None)], [row(C, 30, 3, "c")]],
            {3: "c"},
            id="a truncate empties the shard at its order",
        ),
        pytest.param(
            [[row(C, 10, 1, "a")], [row(T, 20, None), row(C, 30, 1, "n")]],
            {1: "n"},
            id="a truncate and rows after it in one batch",
        ),
        pytest.param(
            [[row(R, 10, 1, "a"), row(R, 10, 2, "b")], [row(R, 50, 2, "b"), row(S, 50, None)]],
            {2: "b"},
            id="a second snapshot settles what was deleted between the two",
        ),
        pytest.param(
            [[row(C, 60, 1, "new")], [row(R, 50, 1, "old"), row(S, 50, None)]],
            {1: "new"},
            id="a snapshot row does not undo a later change",
        ),
    ],
)
def test_mirror_follows(
    lake: BenchLake, batches: list[list[dict[str, object]]], expected: dict[int, str]
) -> None:
    assert lake.play(*batches) == expected


def test_replaying_any_suffix_changes_nothing(lake: BenchLake) -> None:
    history = [row(C, 10, 1, "a"), row(U, 20, 1, "b"), row(D, 30, 1, "b"), row(C, 40, 2, "x")]
    lake.play(history)

    for start in range(len(history)):
        assert lake.play(history[start:]) == {2: "x"}, f"suffix from {start}"


def test_a_deleted_row_stays_deleted_when_its_insert_is_sent_again_after_a_restart(
    lake: BenchLake,
) -> None:
    lake.play([row(C, 10, 1, "a")], [row(D, 20, 1, "a"), tomb(1)])
    lake.reopen()

    lake.land(row(C, 10, 1, "a"))
    turn = lake.apply()

    assert lake.rows() == {}
    assert turn.account.noop == 1


def test_a_row_older_than_a_truncate_is_never_inserted(lake: BenchLake) -> None:
    lake.play([row(T, 50, None)])

    assert lake.play([row(R, 40, 7, "late"), row(C, 60, 8, "new")]) == {8: "new"}


def test_a_key_that_moved_to_a_new_partition_does_not_come_back(lake: BenchLake) -> None:
    """Its delete came through the new partition before an old change through the old one."""
    lake.play([row(C, 5, 9, "z")], [row(C, 10, 1, "a")], [row(D, 50, 1, "a", partition=1)])
    lake.mark = lake.lane.landing.mark = replace(lake.mark, grown=("s.db.t",))

    assert lake.play([row(U, 20, 1, "b")]) == {9: "z"}


def test_live_wins_over_a_repair_at_equal_order(lake: BenchLake) -> None:
    repair = row(R, 10, 1, "repair", origin=int(Origin.REPAIR))

    assert lake.play([row(C, 10, 1, "live"), repair]) == {1: "live"}
    assert lake.play([repair]) == {1: "live"}


def test_two_different_live_changes_at_one_place_hold_the_table(lake: BenchLake) -> None:
    lake.land(row(C, 10, 1, "a"), row(C, 10, 1, "b"))

    turn = lake.apply()

    assert turn.hold is not None
    assert turn.hold.reason == "conflict"
    assert turn.batch == -1


def test_a_change_sent_twice_is_counted_as_redelivered(lake: BenchLake) -> None:
    lake.land(row(C, 10, 1, "a"), row(C, 10, 1, "a"), row(U, 20, 1, "b"))

    account = lake.apply().account

    assert (account.read, account.applied, account.superseded, account.redelivered) == (3, 1, 1, 1)


def test_a_delete_speaks_for_its_own_shard_only(spark: SparkSession, tmp_path: Path) -> None:
    rules = (TableRule(r"db\.t_\d", "db.t"),)
    lake = BenchLake(spark, tmp_path, rules, shards=("db.t_0", "db.t_1"))
    lake.land(row(C, 10, 1, "zero", shard="db.t_0"), row(C, 11, 1, "one", shard="db.t_1"))
    lake.apply()
    lake.land(row(D, 20, 1, "zero", shard="db.t_0"))
    lake.apply()

    names = [r["name"] for r in lake.mirror().select("name").collect()]
    assert names == ["one"]


def test_an_unknown_field_holds_the_table_until_its_schema_lands(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    more = '{"id":2,"name":"b","extra":5}'
    lake.land({**row(C, 20, 2, "b"), "after": more})
    held = lake.apply()
    lake.alter(ID, NAME, Column("extra", "INT"), at=Order(1, 1, 15))

    freed = lake.apply()

    assert held.hold is not None
    assert held.hold.reason == "unknown_field"
    assert freed.hold is None
    assert {r["id"]: r["extra"] for r in lake.mirror().collect()} == {1: None, 2: 5}


def test_an_added_column_gives_old_rows_its_default(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    extra = Column("extra", "INT", default="7", has_default=True)
    lake.alter(ID, NAME, extra, at=Order(1, 1, 15))

    lake.play([{**row(C, 20, 2, "b"), "after": '{"id":2,"name":"b","extra":null}'}])

    assert {r["id"]: r["extra"] for r in lake.mirror().collect()} == {1: 7, 2: None}


def test_a_dropped_column_holds_the_table_and_names_the_way_out(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.alter(ID, at=Order(1, 1, 15))
    lake.land({**row(C, 20, 2, "b"), "after": '{"id":2}'})

    turn = lake.apply()

    assert turn.hold is not None
    assert turn.hold.reason == "schema"
    assert "name" in turn.hold.detail


def test_a_wider_decimal_keeps_every_row(spark: SparkSession, tmp_path: Path) -> None:
    narrow, wide = Column("amount", "DECIMAL", 5, 2), Column("amount", "DECIMAL", 9, 2)
    lake = BenchLake(spark, tmp_path, columns=(ID, narrow))
    lake.land({**row(C, 10, 1), "after": '{"id":1,"amount":"123.45"}'})
    lake.apply()
    lake.alter(ID, wide, at=Order(1, 1, 15))
    lake.land({**row(C, 20, 2), "after": '{"id":2,"amount":"1234567.89"}'})

    turn = lake.apply()

    assert turn.hold is None, turn.hold
    found = {r["id"]: str(r["amount"]) for r in lake.mirror().collect()}
    assert found == {1: "123.45", 2: "1234567.89"}
    assert DeltaTable(lake.settings.mirror("db.t")).version() == turn.version


def test_a_foreign_commit_blocks_the_mirror_until_it_is_taken_back(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    path = lake.settings.mirror("db.t")
    good = DeltaTable(path).version()
    lake.session.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    lake.land(row(C, 20, 3, "c"))
    held = lake.apply()
    lake.session.sql(f"RESTORE TABLE delta.`{path}` TO VERSION AS OF {good}")

    freed = lake.apply()

    assert held.hold is not None
    assert held.hold.id == f"foreign_write:db.t:{good + 1}"
    assert freed.hold is None
    assert lake.rows() == {1: "a", 2: "b", 3: "c"}


def test_a_settle_without_rows_makes_an_empty_mirror_that_counts_as_applied(
    lake: BenchLake,
) -> None:
    assert lake.play([row(S, 50, None)]) == {}

    lake.reopen()

    assert [turn.batch for turn in lake.lane.apply(frozenset())] == [0], "told once more"
    assert lake.lane.apply(frozenset()) == ()


def test_a_batch_of_rows_that_change_nothing_counts_as_applied(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a")])

    assert lake.play([row(C, 10, 1, "a")]) == {1: "a"}

    lake.reopen()
    assert [turn.batch for turn in lake.lane.apply(frozenset())] == [1], "told once more"
    assert lake.lane.apply(frozenset()) == ()


def test_a_mirror_that_is_gone_is_not_begun_without_its_base(lake: BenchLake) -> None:
    lake.play([row(R, 10, 1, "a"), row(S, 10, None)])
    lake.mark = lake.lane.landing.mark = replace(lake.mark, based={"s/db.t": 0})
    log, mirror = lake.settings.changes, Path(lake.settings.mirror("db.t"))
    lake.session.sql(f"ALTER TABLE delta.`{log}` SET TBLPROPERTIES ('sluice.dropped' = '0')")
    shutil.move(mirror, mirror.with_name("gone"))
    lake.reopen()
    lake.land(row(C, 20, 2, "b"))

    turn = lake.apply()

    assert turn.hold is not None
    assert turn.hold.reason == "no_base"


def test_upkeep_leaves_a_foreign_mirror_to_be_taken_back(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    path = lake.settings.mirror("db.t")
    lake.session.sql(f"DELETE FROM delta.`{path}` WHERE id = 1")
    version = DeltaTable(path).version()
    lake.lane.upkeep({})
    lake.lane._upkeep._compacted = dict.fromkeys(("db.t", ""), NOW - timedelta(days=1))

    lake.lane.upkeep({})

    assert DeltaTable(path).version() == version


def test_what_spark_cannot_do_holds_one_table_and_says_why(lake: BenchLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.session.sql(
        f"ALTER TABLE delta.`{lake.settings.mirror('db.t')}` ADD CONSTRAINT short CHECK (id < 5)"
    )
    lake.land(row(C, 20, 9, "b"))

    turn = lake.apply()

    assert turn.hold is not None
    assert turn.hold.reason == "failed"
    assert "short" in turn.hold.detail.lower()


def test_an_account_that_does_not_balance_holds_the_table_until_a_person_says_so(
    lake: BenchLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are in the mirror already, so a second try would find repetitions, and balance."""
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 20, 2, "b"))
    with monkeypatch.context() as broken:
        broken.setattr("pipeline.apply.turn._counted", lambda *_: Counted(9, 1, 1, 1, 0, 0, 0))
        first = lake.apply()

    second, third = lake.apply(), lake.apply(waived=["account:db.t:1"])

    assert first.hold is not None
    assert first.hold.reason == "account"
    assert first.account.residual == 8
    assert second.hold == first.hold
    assert third.hold is None
    assert lake.rows() == {1: "a", 2: "b"}
