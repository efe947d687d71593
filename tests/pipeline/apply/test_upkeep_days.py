"""Which days of the change log upkeep drops; covers upkeep."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp, app, checkpoint_row
from pipeline.checkpoint import Checkpoint, Existence, Quarantine
from pipeline.delta.commit import commit_actions
from pipeline.delta.store import open_store
from pipeline.landing.staging import write_rows
from pipeline.model import Op, Order
from pipeline.reports import Gap, MergeReport, dump_gap
from pipeline.settings import UpkeepSettings
from tests.pipeline.apply.keeping import DAY, C, Keeping, batches, mirror
from tests.pipeline.hand_lake import NOW, HandLake, row, stamped


@pytest.fixture
def days(tmp_path: Path) -> HandLake:
    """Three batches, each received on a day of its own, long ago."""
    return on_days(HandLake(tmp_path))


def on_days(lake: HandLake) -> HandLake:
    for batch in range(3):
        lake.received = NOW + batch * DAY
        lake.land(row(C, 10 + batch, batch, "a"), row(Op.ERROR, batch, None) | {"order": None})
    return lake


Apply = Callable[[HandLake], MergeReport | None]
GONE = {"existing": {"s/db.t": Existence(Order(1, 1, 99), there=False)}}


OLD = {
    "shards": {"s/db.t": "db.t", "s/db.old": "db.old", "s/db.no": None},
    "existing": {"s/db.old": Existence(Order(1, 1, 99), there=False)},
}


def gap(*shards: str) -> dict[str, Any]:
    """A mark's gap of *shards*."""
    return {"gaps": {"g": dump_gap(Gap("g", "s.db.t", 0, 1, 1, "gone", shards=shards, batch=1))}}


def unread(*shards: str) -> dict[str, Any]:
    """A mark's changes that nobody could read, of *shards*."""
    return {"quarantine": {"topic:x": Quarantine(None, 1, 1, ("x:0:5@1",), shards)}}


def all_of_it(lake: HandLake) -> MergeReport:
    return lake.apply()


def first_batch(lake: HandLake) -> MergeReport:
    newest, lake.checkpoint = lake.checkpoint, replace(lake.checkpoint, batch=0, tables={"db.t": 0})
    turn = lake.apply()
    lake.checkpoint = newest
    return turn


@pytest.mark.parametrize(
    ("apply", "mark", "left"),
    [
        pytest.param(all_of_it, {}, [2], id="all but the newest batch, when every mirror has it"),
        pytest.param(first_batch, {}, [1, 2], id="not what a mirror has not applied"),
        pytest.param(
            first_batch, GONE, [2], id="what a mirror has not applied whose table is gone"
        ),
        pytest.param(lambda _: None, {}, [0, 1, 2], id="nothing before a mirror is begun"),
        pytest.param(all_of_it, gap("s/db.t"), [0, 1, 2], id="nothing while a gap is open"),
        pytest.param(all_of_it, gap(), [0, 1, 2], id="nor while one is that names nobody"),
        pytest.param(all_of_it, gap("s/db.new"), [0, 1, 2], id="nor one of a shard yet to come"),
        pytest.param(all_of_it, unread("s/db.t"), [0, 1, 2], id="nor while one is unread"),
        pytest.param(all_of_it, unread(), [0, 1, 2], id="nor while one is of who knows what"),
        pytest.param(all_of_it, gap("s/db.old") | OLD, [2], id="what a gap of a dropped shard"),
        pytest.param(all_of_it, unread("s/db.old") | OLD, [2], id="or unread ones of it leave"),
        pytest.param(all_of_it, gap("s/db.no") | OLD, [2], id="or a gap of an ignored one"),
        pytest.param(
            all_of_it, gap("s/db.old", "s/db.t") | OLD, [0, 1, 2], id="but not one of both"
        ),
    ],
)
def test_a_day_is_dropped_when_it_is_old_and_nobody_needs_it(
    days: HandLake, apply: Apply, mark: Mapping[str, Any], left: list[int]
) -> None:
    apply(days)

    Keeping(days).run(**mark)

    assert batches(days) == left
    assert batches(days, "mark") == [0, 1, 2], "the marks of all batches stay"
    assert batches(days, "error") == [0, 1, 2], "and what nobody could read"
    days.log.look()
    assert days.log.checkpoint() == days.checkpoint


def test_why_no_day_is_dropped_is_told_once(days: HandLake) -> None:
    days.apply()
    keeping = Keeping(days)

    with capture_logs() as told:
        for mark in (gap("s/db.t"), gap("s/db.t"), unread("s/db.t"), {}, gap("s/db.t")):
            keeping.run(**mark)

    lost, unread_ = "changes were lost before landing (g)", "changes of topic:x are unread"
    assert [one["why"] for one in told if "drops no day" in one["event"]] == [lost, unread_, lost]


def test_a_day_that_is_young_is_not_dropped(tmp_path: Path) -> None:
    lake = HandLake(tmp_path)
    lake.settings = replace(lake.settings, upkeep=UpkeepSettings(keep_changes=timedelta(days=9999)))
    on_days(lake).apply()

    Keeping(lake).run()

    assert batches(lake) == [0, 1, 2]


def test_a_day_that_holds_rows_of_another_lane_is_that_ones_too(days: HandLake) -> None:
    """Batches are numbered by lane, and nobody here knows what its mirrors have applied."""
    log = ChangeLog(open_store(days.settings.changes), "other")
    log.look()
    stamp = Stamp("other", 0, NOW)
    parts = [stamped([row(C, 10, 7, "theirs") | {"table": "db.u"}], stamp)]
    parts.append(checkpoint_row(Checkpoint("other", 0, tables={"db.u": 0}).dumps(), stamp))
    actions = [write_rows(log, part, stamp).added(NOW) for part in parts]
    txn = (app("other"), 0)
    commit_actions(log.store, log.snapshot, actions, operation="WRITE", clock=NOW, txn=txn)
    days.apply()

    Keeping(days).run()

    assert batches(days) == [0, 0, 1, 2]


def test_a_day_is_dropped_once(days: HandLake) -> None:
    days.apply()
    keeping = Keeping(days)
    keeping.run()
    version = DeltaTable(days.settings.changes).version()

    keeping.run()

    assert DeltaTable(days.settings.changes).version() == version


def test_a_mirror_is_not_begun_from_changes_that_were_dropped(days: HandLake) -> None:
    days.apply()
    Keeping(days).run()
    Path(mirror(days)).rename(days.home / "gone")
    days.reopen()

    days.checkpoint = replace(days.checkpoint, based={"s/db.t": 1})
    held = days.apply()
    days.checkpoint = replace(days.checkpoint, based={"s/db.t": 2})
    begun = days.apply()

    assert held.hold is not None
    assert held.hold.reason == "no_base"
    assert "no longer kept" in held.hold.detail
    assert begun.hold is None
