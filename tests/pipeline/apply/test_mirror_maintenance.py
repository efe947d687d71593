"""What upkeep may take, and what it must leave; real mirrors and a real change log, no Spark.

deltalake vacuums by the wall clock, so upkeep runs at it here, and what was done is made older.
"""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

from pipeline.apply.maintenance import LakeMaintenance
from pipeline.apply.table_format import Mirrors
from pipeline.changelog.change_log import ChangeLog
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import load_snapshot
from pipeline.delta.store import open_store
from pipeline.errors import LostRaceError
from pipeline.settings import MaintenanceSettings
from pipeline.tables.delta import table_format
from pipeline.tables.delta.rewrite import TOGETHER, rewrite_files
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import NOW, LocalLake, row
from tests.pipeline.apply.keeping import (
    AGED,
    DAY,
    ROWS,
    C,
    D,
    Keeping,
    U,
    aged,
    batches,
    filled,
    kept,
    mirror,
    named,
    on_disk,
    read,
)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """Twelve rows in twelve files; then the first one was updated."""
    home = tmp_path_factory.mktemp("pattern")
    return filled(LocalLake(home, now=datetime.now(UTC) - timedelta(hours=6)))


@pytest.fixture
def lake(pattern: LocalLake, tmp_path: Path) -> LocalLake:
    """A copy of the pattern."""
    return pattern.copied(tmp_path)


# mirrors


def test_compaction_leaves_the_rows_and_what_is_applied_as_they_were(lake: LocalLake) -> None:
    before = named(mirror(lake))

    kept(lake)
    lake.reopen()

    assert named(mirror(lake)) == 1 < before
    assert lake.rows() == ROWS
    assert lake.play([row(C, 95, 12, "n")]) == ROWS | {12: "n"}


def test_compaction_is_no_change_of_data_and_is_known_to_be_ours(lake: LocalLake) -> None:
    kept(lake)
    lake.reopen()
    store = open_store(mirror(lake))
    snapshot = load_snapshot(store)
    assert snapshot is not None

    for version in range(snapshot.version, -1, -1):
        lines = store.read(f"_delta_log/{version:020d}.json").splitlines()
        actions = [json.loads(line) for line in lines]
        if actions[0]["commitInfo"]["operation"] == "OPTIMIZE":
            break

    files = [action[k] for action in actions for k in ("add", "remove") if k in action]
    assert {one["dataChange"] for one in files} == {False}
    assert lake.runner.watch.find_hold("db.t", frozenset()) is None


def test_files_that_writing_anew_makes_no_larger_are_written_once(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of wide rows, of which memory holds too few at once."""
    monkeypatch.setattr(table_format, "rewrite_files", partial(rewrite_files, window=1))
    keeping = Keeping(lake)
    keeping.run()
    anew = DeltaTable(mirror(lake)).version()

    keeping.run()

    assert DeltaTable(mirror(lake)).version() == anew
    assert named(mirror(lake)) >= TOGETHER


def test_vacuum_takes_what_is_old_and_no_kept_version_needs(lake: LocalLake) -> None:
    path = mirror(lake)
    first = on_disk(path)
    kept(lake)
    young = on_disk(path)
    aged(path)

    kept(lake)

    assert young > first, "compaction wrote one, and nothing was taken yet"
    assert len(on_disk(path)) == 1
    lake.reopen()
    assert lake.rows() == ROWS


def test_vacuum_leaves_the_version_that_somebody_reads(lake: LocalLake) -> None:
    path = mirror(lake)
    version = DeltaTable(path).version()
    kept(lake)
    aged(path)

    kept(lake, reader=version)

    assert read(path, version) == ROWS
    kept(lake)
    assert len(on_disk(path)) == 1, "nobody reads it any more"


def test_a_reader_of_the_newest_version_does_not_keep_the_others(lake: LocalLake) -> None:
    path = mirror(lake)
    kept(lake)
    aged(path)

    kept(lake, reader=DeltaTable(path).version())

    assert len(on_disk(path)) == 1


def test_a_reader_of_a_version_that_no_log_tells_of_keeps_everything(lake: LocalLake) -> None:
    path = mirror(lake)
    kept(lake)
    aged(path)
    DeltaTable(path).create_checkpoint()
    for version in range(4):
        Path(path, "_delta_log", f"{version:020d}.json").unlink()
    before = on_disk(path)

    kept(lake, reader=3)

    assert on_disk(path) == before


def test_versions_are_kept_for_as_long_as_the_settings_say(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, now=datetime.now(UTC) - timedelta(hours=6))
    longer = MaintenanceSettings(keep_versions=AGED + DAY)
    lake.settings = replace(lake.settings, upkeep=longer)
    filled(lake)
    path = mirror(lake)
    old = DeltaTable(path).version()
    kept(lake)
    aged(path)

    kept(lake)

    assert read(path, old) == ROWS
    properties = DeltaTable(path).metadata().configuration
    assert properties["delta.deletedFileRetentionDuration"] == "interval 744 hours"


def test_nothing_younger_than_a_week_is_ever_taken(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, now=datetime.now(UTC) - timedelta(hours=6))
    shorter = MaintenanceSettings(keep_versions=timedelta(minutes=1))
    lake.settings = replace(lake.settings, upkeep=shorter)
    filled(lake)
    path = mirror(lake)
    old = DeltaTable(path).version()
    kept(lake)
    aged(path, by=6 * DAY)

    kept(lake)

    assert read(path, old) == ROWS


def test_vectors_are_swept_once_no_kept_version_names_them(lake: LocalLake) -> None:
    lake.play([row(C, 200 + key, key, "b") for key in range(100, 120)], [row(D, 900, 105)])
    path = mirror(lake)
    stale = on_disk(path, "deletion_vector_*.bin")
    lake.play([row(D, 901, 106)])
    fresh = on_disk(path, "deletion_vector_*.bin") - stale
    aged(path)
    unnamed = Path(path, "_v", "deletion_vector_00000000-0000-0000-0000-000000000000.bin")
    unnamed.write_bytes(b"of a commit that is still to come")

    kept(lake)

    assert len(stale) == len(fresh) == 1
    assert on_disk(path, "deletion_vector_*.bin") == {*fresh, unnamed}
    lake.reopen()
    assert lake.rows().keys() == {*range(12), *range(100, 105), *range(107, 120)}


def test_a_vector_that_left_lately_is_spared_for_the_versions_that_have_it(lake: LocalLake) -> None:
    lake.play([row(C, 200 + key, key, "b") for key in range(100, 120)], [row(D, 900, 105)])
    path = mirror(lake)
    aged(path)
    version = DeltaTable(path).version()
    vectors = on_disk(path, "deletion_vector_*.bin")
    lake.reopen()
    lake.play([row(D, 901, 106)])

    kept(lake)

    assert vectors <= on_disk(path, "deletion_vector_*.bin")
    assert 106 in read(path, version)


def test_a_mirror_that_is_held_or_not_ours_is_left_alone(lake: LocalLake) -> None:
    """A commit of ours on top of somebody else's would make it impossible to take that one back."""
    keeping = Keeping(lake, left=["db.t"])
    before = DeltaTable(mirror(lake)).version()

    keeping.run()
    held = DeltaTable(mirror(lake)).version()
    keeping.left.clear()
    keeping.run()

    assert (held, keeping.asked[0]) == (before, "db.t")
    assert DeltaTable(mirror(lake)).version() > before
    assert named(mirror(lake)) == 1


def test_a_mirror_that_needs_nothing_is_not_asked_about(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])

    assert Keeping(lake).asked == []


def test_a_mirror_that_cannot_be_written_stops_no_other(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    many(lake, ("db.t", "db.u"))
    log = Path(mirror(lake), "_delta_log")
    last = max(log.glob("*.json"))
    odd = [json.loads(line) for line in (log / f"{0:020d}.json").read_text().splitlines()]
    metadata = next(action["metaData"] for action in odd if "metaData" in action)
    metadata["configuration"] |= {"delta.appendOnly": "true"}
    entry = [{"commitInfo": {"timestamp": 1, "operation": "SET"}}, {"metaData": metadata}]
    following = log / f"{int(last.stem) + 1:020d}.json"
    following.write_text("".join(json.dumps(action) + "\n" for action in entry))

    Keeping(lake).run()

    assert named(mirror(lake)) > 1
    assert named(mirror(lake, "db.u")) == 1


def test_somebody_who_comes_between_is_left_his_version(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next time upkeep begins from what is there then."""
    keeping = Keeping.__new__(Keeping)
    raced: list[str] = []

    def late(store: Any, snapshot: Any, actions: Any, **more: Any) -> Any:
        if more["operation"] == "OPTIMIZE" and store.uri.endswith("/t") and not raced:
            raced.append(store.uri)
            raise LostRaceError("somebody came between")
        return commit_actions(store, snapshot, actions, **more)

    monkeypatch.setattr("pipeline.tables.delta.table_format.commit_actions", late)
    keeping.__init__(lake)  # type: ignore[misc]
    after_race = named(mirror(lake))
    keeping.run()

    assert raced
    assert after_race > 1
    assert named(mirror(lake)) == 1
    assert lake.rows() == ROWS


def test_a_log_of_many_versions_gets_a_checkpoint(lake: LocalLake) -> None:
    lake.play(*([row(U, 200 + n, 0, "z")] for n in range(4)))

    Keeping(lake)

    assert on_disk(mirror(lake), "*.checkpoint.parquet")
    lake.reopen()
    assert lake.play([row(C, 300, 99, "n")]) == ROWS | {99: "n"}


def test_a_process_that_began_waits_a_little_before_it_cleans_not_a_whole_day(
    lake: LocalLake,
) -> None:
    """One that is restarted every hour would never clean up."""
    path = mirror(lake)
    kept(lake)
    aged(path)
    full = len(on_disk(path))
    keeping = Keeping(lake, now=datetime.now(UTC) - timedelta(minutes=9))
    at_once = len(on_disk(path))
    keeping.now = datetime.now(UTC) + timedelta(minutes=2)

    keeping.run()

    assert at_once == full
    assert len(on_disk(path)) == 1


def many(lake: LocalLake, names: tuple[str, ...]) -> None:
    for key in range(TOGETHER):
        lake.land(*(row(C, 10 + key, key, "a", table=n, shard=n, topic=f"s.{n}") for n in names))
        lake.run()


def test_many_tables_are_done_in_turns_so_that_merging_need_not_wait(tmp_path: Path) -> None:
    """Each look at the clock takes ten seconds here, so two tables are too many for one turn."""
    names = ("db.t", "db.u")
    lake = LocalLake(tmp_path, others=names[1:])
    many(lake, names)
    now = [NOW]

    def clock() -> datetime:
        now[0] += timedelta(seconds=10)
        return now[0]

    changes = ChangeLog(open_store(lake.settings.changes), "main")
    mirrors = Mirrors(lake.settings, DeltaMirrors(None))
    upkeep, done = LakeMaintenance(lake.settings, changes, mirrors, clock), []
    for _ in range(2):
        applied = {name: mirrors.applied(name) for name in names}
        upkeep.run(lake.checkpoint, {}, applied, lambda _: False)
        done.append([named(mirror(lake, name)) for name in names])

    assert done == [[1, TOGETHER], [1, 1]]


# the change log


def test_a_change_log_that_cannot_be_read_keeps_no_mirror_from_being_done(lake: LocalLake) -> None:
    for path in on_disk(lake.settings.changes):
        path.write_bytes(path.read_bytes()[:-9])

    Keeping(lake).run()

    assert named(mirror(lake)) == 1


def test_the_change_log_gives_up_the_files_it_was_compacted_from(lake: LocalLake) -> None:
    log = lake.settings.changes
    kept(lake)
    young = len(on_disk(log))
    aged(log)

    kept(lake)

    assert named(log) <= 4
    assert len(on_disk(log)) == named(log) < young
    assert batches(lake) == [*range(12), 12, 12]
    lake.log.look()
    assert lake.log.checkpoint() == lake.checkpoint


def test_a_batch_that_lands_meanwhile_is_kept_and_compaction_goes_on_top_of_it(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    landed: list[int] = []

    def late(store: Any, snapshot: Any, actions: Any, **more: Any) -> Any:
        if store.uri == lake.settings.changes and not landed:
            landed.append(lake.checkpoint.batch + 1)
            lake.land(row(C, 400, 50, "late"))
        return commit_actions(store, snapshot, actions, **more)

    monkeypatch.setattr("pipeline.changelog.maintenance.commit_actions", late)
    Keeping(lake)

    assert landed == [13]
    assert batches(lake) == [*range(12), 12, 12, 13]
    assert named(lake.settings.changes) < 8
    lake.reopen()
    assert lake.play([row(C, 401, 51, "n")]) == ROWS | {50: "late", 51: "n"}
