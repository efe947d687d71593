"""What people ask for is kept with its reason, goes on over restarts, and ends once."""

import sqlite3
from contextlib import closing
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from monitor.store.requests import BackfillSpec, CheckedAgain, ResubmissionRecord, StoredBackfill
from monitor.store.store import ServiceStore
from pipeline.backfill_state import (
    BackfillRequest,
    BackfillState,
    RowSelection,
    SelectedKey,
    SelectedRange,
)
from pipeline.errors import ConfigError
from pipeline.model import Origin
from pipeline.resubmissions import Resubmission, ResubmissionState
from tests.builders.change_log import NOON

ASKED = StoredBackfill("x", "shop.a", "a gap", "ann", NOON)
LATER = NOON + timedelta(minutes=1)


@pytest.fixture
def store(tmp_path: Path) -> ServiceStore:
    return ServiceStore.open(tmp_path / "s.db")


def test_one_that_goes_on_is_not_begun_twice(store: ServiceStore) -> None:
    store.backfills.add(ASKED)

    again = store.backfills.add(StoredBackfill("y", "shop.a", "again", "bob", LATER))

    assert again == ASKED
    assert store.backfills.wished() == (BackfillRequest("x", "shop.a"),)


@pytest.mark.parametrize(
    ("states", "ended", "done"),
    [
        pytest.param([("a", 7, "", False), ("b", None, "", False)], False, False, id="one is left"),
        pytest.param([("a", 7, "", False), ("b", 8, "", False)], True, True, id="both are done"),
        pytest.param([("a", None, "no key", True)], True, False, id="it can never be"),
        pytest.param([("a", None, "down", False)], False, False, id="it waits"),
    ],
)
def test_it_ends_when_all_shards_are_done_or_one_is_refused(
    *, store: ServiceStore, states: list[tuple[str, int | None, str, bool]], ended: bool, done: bool
) -> None:
    store.backfills.add(ASKED)
    told = [BackfillState("x", "shop.a", n, 5, batch, why, no) for n, batch, why, no in states]

    store.backfills.record_states(told, LATER)

    (kept,) = store.backfills.list()
    assert (kept.ended == LATER, kept.done, kept.rows) == (ended, done, 5 * len(states))
    assert bool(store.backfills.wished()) is not ended


def test_what_is_cancelled_stays_so(store: ServiceStore) -> None:
    store.backfills.add(ASKED)

    assert store.backfills.cancel("x", "cancelled by bob: wrong table", LATER)
    store.backfills.record_states([BackfillState("x", "shop.a", "s/a", 5, 7)], LATER)

    (kept,) = store.backfills.list()
    assert (kept.done, kept.why) == (False, "cancelled by bob: wrong table")
    assert not store.backfills.cancel("x", "again", LATER)
    assert store.backfills.wished() == ()


ROWS = RowSelection((SelectedKey('["7"]', "s/a"),), (SelectedRange(1, 9),), "a = 1", most=5)
WISH = BackfillSpec(Origin.REPAIR, ROWS, NOON, "i1", ("range_counts", "max_id"))
REPAIR = replace(ASKED, wish=WISH)


def test_what_is_wished_for_comes_back_as_it_was(store: ServiceStore) -> None:
    store.backfills.add(REPAIR)

    assert store.backfills.list() == (REPAIR,)
    assert store.backfills.wished() == (BackfillRequest("x", "shop.a", Origin.REPAIR, ROWS, NOON),)


def test_how_a_repair_was_requested_comes_back_and_is_no_part_of_which_rows_are_read(
    store: ServiceStore,
) -> None:
    automatic = replace(WISH, automatic=True, fences=(("s", 7), ("t", 9)))
    store.backfills.add(replace(REPAIR, wish=automatic))

    same = store.backfills.add(replace(REPAIR, id="y"))

    assert same.id == "x"
    assert (same.wish.automatic, same.wish.fences) == (True, automatic.fences)


def test_other_rows_of_a_table_that_is_being_read_are_refused(store: ServiceStore) -> None:
    store.backfills.add(ASKED)

    with pytest.raises(
        ConfigError, match=r"table shop\.a has a running backfill \(bootstrap x, ann: a gap"
    ):
        store.backfills.add(replace(REPAIR, id="y"))


def test_it_is_unchecked_until_all_its_checks_have_passed(store: ServiceStore) -> None:
    store.backfills.add(REPAIR)
    before = store.backfills.unchecked(NOON)
    store.backfills.record_states([BackfillState("x", "shop.a", "s/a", 1, 7)], LATER)
    (after,) = store.backfills.unchecked(NOON)

    store.backfills.checked("x", [CheckedAgain("max_id", True, LATER, "both reach 7")])

    (half,) = store.backfills.unchecked(NOON)
    assert (before, after.unchecked, half.unchecked) == ((), WISH.checks, ("range_counts",))
    assert store.backfills.unchecked(LATER) == ()


def test_a_store_from_before_there_were_wishes_is_read(tmp_path: Path) -> None:
    with closing(ServiceStore.open(tmp_path / "s.db")) as made:
        made.backfills.add(ASKED)
    with closing(sqlite3.connect(tmp_path / "s.db")) as raw, raw:
        raw.execute("ALTER TABLE rereads DROP COLUMN wish")
        raw.execute("ALTER TABLE rereads DROP COLUMN proofs")
        raw.execute("UPDATE version SET number = 4")

    with closing(ServiceStore.open(tmp_path / "s.db")) as again:
        assert again.backfills.list() == (ASKED,)
        again.backfills.cancel("x", "no", LATER)
        again.backfills.add(replace(REPAIR, id="y", at=LATER))
        assert again.backfills.wished()[0].id == "y"


def test_a_failure_is_told_of_shards_that_wait_and_of_none_that_is_done(
    store: ServiceStore,
) -> None:
    store.backfills.add(ASKED)
    done, waits = BackfillState("x", "shop.a", "a", 5, 7), BackfillState("x", "shop.a", "b", 2)
    store.backfills.record_states([done, waits], LATER)

    store.backfills.failed("down")

    (kept,) = store.backfills.list()
    assert kept.states == (done, replace(waits, why="it failed: down"))
    assert kept.ended is None
    store.backfills.record_states([done, replace(waits, done=8)], LATER)
    store.backfills.failed("down")
    assert store.backfills.list()[0].why == ""


@pytest.mark.parametrize("ending", ["done", "cancelled"])
def test_keys_of_a_table_that_hides_values_are_kept_until_it_has_ended(
    store: ServiceStore, ending: str
) -> None:
    wish = BackfillSpec(Origin.REPAIR, ROWS, incident="i", checks=("max_id",))
    store.backfills.hides = lambda table: table == "shop.a"
    other = replace(ASKED, id="y", table="shop.b", wish=wish)
    for one in (replace(ASKED, wish=wish), other):
        store.backfills.add(one)
    store.backfills.record_states([BackfillState("x", "shop.a", "s/a", 1)], LATER)
    assert {one.rows for one in store.backfills.wished()} == {ROWS}

    for id_, table in (("x", "shop.a"), ("y", "shop.b")):
        if ending == "done":
            store.backfills.record_states([BackfillState(id_, table, "s/a", 5, 7)], LATER)
        else:
            store.backfills.cancel(id_, "wrong", LATER)

    kept = {one.id: one for one in store.backfills.list()}
    assert kept["x"].wish == replace(wish, rows=RowSelection(most=ROWS.most))
    assert kept["y"].wish == wish
    assert kept["x"].ended == kept["y"].ended == LATER
    assert kept["x"].kind == "repair"


RESUBMISSION = Resubmission(
    "r1", "b.db.t:0:1@0", "e30=", key="AP8=", headers=(("h", "AA=="),), at=NOON
)
SAID = ("db.t", "a typing error", "ann", NOON)
MADE = ResubmissionRecord(RESUBMISSION.id, RESUBMISSION.change, *SAID, original="0" * 64)


def test_what_was_corrected_is_kept_as_it_was_said(store: ServiceStore) -> None:
    store.resubmissions.add(RESUBMISSION, MADE)

    assert store.resubmissions.list() == (MADE,)
    assert store.resubmissions.of([RESUBMISSION.change]) == (MADE,)
    assert store.resubmissions.of(["another"]) == ()
    assert store.resubmissions.get("r1") == MADE
    assert store.resubmissions.get("another") is None
    assert store.resubmissions.wished() == (RESUBMISSION,)


def test_a_message_is_corrected_by_one_at_a_time(store: ServiceStore) -> None:
    store.resubmissions.add(RESUBMISSION, MADE)
    asked = replace(RESUBMISSION, id="r2")
    second = replace(MADE, id="r2", reason="again", who="bob", at=LATER)

    with pytest.raises(
        ConfigError,
        match=r"already has a correction that has not landed \(ann at .*: a typing error",
    ):
        store.resubmissions.add(asked, second)
    store.resubmissions.record_states(
        [ResubmissionState("r1", why="it says nothing", refused=True)], LATER
    )
    store.resubmissions.add(asked, second)

    assert [one.id for one in store.resubmissions.wished()] == ["r2"]


@pytest.mark.parametrize(
    ("state", "ended"),
    [
        pytest.param(ResubmissionState("r1", 7), True, id="it landed"),
        pytest.param(
            ResubmissionState("r1", None, "no row", refused=True), True, id="it never will"
        ),
        pytest.param(ResubmissionState("r1", None, "no schema"), False, id="it waits"),
    ],
)
def test_it_is_asked_for_until_it_has_ended(
    *, store: ServiceStore, state: ResubmissionState, ended: bool
) -> None:
    store.resubmissions.add(RESUBMISSION, MADE)

    store.resubmissions.record_states([state], LATER)

    (kept,) = store.resubmissions.list()
    assert (kept.ended == LATER, kept.batch, kept.why) == (ended, state.batch, state.why)
    assert bool(store.resubmissions.wished()) is not ended
    store.resubmissions.record_states([ResubmissionState("r1", 99)], LATER + timedelta(minutes=1))
    assert store.resubmissions.list()[0].batch == (state.batch if ended else 99)


@pytest.mark.parametrize("refused", [True, False], ids=["never_lands", "landed"])
def test_what_it_was_to_say_is_forgotten_once_it_has_ended(
    *, store: ServiceStore, tmp_path: Path, refused: bool
) -> None:
    """A table's values may be hidden in the lake: then they are not to stand here for ever."""
    store.resubmissions.add(RESUBMISSION, MADE)
    with closing(sqlite3.connect(tmp_path / "s.db")) as file:
        query = "SELECT body FROM resubmissions"
        assert "e30=" in file.execute(query).fetchone()[0]

        store.resubmissions.record_states([ResubmissionState("r1", 7, refused=refused)], LATER)

        assert file.execute(query).fetchone() == ("",)
    assert store.resubmissions.get("r1") == replace(MADE, ended=LATER, batch=7)
