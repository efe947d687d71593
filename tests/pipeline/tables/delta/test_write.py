"""New files, vectors beside old ones, and files written anew, as other readers see them."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from pipeline.apply.decide import Fill
from pipeline.apply.row_metadata import META, SLUICE, Adoption
from pipeline.delta import actions as alterations
from pipeline.delta import commit
from pipeline.delta.deletion_vectors import VectorFile, read_vector
from pipeline.delta.log import ActiveFile, Metadata, Snapshot
from pipeline.delta.protocol import describe_table
from pipeline.errors import HeldError
from pipeline.model import Op, Shard
from pipeline.tables.delta import merge
from pipeline.tables.delta.files import Footers, Layout, MirrorFiles
from pipeline.tables.delta.merge import Target, remove_rows, write_rows
from pipeline.tables.delta.rewrite import rewrite_files
from tests.pipeline.tables.delta.turns import NOW, A, B, TurnBench, change, mirror_schema, order

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE


@pytest.fixture
def bench(tmp_path: Path) -> TurnBench:
    return TurnBench(tmp_path / "mirror", shards=(A, B))


def target(bench: TurnBench, **more: Any) -> Target:
    return replace(Target(bench.store, bench.snapshot.metadata, ("id",), NOW), **more)


def files(bench: TurnBench, **more: Any) -> MirrorFiles:
    layout = Layout.of(bench.snapshot.metadata)
    return MirrorFiles(bench.store, bench.files, layout, **more)


def new_rows(*ids: int, name: str = "n") -> pa.Table:
    meta = pa.nulls(len(ids), META)
    return pa.table({"id": pa.array(ids, pa.int64()), "name": [name] * len(ids), SLUICE: meta})


def test_a_new_file_is_sorted_by_key_and_has_exactly_the_tables_columns(bench: TurnBench) -> None:
    add = write_rows(new_rows(3, 1, 2).select(["name", SLUICE, "id"]), target(bench))["add"]

    footer = pq.read_metadata(bench.folder / add["path"])
    file = pq.ParquetFile(bench.folder / add["path"])
    assert file.schema_arrow.equals(mirror_schema(bench.columns))
    assert file.read()["id"].to_pylist() == [1, 2, 3]
    assert b"ARROW:schema" not in (footer.metadata or {})
    assert add["size"] == (bench.folder / add["path"]).stat().st_size
    assert ActiveFile(add).records == 3
    assert {footer.schema.column(n).physical_type for n in range(len(footer.schema))} == {
        *("INT64", "INT32", "BYTE_ARRAY")
    }


def test_row_groups_are_of_one_size_whatever_the_rows(
    bench: TurnBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merge, "GROUP_ROWS", 4)
    monkeypatch.setattr(merge, "LARGE_FILE", 100)  # as if they were a gigabyte

    add = write_rows(new_rows(*range(9, -1, -1), name="x" * 50), target(bench))["add"]

    footer = pq.read_metadata(bench.folder / add["path"])
    assert [footer.row_group(n).num_rows for n in range(3)] == [4, 4, 2]
    assert pq.read_table(bench.folder / add["path"])["id"].to_pylist() == list(range(10))


@pytest.mark.parametrize(
    "wrong",
    [
        pytest.param(new_rows(1).drop_columns(["name"]), id="a column is missing"),
        pytest.param(new_rows(1).append_column("more", pa.array([1])), id="one is too many"),
        pytest.param(new_rows(1).set_column(1, "name", pa.array([b"\xff"])), id="no text"),
    ],
)
def test_rows_of_another_shape_are_refused_and_leave_no_file(
    bench: TurnBench, wrong: pa.Table
) -> None:
    with pytest.raises(HeldError, match="schema"):
        write_rows(wrong, target(bench))

    assert list(bench.folder.glob("*.parquet")) == []


def test_another_writers_texts_are_written_anew_without_the_rows_that_went(
    bench: TurnBench,
) -> None:
    """deltalake says of its texts that they are views; of those pyarrow filters none."""
    bench.play(*(change(C, n, n, "a") for n in range(1, 4)))
    path = bench.folder / bench.files[0].path
    own = pq.read_table(path)
    pq.write_table(own.set_column(1, "name", own["name"].cast(pa.string_view())), path)
    bench.play(change(D, 10, 2))

    made = rewrite_files(files(bench, footers=Footers()), target(bench))

    (add,) = (action["add"] for action in made.actions if "add" in action)
    assert pq.read_table(bench.folder / add["path"]).select(["id", "name"]).to_pylist() == [
        {"id": 1, "name": "a"},
        {"id": 3, "name": "a"},
    ]


def test_a_file_that_loses_rows_again_and_again_keeps_all_its_fields(bench: TurnBench) -> None:
    bench.play(*(change(C, n, n, "a") for n in range(1, 6)))
    first = bench.files[0]

    bench.play(change(D, 10, 1))
    bench.play(change(D, 11, 5), change(D, 12, 2))

    (file,) = bench.files
    assert list(read_vector(bench.store, file.vector or {})) == [0, 1, 4]
    assert (file.records, (file.stats or {})["tightBounds"]) == (5, False)
    changed = {"stats", "deletionVector"}
    assert {n: v for n, v in file.action.items() if n not in changed} == {
        n: v for n, v in first.action.items() if n not in changed
    }
    assert sorted(row["id"] for row in bench.elsewhere()) == [3, 4]


def test_a_file_that_loses_its_last_row_goes(bench: TurnBench) -> None:
    bench.play(change(C, 1, 1, "a"), change(C, 2, 2, "b"))
    bench.play(change(D, 10, 1))
    old = bench.files[0].vector

    written = bench.play(change(D, 11, 2))

    (gone,) = (action["remove"] for action in written.work)
    assert gone["deletionVector"] == old
    assert bench.files == ()


def test_without_numbers_in_the_log_a_files_own_footer_counts(bench: TurnBench) -> None:
    bench.play(change(C, 1, 1, "a"), change(C, 2, 2, "b"))
    bare = ActiveFile({n: v for n, v in bench.files[0].action.items() if n != "stats"})
    mirror = replace(files(bench), files=(bare,))

    _, marked = remove_rows(mirror, {0: BitMap64([1])}, VectorFile(), NOW)

    assert mirror.count() == 2
    assert ActiveFile(marked["add"]).records == 2


# --- files written anew


def commit_merge(bench: TurnBench, made: tuple[Any, ...], first: tuple[Any, ...] = ()) -> Snapshot:
    return commit.commit_actions(
        bench.store, bench.snapshot, (*first, *made), operation="W", clock=NOW
    )


def test_small_files_and_vectors_become_one_sorted_file_of_the_same_rows(bench: TurnBench) -> None:
    bench.play(*(change(C, n, n, f"a{n}") for n in (5, 3, 9)))
    bench.play(change(U, 20, 3, "b3"), change(C, 21, 1, "b1", of=B))
    bench.play(change(D, 30, 9))
    before = sorted(bench.elsewhere(), key=str)

    done = rewrite_files(files(bench), target(bench, compression="zstd"), data_change=False)
    bench.snapshot = commit_merge(bench, done.actions)

    assert done.rows == 3
    assert all(action[kind]["dataChange"] is False for action in done.actions for kind in action)
    (file,) = bench.files
    assert file.vector is None
    assert pq.read_table(bench.folder / file.path)["id"].to_pylist() == [1, 3, 5]
    assert sorted(bench.elsewhere(), key=str) == before
    bench.play(change(U, 40, 3, "c3"))
    assert bench.rows() == {1: "b1", 3: "c3", 5: "a5"}


def test_more_rows_than_fit_into_memory_become_several_files(bench: TurnBench) -> None:
    for n in range(4):
        bench.play(change(C, n + 1, n, "x" * 100))
    before = bench.rows()

    done = rewrite_files(files(bench), target(bench), window=300)
    bench.snapshot = commit_merge(bench, done.actions)

    assert 1 < len(bench.files) < 4
    assert bench.rows() == before


def test_f13_a_column_that_was_added_gets_each_shards_own_default(bench: TurnBench) -> None:
    bench.play(change(C, 10, 1, "a"), change(C, 30, 2, "a"), change(C, 10, 3, "b", of=B))
    adding = alterations.alter_metadata(bench.snapshot, pa.schema([("more", pa.int16())]), {})
    fills = (added_column(A, 20, 7), added_column(B, 5, 8), added_column(B, 11, 9))

    done = rewrite_files(files(bench), target(bench, metadata=described_by(adding)), fills=fills)
    bench.snapshot = commit_merge(bench, done.actions, adding)

    assert {row["id"]: row["more"] for row in bench.elsewhere()} == {1: 7, 2: None, 3: 9}

    again = rewrite_files(
        files(bench), target(bench), fills=(added_column(A, 25, 1), added_column(A, 31, 2))
    )
    bench.snapshot = commit_merge(bench, again.actions)
    assert {row["id"]: row["more"] for row in bench.elsewhere()} == {1: 7, 2: 2, 3: 9}


def described_by(actions: tuple[Any, ...]) -> Metadata:
    return Metadata.of(next(action["metaData"] for action in actions if "metaData" in action))


def added_column(shard: Shard, born: int, default: int) -> Fill:
    return Fill("more", shard, order(born), pa.scalar(default))


def test_an_adopted_row_has_the_default_of_the_only_shard(bench: TurnBench) -> None:
    bench.snapshot = commit_merge(bench, (write_rows(new_rows(1), target(bench)),))
    adding = alterations.alter_metadata(bench.snapshot, pa.schema([("more", pa.int16())]), {})
    mirror, aim = files(bench), target(bench, metadata=described_by(adding))

    with pytest.raises(HeldError, match="no_shard"):
        rewrite_files(mirror, aim, fills=[added_column(A, 20, 7)])

    mirror.adoption = Adoption(None, A)
    done = rewrite_files(mirror, aim, fills=[added_column(A, 20, 7)])
    bench.snapshot = commit_merge(bench, done.actions, adding)
    assert [row["more"] for row in bench.elsewhere()] == [7]


def test_a_widened_column_keeps_its_values_and_a_narrowed_one_is_refused(bench: TurnBench) -> None:
    bench.play(change(C, 1, 1, "12"))
    wide = pa.schema([("id", pa.decimal128(20, 0)), ("name", pa.string()), (SLUICE, META)])
    text, told = describe_table(wide, bench.snapshot.metadata.configuration)
    metadata = replace(bench.snapshot.metadata, schema_string=text)
    action = {**metadata.action, "schemaString": text, "configuration": told}

    done = rewrite_files(files(bench), target(bench, metadata=metadata))
    bench.snapshot = commit_merge(bench, done.actions, ({"metaData": action},))

    assert [int(row["id"]) for row in bench.elsewhere()] == [1]
    narrow = describe_table(wide.set(1, pa.field("name", pa.date32())), told)[0]
    with pytest.raises(HeldError, match="schema"):
        rewrite_files(files(bench), target(bench, metadata=replace(metadata, schema_string=narrow)))


def test_rows_that_the_log_counts_otherwise_are_not_written_anew(bench: TurnBench) -> None:
    bench.play(change(C, 1, 1, "a"))
    stats = (bench.files[0].action["stats"]).replace('"numRecords":1', '"numRecords":2')
    lying = ActiveFile({**bench.files[0].action, "stats": stats})

    with pytest.raises(HeldError, match="account"):
        rewrite_files(replace(files(bench), files=(lying,), footers=Footers()), target(bench))
