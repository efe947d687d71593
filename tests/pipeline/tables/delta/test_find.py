"""Keys of every kind are found in real Parquet files: where they stand, and nowhere else."""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from threading import Barrier, BrokenBarrierError
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyroaring import BitMap64

from pipeline.apply.decide import Found
from pipeline.apply.row_metadata import META, SLUICE, Adoption, row_origins
from pipeline.delta.deletion_vectors import VectorFile
from pipeline.delta.log import ActiveFile
from pipeline.delta.store import open_store
from pipeline.errors import HeldError
from pipeline.model import Shard
from pipeline.tables.delta import files as data_file
from pipeline.tables.delta.files import Footers, Layout, MirrorFiles, leaf_paths
from pipeline.tables.delta.find import files_below_floor, find_rows, prepare_keys, rows_below_floor
from tests.example_count import examples
from tests.pipeline.tables.delta.turns import NOW, A, B, order

DEC = pa.decimal128(38, 10)
BIG = pa.decimal128(20, 0)


def row_metadata(shard: Shard | None, pos: int) -> dict[str, Any] | None:
    if shard is None:
        return None
    place = {"epoch": 1, "log": 1, "pos": pos, "row": 0}
    own = {"source": shard.source, "shard": shard.name, "order": place}
    return own | {"op": "c", "origin": 3, "at": NOW, "batch": 0}


def write_mirror(folder: Path, *files: pa.Table, rows: int = 4, **more: Any) -> MirrorFiles:
    """*files* in row groups of *rows*, each row at a position of its own log."""
    store = open_store(str(folder))
    active = []
    for number, file in enumerate(files):
        name = f"f{number}.parquet"
        pq.write_table(file, folder / name, row_group_size=rows, store_schema=False)
        active.append(ActiveFile({"path": name, "size": (folder / name).stat().st_size}))
    schema = files[0].schema
    return MirrorFiles(store, tuple(active), Layout(schema, schema), **more)


def keyed(values: Sequence[Any], kind: pa.DataType, *, of: Shard | None = A) -> pa.Table:
    meta = pa.array([row_metadata(of, 100 + at) for at in range(len(values))], META)
    return pa.table({"k": pa.array(values, kind), SLUICE: meta})


def places(found: Found) -> list[tuple[int, int] | None]:
    pairs = zip(found.file.tolist(), found.position.tolist(), strict=True)
    return [pair if pair[0] >= 0 else None for pair in pairs]


def day_of(day: int) -> datetime:
    return datetime(2026, 1, day, 0, 0, 0, day)  # noqa: DTZ001


KINDS: dict[str, tuple[pa.DataType, list[Any], list[Any]]] = {
    "long": (pa.int64(), [-(2**63), -1, 0, 7, 2**63 - 1], [1, 8]),
    "int": (pa.int32(), [-5, 0, 3, 2**31 - 1], [1]),
    "byte": (pa.int8(), [-128, 0, 127], [1]),
    "bool": (pa.bool_(), [True], [False]),
    "date": (
        pa.date32(),
        [date(1, 1, 1), date(2026, 1, 2), date(9999, 12, 31)],
        [date(2026, 1, 3)],
    ),
    "time": (pa.timestamp("us"), [day_of(1), day_of(2), datetime(9999, 12, 31)], [day_of(3)]),  # noqa: DTZ001
    "instant": (
        pa.timestamp("us", "UTC"),
        [datetime(1, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)],
        [datetime(2026, 1, 1, 0, 0, 0, 1, tzinfo=UTC)],
    ),
    "decimal": (DEC, [Decimal("-1.5"), Decimal("0"), Decimal("9" * 28)], [Decimal("1.5")]),
    "small decimal": (pa.decimal128(9, 2), [Decimal("-1.50"), Decimal("7.00")], [Decimal("1.5")]),
    "unsigned": (BIG, [Decimal(0), Decimal(2**63), Decimal(2**64 - 1)], [Decimal(1)]),
    "text": (
        pa.string(),
        ["", "A", "a", "a ", "ä", "x" * 45, "x" * 44 + "y", "\U0001f600" + "z" * 40],
        ["b", "x" * 44, "A ", "x" * 46],
    ),
    "bytes": (pa.binary(), [b"", b"\x00", b"\xff", b"\xff" * 40], [b"\xff\x00"]),
}


@pytest.mark.parametrize("seed", [pytest.param(None, id="sorted"), pytest.param(3, id="unsorted")])
@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_key_is_found_where_it_stands(
    tmp_path: Path, name: str, seed: int | None
) -> None:
    kind, there, absent = KINDS[name]
    rows = (
        np.arange(len(there))
        if seed is None
        else np.random.default_rng(seed).permutation(len(there))
    )
    placed = [there[row] for row in rows]
    files = write_mirror(
        tmp_path, keyed(placed[:2], kind), keyed(placed[2:] or absent[:0], kind), rows=2
    )

    found = find_rows(pa.table({"k": pa.array([*absent, *there], kind)}), files)

    expected = {value: (0, n) if n < 2 else (1, n - 2) for n, value in enumerate(placed)}
    assert places(found) == [None] * len(absent) + [expected[value] for value in there]


def test_what_stands_there_is_told_with_its_owner_and_place(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1, 2, 3], pa.int64()), keyed([5], pa.int64(), of=None))

    found = find_rows(pa.table({"k": [5, 9, 3]}), files)

    assert found.there.tolist() == [True, False, True]
    assert found.owned.adopted.tolist() == [True, False, False]
    assert found.owned.shard.to_pylist() == [None, None, "db.a"]
    assert found.owned.rank[:, 2].tolist() == [1, 1, 102, 0, 3]


def test_a_row_without_provenance_is_told_apart_from_its_neighbours(tmp_path: Path) -> None:
    own, none = keyed([1], pa.int64()), keyed([2], pa.int64(), of=None)

    found = find_rows(
        pa.table({"k": [2, 1]}), write_mirror(tmp_path, pa.concat_tables([own, none]))
    )

    assert found.owned.adopted.tolist() == [True, False]
    assert found.owned.shard.to_pylist() == [None, "db.a"]


def test_the_whole_key_counts(tmp_path: Path) -> None:
    meta = pa.array([row_metadata(A, n) for n in range(4)], META)
    rows = pa.table({"a": [1, 1, 2, 2], "b": ["x", "y", "x", "z"], "c": [0, 0, 0, 0], SLUICE: meta})
    keys = pa.table({"a": [1, 2, 1, 2], "b": ["x", "y", "z", "z"], "c": [0, 0, 0, 0]})

    assert places(find_rows(keys, write_mirror(tmp_path, rows))) == [(0, 0), None, None, (0, 3)]


def test_a_key_is_its_own_shards_where_shards_may_share_keys(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1, 2], pa.int64()), keyed([1], pa.int64(), of=B))
    told_by = pa.table({"source": ["s"] * 3, "shard": ["db.b", "db.a", "db.b"]}).append_column(
        "order",
        pa.array([row_metadata(A, 1)["order"]] * 3, META.field("order").type),  # type: ignore[index]
    )
    owners = row_origins(told_by.append_column("origin", pa.array([3] * 3, pa.int32())))

    found = find_rows(pa.table({"k": [1, 1, 2]}), files, owners=owners)

    assert places(found) == [(1, 0), (0, 0), None]


def test_an_adopted_row_belongs_to_the_only_shard(tmp_path: Path) -> None:
    adoption = Adoption(order(50), A)
    files = write_mirror(tmp_path, keyed([1], pa.int64(), of=None), adoption=adoption)

    found = find_rows(pa.table({"k": [1]}), files)

    assert found.owned.shard.to_pylist() == ["db.a"]
    assert found.owned.rank[:, 0].tolist() == [1, 1, 50, 0, 0]


def test_rows_that_went_are_not_found(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1, 1, None, 2], pa.int64()))
    files = without_rows(files, {0, 2})

    assert places(find_rows(pa.table({"k": [1, 2]}), files)) == [(0, 1), (0, 3)]


def without_rows(files: MirrorFiles, positions: set[int]) -> MirrorFiles:
    """The first file without those rows."""
    vectors = VectorFile()
    descriptor = vectors.add(BitMap64(positions))
    vectors.save(files.store)
    marked = ActiveFile({**files.files[0].action, "deletionVector": descriptor})
    return MirrorFiles(files.store, (marked, *files.files[1:]), files.layout, files.adoption)


FLOAT = keyed([1.0], pa.float64())


@pytest.mark.parametrize(
    ("tables", "keys", "reason"),
    [
        pytest.param([keyed([1, 1], pa.int64())], [1], "duplicate_key", id="twice in a row group"),
        pytest.param([keyed([1, 2, 3, 4, 1], pa.int64())], [1], "duplicate_key", id="in two"),
        pytest.param([keyed([1], pa.int64())] * 2, [1], "duplicate_key", id="in two files"),
        pytest.param([keyed(["x", "x"], pa.string())], ["x"], "duplicate_key", id="text"),
        pytest.param([keyed([7, None], pa.int64())], [1], "null_key", id="null in the mirror"),
        pytest.param([keyed([7], pa.int64())], [None], "null_key", id="null in a change"),
        pytest.param([keyed([7], pa.int64())], [1, 1], "duplicate_key", id="two changes of a key"),
        pytest.param([FLOAT], [1.0], "key_kind", id="floats are not matched"),
        pytest.param([keyed(["7"], pa.string())], [7], "key_kind", id="a file of another type"),
    ],
)
def test_the_table_is_held(
    tmp_path: Path, tables: list[pa.Table], keys: list[Any], reason: str
) -> None:
    kind = tables[0]["k"].type if reason != "key_kind" or tables[0] is FLOAT else pa.int64()

    with pytest.raises(HeldError) as held:
        find_rows(pa.table({"k": pa.array(keys, kind)}), write_mirror(tmp_path, *tables))

    assert held.value.reason == reason


def test_a_null_in_a_later_column_of_the_key_is_seen(tmp_path: Path) -> None:
    rows = keyed([1, 2], pa.int64()).append_column("b", pa.array(["x", None]))

    with pytest.raises(HeldError, match="null_key"):
        find_rows(pa.table({"k": [9], "b": ["x"]}), write_mirror(tmp_path, rows))


def test_an_adopted_row_of_one_of_many_shards_holds_the_table(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1], pa.int64(), of=None))
    rows = pa.Table.from_pylist([row_metadata(A, 1)], pa.schema(list(META)))

    with pytest.raises(HeldError, match="no_shard"):
        find_rows(pa.table({"k": [1]}), files, owners=row_origins(rows))


def test_times_that_readers_take_for_others_are_refused(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1], pa.int64()))
    rows = keyed([1], pa.int64()).append_column("t", pa.array([day_of(1)]))
    pq.write_table(rows, tmp_path / "f0.parquet", use_deprecated_int96_timestamps=True)

    with pytest.raises(HeldError, match="INT96"):
        find_rows(pa.table({"k": [1]}), files)


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1], pa.int64()))
    (tmp_path / "f0.parquet").unlink()

    with pytest.raises(HeldError, match=r"file_damaged.*f0\.parquet"):
        find_rows(pa.table({"k": [1]}), files)


def test_a_name_with_dots_is_one_name(tmp_path: Path) -> None:
    inner = pa.array([{"b": 5}], pa.struct([("b", pa.int64())]))
    meta = pa.array([row_metadata(A, 1)], META)
    rows = pa.table({"a": inner, "a.b": [7], SLUICE: meta})

    files = write_mirror(tmp_path, rows)

    assert places(find_rows(pa.table({"a.b": [5]}), files)) == [None]
    assert places(find_rows(pa.table({"a.b": [7]}), files)) == [(0, 0)]
    assert leaf_paths(rows.schema)["a.b",] == 1


def test_row_groups_without_any_of_the_keys_are_not_read(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed(range(40), pa.int64()))
    content = bytearray((tmp_path / "f0.parquet").read_bytes())
    footer = files.footers.of(files.store, files.files[0])
    group = footer.metadata.row_group(3).column(0)
    start = group.dictionary_page_offset or group.data_page_offset
    content[start : start + group.total_compressed_size] = b"\xff" * group.total_compressed_size
    (tmp_path / "f0.parquet").write_bytes(content)

    assert places(find_rows(pa.table({"k": [2, 39]}), files)) == [(0, 2), (0, 39)]
    with pytest.raises(HeldError, match="file_damaged"):
        find_rows(pa.table({"k": [13]}), files)


def test_the_log_tells_which_files_need_not_be_opened(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1], pa.int64()))
    stats = '{"minValues":{"k":1},"maxValues":{"k":1},"nullCount":{"k":0}}'
    files.files = (ActiveFile({**files.files[0].action, "stats": stats}),)
    (tmp_path / "f0.parquet").unlink()

    assert places(find_rows(pa.table({"k": [2]}), files)) == [None]


def test_bounds_of_decimals_in_the_log_hide_no_row(tmp_path: Path) -> None:
    """`delta-rs` rounds them to floats; a row that is not found would be written twice."""
    files = write_mirror(tmp_path, keyed([Decimal(2**63 + 1)], BIG))
    cut = f'{{"k":{2**63 - 1}}}'
    stats = f'{{"minValues":{cut},"maxValues":{cut},"nullCount":{{"k":0}}}}'
    files.files = (ActiveFile({**files.files[0].action, "stats": stats}),)

    wanted = pa.table({"k": pa.array([Decimal(2**63 + 1)], BIG)})

    assert places(find_rows(wanted, files)) == [(0, 0)]


def test_footers_are_read_once_and_forgotten_when_there_are_too_many(tmp_path: Path) -> None:
    footers = Footers(limit=20)
    files = write_mirror(tmp_path, *[keyed([n], pa.int64()) for n in range(3)], footers=footers)

    first = footers.of(files.store, files.files[0])
    assert footers.of(files.store, files.files[0]) is first
    for file in files.files:
        footers.of(files.store, file)
    assert footers.of(files.store, files.files[0]) is not first


def test_footers_are_asked_for_by_turns_of_two_lines_at_the_same_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = write_mirror(tmp_path, *[keyed([n], pa.int64()) for n in range(3)])
    read = {file.path: Footers().of(files.store, file) for file in files.files}
    two = 2 * read["f0.parquet"].weight
    footers, both, asked = Footers(limit=two), Barrier(2), list[str]()

    def slowly(_: object, path: str) -> object:
        asked.append(path)
        with suppress(BrokenBarrierError):
            both.wait(10)  # the other has not found it, either
        return read[path]

    monkeypatch.setattr(data_file, "read_footer", slowly)
    with ThreadPoolExecutor(2) as lines:
        for file in files.files:
            found = list(lines.map(footers.of, [files.store] * 2, [file] * 2))
            assert found == [read[file.path]] * 2
    both.abort()
    asked.clear()

    for file in [*files.files[:2]] * 2:
        footers.of(files.store, file)

    assert len(asked) == 2, "as many are kept as if one had asked"


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.integers(0, 60), unique=True, max_size=40), st.sets(st.integers(0, 60)), st.data()
)
def test_any_keys_in_any_files(
    tmp_path_factory: pytest.TempPathFactory,
    stored: list[int],
    sought: set[int],
    data: st.DataObject,
) -> None:
    cut = data.draw(st.integers(0, len(stored)))
    dead = data.draw(st.sets(st.integers(0, max(cut - 1, 0)))) if cut else set()
    text = data.draw(st.booleans())
    kind = pa.string() if text else pa.decimal128(20, 0) if data.draw(st.booleans()) else pa.int64()
    values = [str(n) if text else n for n in stored]
    folder = tmp_path_factory.mktemp("any")
    files = write_mirror(folder, keyed(values[:cut], kind), keyed(values[cut:], kind), rows=7)
    files = without_rows(files, dead) if dead else files

    keys = [str(n) if text else n for n in sorted(sought)]
    found = find_rows(pa.table({"k": pa.array(keys, kind)}), files)

    there = {v: (0, n) if n < cut else (1, n - cut) for n, v in enumerate(values) if n not in dead}
    assert places(found) == [there.get(key) for key in keys]


def test_rows_below_a_floor_are_those_of_its_shard_before_it(tmp_path: Path) -> None:
    files = write_mirror(
        tmp_path,
        keyed(range(10), pa.int64()),
        keyed(range(10), pa.int64(), of=B),
        pa.concat_tables([keyed([1], pa.int64()), keyed([2], pa.int64(), of=B)]),
    )
    files = without_rows(files, {0, 1})

    found = rows_below_floor(files, {A: order(105)})

    assert {number: list(rows) for number, rows in found.items()} == {0: [2, 3, 4], 2: [0]}
    assert files_below_floor(files, {A: order(105)}) == [0, 2]
    assert rows_below_floor(files, {A: order(1)}) == {}
    two = write_mirror(tmp_path, keyed([1, 2], pa.int64()))  # one of them at the floor
    assert list(rows_below_floor(two, {A: order(101)})[0]) == [0]
    assert list(rows_below_floor(files, {A: order(500)})[0]) == list(range(2, 10))


def test_a_floor_and_a_row_of_nobody_knows_whom_hold_the_table(tmp_path: Path) -> None:
    files = write_mirror(tmp_path, keyed([1], pa.int64(), of=None))

    with pytest.raises(HeldError, match="no_shard"):
        rows_below_floor(files, {A: order(105)})

    files.adoption = Adoption(None, A)
    assert list(rows_below_floor(files, {A: order(105)})[0]) == [0]


def test_many_columns_narrow_down_to_rows_without_overflow() -> None:
    values = pa.array(range(1_000))
    columns: dict[tuple[str, ...], pa.Array] = {(f"c{n}",): values for n in range(8)}

    sought = prepare_keys(columns)

    rows, come_to = sought.columns[0].hits(values, (0, 1_000))
    for number in range(1, 8):
        kept, come_to = sought.narrow(number, come_to, values.take(pa.array(rows)))
        rows = rows[kept]
    assert sought.rows[come_to].tolist() == rows.tolist() == list(range(1_000))
