import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pipeline.changelog import maintenance
from pipeline.changelog.scan import WantedBatches, find_parts, read_tables
from pipeline.delta.commit import commit_actions
from pipeline.delta.log import ActiveFile, Snapshot, empty_snapshot
from pipeline.model import Op
from tests.builders.change_log import read_table
from tests.builders.lake import LocalLake, row

C, D = Op.CREATE, Op.DELETE
NOW = datetime(2026, 1, 2, 5, tzinfo=UTC)


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """Twelve batches of two tables: 24 files, with the markers'."""
    made = LocalLake(tmp_path, others=("db.u",))
    other = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}
    for batch in range(12):
        made.land(row(C, 10 + batch, batch, "a"), row(D, 50 + batch, batch), row(C, 9, 1) | other)
    return made


def joined(lake: LocalLake) -> int:
    """Compact once; the number of files that came."""
    lake.log.look()
    store, snapshot = lake.log.store, lake.log.snapshot
    made = maintenance.join_files(store, snapshot, maintenance.find_joinable(snapshot), NOW)
    commit_actions(store, snapshot, made.actions, operation="OPTIMIZE", clock=NOW)
    lake.log.look()
    return len(made.files)


def read_rows(lake: LocalLake) -> list[tuple[object, ...]]:
    """All rows, as code that is not ours reads them."""
    found = read_table(lake.settings.changes)
    asked = 'SELECT batch, op, "table", key, "after", dt, "offset" FROM t'
    return sorted((tuple(map(str, r.values())) for r in found.select(asked)), key=str)


def test_every_row_is_there_once_and_in_its_day(lake: LocalLake) -> None:
    before = read_rows(lake)

    made = joined(lake)

    assert read_rows(lake) == before
    assert made == 3, "changes, deletes and markers apart"
    assert len(lake.log.snapshot.files) == 3


def test_nothing_of_it_is_a_change_of_data(lake: LocalLake) -> None:
    joined(lake)

    name = f"_delta_log/{lake.log.snapshot.version:020d}.json"
    lines = [json.loads(line) for line in lake.log.store.read(name).splitlines()]
    files = [line[kind] for line in lines for kind in ("add", "remove") if kind in line]
    assert {file["dataChange"] for file in files} == {False}


def test_marks_and_slices_are_read_from_what_was_joined(lake: LocalLake) -> None:
    joined(lake)
    fresh = lake.log.checkpoint()
    files = find_parts(lake.log.snapshot, 3, 5)

    found = read_tables(
        lake.log.store, files, {"db.u": WantedBatches(3, 5), "db.t": WantedBatches(4, 5)}
    )

    assert fresh == lake.checkpoint
    assert sorted(found["db.u"]["batch"].to_pylist()) == [4, 5]
    assert sorted(found["db.t"]["op"].to_pylist()) == ["c", "d"]


def test_few_files_are_left_as_they_are(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    for batch in range(7):
        lake.land(row(C, batch, batch))
    lake.log.look()

    assert maintenance.find_joinable(lake.log.snapshot) == ()


def test_a_mirror_is_applied_alike_before_and_after(lake: LocalLake) -> None:
    lake.land(row(C, 70, 5, "b"))
    joined(lake)
    lake.now += timedelta(minutes=1)

    assert lake.play([row(C, 80, 6, "c")]) == {5: "b", 6: "c"}


MIB = 2**20


def sized(*sizes: int, day: str = "2026-01-02", first: int = 0) -> dict[str, ActiveFile]:
    return {
        f"{day}/{n}": ActiveFile(
            {
                "path": f"{day}/{n}",
                "size": size,
                "partitionValues": {"dt": day},
                "modificationTime": first + n,
            }
        )
        for n, size in enumerate(sizes)
    }


def made_of(files: Mapping[str, ActiveFile]) -> Snapshot:
    return replace(empty_snapshot("log"), files=files)


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([MIB // 2] * 15, 0, id="fewer than are worth joining"),
        pytest.param([MIB // 2] * 16, 16, id="as many as are worth joining"),
        pytest.param([MIB // 2] * 15 + [2 * MIB] * 15, 0, id="sizes are counted apart"),
        pytest.param([40 * MIB] * 30, 0, id="a large file stays as it is"),
        pytest.param([6 * MIB] * 30, 8, id="no more bytes than are read at once"),
        pytest.param([100] * 900, 500, id="nor more files"),
    ],
)
def test_files_of_a_day_are_joined_by_size(sizes: list[int], expected: int) -> None:
    snapshot = made_of(sized(*sizes))

    assert len(maintenance.find_joinable(snapshot)) == expected


def test_the_oldest_files_of_the_oldest_day_come_first() -> None:
    young = sized(*[100] * 20, day="2026-01-03")
    old = sized(*[100] * 600)

    found = maintenance.find_joinable(made_of(young | old))

    assert [file.path for file in found] == list(old)[:500]


@example([31 * MIB] * 16, 16)
@given(st.lists(st.integers(1, 40 * MIB), max_size=60), st.integers(16, 40))
def test_no_day_keeps_a_later_one_from_being_joined(sizes: list[int], count: int) -> None:
    """Two files of any size that is joined at all may be read at once."""
    first, later = sized(*sizes), sized(*[100] * count, day="2026-01-03")
    snapshot = made_of(first | later)
    rounds = 0
    while taken := maintenance.find_joinable(snapshot):
        rounds += 1
        assert len(taken) > 1
        assert sum(file.size for file in taken) <= maintenance.AT_ONCE
        day = str(taken[0].partition["dt"])
        made = sized(sum(file.size for file in taken), day=day, first=1000 + rounds)
        files = {path: file for path, file in snapshot.files.items() if file not in taken}
        snapshot = replace(snapshot, files=files | {f"made {rounds}": made[f"{day}/0"]})

    assert sum(path.startswith("2026-01-03") for path in snapshot.files) == 0
