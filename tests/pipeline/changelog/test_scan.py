from collections.abc import Sequence
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from pipeline.changelog.data_file import GROUP
from pipeline.changelog.scan import find_parts, find_row_groups, scan_files
from pipeline.changelog.table import CHANGES
from pipeline.errors import HeldError
from pipeline.model import Op
from tests.builders.lake import LocalLake, row

C, U, D, MARK = Op.CREATE, Op.UPDATE, Op.DELETE, Op.MARK
EVERY = tuple(Op)


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """Four batches: creates, creates of another table, deletes, nothing but a marker."""
    made = LocalLake(tmp_path, others=("db.u",))
    made.land(row(C, 10, 1, "a"), row(C, 11, 2, "b"))
    made.land(row(C, 10, 1, "a", table="db.u", shard="db.u", topic="s.db.u"))
    made.land(row(D, 20, 1, "a"))
    made.land()
    made.log.look()
    return made


def found(lake: LocalLake, after: int, until: int, *ops: Op) -> list[tuple[int, int, int]]:
    return [
        (one.low, one.high, one.rows) for one in find_parts(lake.log.snapshot, after, until, ops)
    ]


@pytest.mark.parametrize(
    ("after", "until", "ops", "expected"),
    [
        pytest.param(-1, 9, (C, D), [(0, 0, 2), (1, 1, 1), (2, 2, 1)], id="all with such rows"),
        pytest.param(0, 2, (C, D), [(1, 1, 1), (2, 2, 1)], id="after is out, until is in"),
        pytest.param(-1, 9, (D,), [(2, 2, 1)], id="by kind"),
        pytest.param(-1, 9, (MARK,), [(n, n, 1) for n in range(4)], id="markers stand apart"),
        pytest.param(3, 9, EVERY, [], id="nothing newer"),
        pytest.param(-1, 9, (U,), [], id="no such row"),
    ],
)
def test_files_are_found_by_batch_and_kind(
    lake: LocalLake, after: int, until: int, ops: tuple[Op, ...], expected: list[tuple[int, ...]]
) -> None:
    assert found(lake, after, until, *ops) == expected


def test_without_a_kind_every_file_of_the_batches_is_found(lake: LocalLake) -> None:
    assert len(found(lake, -1, 9)) == 7
    assert len(found(lake, 1, 2)) == 2


def test_a_file_without_statistics_may_hold_anything(lake: LocalLake) -> None:
    for file in lake.log.snapshot.files.values():
        file.__dict__["stats"] = None

    assert found(lake, 2, 3, U) == [(-1, 3, 0)] * 7


def test_rows_are_read_by_a_column_and_their_kind(lake: LocalLake) -> None:
    files = find_parts(lake.log.snapshot, -1, 9)

    rows = scan_files(
        lake.log.store, files, among=("table", ("db.t",)), ops=(C,), columns=("offset", "batch")
    )

    assert sorted(map(tuple, (r.values() for r in rows.to_pylist()))) == [(10, 0), (11, 0)]
    assert rows.schema.field("offset").type == CHANGES.field("offset").type
    assert rows.column_names == ["offset", "batch"], "no column that was only looked at"


@pytest.mark.parametrize(
    ("among", "ops", "count"),
    [
        pytest.param(("table", ("db.u", "db.t")), EVERY, 4, id="several values, in any order"),
        pytest.param(("table", ("db.x",)), EVERY, 0, id="a table that is not there"),
        pytest.param(("table", ()), EVERY, 0, id="no value"),
        pytest.param(("table", ("db.t",)), (), 0, id="no kind"),
        pytest.param(("source", ("s",)), (C, D), 4, id="another column"),
        pytest.param(("lane", ("main",)), (MARK,), 4, id="markers have no table"),
    ],
)
def test_nothing_but_what_was_asked_for_is_read(
    lake: LocalLake, among: tuple[str, Sequence[str]], ops: tuple[Op, ...], count: int
) -> None:
    files = find_parts(lake.log.snapshot, -1, 9)

    assert len(scan_files(lake.log.store, files, among=among, ops=ops, columns=("key",))) == count


def test_no_file_gives_no_row_of_the_same_columns(lake: LocalLake) -> None:
    rows = scan_files(
        lake.log.store, (), among=("table", ("db.t",)), ops=EVERY, columns=("key", "batch")
    )

    assert (len(rows), rows.column_names) == (0, ["key", "batch"])


def test_row_groups_that_cannot_hold_the_value_are_not_read(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    mine = [row(C, 10 + n, n) for n in range(GROUP)]
    lake.land(*mine, *({**one, **other} for one in mine))
    lake.log.look()
    (file,) = find_parts(lake.log.snapshot, -1, 0, (C,))

    with pq.ParquetFile(lake.log.store.source(file.path)) as parquet:
        groups = [
            find_row_groups(parquet.metadata, "table", [name]) for name in ("db.t", "db.u", "x")
        ]
        unknown = find_row_groups(parquet.metadata, "raw", ["x"])

    assert groups == [[0], [1], []]
    assert unknown == [0, 1], "a column without bounds may hold anything"


@pytest.mark.parametrize("harm", ["gone", "cut"])
def test_a_file_that_cannot_be_read_is_named(lake: LocalLake, harm: str) -> None:
    (part,) = find_parts(lake.log.snapshot, -1, 0, (C,))
    file = Path(lake.settings.changes, part.path)
    if harm == "gone":
        file.unlink()
    else:
        file.write_bytes(file.read_bytes()[:-9])

    with pytest.raises(HeldError, match=f"file_damaged: .*{part.path}") as error:
        scan_files(lake.log.store, [part], among=("table", ("db.t",)), ops=EVERY, columns=("key",))

    assert "restore it" in error.value.detail
