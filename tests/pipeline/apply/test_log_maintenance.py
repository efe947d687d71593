"""Which days and checkpoint rows of the change log maintenance drops."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from structlog.testing import capture_logs

from pipeline.changelog import maintenance
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.reader import LogReader
from pipeline.changelog.table import Stamp, build_app_id, checkpoint_row
from pipeline.checkpoint import Checkpoint, Existence, Gap, Quarantine
from pipeline.delta.commit import commit_actions
from pipeline.delta.store import open_store
from pipeline.landing.staging import write_rows
from pipeline.model import Op, Order, Shard
from pipeline.reports import MergeReport
from pipeline.settings import MaintenanceSettings
from tests.builders.change_log import read_table
from tests.builders.lake import NOW, LocalLake, row, stamped
from tests.builders.values import by_shard
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.keeping import DAY, C, Keeping, batches, mirror


@pytest.fixture
def days(tmp_path: Path) -> LocalLake:
    """Three batches, each received on a day of its own, long ago."""
    return on_days(LocalLake(tmp_path))


def on_days(lake: LocalLake) -> LocalLake:
    for batch in range(3):
        lake.received = NOW + batch * DAY
        lake.land(row(C, 10 + batch, batch, "a"), row(Op.ERROR, batch, None) | {"order": None})
    return lake


Apply = Callable[[LocalLake], MergeReport | None]
GONE = {"existing": {Shard.parse("s/db.t"): Existence(Order(1, 1, 99), there=False)}}
OLD = {
    "shards": by_shard({"s/db.t": "db.t", "s/db.old": "db.old", "s/db.no": None}),
    "existing": {Shard.parse("s/db.old"): Existence(Order(1, 1, 99), there=False)},
}


def gap(*shards: str) -> dict[str, Any]:
    """A mark's gap of *shards*."""
    return {"gaps": {"g": Gap("g", "s.db.t", 0, 1, 1, "gone", shards=shards, batch=1)}}


def unread(*shards: str) -> dict[str, Any]:
    """A mark's changes that nobody could read, of *shards*."""
    return {"quarantine": {"topic:x": Quarantine(None, 1, 1, ("x:0:5@1",), shards)}}


def all_of_it(lake: LocalLake) -> MergeReport:
    return lake.apply()


def first_batch(lake: LocalLake) -> MergeReport:
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
            first_batch, {"belated": {"db.t": 2}}, [0, 1, 2], id="nothing before late ones merge"
        ),
        pytest.param(all_of_it, {"belated": {"db.t": 2}}, [2], id="those that are merged"),
        pytest.param(
            all_of_it, gap("s/db.old", "s/db.t") | OLD, [0, 1, 2], id="but not one of both"
        ),
    ],
)
def test_a_day_is_dropped_when_it_is_old_and_nobody_needs_it(
    days: LocalLake, apply: Apply, mark: Mapping[str, Any], left: list[int]
) -> None:
    apply(days)

    Keeping(days).run(**mark)

    assert batches(days) == left
    assert LogReader(read_table(days.settings.changes), "main").dropped == left[0] - 1
    assert batches(days, "mark") == [0, 1, 2], "the marks of all batches stay"
    assert batches(days, "error") == [0, 1, 2], "and what nobody could read"
    days.log.look()
    assert days.log.checkpoint() == days.checkpoint


def test_why_no_day_is_dropped_is_told_once(days: LocalLake) -> None:
    days.apply()
    keeping = Keeping(days)

    with capture_logs() as told:
        for mark in (gap("s/db.t"), gap("s/db.t"), unread("s/db.t"), {}, gap("s/db.t")):
            keeping.run(**mark)

    lost, unread_ = "changes were lost before landing (g)", "changes of topic:x are unread"
    assert [one["why"] for one in told if "drops no day" in one["event"]] == [lost, unread_, lost]


def test_a_day_that_is_young_is_not_dropped(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.settings = replace(
        lake.settings, upkeep=MaintenanceSettings(keep_changes=timedelta(days=9999))
    )
    on_days(lake).apply()

    Keeping(lake).run()

    assert batches(lake) == [0, 1, 2]


def test_a_day_that_holds_rows_of_another_lane_is_that_ones_too(days: LocalLake) -> None:
    """Batches are numbered by lane, and nobody here knows what its mirrors have applied."""
    log = ChangeLog(open_store(days.settings.changes), "other")
    log.look()
    stamp = Stamp("other", 0, NOW)
    parts = [stamped([row(C, 10, 7, "theirs") | {"table": "db.u"}], stamp)]
    parts.append(checkpoint_row(Checkpoint("other", 0, tables={"db.u": 0}).dumps(), stamp))
    actions = [write_rows(log, part, stamp).added(NOW) for part in parts]
    txn = (build_app_id("other"), 0)
    commit_actions(log.store, log.snapshot, actions, operation="WRITE", clock=NOW, txn=txn)
    days.apply()

    Keeping(days).run()

    assert batches(days) == [0, 0, 1, 2]


def test_a_day_is_dropped_once(days: LocalLake) -> None:
    days.apply()
    keeping = Keeping(days)
    keeping.run()
    version = DeltaTable(days.settings.changes).version()

    keeping.run()

    assert DeltaTable(days.settings.changes).version() == version


def test_a_mirror_is_not_begun_from_changes_that_were_dropped(days: LocalLake) -> None:
    days.apply()
    Keeping(days).run()
    Path(mirror(days)).rename(days.home / "gone")
    days.reopen()

    days.checkpoint = replace(days.checkpoint, based={Shard("s", "db.t"): 1})
    held = days.apply()
    days.checkpoint = replace(days.checkpoint, based={Shard("s", "db.t"): 2})
    begun = days.apply()

    assert_held(held.hold, "no_base", "no longer kept")
    assert begun.hold is None


EVERY = 6  # batches between two full marks here
OTHERS = tuple(f"db.u{n}" for n in range(8))  # so that a mark tells less than everything


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """Batches 0 to 20, all applied; full marks at 0, 6, 12 and 18."""
    with pytest.MonkeyPatch.context() as patched:
        often_full(patched)
        made = LocalLake(tmp_path_factory.mktemp("pattern"), others=OTHERS)
        for batch in range(21):
            made.land(row(C, 10 + batch, batch, "a"))
        made.apply()
    return made


@pytest.fixture
def lake(pattern: LocalLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalLake:
    """A copy of the pattern."""
    often_full(monkeypatch)
    return pattern.copied(tmp_path)


def often_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.checkpoint.FULL_EVERY", EVERY)
    monkeypatch.setattr("pipeline.changelog.change_log.FULL_EVERY", EVERY)


def change_log(lake: LocalLake) -> ChangeLog:
    return ChangeLog(open_store(lake.settings.changes), "main")


def test_markers_below_the_newest_full_one_go_and_it_tells_the_same(lake: LocalLake) -> None:
    long_ago, lately, between = change_log(lake), change_log(lake), change_log(lake)
    for log, batch in ((long_ago, 3), (between, 14), (lately, 19)):
        log.look()
        log._checkpoints.at(batch)

    Keeping(lake)

    assert batches(lake, "mark") == [*range(18, 21)]
    assert batches(lake) == [*range(21)], "changes stay"
    for log in (long_ago, between, lately, change_log(lake)):
        assert log.checkpoint() == lake.checkpoint


def test_a_lane_that_stands_still_keeps_its_newest_mark(lake: LocalLake) -> None:
    keeping = Keeping(lake)
    for _ in range(3):
        keeping.run()

    assert batches(lake, "mark") == [*range(18, 21)]
    assert change_log(lake).checkpoint() == lake.checkpoint


def test_markers_that_were_joined_before_go_as_well(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a build that kept them all; of the file beyond the newest full one all stay."""
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.changelog.maintenance.find_superseded", lambda *_: ())
        Keeping(lake)
    assert batches(lake, "mark") == [*range(21)]
    for batch in range(21, 26 + maintenance.TOGETHER):
        lake.land(row(C, 10 + batch, batch, "a"))

    Keeping(lake)

    assert batches(lake, "mark") == [*range(36, lake.checkpoint.batch + 1)]
    assert change_log(lake).checkpoint() == lake.checkpoint


def test_a_few_markers_are_not_worth_a_commit_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.checkpoint.FULL_EVERY", 2)
    lake = LocalLake(tmp_path, others=OTHERS)
    for batch in range(4):
        lake.land(row(C, 10 + batch, batch, "a"))
    before = open_store(lake.settings.changes).after("_delta_log", "")

    Keeping(lake)

    assert batches(lake, "mark") == [*range(4)]
    assert open_store(lake.settings.changes).after("_delta_log", "") == before


def test_the_markers_of_another_lane_in_the_same_log_are_its_own_to_let_go(lake: LocalLake) -> None:
    log = ChangeLog(open_store(lake.settings.changes), "other")
    log.look()
    for batch in range(3):
        text = Checkpoint("other", batch).dumps()
        stamp = Stamp("other", batch, NOW)
        files = [write_rows(log, checkpoint_row(text, stamp), stamp)]
        actions = [file.added(NOW) for file in files]
        txn = (build_app_id("other"), batch)
        made = commit_actions(
            log.store, log.snapshot, actions, operation="WRITE", clock=NOW, txn=txn
        )
        log.know(made)

    Keeping(lake)
    for batch in range(21, 21 + maintenance.TOGETHER):
        lake.land(row(C, 10 + batch, batch, "a"))
    Keeping(lake)

    found = ChangeLog(open_store(lake.settings.changes), "other").checkpoint()
    assert found is not None
    assert found.batch == 2
    assert sorted(batches(lake, "mark")) == sorted([0, 1, 2, 36])


def test_a_change_log_that_was_set_back_goes_by_its_own_newest_mark(lake: LocalLake) -> None:
    """What the caller has in mind may be of a log that the power has taken since."""
    for batch in range(21, 25):
        lake.land(row(C, 10 + batch, batch, "a"))
    assert lake.checkpoint.full == 24
    max(Path(lake.settings.changes, "_delta_log").glob("*.json")).unlink()

    Keeping(lake, now=datetime.now(UTC))

    assert batches(lake, "mark") == [*range(18, 24)]
    found = change_log(lake).checkpoint()
    assert found is not None
    assert (found.batch, found.full) == (23, 18)
