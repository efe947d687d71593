"""Images as folders of Parquet: what other engines read there is the mirror as of the cut."""

import json
import os
import uuid
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import obstore
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from obstore.store import MemoryStore
from pyspark.sql import SparkSession

from pipeline.apply import image_export
from pipeline.apply.image_export import (
    MANIFEST,
    ImageWriter,
    Manifest,
    read_manifest,
    readable_rows,
    write_image,
)
from pipeline.apply.landed_state import LandedState
from pipeline.apply.table_format import Mirrors
from pipeline.delta import local as folder
from pipeline.delta.object_store import Bucket
from pipeline.delta.store import open_store
from pipeline.errors import ConfigError, UnreachableError
from pipeline.invariants.expectations import Expectations
from pipeline.invariants.invariant import Breach, IntendedRows
from pipeline.invariants.not_null import NotNull
from pipeline.invariants.unique import Unique
from pipeline.model import Op
from pipeline.settings import InvariantRule, PublishRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.suites import ExpectationSettings, Severity
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.lake import ID, NOW, LocalLake, hold_of, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
CUT = NOW + timedelta(minutes=25)
DAY = "2026-01-01"
TOLD = Manifest("db.t", CUT, "m", 7, 0, 0, NOW, NOW + timedelta(days=7))


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """A mirror with rows of both sides of a cut, and vectors that hide some."""
    made = LocalLake(tmp_path / "lake", publish=(PublishRule("db.*", how="parquet"),))
    made.play([row(C, 10 + key, key, "old") for key in range(5)], [row(U, 20, 0, "day")])
    made.now = CUT
    made.end_day(CUT, 50, DAY)
    made.land(row(D, 30, 4, "old"), row(U, 60, 1, "night"), row(D, 61, 2, "old"))
    made.run()
    return made


def writing(lake: LocalLake) -> ImageWriter:
    mirrors = Mirrors(lake.settings, DeltaMirrors(None))
    return ImageWriter(lake.settings, mirrors, lambda: lake.now)


def table_folder(lake: LocalLake) -> Path:
    return lake.home / "images" / "db" / "t"


class Killed(BaseException):
    """The process ends here; nobody tidies up."""


EXPECTED = {0: "day", 1: "old", 2: "old", 3: "old"}


def test_the_folder_of_the_day_holds_the_image_and_not_the_mirror(lake: LocalLake) -> None:
    (made,) = writing(lake).run(LandedState(lake.checkpoint, lake.catalog))

    found = ds.dataset(table_folder(lake), format="parquet", partitioning="hive").to_table()
    assert dict(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == EXPECTED
    assert found["dt"].unique().to_pylist() == [DAY]
    assert found.column_names == ["id", "name", "dt"]
    assert lake.rows() == {0: "day", 1: "night", 3: "old"}
    assert (made.rows, made.parts) == (4, 1)
    manifest = json.loads((table_folder(lake) / f"dt={DAY}" / MANIFEST).read_text())
    assert manifest["rows"] == 4
    assert [one.name for one in (lake.home / "images" / "_staged").iterdir()] == []


def test_duckdb_reads_the_folder(lake: LocalLake) -> None:
    writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    query = "SELECT id, name, dt FROM read_parquet(?, hive_partitioning=true)"

    with duckdb.connect() as engine:
        found = engine.execute(query, [f"{table_folder(lake)}/dt=*/*.parquet"]).fetchall()

    assert {key: name for key, name, _ in found} == EXPECTED
    assert {str(day) for _, _, day in found} == {DAY}


@pytest.mark.spark
def test_spark_reads_the_folder_and_the_version_alike(lake: LocalLake, spark: SparkSession) -> None:
    writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    (image,) = lake.images()

    folder = spark.read.parquet(str(table_folder(lake))).select("id", "name").collect()
    pinned = (
        spark.read.format("delta")
        .option("versionAsOf", image.version)
        .load(lake.settings.mirror("db.t"))
        .select("id", "name")
        .collect()
    )

    assert {one.id: one.name for one in folder} == EXPECTED
    assert sorted(folder) == sorted(pinned)


def test_it_is_written_once_and_again_only_if_it_is_not_there(lake: LocalLake) -> None:
    first = writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    again = writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    (table_folder(lake) / f"dt={DAY}" / MANIFEST).unlink()
    later = writing(lake).run(LandedState(lake.checkpoint, lake.catalog))

    assert [len(first), len(again), len(later)] == [1, 0, 1]
    assert ds.dataset(table_folder(lake), format="parquet").count_rows() == 4


def test_nobody_is_told_of_an_image_before_it_is_written(lake: LocalLake) -> None:
    watching = Lake(lake.settings, DeltaMirrors(None))

    before = watching.applied("db.t")
    writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    after = watching.applied("db.t")

    assert before is not None
    assert before.images == ()
    assert after is not None
    assert [one.path for one in after.images] == [str(table_folder(lake) / f"dt={DAY}")]


def test_an_image_that_cannot_be_written_is_tried_again_and_stops_no_other(lake: LocalLake) -> None:
    (lake.home / "images").write_text("a file where a folder should be")

    assert writing(lake).run(LandedState(lake.checkpoint, lake.catalog)) == ()
    (lake.home / "images").unlink()
    assert len(writing(lake).run(LandedState(lake.checkpoint, lake.catalog))) == 1


def test_an_error_that_nobody_foresaw_stops_no_other_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LocalLake(tmp_path, publish=(PublishRule("db.*", how="parquet"),), others=("db.a",))
    other = {"table": "db.a", "shard": "db.a", "topic": "s.db.a"}
    lake.play([row(C, 10, 1, "old"), row(C, 10, 1, "old") | other])
    lake.now = CUT
    lake.end_day(CUT, 50, DAY)
    lake.land(row(U, 20, 1, "day"), row(U, 20, 1, "day") | other)
    lake.run()
    ours = writing(lake)
    read_rows = ours.mirrors.table_format.rows

    def rows(uri: str, version: int) -> Any:
        if uri.endswith("/a"):
            raise pa.ArrowInvalid("a file that is none")
        return read_rows(uri, version)

    monkeypatch.setattr(ours.mirrors, "table_format", Broken(ours.mirrors.table_format, rows))

    assert [one.table for one in ours.run(LandedState(lake.checkpoint, lake.catalog))] == ["db.t"]


@dataclass
class Broken:
    """A table format whose rows come from elsewhere."""

    inner: Any
    rows: Any

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


@pytest.mark.parametrize("name", ["dt", "DT"])
def test_a_column_that_readers_take_for_the_day_is_refused_by_name(name: str) -> None:
    rows = iter([pa.RecordBatch.from_pydict({"id": [1], name: ["a"]})])

    with pytest.raises(ConfigError, match=f"db.t has a column {name}, .* `how: pin`"):
        next(readable_rows("db.t", rows))


def test_an_image_that_readers_would_misread_is_not_written(tmp_path: Path) -> None:
    columns = (ID, Column("Dt", "VARCHAR", 80))
    rules = (PublishRule("db.*", how="parquet"),)
    lake = LocalLake(tmp_path, publish=rules, columns=columns)
    lake.play([row(C, 10, 1) | {"after": '{"id": 1, "Dt": "a"}'}])
    lake.now = CUT
    lake.end_day(CUT, 50, DAY)
    lake.land(row(C, 20, 2) | {"after": '{"id": 2, "Dt": "b"}'})
    lake.run()

    assert writing(lake).run(LandedState(lake.checkpoint, lake.catalog)) == ()
    assert list((tmp_path / "images").rglob("*.parquet")) == []


def test_days_that_are_kept_no_longer_go(lake: LocalLake) -> None:
    store = open_store(str(lake.home / "images"))
    old = replace(TOLD, until=NOW)
    for day in ("2025-12-25", "2025-12-20"):
        write_image(store, f"db/t/dt={day}", iter([id_batch(3)]), old)
    write_image(store, "db/t/dt=2025-12-24", iter([id_batch(3)]), TOLD)

    writing(lake).run(LandedState(lake.checkpoint, lake.catalog))

    left = sorted(one.name for one in table_folder(lake).iterdir())
    assert left == ["dt=2025-12-24", f"dt={DAY}"]


def id_batch(rows: int, start: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(range(start, start + rows))})


@pytest.fixture(params=["folder", "bucket"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    if request.param == "bucket":
        return Bucket("s3://lake/images", MemoryStore())
    return open_store(str(tmp_path / "images"))


def test_a_large_image_is_several_parts_of_several_groups(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_export, "GROUP_BYTES", 1_000)
    monkeypatch.setattr(image_export, "PART_BYTES", 3_000)
    batches = (id_batch(100, start) for start in range(0, 2_000, 100))

    made = write_image(store, "db/t/dt=x", batches, TOLD)

    assert (made.rows, made.parts) == (2_000, 5)
    names = [one.name.rpartition("/")[2] for one in store.names("db/t/dt=x")]
    assert [one[: len("part-00000")] for one in names] == [
        "_image.jso",
        *(f"part-{number:05}" for number in range(5)),
    ]
    assert read_manifest(store, "db/t/dt=x") == made


def test_a_folder_that_is_written_anew_holds_nothing_of_what_was_there(store: Any) -> None:
    store.make_folder("db")
    write_image(store, "db/t/dt=x", iter([id_batch(7)]), TOLD)
    store.put("db/t/dt=x/part-00009.parquet", b"of an image with more parts")

    made = write_image(store, "db/t/dt=x", iter([id_batch(3)]), replace(TOLD, version=8))

    names = [one.name.rpartition("/")[2] for one in store.names("db/t/dt=x")]
    assert [one[: len("part-00000")] for one in names] == ["_image.jso", "part-00000"]
    assert read_manifest(store, "db/t/dt=x") == made


def dying(monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Let a bucket do only so many copies and removals from now on."""
    left = iter(range(steps))

    def step(act: Any) -> Any:
        def acted(*given: Any, **more: Any) -> Any:
            if next(left, None) is None:
                raise Killed
            return act(*given, **more)

        return acted

    monkeypatch.setattr(obstore, "copy", step(obstore.copy))
    monkeypatch.setattr(Bucket, "remove", step(Bucket.remove))


@pytest.mark.parametrize("steps", range(10))
def test_a_bucket_that_tells_of_an_image_holds_it_and_no_other_rows(
    monkeypatch: pytest.MonkeyPatch, steps: int
) -> None:
    store = Bucket("s3://lake/images", MemoryStore())
    for name in ("part-00000.parquet", "part-00007.parquet", MANIFEST):
        store.put(f"db/t/dt=x/{name}", b"old")
    for name in ("part-00000.parquet", "part-00001.parquet", MANIFEST):
        store.put(f"staged/{name}", b"new")

    with monkeypatch.context() as dies, suppress(Killed):
        dying(dies, steps)
        store.place("staged", "db/t/dt=x")

    there = {one.name.rpartition("/")[2]: store.read(one.name) for one in store.names("db/t/dt=x")}
    whole = {1: "part-00001.parquet", 0: "part-00007.parquet"}[min(steps, 1)]
    if MANIFEST in there:
        assert set(there) == {"part-00000.parquet", whole, MANIFEST}
        assert len(set(there.values())) == 1


def test_an_empty_table_has_its_columns(store: Any) -> None:
    made = write_image(store, "db/t/dt=x", iter([id_batch(0)]), TOLD)

    assert (made.rows, made.parts) == (0, 1)


def test_what_was_killed_while_it_wrote_leaves_nothing_that_anybody_reads(store: Any) -> None:
    def dies() -> Any:
        yield id_batch(3)
        raise OSError("killed")

    with pytest.raises(OSError, match="killed"):
        write_image(store, "db/t/dt=x", dies(), TOLD)

    assert store.names("db/t/dt=x") == []
    assert read_manifest(store, "db/t/dt=x") is None


def test_an_image_that_cannot_be_written_leaves_no_part(
    store: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(image_export, "GROUP_BYTES", 100)
    monkeypatch.setattr(image_export, "PART_BYTES", 100)
    staged = uuid.UUID(int=1)
    monkeypatch.setattr(uuid, "uuid4", lambda: staged)

    def fails() -> Any:
        yield from (id_batch(100), id_batch(100))
        assert store.names(f"_staged/{staged}")
        raise UnreachableError("the bucket does not answer")

    with pytest.raises(UnreachableError):
        write_image(store, "db/t/dt=x", fails(), TOLD)

    assert [store.names(one) for one in ("_staged", f"_staged/{staged}")] == [[], []]


def killed_placing(home: Path, day: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a process begin to replace *day* of a folder, and be killed between its two renames.

    The file system is one that lets no two folders change places.
    """
    rename = Path.rename

    def dies(self: Path, target: Path) -> Path:
        if self.name.startswith("dt="):
            return rename(self, target)
        raise Killed

    with monkeypatch.context() as dying_now, suppress(Killed):
        dying_now.setattr(Path, "rename", dies)
        dying_now.setattr(folder, "exchange_paths", lambda *_: False)
        dying_now.setattr(image_export, "forsake", lambda *_: None)
        write_image(
            open_store(str(home)), f"db/t/{day}", iter([id_batch(3)]), replace(TOLD, version=1)
        )


def test_what_a_killed_one_leaves_is_mended_by_the_next_run_and_swept_a_day_later(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    killed_placing(lake.home / "images", f"dt={DAY}", monkeypatch)
    staged = lake.home / "images" / "_staged"
    assert not (table_folder(lake) / f"dt={DAY}").exists()
    assert len([one for one in staged.iterdir() if one.is_dir()]) == 2

    assert [one.rows for one in writing(lake).run(LandedState(lake.checkpoint, lake.catalog))] == [
        4
    ]
    assert len(list(staged.iterdir())) == 3  # somebody else might still be at it
    (begun,) = staged.glob("*.begun")
    two_days_ago = (lake.now - timedelta(days=2)).timestamp()
    os.utime(begun, (two_days_ago, two_days_ago))
    writing(lake).run(LandedState(lake.checkpoint, lake.catalog))
    assert list(staged.iterdir()) == []


def test_a_folder_without_a_manifest_that_can_be_read_is_none(store: Any) -> None:
    store.make_folder("db")
    store.put("db/t/dt=x/" + MANIFEST, b"{")

    assert read_manifest(store, "db/t/dt=x") is None
    store.drop("db/t/dt=x")
    store.drop("db/t/dt=never")
    assert store.names("db/t/dt=x") == []


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_a_suite_holds_an_image_until_its_rows_are_good(tmp_path: Path) -> None:
    kwargs = {"column": "name", "value_set": ["a", "good"]}
    expected = ExpectationSettings("expect_column_values_to_be_in_set", kwargs)
    rule = InvariantRule("db.*", (("expectations", Expectations((expected,))),))
    publish = (PublishRule("db.*", how="parquet", hold_back=timedelta(hours=1)),)
    made = LocalLake(tmp_path / "lake", publish=publish, invariants=(rule,))
    made.play([row(C, 10, 1, "a")])
    made.now = CUT
    made.end_day(CUT, 50, DAY)
    made.land(row(C, 20, 7, "bad"))
    (held,) = made.run()
    before = writing(made).run(made.state())
    made.land(row(U, 30, 7, "good"))  # landed late, from before the cut
    turns = made.run()
    after = writing(made).run(made.state())

    assert held.hold is not None
    assert (held.hold.reason, before) == ("invalid", ())
    assert [turn.hold for turn in turns] == [None, None]  # the image, and what is above it
    assert "expect_column_values_to_be_in_set(name): 1 of 1 rows in 1 row, key" in held.hold.detail
    assert "bad" not in held.hold.detail
    assert [(one.cut, one.rows) for one in after] == [(CUT, 2)]
    assert made.rows() == {1: "a", 7: "good"}


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("severity", "column", "reason"),
    [("critical", "name", "invalid"), ("warning", "name", None), ("critical", "gone", "invariant")],
)
def test_only_a_critical_expectation_holds_and_one_that_cannot_be_asked(
    tmp_path: Path, severity: Severity, column: str, reason: str | None
) -> None:
    kind = "expect_column_values_to_not_be_null"
    expected = ExpectationSettings(kind, {"column": column}, severity)
    rule = InvariantRule("db.*", (("expectations", Expectations((expected,))),))
    made = LocalLake(tmp_path / "lake", invariants=(rule,))
    made.land(row(C, 20, 7, None))

    (turn,) = made.run()

    assert (turn.hold and turn.hold.reason) == reason


@pytest.mark.thorough  # to import Great Expectations costs more than hundreds of tests
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        ("be_of_type", {"column": "id", "type_": "float64"}),
        ("not_be_null", {"column": "name", "mostly": 0.95}),
    ],
    ids=["a type", "a share of rows"],
)
def test_what_is_of_the_table_holds_no_rows(
    tmp_path: Path, kind: str, arguments: dict[str, Any]
) -> None:
    expected = ExpectationSettings(f"expect_column_values_to_{kind}", arguments)
    rule = InvariantRule("db.*", (("expectations", Expectations((expected,))),))
    made = LocalLake(tmp_path / "lake", invariants=(rule,))
    made.land(row(C, 20, 7, None))

    (turn,) = made.run()

    assert turn.hold is None


def test_late_rows_that_a_late_truncate_removes_are_in_no_image(tmp_path: Path) -> None:
    rule = InvariantRule("db.*", (("not_null", NotNull(("name",))),))
    publish = (PublishRule("db.*", how="parquet"),)
    made = LocalLake(tmp_path / "lake", publish=publish, invariants=(rule,))
    made.play([row(C, 10, 1, "a")])
    made.now = CUT
    made.end_day(CUT, 50, DAY)
    made.run()
    made.land(row(C, 40, 2, None), row(Op.TRUNCATE, 45, None), row(C, 70, 3, "right"))

    assert made.apply().hold is None
    assert made.rows() == {3: "right"}


@pytest.mark.parametrize("earlier", [True, False], ids=["in the mirror", "in the same slice"])
def test_a_late_row_is_held_before_an_image_gets_it_also_if_a_later_change_is_good(
    tmp_path: Path, *, earlier: bool
) -> None:
    rule = InvariantRule(
        "db.*", (("not_null", NotNull(("name",))), ("unique", Unique((("name",),))))
    )
    publish = (PublishRule("db.*", how="parquet"),)
    made = LocalLake(tmp_path / "lake", publish=publish, invariants=(rule,))
    made.play([row(C, 10, 1, "a"), row(C, 11, 2, "b"), row(C, 12, 3, "c")])
    made.now = CUT
    made.end_day(CUT, 50, DAY)
    made.land(*([row(U, 60, 1, "right")] if earlier else []))
    made.run()
    writing(made).run(made.state())
    made.land(row(U, 40, 2, "b"), row(D, 41, 3), row(U, 45, 1, None), row(U, 70, 1, "right"))

    hold = hold_of(made.apply())

    assert hold.reason == "invalid"
    assert 'not_null: name is NULL in 1 row, key ["s","db.t","1"]' in hold.detail
    assert f"late for the image of {CUT.isoformat()}" in hold.detail
    assert made.rows() == {1: "right" if earlier else "a", 2: "b", 3: "c"}
    assert made.apply([hold.id]).hold is None, "accepted"
    assert made.rows() == {1: "right", 2: "b"}
    (corrected,) = writing(made).run(made.state())
    assert (corrected.rows, corrected.revision) == (2, 1)


class _Nameless:
    """Breaks without naming a row, as an expectation of a user may."""

    def breaches(self, intended: IntendedRows) -> Iterator[Breach]:
        yield Breach("is broken", np.zeros(intended.rows.num_rows, np.bool_))


def test_a_breach_that_names_no_row_is_by_all_of_them(tmp_path: Path) -> None:
    rule = InvariantRule("db.*", (("nameless", _Nameless()),))
    made = LocalLake(tmp_path / "lake", invariants=(rule,))
    made.land(row(C, 20, 7, "a"))

    (turn,) = made.run()

    assert turn.hold is not None
    assert turn.hold.reason == "invalid"
    assert "nameless: is broken; " in turn.hold.detail
