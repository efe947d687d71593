"""The table format of examples/, taken through what an apply must never do."""

import os
import pickle
from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from examples.parquet_versions import ROWS, VERSIONS, ParquetVersions, PinnedRows
from pipeline.apply.merge_job import run_group
from pipeline.apply.mirror import CommitStamp
from pipeline.apply.table_format import MaintenanceWork
from pipeline.build import open_table_format
from pipeline.errors import HeldError, LostRaceError, ProofError
from pipeline.model import Op, Order, Shard, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.settings import PipelineSettings, TableRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, NAME, NOW, LocalLake, row

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
T, S = Op.TRUNCATE, Op.SETTLE
SHARD = Shard("s", "db.t")
TABLE = Table("db.t", (SHARD,), ("id",), "id")
BOTH = TableRule(r"db\.[tu]", "db.t")


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    return LocalLake(tmp_path, table_format=ParquetVersions(None))


def read_names(lake: LocalLake) -> dict[int, Any]:
    """Rows by other means than the product's, id -> name; fails on a duplicate."""
    newest = lake.runner.mirrors.look("db.t")
    assert newest is not None
    found = pq.read_table(Path(newest.uri, newest.file)).to_pylist()
    assert len({one["id"] for one in found}) == len(found), "duplicates"
    return {one["id"]: one.get("name") for one in found}


def played(lake: LocalLake, *rows: Mapping[str, Any]) -> dict[int, Any]:
    """Land and apply one batch; its account balances."""
    lake.land(*rows)
    turn = lake.apply()
    assert turn.hold is None, turn.hold
    assert turn.account.residual == 0
    assert turn.batch == lake.checkpoint.batch
    return read_names(lake)


def pinned_rows(lake: LocalLake, table: Table = TABLE) -> PinnedRows:
    found = lake.table_format.reader(lake.settings.mirror("db.t"), table, "main")
    assert isinstance(found, PinnedRows)
    return found


def test_the_finder_builds_it_with_its_options() -> None:
    named = PipelineSettings("lake", "", (), table_format="examples.parquet_versions")
    told = replace(named, table_format_options={"compression": "snappy"})

    assert open_table_format(named) == ParquetVersions(None)
    assert open_table_format(told) == ParquetVersions(None, "snappy")


def test_rows_come_change_and_go(lake: LocalLake) -> None:
    assert played(lake, row(C, 10, 1, "a"), row(C, 11, 2, "b")) == {1: "a", 2: "b"}
    assert played(lake, row(U, 20, 1, "z"), row(D, 21, 2)) == {1: "z"}
    assert played(lake, row(C, 30, 2, "again")) == {1: "z", 2: "again"}


def test_an_older_version_is_read_as_it_was(lake: LocalLake) -> None:
    played(lake, row(C, 10, 1, "a"))
    seen = lake.runner.mirrors.seen("db.t")
    played(lake, row(U, 20, 1, "z"))

    assert seen is not None
    (found,) = lake.table_format.rows(seen.uri, seen.version)
    assert found.to_pylist() == [{"id": 1, "name": "a"}]


def test_no_row_goes_back_and_no_change_acts_twice(lake: LocalLake) -> None:
    first = [row(C, 10, 1, "a"), row(U, 30, 1, "new"), row(C, 11, 2, "b"), row(D, 31, 2)]
    played(lake, *first)

    assert played(lake, row(U, 20, 1, "old"), row(U, 12, 2, "gone")) == {1: "new"}
    assert played(lake, *first) == {1: "new"}


def test_what_a_truncate_took_stays_gone_after_a_restart(lake: LocalLake) -> None:
    played(lake, row(C, 10, 1, "a"))
    assert played(lake, row(T, 20, None), row(C, 30, 2, "b")) == {2: "b"}
    lake.reopen()

    assert played(lake, row(R, 15, 1, "a")) == {2: "b"}


def test_shards_keep_apart_what_has_one_key(tmp_path: Path) -> None:
    lake = LocalLake(
        tmp_path, rules=(BOTH,), shards=("db.t", "db.u"), table_format=ParquetVersions(None)
    )
    lake.land(row(C, 10, 1, "t"), row(C, 11, 1, "u", shard="db.u"))
    assert lake.apply().hold is None
    lake.land(row(D, 20, 1, shard="db.u"))
    assert lake.apply().hold is None

    table = Table("db.t", (SHARD, Shard("s", "db.u")), ("id",), "id")
    found = pinned_rows(lake, table)

    assert [found.count_ids(one, "id", [(0, 9)]) for one in table.shards] == [(1,), (0,)]


def test_a_new_column_comes_with_its_default_in_old_rows(lake: LocalLake) -> None:
    played(lake, row(C, 10, 1, "a"))
    more = Column("more", "INT", default="7", has_default=True)
    lake.alter(ID, NAME, more, at=Order(1, 1, 20))

    image = '{"id": 2, "name": "b", "more": 9}'
    played(lake, row(C, 30, 2, after=image))

    assert pinned_rows(lake).sample(5) == [{"id": 2, "name": "b", "more": 9}]
    assert pinned_rows(lake).count_ids(SHARD, "more", [(7, 8), (9, 10)]) == (1, 1)


def test_rows_after_a_batch_are_those_of_later_ones(lake: LocalLake) -> None:
    played(lake, row(C, 10, 1, "a"))
    first = pinned_rows(lake)
    played(lake, row(C, 20, 2, "b"))
    second = pinned_rows(lake)

    def names(batch: int | None) -> list[str]:
        return [n for part in second.rows_after(batch) for n in part.column("name").to_pylist()]

    assert (names(first.batch), sorted(names(None))) == (["b"], ["a", "b"])
    assert second.columns == ("id", "name")
    (part,) = second.rows_after(first.batch, ("name", "unknown"))
    assert part.schema.names == ["name", "_sluice"]
    assert second.rewritten == first.rewritten


def test_probes_read_the_version_that_they_were_given(lake: LocalLake) -> None:
    played(lake, *(row(C, 10 + n, n, f"n{n}") for n in range(1, 6)))
    found = pinned_rows(lake)
    played(lake, row(D, 50, 5))

    assert (found.version, found.batch, found.rows()) == (1, 0, 5)
    assert pinned_rows(lake).max_id(SHARD, "id") == 4
    assert found.max_id(SHARD, "id") == 5
    assert found.count_ids(SHARD, "id", [(1, 3), (3, 3), (4, 99)]) == (2, 0, 2)
    assert found.ids(SHARD, "id", (2, 5), 2) == (2, 3)
    keys = [LogKey(SHARD, f'["s","db.t","{n}"]', TopicPartition("t", 0), 0) for n in (5, 6)]
    assert found.has_keys(keys) == (True, False)


def test_a_key_that_systems_write_differently_is_undecided(tmp_path: Path) -> None:
    columns = (Column("id", "DOUBLE"), NAME)
    lake = LocalLake(tmp_path, columns=columns, table_format=ParquetVersions(None))
    played(lake, row(C, 10, 1, "a"))

    with pytest.raises(ProofError, match="different ways"):
        pinned_rows(lake).has_keys([LogKey(SHARD, '["s","db.t","1"]', TopicPartition("t", 0), 0)])


def test_whoever_comes_second_writes_nothing(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(lake, row(C, 10, 1, "a"))
    lake.land(row(C, 20, 2, "b"))
    rival = LocalLake(lake.home, table_format=ParquetVersions(None))
    rival.checkpoint = lake.checkpoint
    job, written = _worked_out(lake, monkeypatch)

    assert rival.apply().batch == 1
    with pytest.raises(LostRaceError):
        lake.table_format.commit(job, written, CommitStamp("main", NOW))

    assert read_names(lake) == {1: "a", 2: "b"}
    assert lake.runner.mirrors.look("db.t").version == 2  # type: ignore[union-attr]


def test_a_commit_that_was_written_before_its_answer_was_lost_is_not_lost(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(lake, row(C, 10, 1, "a"))
    lake.land(row(C, 20, 2, "b"))
    job, written = _worked_out(lake, monkeypatch)

    made = [lake.table_format.commit(job, written, CommitStamp("main", NOW)) for _ in range(2)]

    assert made[0] == made[1]
    assert read_names(lake) == {1: "a", 2: "b"}


def test_turns_are_sent_to_where_tasks_run_and_back(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.apply.merge_job.HERE", 0)
    lake.runner.parallel.spread = lambda groups: [
        _copied(run_group(_copied(one))) for one in groups
    ]

    assert played(lake, row(C, 10, 1, "a"), row(C, 11, 2, "b")) == {1: "a", 2: "b"}


def test_a_strangers_commit_holds_the_mirror_until_it_is_waived(lake: LocalLake) -> None:
    played(lake, row(C, 10, 1, "a"))
    folder = Path(lake.settings.mirror("db.t"), VERSIONS)
    text = (folder / "1.json").read_text()
    (folder / "2.json").write_text(text.replace('"note": {', '"note": {"by": "hand"}, "was": {'))
    lake.land(row(C, 20, 2, "b"))

    held = lake.apply().hold

    assert held is not None
    assert (held.id, held.reason) == ("foreign_write:db.t:2", "foreign_write")
    assert lake.apply([held.id]).hold is None
    assert read_names(lake) == {1: "a", 2: "b"}


def test_a_mirror_that_was_made_anew_in_its_folder_is_held(lake: LocalLake) -> None:
    played(lake, row(C, 10, 1, "a"))
    for path in Path(lake.settings.mirror("db.t"), VERSIONS).iterdir():
        path.write_text(path.read_text().replace('"id": "', '"id": "0'))
    lake.land(row(C, 20, 2, "b"))

    held = lake.apply().hold

    assert held is not None
    assert held.reason == "table_replaced"


def test_a_file_that_is_gone_is_never_committed(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    played(lake, row(C, 10, 1, "a"))
    lake.land(row(C, 20, 2, "b"))
    job, written = _worked_out(lake, monkeypatch)
    Path(job.task.snapshot.uri, written.work.name).unlink()

    with pytest.raises(HeldError, match="missing_file"):
        lake.table_format.commit(job, written, CommitStamp("main", NOW))


def test_files_go_once_no_kept_version_has_them(lake: LocalLake) -> None:
    for number in range(4):
        lake.now += timedelta(days=1)
        played(lake, row(U if number else C, 10 + number, 1, f"v{number}"))
    newest, folder = lake.runner.mirrors.look("db.t"), Path(lake.settings.mirror("db.t"), ROWS)
    assert len(list(folder.iterdir())) == 5  # and the empty one that it began with
    for path in folder.iterdir():
        os.utime(path, (0, 0))

    stamp = CommitStamp("main", lake.now)
    assert (
        lake.table_format.kept(newest, MaintenanceWork(stamp, ("id",), timedelta(hours=36)))
        == newest
    )

    assert len(list(folder.iterdir())) == 3
    assert pinned_rows(lake).sample(1) == [{"id": 1, "name": "v3"}]


def _copied(one: Any) -> Any:
    return pickle.loads(pickle.dumps(one))  # noqa: S301 - our own


def _worked_out(lake: LocalLake, monkeypatch: pytest.MonkeyPatch) -> tuple[Any, Any]:
    """A turn of the next pass, whose commit is left to the test."""
    kept: list[tuple[Any, Any]] = []

    def keep(_: ParquetVersions, job: Any, written: Any, stamp: CommitStamp) -> None:
        kept.append((job, written))
        raise LostRaceError("kept back")

    with monkeypatch.context() as patch:
        patch.setattr(ParquetVersions, "commit", keep)
        lake.run()
    return kept[0]
