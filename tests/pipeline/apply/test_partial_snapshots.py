"""A snapshot of a table that had a base, and that read only a part of its rows.

Covers pipeline.apply.account.unread_rows, on real Delta tables.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.model import Op, Order, SnapshotAgain
from pipeline.report import Applied
from tests.pipeline.hand_lake import FIRST, NOW, HandLake, row

C, U, D, R, S = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.SETTLE
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
