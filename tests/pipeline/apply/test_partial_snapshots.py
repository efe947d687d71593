"""A snapshot of a table that had a base, and that read only a part of its rows.

Covers pipeline.apply.losses.unread_rows, on real Delta tables.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.apply import passes
from pipeline.model import Op, Order, Origin, SnapshotAgain
from pipeline.report import Applied, Hold
from tests.pipeline.hand_lake import FIRST, NOW, HandLake, row

C, U, D, R, S, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.SETTLE, Op.TRUNCATE
LIVE = int(Origin.LIVE)
AT = Order(1, 1, 50)
MANY = 1_000
ALL = dict.fromkeys(range(1, 5), "a")


@pytest.fixture
def lake(tmp_path: Path) -> HandLake:
    made = HandLake(tmp_path)
    made.play([row(R, 1, key, "a") for key in ALL] + [row(S, 1, None)])
    return made


def snapshot(
    lake: HandLake,
    *keys: int,
    more: tuple[dict[str, object], ...] = (),
    asked: bool = False,
    whole: bool = False,
    read: int = 60,
) -> None:
    """Land a snapshot that read *keys*, in a batch up to which all below *read* has landed."""
    lake.prove(read)
    batch = lake.mark.batch + 1
    again = SnapshotAgain(AT, NOW, batch, 1, asked)
    lake.mark = replace(
        lake.mark,
        bases={"s/db.t": AT},
        complete={"s/db.t": batch},
        again={"s" if whole else "s/db.t": again},
    )
    lake.land(*(row(R, 50, key, "b") for key in keys), row(S, 50, None), *more)


def held(turn: Applied) -> str:
    assert turn.hold is not None
    assert turn.hold.reason == "unread_rows"
    assert turn.hold.detail.endswith(f"waive {turn.hold.id}")
    return turn.hold.id


@pytest.mark.parametrize("asked", [False, True])
def test_f102_a_snapshot_of_all_rows_is_merged(lake: HandLake, *, asked: bool) -> None:
    snapshot(lake, *ALL, asked=asked)

    assert lake.apply().hold is None
    assert lake.rows() == dict.fromkeys(ALL, "b")


def test_f102_rows_that_a_snapshot_did_not_read_are_not_deleted(lake: HandLake) -> None:
    snapshot(lake, 1, 2)

    turn = lake.apply()

    assert lake.rows() == ALL, "nothing is merged"
    assert turn.hold is not None
    assert "2 of 4 rows" in turn.hold.detail
    assert "sluice bootstrap db.t" in turn.hold.detail


def test_f102_a_person_may_confirm_that_the_rows_are_gone(lake: HandLake) -> None:
    snapshot(lake, 1, 2)
    waiver = held(lake.apply())

    assert lake.apply([waiver]).hold is None
    assert lake.rows() == {1: "b", 2: "b"}


def test_f102_a_bootstrap_brings_every_row_back(lake: HandLake) -> None:
    snapshot(lake, 1, 2)
    held(lake.apply())
    lake.prove(80)
    lake.mark = replace(lake.mark, bases={"s/db.t": Order(1, 1, 70)})
    lake.land(*(row(R, 70, key, "c") for key in ALL), row(S, 70, None))

    assert lake.apply().hold is None
    assert lake.rows() == dict.fromkeys(ALL, "c")


@pytest.mark.parametrize(
    "more",
    [
        pytest.param((row(D, 40, 3, "a"), row(D, 41, 4, "a")), id="deleted"),
        pytest.param(
            (row(U, 39, 3, "x"), row(D, 40, 3, "x"), row(D, 41, 4, "a")), id="changed, deleted"
        ),
        pytest.param((row(C, 55, 3, "b"), row(D, 41, 4, "a")), id="written anew above it"),
    ],
)
def test_f102_rows_of_which_a_change_tells_are_not_missed(
    lake: HandLake, more: tuple[dict[str, object], ...]
) -> None:
    """Streaming goes on from before the snapshot: what it had not sent by then comes after it."""
    snapshot(lake, 1, 2, more=more)

    assert lake.apply().hold is None
    assert lake.rows().keys() >= {1, 2}


def test_f102_a_row_that_came_and_went_explains_no_other(lake: HandLake) -> None:
    snapshot(lake, 1, 2, 3, more=(row(C, 40, 9, "x"), row(D, 41, 9, "x")))

    held(lake.apply())


def test_f102_deletes_from_before_the_snapshot_are_waited_for(lake: HandLake) -> None:
    snapshot(lake, 1, 2, 3, read=45)

    assert lake.run() == (), "nobody is told of what is on its way"
    lake.prove(60)
    lake.land(row(D, 48, 4, "a"))

    assert lake.apply().hold is None
    assert lake.rows() == dict.fromkeys((1, 2, 3), "b")


@pytest.mark.parametrize("whole", [False, True], ids=["asked for", "of the whole source"])
@pytest.mark.parametrize(
    ("left", "holds"), [(MANY // 2, True), (MANY - 50, False)], ids=["half is gone", "a few are"]
)
def test_f102_where_deletes_may_be_lost_only_many_rows_are_asked_about(
    lake: HandLake, left: int, *, holds: bool, whole: bool
) -> None:
    lake.play([row(C, 10, key, "a") for key in range(10, MANY)])
    snapshot(lake, *ALL, *range(10, left), asked=not whole, whole=whole)

    assert (lake.apply().hold is not None) is holds


def test_f102_a_first_base_is_never_asked_about(lake: HandLake) -> None:
    lake.mark = replace(lake.mark, bases={"s/db.t": AT}, again={})
    lake.land(row(R, 50, 1, "b"), row(S, 50, None))

    assert lake.apply().hold is None
    assert FIRST < AT
    assert lake.rows() == {1: "b"}


def test_f102_a_delete_that_is_sent_again_explains_no_other_row(lake: HandLake) -> None:
    lake.play([row(D, 30, 4, "a")])
    snapshot(lake, 1, 2, more=(row(D, 30, 4, "a", offset=31),))

    held(lake.apply())
    assert lake.rows() == dict.fromkeys((1, 2, 3), "a")


def test_f102_a_delete_from_before_the_row_explains_nothing(lake: HandLake) -> None:
    gone = row(D, 30, 4, "a")
    lake.play([gone, row(C, 31, 4, "b")])
    snapshot(lake, 1, 2, 3, more=(gone | {"offset": 32},))

    held(lake.apply())


def test_f102_a_row_of_an_unfinished_snapshot_explains_no_other(lake: HandLake) -> None:
    snapshot(lake, 1, 2, 3, more=(row(R, 45, 9, "x"), row(D, 46, 9, "x")))

    held(lake.apply())


def test_f102_a_waiver_of_another_hold_lets_none_of_these_through(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot(lake, 1, 2)
    account = Hold("account:db.t:1", "db.t", "account", "1 of 3 changes unexplained")
    monkeypatch.setattr(passes, "unexplained", lambda *_: account)

    held(lake.apply(["account:db.t:1"]))
    assert lake.rows() == ALL


@pytest.mark.parametrize(
    ("keys", "more"),
    [
        pytest.param((7,), (row(T, 40, None), row(C, 41, 7, "n")), id="emptied before it"),
        pytest.param((1, 2, 3, 4), (row(T, 60, None),), id="emptied after it"),
        pytest.param((9,), (row(S, 30, None, origin=LIVE), row(C, 31, 9, "n")), id="made anew"),
    ],
)
def test_f102_rows_that_were_taken_all_at_once_are_not_missed(
    lake: HandLake, keys: tuple[int, ...], more: tuple[dict[str, object], ...]
) -> None:
    snapshot(lake, *keys, more=more)

    assert lake.apply().hold is None


def test_f102_rows_from_after_a_truncate_that_is_sent_again_are_missed(lake: HandLake) -> None:
    lake.play([row(T, 20, None), row(C, 21, 5, "n")])
    snapshot(lake, 1, more=(row(T, 20, None, offset=22),))

    turn = lake.apply()

    assert held(turn)
    assert turn.hold is not None
    assert "1 of 1 rows" in turn.hold.detail


def test_f102_a_row_that_is_sent_again_and_then_deleted_is_not_missed(lake: HandLake) -> None:
    lake.play([row(C, 30, 5, "a")])
    snapshot(lake, *ALL, more=(row(C, 30, 5, "a", offset=31), row(D, 40, 5, "a")))

    assert lake.apply().hold is None
    assert lake.rows() == dict.fromkeys(ALL, "b")


def test_f102_an_older_snapshot_in_the_same_turn_tells_of_no_row(lake: HandLake) -> None:
    """The first was held; its settle waits in the log when the second one comes."""
    snapshot(lake, 1, 2)
    held(lake.apply())
    lake.prove(80)
    base, batch = Order(1, 1, 70), lake.mark.batch + 1
    lake.mark = replace(
        lake.mark,
        bases={"s/db.t": base},
        complete={"s/db.t": batch},
        again={"s/db.t": SnapshotAgain(base, NOW, batch, 1, asked=False)},
    )
    lake.land(row(R, 70, 1, "c"), row(R, 70, 2, "c"), row(S, 70, None))

    held(lake.apply())
    assert lake.rows() == ALL


FIRST_KEY = {"t": 1, "u": 11}


def sharded(tmp_path: Path) -> HandLake:
    made = HandLake(tmp_path, shards=("db.t", "db.u"))
    for name, first in FIRST_KEY.items():
        shard = f"db.{name}"
        rows = [row(R, 1, key, "a", shard=shard) for key in range(first, first + 4)]
        made.play([*rows, row(S, 1, None, shard=shard)])
    return made


def of_both(lake: HandLake, *, healing: str = "", **read: int) -> None:
    """Snapshots of shards ``t`` and ``u``, each of its first rows, in two batches."""
    lake.prove(60)
    rows: list[list[dict[str, object]]] = []
    for name, number in read.items():
        shard, batch = f"db.{name}", lake.mark.batch + 1 + len(rows)
        again = SnapshotAgain(AT, NOW, batch, 1, name == healing)
        lake.mark = replace(
            lake.mark,
            bases={**lake.mark.bases, f"s/{shard}": AT},
            complete={**lake.mark.complete, f"s/{shard}": batch},
            again={**lake.mark.again, f"s/{shard}": again},
        )
        keys = range(FIRST_KEY[name], FIRST_KEY[name] + number)
        rows.append(
            [row(R, 50, key, "b", shard=shard) for key in keys] + [row(S, 50, None, shard=shard)]
        )
    for batch_rows in rows:
        lake.land(*batch_rows)


def test_f102_another_shard_may_be_emptied_in_the_same_turn(tmp_path: Path) -> None:
    lake = sharded(tmp_path)
    of_both(lake, t=4)
    lake.land(row(T, 55, None, shard="db.u"))

    assert lake.apply().hold is None


def test_f102_each_shard_is_waived_by_itself(tmp_path: Path) -> None:
    lake = sharded(tmp_path)
    of_both(lake, t=3, u=1)

    first = held(lake.apply())
    second = held(lake.apply([first]))

    assert (first.split("@")[0], second.split("@")[0]) == (
        "unread_rows:s/db.t",
        "unread_rows:s/db.u",
    )
    assert lake.apply([first, second]).hold is None


def test_f102_what_heals_one_shard_lets_no_rows_of_another_go(tmp_path: Path) -> None:
    lake = sharded(tmp_path)
    of_both(lake, healing="t", t=3, u=3)

    assert "s/db.u" in held(lake.apply())
