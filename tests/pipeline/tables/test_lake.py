"""What stands in a lake is found cheaply, and what is not there is never made up."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from shutil import copytree, rmtree

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from pipeline.checkpoint import Checkpoint
from pipeline.delta.log import Snapshot
from pipeline.delta.reader import SnapshotReader, open_table
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.lags.samples import MirrorPosition
from pipeline.model import Op, PartitionEnd, Shard, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.settings import PipelineSettings
from pipeline.tables import lake as tables_lake
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.change_log import (
    APP,
    change,
    commit_properties,
    meta,
    write_changes,
    write_mirror,
)

A = Shard("shop", "s.orders_00")
TABLE = Table("shop.orders", (A,), ("id",), "id")
TYPES = {"id": pa.int64()}
SOON = 180


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(PipelineSettings(lake=str(tmp_path), kafka="", sources=()), DeltaMirrors(None))


def land_checkpoint(lake: Lake, mark: Checkpoint) -> None:
    rows = [change(Op.MARK, lane=mark.lane, table=None, after=mark.dumps()), change(Op.CREATE, 5)]
    write_changes(Path(lake.settings.changes), mark.batch, rows)


def mirror_path(lake: Lake, name: str = "shop.orders") -> Path:
    return Path(lake.settings.mirror(name))


def mirror_row(number: int, batch: int = 0) -> dict[str, object]:
    return {"id": number, "_sluice": meta(A.name, batch)}


def test_the_mark_is_that_of_the_newest_batch(lake: Lake) -> None:
    assert lake.checkpoint() is None
    first = Checkpoint(
        "main",
        0,
        offsets={TopicPartition("t", 0): PartitionEnd(7, "id", 3)},
        tables={"shop.orders": 0},
    )
    land_checkpoint(lake, first)
    assert lake.checkpoint() == first
    second = replace(first, batch=1, heartbeats={"shop": 9})
    land_checkpoint(lake, second)

    assert lake.checkpoint() == second
    assert Lake(replace(lake.settings, lane="second"), DeltaMirrors(None)).checkpoint() is None


def test_f21_a_mirror_whose_folder_hangs_keeps_neither_the_mark_nor_another_waiting(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark, gate, look = Checkpoint("main", 0), threading.Event(), lake.table_format.look
    land_checkpoint(lake, mark)

    def hanging(uri: str, known: Snapshot | None) -> Snapshot | None:
        if uri == lake.settings.mirror("shop.hung"):
            gate.wait()
        found: Snapshot | None = look(uri, known)
        return found

    monkeypatch.setattr(lake.table_format, "look", hanging)
    with ThreadPoolExecutor(2) as pool:
        hung = pool.submit(lake.applied, "shop.hung")
        others = pool.submit(lambda: (lake.checkpoint(), lake.applied("shop.orders")))
        try:
            assert others.result(SOON) == (mark, None)
            assert not hung.done()
        finally:
            gate.set()


def test_a_numbered_batch_without_its_mark_is_refused(lake: Lake) -> None:
    land_checkpoint(lake, Checkpoint("main", 0))
    write_changes(Path(lake.settings.changes), 1, [change(Op.CREATE, 5)])

    with pytest.raises(HeldError, match="mark_lost: batch 1 has 0 markers"):
        lake.checkpoint()


def test_mirrors_say_what_is_applied(lake: Lake) -> None:
    assert lake.applied("shop.orders") is None
    write_mirror(mirror_path(lake), [mirror_row(1)], None, TYPES)
    write_mirror(mirror_path(lake, "a.users"), [mirror_row(1)], 4, TYPES)

    users, orders = lake.applied("a.users"), lake.applied("shop.orders")
    assert users == MirrorPosition(0, 4, identity(mirror_path(lake, "a.users")))
    assert orders == MirrorPosition(0, -1, identity(mirror_path(lake)))


def test_f02_a_mirror_made_anew_in_the_same_folder_is_another_table(lake: Lake) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 4, TYPES)
    write_mirror(mirror_path(lake), [mirror_row(2)], 5, TYPES)
    before = lake.applied("shop.orders")
    mirror_path(lake).rename(mirror_path(lake).with_name("away"))
    away = lake.applied("shop.orders")
    write_mirror(mirror_path(lake), [mirror_row(1)], 4, TYPES)

    anew = lake.applied("shop.orders")

    assert before == MirrorPosition(1, 5, identity(mirror_path(lake, "shop.away")))
    assert away is None
    assert anew == MirrorPosition(0, 4, identity(mirror_path(lake)))
    assert before.mirror != anew.mirror


def test_a_lake_that_cannot_be_read_is_unreachable(lake: Lake) -> None:
    mirror_path(lake).mkdir(parents=True)
    (mirror_path(lake) / "_delta_log").write_text("a file where a folder should be")
    Path(lake.settings.changes).write_text("and here")

    with pytest.raises(UnreachableError):
        lake.applied("shop.orders")
    with pytest.raises(UnreachableError):
        lake.checkpoint()


def test_without_a_table_there_is_no_reader(lake: Lake) -> None:
    with pytest.raises(ProofError, match=r"shop\.orders has no mirror"):
        lake.mirror(TABLE)
    with pytest.raises(ProofError, match="no change log"):
        lake.changes()


def test_f146_a_reader_is_kept_for_as_long_as_its_version_is_the_newest(lake: Lake) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 2, TYPES)
    first = lake.mirror(TABLE)

    assert lake.mirror(TABLE) is first
    write_mirror(mirror_path(lake), [mirror_row(2)], 3, TYPES)
    second = lake.mirror(TABLE)
    assert (second.version, second.batch, second.rows()) == (1, 3, 2)
    assert (first.version, first.batch, first.rows()) == (0, 2, 1)


def test_f146_a_reader_of_a_table_that_was_replaced_is_not_kept(lake: Lake) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 2, TYPES)
    assert lake.mirror(TABLE).rows() == 1
    rmtree(mirror_path(lake))

    with pytest.raises(ProofError, match="has no mirror"):
        lake.mirror(TABLE)
    write_mirror(mirror_path(lake), [mirror_row(1), mirror_row(2)], 7, TYPES)

    assert (lake.mirror(TABLE).batch, lake.mirror(TABLE).rows()) == (7, 2)


def test_f146_a_table_with_another_key_gets_another_reader(lake: Lake) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 2, TYPES)
    first = lake.mirror(TABLE)

    assert lake.mirror(replace(TABLE, key=("other",))) is not first


def test_where_mirrors_are_more_than_kept_readers_most_are_still_found(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_lake, "READERS", 4)
    tables = [replace(TABLE, name=f"shop.orders_{number}") for number in range(5)]
    for one in tables:
        write_mirror(mirror_path(lake, one.name), [mirror_row(1)], 2, TYPES)
    first = [lake.mirror(one) for one in tables]

    again = [lake.mirror(one) for one in tables]

    assert [one is other for one, other in zip(first, again, strict=True)].count(True) == 3
    assert [one.rows() for one in again] == [1] * 5


def test_readers_are_pinned_to_what_was_newest(lake: Lake) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 2, TYPES)
    land_checkpoint(lake, Checkpoint("main", 0))

    assert (lake.mirror(TABLE).version, lake.mirror(TABLE).batch) == (0, 2)
    assert lake.changes().change_counts(TABLE, -1, 0) == 1


def test_the_change_log_is_opened_once_while_its_version_is_the_newest(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[str] = []

    def open_counted(path: str) -> SnapshotReader | None:
        opened.append(path)
        return open_table(path)

    monkeypatch.setattr(tables_lake, "open_table", open_counted)
    changes = Path(lake.settings.changes)
    for batch in range(2):
        write_changes(changes, batch, [change(Op.CREATE, batch)])

    first, second = lake.changes(), lake.changes()
    assert len(opened) == 1
    write_changes(changes, 2, [change(Op.CREATE, 2)])
    third = lake.changes()
    assert len(opened) == 2
    assert [one.batch for one in (first, second, third)] == [1, 1, 2]
    assert [one.change_counts(TABLE, -1, 2) for one in (first, second, third)] == [2, 2, 3]


def test_a_change_log_that_was_put_back_is_opened_again(lake: Lake, tmp_path: Path) -> None:
    changes, kept = Path(lake.settings.changes), tmp_path / "kept"
    write_changes(changes, 0, [change(Op.CREATE, 0)])
    shutil.copytree(changes, kept)
    write_changes(changes, 1, [change(Op.CREATE, 1)])
    assert lake.changes().batch == 1

    shutil.rmtree(changes)
    shutil.copytree(kept, changes)
    assert lake.changes().batch == 0
    write_changes(changes, 5, [change(Op.CREATE, 2), change(Op.CREATE, 3)])  # another version 1
    assert (lake.changes().batch, lake.changes().change_counts(TABLE, -1, 9)) == (5, 3)

    shutil.rmtree(changes)
    with pytest.raises(ProofError, match="no change log"):
        lake.changes()


def test_history_tells_foreign_commits_from_our_own(lake: Lake) -> None:
    assert lake.history("shop.orders", -1) == ()
    write_mirror(mirror_path(lake), [mirror_row(1), mirror_row(2)], 0, TYPES)
    own = commit_properties(1, '{"sluice": {"after": 0}}')
    more = pa.Table.from_pylist([mirror_row(3)], open_schema(mirror_path(lake)))
    write_deltalake(str(mirror_path(lake)), more, mode="append", commit_properties=own)
    DeltaTable(str(mirror_path(lake))).delete("id = 1")
    DeltaTable(str(mirror_path(lake))).optimize.compact()

    told = lake.history("shop.orders", 0)

    assert [commit.version for commit in told] == [1, 2, 3]
    assert [commit.data_changing for commit in told] == [True, True, False]
    assert [commit.after for commit in told] == [0, None, None]


def test_a_reader_has_the_id_of_its_mirror_and_is_not_kept_for_a_replaced_version(
    lake: Lake, tmp_path: Path
) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 0, TYPES)
    copytree(mirror_path(lake), tmp_path / "saved")
    write_mirror(mirror_path(lake), [mirror_row(2)], 1, TYPES)
    before, entry = lake.mirror(TABLE), lake.history(TABLE.name, 0)[-1].entry
    assert before.rows() == 2
    rmtree(mirror_path(lake))
    copytree(tmp_path / "saved", mirror_path(lake))
    write_mirror(mirror_path(lake), [mirror_row(2), mirror_row(3)], 1, TYPES)

    after, position = lake.mirror(TABLE), lake.applied(TABLE.name)

    assert position is not None
    assert before.id == after.id == position.mirror
    assert (before.version, after.version, after.rows()) == (1, 1, 3)
    assert [one.entry for one in lake.history(TABLE.name, 0)] == [position.entry]
    assert position.entry != entry


def test_a_history_that_was_cleaned_up_is_undecided(lake: Lake) -> None:
    for batch in range(3):
        write_mirror(mirror_path(lake), [mirror_row(batch)], batch, TYPES)
    DeltaTable(str(mirror_path(lake))).create_checkpoint()
    (mirror_path(lake) / "_delta_log" / f"{1:020d}.json").unlink()

    with pytest.raises(ProofError, match=r"version 1 of .* no longer"):
        lake.history("shop.orders", 0)
    assert len(lake.history("shop.orders", 1)) == 1
    assert [one.version for one in lake.history("shop.orders", -1, 0)] == [0]


def test_a_version_that_is_not_there_is_unreachable(lake: Lake) -> None:
    write_mirror(mirror_path(lake), [mirror_row(1)], 0, TYPES)

    with pytest.raises(UnreachableError):
        open_table(str(mirror_path(lake)), version=7)


def identity(path: Path) -> str:
    return str(DeltaTable(str(path)).metadata().id)


def open_schema(path: Path) -> pa.Schema:
    return pa.schema(DeltaTable(str(path)).schema().to_arrow())


UNSIGNED = 2**64 - 1


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ids 0..999 but every tenth, and the greatest unsigned one: the rest is deleted by vectors."""
    path = tmp_path_factory.mktemp("written") / "mirror"
    where = f"delta.`{path}`"
    options = {"delta.enableDeletionVectors": "true"}
    for batch, ids in ((0, range(500)), (1, range(500, 1_000)), (9, [UNSIGNED, 2_000])):
        rows = spark.createDataFrame([(str(n),) for n in ids], "id string").select(
            F.col("id").cast("decimal(20,0)"),
            F.struct(
                *(F.lit(v).alias(k) for k, v in (("source", "shop"), ("shard", A.name))),
                F.lit(batch).cast("bigint").alias("batch"),
            ).alias("_sluice"),
        )
        writer = rows.coalesce(1).write.format("delta").mode("append").options(**options)
        writer.option("txnAppId", APP).option("txnVersion", batch).save(str(path))
    spark.sql(f"DELETE FROM {where} WHERE id % 10 = 0 AND id < 1000")
    spark.sql(f"DELETE FROM {where} WHERE id = 2000")
    return path


@pytest.fixture
def vectors(lake: Lake, written: Path) -> Path:
    """The mirror of `written`, for one test alone."""
    return Path(copytree(written, mirror_path(lake)))


@pytest.mark.spark
def test_rows_under_deletion_vectors_are_gone_and_unsigned_ids_whole(
    lake: Lake, vectors: Path
) -> None:
    found = lake.mirror(TABLE)
    keys = [
        LogKey(A, f'["shop","{A.name}","{n}"]', TopicPartition("t", 0), 0)
        for n in (10, 11, 2_000, UNSIGNED)
    ]

    assert len(list(DeltaTable(str(vectors)).deletion_vectors())) > 0
    assert (found.rows(), found.batch) == (901, 9)
    assert found.count_ids(A, "id", [(0, 500), (10, 11), (11, 12)]) == (450, 0, 1)
    assert found.count_ids(A, "id", [(UNSIGNED, UNSIGNED + 1), (UNSIGNED - 1, UNSIGNED)]) == (1, 0)
    assert found.max_id(A, "id") == UNSIGNED
    assert found.ids(A, "id", (990, 2**64), 10)[-2:] == (999, UNSIGNED)
    assert found.has_keys(keys) == (False, True, False, True)


@pytest.mark.spark
def test_a_sample_falls_back_when_the_newest_slice_was_deleted(
    lake: Lake, spark: SparkSession, vectors: Path
) -> None:
    spark.sql(f"DELETE FROM delta.`{vectors}` WHERE id > 1000")

    assert len(lake.mirror(TABLE).sample(5)) == 5


@pytest.mark.spark
def test_deltalake_takes_a_mirror_back_under_deletion_vectors_and_spark_agrees(
    lake: Lake, spark: SparkSession, vectors: Path
) -> None:
    before = lake.mirror(TABLE)
    spark.sql(f"DELETE FROM delta.`{vectors}` WHERE id < 300")

    DeltaTable(str(vectors)).restore(before.version)

    after = lake.mirror(TABLE)
    assert (after.rows(), after.version, after.batch) == (901, before.version + 2, 9)
    assert spark.read.format("delta").load(str(vectors)).count() == 901
    assert lake.history("shop.orders", before.version)[-1].after is None
