"""What merges of landed changes must never do, on a real change log and real Delta tables."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.apply.account import ChangeCounts
from pipeline.apply.landed_state import LandedState
from pipeline.apply.merge_run import MergeRequest
from pipeline.checkpoint import Existence
from pipeline.delta.actions import remove_file, with_properties
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import Snapshot, encode_entry, entry_name, load_snapshot
from pipeline.delta.store import open_store
from pipeline.model import Account, Op, Order, Shard
from pipeline.schema.history import SchemaChange
from pipeline.settings import Router, TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NAME, NOW, LocalLake, row
from tests.pipeline.apply.holds import assert_held

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
T, S, TOMB = Op.TRUNCATE, Op.SETTLE, Op.TOMBSTONE


def tomb(key: int) -> dict[str, object]:
    return {**row(TOMB, 0, key), "order": None, "before": None}


@pytest.mark.parametrize(
    ("batches", "expected"),
    [
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
            [[row(R, 10, 1, "a"), row(R, 10, 2, "b")], [row(R, 50, 2, "b"), row(S, 50, None)]],
            {2: "b"},
            id="a second snapshot settles what was deleted between the two",
        ),
    ],
)
def test_a_mirror_follows_what_landed(
    lake: LocalLake, batches: list[list[dict[str, object]]], expected: dict[int, str]
) -> None:
    assert lake.play(*batches) == expected


def test_replaying_any_suffix_changes_nothing(lake: LocalLake) -> None:
    history = [row(C, 10, 1, "a"), row(U, 20, 1, "b"), row(D, 30, 1, "b"), row(C, 40, 2, "x")]
    lake.play(history)

    for start in range(len(history)):
        assert lake.play(history[start:]) == {2: "x"}, f"suffix from {start}"


def test_a_deleted_row_stays_deleted_when_its_insert_is_sent_again_after_a_restart(
    lake: LocalLake,
) -> None:
    lake.play([row(C, 10, 1, "a")], [row(D, 20, 1, "a"), tomb(1)])
    lake.reopen()

    lake.land(row(C, 10, 1, "a"))
    turn = lake.apply()

    assert lake.rows() == {}
    assert turn.account.noop == 1


def test_a_deleted_row_of_a_shard_that_was_idle_since_the_start_stays_deleted(
    tmp_path: Path,
) -> None:
    rules = (TableRule(r"db\.[tu]", "db.t"),)
    lake = LocalLake(tmp_path, rules=rules, shards=("db.t", "db.u"))
    other = {"shard": "db.u", "topic": "s.db.u"}
    lake.play([row(C, 10, 1, "a"), row(C, 20, 3, "x", **other)], [row(D, 21, 3, "x", **other)])

    lake.reopen()
    lake.play([row(U, 30, 1, "b")])

    assert lake.play([row(C, 20, 3, "x", **other, offset=40)]) == {1: "b"}


def test_what_is_known_of_an_older_batch_brings_no_deleted_row_back(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 20, 3, "x"), row(D, 21, 3, "x"))
    for batch in range(2, 1_002):  # of other tables, until the mark of this one is forgotten
        lake.runner.highs.note_landed(batch, {})
    lake.apply()

    assert lake.play([row(C, 20, 3, "x", offset=40)]) == {1: "a"}


def test_a_key_that_moved_to_a_new_partition_does_not_come_back(lake: LocalLake) -> None:
    """Its delete came through the new partition before an old change through the old one."""
    lake.play([row(C, 5, 9, "z")], [row(C, 10, 1, "a")], [row(D, 50, 1, "a", partition=1)])
    lake.checkpoint = replace(lake.checkpoint, grown=("s.db.t",))

    assert lake.play([row(U, 20, 1, "b")]) == {9: "z"}


def test_a_foreign_commit_blocks_the_mirror_until_it_is_taken_back(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")])
    good = stranger(lake)
    lake.land(row(C, 20, 3, "c"))
    held = lake.apply()
    again = lake.apply()
    restored(lake, good)

    freed = lake.apply()

    assert held.hold is not None
    assert held.hold.id == f"foreign_write:db.t:{good.version + 1}"
    assert again.hold == held.hold
    assert freed.hold is None
    assert lake.rows() == {1: "a", 2: "b", 3: "c"}


def test_a_foreign_commit_is_found_by_the_next_process_too(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")], [row(C, 11, 2, "b")])
    good = stranger(lake)
    lake.reopen()
    lake.land(row(C, 20, 3, "c"))

    held = lake.apply()
    freed = lake.apply(waived=[f"foreign_write:db.t:{good.version + 1}"])

    assert_held(held.hold, "foreign_write")
    assert freed.hold is None
    assert lake.rows() == {3: "c"}


def stranger(lake: LocalLake) -> Snapshot:
    """Somebody removes all rows; the version before."""
    store = open_store(lake.settings.mirror("db.t"))
    snapshot = load_snapshot(store)
    assert snapshot is not None
    gone = [remove_file(file, at=NOW) for file in snapshot.files.values()]
    commit_actions(store, snapshot, gone, operation="DELETE", clock=NOW)
    return snapshot


def restored(lake: LocalLake, good: Snapshot) -> None:
    """Somebody takes the mirror back to an earlier version."""
    store = open_store(lake.settings.mirror("db.t"))
    now = load_snapshot(store)
    assert now is not None
    back = [{"add": dict(file.action)} for file in good.files.values()]
    gone = [remove_file(file, at=NOW) for file in now.files.values()]
    told = {"version": str(good.version)}
    commit_actions(store, now, (*gone, *back), operation="RESTORE", clock=NOW, parameters=told)


def test_a_settle_without_rows_makes_an_empty_mirror_that_counts_as_applied(
    lake: LocalLake,
) -> None:
    assert lake.play([row(S, 50, None)]) == {}

    lake.reopen()

    assert [turn.batch for turn in lake.run()] == [0], "told once more"
    assert lake.run() == ()


def test_a_batch_of_rows_that_change_nothing_counts_as_applied(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])

    assert lake.play([row(C, 10, 1, "a")]) == {1: "a"}

    lake.reopen()
    assert [turn.batch for turn in lake.run()] == [1], "told once more"
    assert lake.run() == ()


def test_a_mirror_that_is_gone_is_not_begun_without_its_base(lake: LocalLake) -> None:
    lake.play([row(R, 10, 1, "a"), row(S, 10, None)])
    lake.checkpoint = replace(lake.checkpoint, based={Shard("s", "db.t"): 0})
    mirror = Path(lake.settings.mirror("db.t"))
    lake.log.look()
    dropped = with_properties(lake.log.snapshot, {"sluice.dropped": "0"})
    commit_actions(
        lake.log.store, lake.log.snapshot, dropped, operation="SET TBLPROPERTIES", clock=NOW
    )
    shutil.move(mirror, mirror.with_name("gone"))
    lake.reopen()
    lake.land(row(C, 20, 2, "b"))

    turn = lake.apply()

    assert_held(turn.hold, "no_base")


def test_a_mirror_whose_protocol_is_not_ours_is_held_and_says_why(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    store = open_store(lake.settings.mirror("db.t"))
    snapshot = load_snapshot(store)
    assert snapshot is not None
    odd = dict(snapshot.metadata.action)
    odd["configuration"] = {**odd["configuration"], "delta.appendOnly": "true"}
    actions = [{"metaData": odd}]
    entry = [{"commitInfo": {"timestamp": 1, "operation": "SET TBLPROPERTIES"}}, *actions]
    store.put_new(entry_name(snapshot.version + 1), encode_entry(entry))
    lake.land(row(C, 20, 9, "b"))

    turn = lake.apply()

    assert_held(turn.hold, "protocol", "appendOnly")


def test_an_account_that_does_not_balance_holds_the_table_until_a_person_says_so(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 20, 2, "b"))
    counted = ChangeCounts(9, 1, 1, 1, 0, 0, 0)
    monkeypatch.setattr("pipeline.apply.merge.ChangeCounts", lambda **_: counted)

    first, second = lake.apply(), lake.apply()
    kept = lake.rows()
    third = lake.apply(waived=["account:db.t:1"])

    assert_held(first.hold, "account", "8 of 9")
    assert second.hold == first.hold
    assert kept == {1: "a"}, "nothing is committed that is not explained"
    assert third.hold is None
    assert lake.rows() == {1: "a", 2: "b"}


def test_tables_keep_their_own_numbers_and_one_that_is_held_stops_no_other(tmp_path: Path) -> None:
    others = ("db.u", "db.v", "db.w")
    lake = LocalLake(tmp_path, others=others)

    def land(pos: int, key: int, name: str) -> None:
        tables = ("db.t", *others)
        lake.land(*(row(C, pos, key, name, table=t, shard=t, topic=f"s.{t}") for t in tables))

    land(10, 1, "a")
    lake.run()
    odd = {"after": '{"id":9,"nobody":1}', "table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land(row(C, 20, 9, "b"), {**row(C, 20, 9, "b"), **odd})
    held = {turn.table for turn in (*lake.run(), *lake.run()) if turn.hold is not None}
    land(30, 3, "c")
    later = {turn.table: turn.account.read for turn in lake.run()}
    lake.alter(ID, NAME, Column("nobody", "INT"), at=Order(1, 1, 15), shard="db.u")
    (freed,) = lake.run()

    assert held == {"db.u"}
    assert later == {"db.t": 1, "db.u": 0, "db.v": 1, "db.w": 1}, "nothing is read twice"
    assert (freed.table, freed.hold, freed.batch, freed.account.read) == ("db.u", None, 2, 2)
    assert {name: lake.rows(name) for name in ("db.t", *others)} == {
        "db.t": {1: "a", 3: "c", 9: "b"},
        "db.u": {1: "a", 3: "c", 9: None},
        "db.v": {1: "a", 3: "c"},
        "db.w": {1: "a", 3: "c"},
    }


def test_a_turn_whose_account_was_never_told_is_told_by_the_next_process(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land(row(C, 10, 1, "a"), row(C, 20, 2, "b"), row(D, 30, 9))
    turn = lake.apply()
    lake.reopen()

    (told,) = lake.run()

    assert told.hold is None
    assert (told.table, told.batch, told.account) == ("db.t", 1, turn.account)
    assert turn.account == Account(
        read=3, applied=1, noop=1, redelivered=1, ignored={"tombstone": 0}
    )
    assert lake.run() == ()


def test_f16_an_idle_table_does_not_make_the_others_read_less_or_more(tmp_path: Path) -> None:
    """Slices follow each table's own batches, however far apart these are."""
    lake = LocalLake(tmp_path, others=("db.u",))
    idle = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    lake.land({**row(C, 5, 1, "idle"), **idle})
    lake.run()
    for batch in range(5):
        lake.land(row(C, 10 + batch, batch, "x"))
    lake.checkpoint = replace(lake.checkpoint, tables={**lake.checkpoint.tables, "db.u": 0})

    turns = {turn.table: turn for turn in lake.run()}

    assert turns.keys() == {"db.t"}
    assert (turns["db.t"].batch, turns["db.t"].account.read) == (5, 5)


def test_f17_a_held_table_is_not_tried_in_every_pass(lake: LocalLake) -> None:
    lake.play([row(C, 10, 1, "a")])
    lake.land({**row(C, 20, 2, "b"), "after": '{"id":2,"nobody":5}'})
    lake.apply()
    landed = LandedState(lake.checkpoint, lake.catalog)

    asked = [lake.runner.run(landed, MergeRequest()) for _ in range(3)]

    assert asked == [()] * 3, "the clock stood"


@pytest.mark.parametrize("dropped", [True, False], ids=["dropped", "ignored"])
def test_f26_a_retired_table_is_held_no_more_and_keeps_its_mirror(
    tmp_path: Path, dropped: bool
) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    lake.play([row(C, 10, 1, "a")])
    lake.land({**row(C, 20, 2, "b"), "after": '{"id":2,"nobody":5}'})
    held = lake.apply()
    gone = {Shard.parse("s/db.t"): Existence(Order(1, 1, 30), there=False)} if dropped else {}
    lake.checkpoint = replace(lake.checkpoint, existing=gone)
    if not dropped:
        rule = TableRule(shards=r"db\.t", table="db.t", ignore=True)
        lake.catalog.router = Router((rule,))

    freed, still = lake.run(), lake.run()

    assert held.hold is not None
    assert [(turn.table, turn.hold) for turn in freed] == [("db.t", None)]
    assert still == ()
    assert lake.rows() == {1: "a"}


def test_f20_dropping_the_first_shard_takes_no_key_from_the_others(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, shards=("db.a", "db.t"))
    gone = SchemaChange("drop", "db.a", Order(1, 1, 30), None, "")
    lake.catalog.learn([("s", gone)])
    lake.checkpoint = replace(
        lake.checkpoint, existing={Shard.parse("s/db.a"): Existence(gone.order, there=False)}
    )

    lake.land(row(C, 40, 1, "a"))

    assert lake.apply().hold is None
    assert lake.rows() == {1: "a"}


def test_a_mirror_ahead_of_a_log_that_lost_its_newest_entries_is_held(lake: LocalLake) -> None:
    before = lake.checkpoint
    lake.play([row(C, 10, 1, "a")], [row(C, 20, 2, "b")])
    lake.checkpoint = replace(before, batch=0, tables={"db.t": 0})
    lake.reopen()

    held = [turn for turn in (*lake.run(), *lake.run()) if turn.hold is not None]

    assert [turn.hold.reason for turn in held if turn.hold] == ["log_lost"]
    assert lake.rows() == {1: "a", 2: "b"}
