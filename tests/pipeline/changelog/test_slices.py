"""Each table's slice holds exactly its own batches, whatever the others have still to apply."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.changelog import scan as slices
from pipeline.changelog.scan import (
    APPLIED_COLUMNS,
    Part,
    TableRows,
    WantedBatches,
    find_parts,
    limit_batches,
    open_file,
    read_tables,
    scan_files,
)
from pipeline.delta.store import Store
from pipeline.model import Op
from tests.builders.lake import LocalLake, row

C = Op.CREATE
NAMES = ("db.t", "db.u")
BATCHES = 6


def land_batch(lake: LocalLake, batch: int, *tables: str) -> None:
    lake.land(*(row(C, 10 + batch, batch, "a", table=t, shard=t, topic=f"s.{t}") for t in tables))


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> LocalLake:
    """Six batches; the other table has a change in every second one."""
    made = LocalLake(tmp_path_factory.mktemp("lake"), others=NAMES[1:])
    for batch in range(BATCHES):
        land_batch(made, batch, *(NAMES if batch % 2 else NAMES[:1]))
    made.log.look()
    return made


def batches(lake: LocalLake, **wanted: WantedBatches) -> dict[str, list[int]]:
    asked = {f"db.{name}": one for name, one in wanted.items()}
    files = find_parts(lake.log.snapshot, -1, BATCHES)
    found = read_tables(lake.log.store, files, asked)
    return {name: sorted(rows["batch"].to_pylist()) for name, rows in found.items()}


wanteds = st.tuples(st.integers(-1, BATCHES), st.integers(-1, BATCHES)).map(
    lambda pair: WantedBatches(min(pair), max(pair))
)


@given(wanteds, wanteds)
def test_a_slice_holds_its_own_batches_and_no_other(
    lake: LocalLake, mine: WantedBatches, other: WantedBatches
) -> None:
    found = batches(lake, t=mine, u=other)

    expected = {
        "db.t": [n for n in range(BATCHES) if mine.after < n <= mine.until],
        "db.u": [n for n in range(1, BATCHES, 2) if other.after < n <= other.until],
    }
    assert found == {name: numbers for name, numbers in expected.items() if numbers}


def test_a_table_that_is_not_wanted_or_not_there_is_absent(lake: LocalLake) -> None:
    assert batches(lake, u=WantedBatches(-1, 5)).keys() == {"db.u"}
    assert batches(lake, x=WantedBatches(-1, 5)) == {}
    assert batches(lake) == {}


def test_what_is_read_is_what_a_turn_needs_and_no_marker(lake: LocalLake) -> None:
    files = find_parts(lake.log.snapshot, -1, BATCHES)

    found = read_tables(lake.log.store, files, {"db.t": WantedBatches(0, 1)})

    assert tuple(found["db.t"].column_names) == APPLIED_COLUMNS
    assert found["db.t"]["op"].to_pylist() == ["c"]


def test_only_files_that_may_hold_a_wanted_batch_are_opened(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    for batch in range(4):
        land_batch(lake, batch, "db.t")
    lake.log.look()
    files = find_parts(lake.log.snapshot, -1, 4)
    for part in files:
        if part.low != 2:
            Path(lake.settings.changes, part.path).unlink()

    found = read_tables(lake.log.store, files, {"db.t": WantedBatches(1, 2)})

    assert found["db.t"]["batch"].to_pylist() == [2]


@pytest.mark.parametrize(
    ("after", "until", "most", "stop"),
    [
        pytest.param(-1, 5, 100, 5, id="all of it fits"),
        pytest.param(-1, 5, 2, 1, id="older batches first"),
        pytest.param(1, 5, 2, 3, id="from where the mirror stands"),
        pytest.param(-1, 5, 0, 0, id="at least one file, or it would stand for ever"),
        pytest.param(-1, 2, 2, 1, id="never beyond what was wanted"),
    ],
)
def test_f16_a_slice_stops_after_so_many_rows_of_its_own_table(
    tmp_path: Path, after: int, until: int, most: int, stop: int
) -> None:
    lake = LocalLake(tmp_path)
    for batch in range(BATCHES):
        land_batch(lake, batch, "db.t")
    lake.log.look()
    files = find_parts(lake.log.snapshot, after, until, (C,))

    found = limit_batches(
        TableRows(lake.log.store), files, "db.t", WantedBatches(after, until), most
    )

    assert found == WantedBatches(after, stop)


class OwnRows(TableRows):
    """All rows of a file are of the table."""

    def of(self, part: Part, table: str) -> int:
        del table
        return part.rows


@pytest.mark.parametrize("rows", [(0, 3), (3, 0), (2, 2)])
def test_of_a_batch_all_files_are_read_or_none(lake: LocalLake, rows: tuple[int, int]) -> None:
    """Whichever comes first: the others of its batch count before the slice may end behind it."""
    first = Part("a", 0, 0, rows=1)
    files = (first, *(replace(first, path=f"b{n}", low=1, high=1, rows=n) for n in rows))

    found = limit_batches(OwnRows(lake.log.store), files, "db.t", WantedBatches(-1, 1), 2)

    assert found == WantedBatches(-1, 0)


def test_files_without_a_row_of_the_table_end_no_slice(lake: LocalLake) -> None:
    """A turn each of them would read what came before it again."""
    files = (Part("a", 0, 5, rows=3), *(Part(f"b{n}", n, n) for n in range(1, 6)))

    found = limit_batches(OwnRows(lake.log.store), files, "db.t", WantedBatches(-1, 5), 2)

    assert found == WantedBatches(-1, 5)


def test_f16_rows_of_others_count_for_nobody_else(tmp_path: Path) -> None:
    """A table with little to apply comes to the newest batch, however much the others have."""
    lake = LocalLake(tmp_path, others=NAMES[1:])
    land_batch(lake, 0, "db.t")
    for batch in range(1, 5):
        land_batch(lake, batch, *["db.u"] * 50)
    land_batch(lake, 5, "db.t")
    lake.log.look()
    files = find_parts(lake.log.snapshot, -1, 5, (C,))

    assert limit_batches(
        TableRows(lake.log.store), files, "db.t", WantedBatches(-1, 5), 60
    ) == WantedBatches(-1, 5)
    assert limit_batches(
        TableRows(lake.log.store), files, "db.u", WantedBatches(-1, 5), 60
    ) == WantedBatches(-1, 1)


def test_bounded_slices_one_after_the_other_read_everything_once(lake: LocalLake) -> None:
    after, seen = -1, []
    while after < BATCHES - 1:
        files = find_parts(lake.log.snapshot, after, BATCHES - 1)
        wanted = limit_batches(
            TableRows(lake.log.store), files, "db.t", WantedBatches(after, BATCHES - 1), 2
        )
        assert wanted.until > after
        seen += batches(lake, t=wanted).get("db.t", [])
        after = wanted.until

    assert seen == [*range(BATCHES)]


def test_a_footer_is_read_once_for_all_tables(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = find_parts(lake.log.snapshot, -1, BATCHES, (C,))
    read_: list[str] = []

    def told(store: Store, path: str) -> Any:
        read_.append(path)
        return open_file(store, path)

    monkeypatch.setattr(slices, "open_file", told)
    rows = TableRows(lake.log.store)

    for name in NAMES:
        limit_batches(rows, files, name, WantedBatches(-1, BATCHES), 100)

    assert sorted(read_) == sorted(part.path for part in files)


def test_a_table_far_behind_makes_no_other_read_its_old_rows_again(
    lake: LocalLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows: list[int] = []

    def counted(*args: Any, **more: Any) -> Any:
        found = scan_files(*args, **more)
        rows.append(len(found))
        return found

    monkeypatch.setattr(slices, "scan_files", counted)

    found = batches(lake, t=WantedBatches(BATCHES - 2, BATCHES - 1), u=WantedBatches(-1, BATCHES))

    assert found == {"db.t": [BATCHES - 1], "db.u": [1, 3, 5]}
    assert sum(rows) == 4
