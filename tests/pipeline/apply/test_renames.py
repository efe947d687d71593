"""A renamed table's mirror has the rows it had under its other name, or stands still."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint import Existence, Gap
from pipeline.landing.batch_stats import UnreadChanges
from pipeline.model import Op, Order, Shard
from pipeline.settings import TableRule
from tests.builders.lake import row
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.renames import FIRST_COLUMNS, NEW, SHADOW, C, D, R, Renames, S, U, new

GAP = Gap(f"s.{NEW}:0:5", f"s.{NEW}", 0, 5, 8, "deleted")
UNREAD = UnreadChanges("s", None, 1, (f"s.{NEW}:0:5",))


@pytest.fixture
def told(tmp_path: Path) -> Renames:
    return Renames(tmp_path)


def test_f08_a_swap_gives_a_table_the_rows_of_its_shadow(told: Renames) -> None:
    told.begin()
    told.lake.apply()
    told.lake.land(*SHADOW)
    told.swap()
    told.lake.land(row(U, 110, 3, "after"), row(C, 111, 5, "five"))

    turn = told.apply()

    assert turn.hold is None
    assert turn.account.residual == 0
    assert told.lake.rows() == {1: "changed", 3: "after", 5: "five"}


def test_rows_that_landed_before_the_swap_was_told_stay(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.lake.land(row(U, 110, 3, "after"), row(D, 111, 1, "changed"))
    told.lake.run()
    told.lake.run()
    told.swap()

    told.apply()

    assert told.lake.rows() == {3: "after"}


def test_it_is_done_once(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.swap()
    told.lake.land(row(D, 110, 3, "three"))
    told.apply()
    told.lake.reopen()
    told.lake.land(row(C, 120, 9, "nine"))

    turn = told.apply()

    assert turn.account.read == 1
    assert told.lake.rows() == {1: "changed", 9: "nine"}


def test_a_mirror_made_anew_from_the_change_log_has_them_too(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.swap()
    told.lake.land(row(U, 110, 3, "after"))

    told.apply()

    assert told.lake.rows() == {1: "changed", 3: "after"}


def test_it_waits_until_all_before_the_rename_has_landed(told: Renames) -> None:
    told.begin()
    told.lake.apply()
    told.lake.land(*SHADOW)
    told.swap()
    told.sent(100)
    told.lake.land(row(C, 111, 5, "five"))

    waiting = [turn for turn in told.lake.run() if turn.table == "db.t"]
    before = told.lake.rows()
    told.lake.land(new(U, 99, 3, "late"))
    told.sent(101)
    told.lake.land(row(C, 112, 6, "six"))
    told.apply()

    assert waiting == []
    assert before == {1: "old", 2: "goes"}
    assert told.lake.rows() == {1: "changed", 3: "late", 5: "five", 6: "six"}


def test_a_shadow_without_a_base_holds_the_table_and_names_both(told: Renames) -> None:
    """So is one that the collector leaves out: its CREATE is told, and no row of it landed."""
    told.begin()
    told.lake.land(row(C, 12, 7, "seven"))
    told.swap()
    told.lake.land(row(C, 111, 5, "five"))

    hold = told.apply().hold

    assert_held(hold, "renamed", "db.t has had the rows of db._t_new", "take a new base of db.t")


def test_a_base_later_than_the_swap_needs_no_shadow(told: Renames) -> None:
    told.begin()
    told.lake.apply()
    told.swap()
    told.lake.land(row(R, 200, 1, "read"), row(S, 200, None))
    told.lake.checkpoint = replace(
        told.lake.checkpoint, bases={Shard("s", "db.t"): Order(1, 1, 200)}
    )

    turn = told.apply()

    assert turn.hold is None
    assert told.lake.rows() == {1: "read"}


def test_a_shadow_with_an_open_gap_holds(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.swap()
    gap = replace(GAP, shards=(f"s/{NEW}",))
    told.lake.checkpoint = replace(told.lake.checkpoint, gaps={GAP.id: gap})
    told.lake.land(row(C, 111, 5, "five"))

    hold = told.apply().hold

    assert_held(hold, "gap")


@pytest.mark.parametrize(
    "lost",
    [
        pytest.param({"gaps": (GAP,)}, id="a gap"),
        pytest.param({"errors": {f"topic:s.{NEW}": UNREAD}}, id="an unread change"),
        pytest.param({"errors": {f"s/{NEW}": UNREAD}}, id="an unread change of its own"),
    ],
)
def test_what_a_shadow_lacked_is_not_whole_because_it_was_made_anew_since(
    told: Renames, lost: dict[str, Any]
) -> None:
    """The rename is landed, then a loss is found; a CREATE closes it before anything is merged."""
    told.begin()
    told.lake.land(*SHADOW)
    told.swap()
    told.land(**lost)
    open_hold = told.apply().hold
    told.again(200)
    told.lake.land(row(C, 211, 5, "five"))

    hold = told.apply().hold

    assert open_hold is not None
    assert open_hold.reason in ("gap", "quarantine")
    assert (told.lake.checkpoint.gaps, told.lake.checkpoint.quarantine) == ({}, {})
    assert hold is not None
    assert (hold.reason, "no whole base" in hold.detail) == ("renamed", True)


def test_a_shadow_with_an_unread_change_holds(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW, {**new(Op.ERROR, 50, None), "order": None})
    told.swap()
    told.lake.land(row(C, 111, 5, "five"))

    hold = told.apply().hold

    assert hold is not None
    assert "could not be read" in hold.detail


def test_a_shadow_whose_first_days_are_gone_holds(
    told: Renames, monkeypatch: pytest.MonkeyPatch
) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.swap()
    told.lake.land(row(C, 111, 5, "five"))
    mark = replace(
        told.lake.checkpoint,
        based={Shard("s", "db.t"): 9},
        bases={Shard("s", "db.t"): Order(1, 1, 1)},
    )
    told.lake.checkpoint = mark
    monkeypatch.setattr(type(told.lake.runner.jobs), "_dropped", lambda _: 0)

    hold = told.apply().hold

    assert hold is not None
    assert "no whole base" in hold.detail


def test_tables_that_change_places_change_their_rows(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.lake.run()
    told.lake.run()
    told.tell(100, "RENAME TABLE t TO a")
    told.tell(100, "RENAME TABLE _t_new TO t", "t")
    told.tell(100, "RENAME TABLE a TO _t_new", "_t_new")
    told.lake.land(row(C, 111, 5, "five"), new(C, 112, 6, "six"))

    told.lake.run()

    assert told.lake.rows() == {1: "changed", 3: "three", 5: "five"}
    assert told.lake.rows(NEW) == {1: "old", 2: "goes", 6: "six"}


MID = {"shard": "db.mid", "table": "db.mid", "topic": "s.db.mid"}


@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        pytest.param(
            (row(U, 60, 3, "mid", **MID), row(D, 61, 1, **MID)),
            {3: "mid", 8: "m", 5: "five"},
            id="changed",
        ),
        pytest.param(
            (row(Op.TRUNCATE, 55, None, **MID),), {8: "m", 5: "five"}, id="truncated: none return"
        ),
    ],
)
def test_rows_are_followed_through_all_names_they_had(
    told: Renames, changes: tuple[dict[str, Any], ...], rows: dict[int, str]
) -> None:
    told.begin()
    told.lake.land(*SHADOW)
    told.tell(50, "RENAME TABLE _t_new TO mid", "mid")
    told.lake.land(*changes, row(C, 62, 8, "m", **MID))
    told.tell(100, "RENAME TABLE t TO _t_old", "_t_old")
    told.tell(100, "RENAME TABLE mid TO t", "t")
    told.lake.land(row(C, 111, 5, "five"))

    told.apply()

    assert told.lake.rows() == rows


def test_a_shadow_truncated_on_its_way_begins_there(told: Renames) -> None:
    told.begin()
    told.lake.land(*SHADOW, new(Op.TRUNCATE, 60, None), new(C, 61, 9, "nine"))
    told.swap()
    told.lake.land(row(C, 111, 5, "five"))

    told.apply()

    assert told.lake.rows() == {9: "nine", 5: "five"}


def test_a_column_that_the_shadow_has_more_comes_with_its_rows(told: Renames) -> None:
    told.begin()
    told.lake.apply()
    more = f"{FIRST_COLUMNS}, extra BIGINT 7"
    told.tell(25, "ALTER TABLE _t_new ADD COLUMN extra BIGINT DEFAULT 7", "_t_new", more)
    told.lake.land(
        new(S, 20, None), new(C, 30, 1, after=json.dumps({"id": 1, "name": "x", "extra": 9}))
    )
    told.swap(columns=more)
    told.lake.land(row(C, 111, 5, after=json.dumps({"id": 5, "name": "y", "extra": 8})))

    told.apply()

    found = [(r["id"], r["name"], r["extra"]) for r in told.lake.mirror()]
    assert found == [(1, "x", 9), (5, "y", 8)]


def test_a_shadow_that_had_rows_when_it_got_a_default_holds(told: Renames) -> None:
    told.begin()
    more = f"{FIRST_COLUMNS}, extra BIGINT 7"
    told.lake.land(*SHADOW)
    told.tell(45, "ALTER TABLE _t_new ADD COLUMN extra BIGINT DEFAULT 7", "_t_new", more)
    told.swap(columns=more)

    hold = told.apply().hold

    assert hold is not None
    assert "a column was added to db._t_new while it had rows" in hold.detail


def test_half_of_a_rename_moves_nothing_that_the_other_half_does_not_undo(told: Renames) -> None:
    """The collector was killed inside it, and a batch ended there; then it sends both again."""
    told.begin()
    told.lake.land(*SHADOW)
    told.lake.run()
    told.sent(100)
    told.tell(100, "RENAME TABLE t TO _t_old", "_t_old")
    told.lake.checkpoint = replace(
        told.lake.checkpoint,
        existing={Shard.parse("s/db.t"): Existence(Order(1, 1, 100), there=False)},
    )
    told.lake.land()
    half = [turn.hold for turn in told.lake.run() if turn.table == "db.t"]
    told.swap()
    told.sent(101)
    told.lake.checkpoint = replace(told.lake.checkpoint, existing={})
    told.lake.land(row(C, 111, 5, "five"))

    told.apply()

    assert half in ([], [None])
    assert told.lake.rows() == {1: "changed", 3: "three", 5: "five"}


def test_keys_unique_across_shards_lose_and_get_the_shard(tmp_path: Path) -> None:
    rules = (TableRule(r"db\.t", "db.t", unique_across_shards=True),)
    told = Renames(tmp_path, rules)
    told.tell(20, "CREATE TABLE _t_new LIKE t", "_t_new")
    told.lake.land(*SHADOW)
    told.swap()
    told.lake.land(row(U, 110, 3, "after") | {"key": '["3"]'})

    told.apply()

    assert told.lake.rows() == {1: "changed", 3: "after"}
