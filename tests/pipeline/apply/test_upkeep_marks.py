"""Which markers upkeep lets go of, and that every reader still finds the newest mark; no Spark."""

from datetime import UTC, datetime
from pathlib import Path

import pytest

from pipeline.changelog import maintenance
from pipeline.changelog.change_log import ChangeLog
from pipeline.changelog.table import Stamp, app, checkpoint_row
from pipeline.checkpoint import Checkpoint
from pipeline.delta.commit import commit_actions
from pipeline.delta.store import open_store
from pipeline.landing.staging import write_rows
from tests.pipeline.apply.keeping import C, Keeping, batches
from tests.pipeline.hand_lake import NOW, HandLake, row

EVERY = 6  # batches between two full marks here
OTHERS = tuple(f"db.u{n}" for n in range(8))  # so that a mark tells less than everything


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> HandLake:
    """Batches 0 to 20, all applied; full marks at 0, 6, 12 and 18."""
    with pytest.MonkeyPatch.context() as patched:
        often_full(patched)
        made = HandLake(tmp_path_factory.mktemp("pattern"), others=OTHERS)
        for batch in range(21):
            made.land(row(C, 10 + batch, batch, "a"))
        made.apply()
    return made


@pytest.fixture
def lake(pattern: HandLake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> HandLake:
    """A copy of the pattern."""
    often_full(monkeypatch)
    return pattern.copied(tmp_path)


def often_full(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pipeline.checkpoint.FULL_EVERY", EVERY)
    monkeypatch.setattr("pipeline.changelog.change_log.FULL_EVERY", EVERY)


def reader(lake: HandLake) -> ChangeLog:
    return ChangeLog(open_store(lake.settings.changes), "main")


def test_markers_below_the_newest_full_one_go_and_it_tells_the_same(lake: HandLake) -> None:
    long_ago, lately, between = reader(lake), reader(lake), reader(lake)
    for log, batch in ((long_ago, 3), (between, 14), (lately, 19)):
        log.look()
        log._marks.at(batch)

    Keeping(lake)

    assert batches(lake, "mark") == [*range(18, 21)]
    assert batches(lake) == [*range(21)], "changes stay"
    for log in (long_ago, between, lately, reader(lake)):
        assert log.checkpoint() == lake.checkpoint


def test_a_lane_that_stands_still_keeps_its_newest_mark(lake: HandLake) -> None:
    keeping = Keeping(lake)
    for _ in range(3):
        keeping.run()

    assert batches(lake, "mark") == [*range(18, 21)]
    assert reader(lake).checkpoint() == lake.checkpoint


def test_markers_that_were_joined_before_go_as_well(
    lake: HandLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a build that kept them all; of the file beyond the newest full one all stay."""
    with monkeypatch.context() as patched:
        patched.setattr("pipeline.changelog.maintenance.superseded", lambda *_: ())
        Keeping(lake)
    assert batches(lake, "mark") == [*range(21)]
    for batch in range(21, 26 + maintenance.TOGETHER):
        lake.land(row(C, 10 + batch, batch, "a"))

    Keeping(lake)

    assert batches(lake, "mark") == [*range(36, lake.checkpoint.batch + 1)]
    assert reader(lake).checkpoint() == lake.checkpoint


def test_a_few_markers_are_not_worth_a_commit_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.checkpoint.FULL_EVERY", 2)
    lake = HandLake(tmp_path, others=OTHERS)
    for batch in range(4):
        lake.land(row(C, 10 + batch, batch, "a"))
    before = open_store(lake.settings.changes).after("_delta_log", "")

    Keeping(lake)

    assert batches(lake, "mark") == [*range(4)]
    assert open_store(lake.settings.changes).after("_delta_log", "") == before


def test_the_markers_of_another_lane_in_the_same_log_are_its_own_to_let_go(lake: HandLake) -> None:
    log = ChangeLog(open_store(lake.settings.changes), "other")
    log.look()
    for batch in range(3):
        text = Checkpoint("other", batch).dumps()
        stamp = Stamp("other", batch, NOW)
        files = [write_rows(log, checkpoint_row(text, stamp), stamp)]
        actions = [file.added(NOW) for file in files]
        txn = (app("other"), batch)
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


def test_a_change_log_that_was_set_back_goes_by_its_own_newest_mark(lake: HandLake) -> None:
    """What the caller has in mind may be of a log that the power has taken since."""
    for batch in range(21, 25):
        lake.land(row(C, 10 + batch, batch, "a"))
    assert lake.checkpoint.full == 24
    max(Path(lake.settings.changes, "_delta_log").glob("*.json")).unlink()

    Keeping(lake, now=datetime.now(UTC))

    assert batches(lake, "mark") == [*range(18, 24)]
    found = reader(lake).checkpoint()
    assert found is not None
    assert (found.batch, found.full) == (23, 18)
