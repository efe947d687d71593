import json
import os
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from pipeline.apply.upkeep import Upkeep, require_history
from pipeline.errors import HeldError
from pipeline.lake.pinned import open_table
from pipeline.model import Op
from pipeline.settings import UpkeepSettings
from tests.pipeline.bench_lake import NOW, BenchLake, row

C, U = Op.CREATE, Op.UPDATE
AGED = timedelta(days=30)
pytestmark = pytest.mark.spark


@pytest.fixture
def lake(spark: SparkSession, tmp_path: Path) -> BenchLake:
    made = BenchLake(spark, tmp_path)
    made.play([row(C, 10, 1, "a")], [row(C, 20, 2, "b")], [row(U, 30, 1, "c")])
    return made


def upkeep(
    lake: BenchLake, *, applied: int = 2, readers: Mapping[str, int] | None = None, **mark: Any
) -> None:
    """Do all that is due a day after the process began, at the wall clock's time."""
    now = [datetime.now(UTC)]
    cleaner = Upkeep(lake.session, lake.settings, lambda: now[0])
    made = replace(lake.mark, **mark)
    for at in (now[0] - timedelta(days=1), now[0]):
        now[0] = at
        cleaner.run(made, readers or {}, {"db.t": applied}, lambda _: False)


def aged(lake: BenchLake, path: str) -> None:
    """Let everything that was ever done to a table have been done a month earlier."""
    jvm: Any = lake.session._jvm
    jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()
    for log in Path(path, "_delta_log").glob("*.json"):
        lines = [json.loads(line) for line in log.read_text().splitlines()]
        for line in lines:
            for action, stamp in (("remove", "deletionTimestamp"), ("commitInfo", "timestamp")):
                if action in line:
                    line[action][stamp] -= int(AGED / timedelta(milliseconds=1))
        log.write_text("\n".join(json.dumps(line) for line in lines) + "\n")
        log.with_name(f".{log.name}.crc").unlink(missing_ok=True)
    for file in Path(path).rglob("*"):
        then = file.stat().st_mtime - AGED.total_seconds()
        os.utime(file, (then, then))


def files(path: str) -> int:
    return len(list(Path(path).glob("**/part-*.parquet")))


def test_compaction_leaves_the_rows_and_what_is_applied_as_they_were(lake: BenchLake) -> None:
    path = lake.settings.mirror("db.t")
    before = len(DeltaTable(path).file_uris())

    upkeep(lake)
    lake.reopen()

    assert len(DeltaTable(path).file_uris()) == 1 < before
    assert lake.rows() == {1: "c", 2: "b"}
    assert lake.play([row(C, 40, 3, "d")]) == {1: "c", 2: "b", 3: "d"}


def test_vacuum_takes_what_is_old_and_no_kept_version_needs(lake: BenchLake) -> None:
    path = lake.settings.mirror("db.t")
    first = files(path)
    upkeep(lake)
    young = files(path)
    aged(lake, path)

    upkeep(lake)

    assert young > first, "compaction wrote one, and nothing was taken yet"
    assert files(path) < first
    assert lake.rows() == {1: "c", 2: "b"}


def test_vacuum_leaves_the_version_that_somebody_reads(lake: BenchLake) -> None:
    path = lake.settings.mirror("db.t")
    read = DeltaTable(path).version()
    upkeep(lake)
    aged(lake, path)

    upkeep(lake, readers={"db.t": read})

    assert _read(path, read) == [{"id": 1, "name": "c"}, {"id": 2, "name": "b"}]


def test_versions_are_kept_for_as_long_as_the_settings_say(
    spark: SparkSession, tmp_path: Path
) -> None:
    lake = BenchLake(spark, tmp_path)
    longer = UpkeepSettings(keep_versions=AGED + timedelta(days=1))
    lake.settings = replace(lake.settings, upkeep=longer)
    lake.play([row(C, 10, 1, "a")], [row(U, 20, 1, "b")])
    path = lake.settings.mirror("db.t")
    old = DeltaTable(path).version()
    upkeep(lake)
    aged(lake, path)

    upkeep(lake)

    assert _read(path, old) == [{"id": 1, "name": "b"}]


def test_the_change_log_gives_up_the_files_it_was_compacted_from(lake: BenchLake) -> None:
    log = lake.settings.changes
    upkeep(lake)
    aged(lake, log)
    before = files(log)

    upkeep(lake)

    assert files(log) < before
    assert _batches(lake) == [0, 1, 2]


def test_many_tables_are_done_in_turns_so_that_landing_need_not_wait(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Each look at the clock takes ten seconds here, so two tables are too many for one turn."""
    names = ("db.t", "db.u")
    lake = BenchLake(spark, tmp_path, others=names[1:])
    for key in (1, 2):
        rows = (row(C, key * 10, key, "a", table=n, shard=n, topic=f"s.{n}") for n in names)
        lake.land(*rows)
        lake.lane.apply(frozenset())
    now = [NOW]

    def clock() -> datetime:
        now[0] += timedelta(seconds=10)
        return now[0]

    cleaner, done = Upkeep(lake.session, lake.settings, clock), []
    for _ in range(6):
        cleaner.run(lake.mark, {}, dict.fromkeys(names, 1), lambda _: False)
        done.append([len(DeltaTable(lake.settings.mirror(n)).file_uris()) for n in names])
        now[0] += timedelta(minutes=10)

    assert done[0] == [2, 2]
    assert done[-1] == [1, 1]
    assert [1, 2] in done


@pytest.mark.parametrize(
    ("applied", "mark", "left"),
    [
        pytest.param(2, {}, [2], id="all but the newest batch, when every mirror has it"),
        pytest.param(0, {}, [1, 2], id="not what a mirror has not applied"),
        pytest.param(2, {"gaps": {"g": "{}"}}, [0, 1, 2], id="nothing while a gap is open"),
    ],
)
def test_a_day_is_dropped_when_it_is_old_and_nobody_needs_it(
    spark: SparkSession, tmp_path: Path, applied: int, mark: Mapping[str, Any], left: list[int]
) -> None:
    lake = BenchLake(spark, tmp_path)
    for batch in range(3):
        lake.land(row(C, 10 + batch, batch, "a"))
    _on_days(lake)

    upkeep(lake, applied=applied, **mark)

    assert _batches(lake) == left
    marks = lake.session.read.format("delta").load(lake.settings.changes).where("op = 'mark'")
    assert marks.count() == 3, "the marks of all batches stay"


def test_a_mirror_is_not_begun_from_changes_that_were_dropped(lake: BenchLake) -> None:
    _on_days(lake)
    upkeep(lake)

    with pytest.raises(HeldError, match="no longer kept"):
        require_history(lake.settings.changes, {"s/db.t": 0}, ["s/db.t"])
    require_history(lake.settings.changes, {"s/db.t": 2}, ["s/db.t"])


def _on_days(lake: BenchLake) -> None:
    """Let every batch have been received on a day of its own."""
    path = lake.settings.changes
    lake.session.sql(f"UPDATE delta.`{path}` SET dt = date_add(DATE'{NOW.date()}', int(batch))")


def _batches(lake: BenchLake) -> list[int]:
    rows = lake.session.read.format("delta").load(lake.settings.changes)
    return sorted(r["batch"] for r in rows.where("op IN ('c', 'u')").select("batch").collect())


def _read(path: str, version: int) -> list[dict[str, Any]]:
    found = open_table(path, version)
    assert found is not None
    return found.select("SELECT id, name FROM t ORDER BY id")
