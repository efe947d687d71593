"""What commits did to rows, put together again, is the mirror; of Delta and of the examples.

Covers pipeline/apply/row_changes.py and pipeline/tables/delta/row_changes.py.
"""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from examples.parquet_versions import ParquetVersions
from pipeline.apply.mirror_snapshot import CommitStamp
from pipeline.apply.table_format import Chores
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.model import Op, Order
from pipeline.sources.mysql.column import MySqlColumn as Column
from pipeline.tables.delta.row_changes import MirrorRows
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.pipeline.hand_lake import ID, NAME, HandLake, row

C, U, D, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.TRUNCATE
MORE = Column("more", "INT", default="7", has_default=True)
FORMATS: dict[str, type[Any]] = {"delta": DeltaMirrors, "parquet_versions": ParquetVersions}


@pytest.fixture(params=FORMATS)
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> HandLake:
    """A mirror with rows that came, changed and went, a new column, and a truncate."""
    made = HandLake(tmp_path, table_format=FORMATS[request.param](None))
    _apply(made, *(row(C, 10 + n, n, f"n{n}") for n in range(6)))
    _apply(made, row(U, 20, 1, "z"), row(D, 21, 2))
    _apply(made, row(C, 30, 2, "again"), row(D, 31, 3), row(C, 32, 9, "nine"))
    made.alter(ID, NAME, MORE, at=Order(1, 1, 40))
    _apply(made, row(U, 41, 9, after='{"id": 9, "name": "IX", "more": 1}'))
    _apply(made, row(T, 50, None), row(C, 51, 1, after='{"id": 1, "name": "new", "more": null}'))
    return made


def _apply(lake: HandLake, *rows: Any) -> None:
    lake.land(*rows)
    assert lake.apply().hold is None


def _seen(lake: HandLake) -> Any:
    found = lake.passes.mirrors.look("db.t")
    assert found is not None
    return found


def _whole(lake: HandLake, version: int) -> dict[int, dict[str, Any]]:
    parts = lake.table_format.contents(_seen(lake).uri, version)
    return {one["id"]: one for part in parts for rows in part() for one in rows.to_pylist()}


def _gone_by(lake: HandLake, since: int) -> dict[int, dict[str, Any]]:
    """The rows as of *since*, and all that commits did to them afterwards."""
    found, written = _whole(lake, since), dict[int, int]()
    for step in lake.table_format.changes(_seen(lake), since, ("id",)):
        for one in (one for part in step.came for rows in part() for one in rows.to_pylist()):
            found[one["id"]], written[one["id"]] = one, step.commit.version
        for one in (one for part in step.went for rows in part() for one in rows.to_pylist()):
            assert set(one) == {"id", "_sluice"}
            if written.get(one["id"]) != step.commit.version:
                del found[one["id"]]
    return found


def test_from_every_version_on_the_changes_lead_to_the_newest(lake: HandLake) -> None:
    newest = _seen(lake).version
    want = _whole(lake, newest)

    assert {key: one["name"] for key, one in want.items()} == {1: "new"}
    assert [_gone_by(lake, since) for since in range(newest + 1)] == [want] * (newest + 1)


def test_what_is_told_of_a_version_is_what_stands_in_it(tmp_path: Path) -> None:
    lake = HandLake(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")], [row(U, 20, 1, "z"), row(D, 21, 2)])

    told = {n: {k: r["name"] for k, r in _whole(lake, n).items()} for n in range(3)}

    assert told == {0: {}, 1: {1: "a", 2: "b"}, 2: {1: "z"}}


def test_only_rows_that_a_commit_wrote_are_read(tmp_path: Path) -> None:
    lake = HandLake(tmp_path)
    lake.play([row(C, 10 + n, n, f"n{n}") for n in range(50)], [row(U, 90, 7, "z")])

    (step,) = lake.table_format.changes(_seen(lake), 1, ("id",))

    assert [r.to_pylist()[0]["name"] for part in step.came for r in part()] == ["z"]
    assert [r["id"].to_pylist() for part in step.went for r in part()] == [[7]]


def test_rows_that_were_only_moved_are_told_of_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = HandLake(tmp_path)
    lake.play(*([row(C, 10 + n, n, f"n{n}")] for n in range(3)))
    before = _seen(lake)
    monkeypatch.setattr("pipeline.tables.delta.mirror_upkeep.worn", lambda files, _: tuple(files))
    after = lake.table_format.kept(before, Chores(CommitStamp("main", lake.now), ("id",)))

    (step,) = lake.table_format.changes(after, before.version, ("id",))

    assert (step.came, step.went) == ((), ())
    assert step.commit.after == before.version


def test_a_commit_that_is_no_longer_in_the_log_is_not_passed_over(lake: HandLake) -> None:
    uri = Path(_seen(lake).uri)
    gone = uri / "_delta_log" / f"{3:020}.json"
    (gone if gone.exists() else uri / "versions" / "3.json").unlink()

    with pytest.raises((ProofError, HeldError)):
        _gone_by(lake, 1)


def test_a_version_that_is_not_there_cannot_be_read(lake: HandLake) -> None:
    with pytest.raises(UnreachableError):
        lake.table_format.contents(_seen(lake).uri, 99)


def test_a_partitioned_mirror_is_refused(tmp_path: Path) -> None:
    lake = HandLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])
    seen = _seen(lake)
    parted = replace(seen, metadata=replace(seen.metadata, partition_columns=("name",)))

    with pytest.raises(HeldError, match="partitioned"):
        MirrorRows(lake.table_format.store(seen.uri), parted)


def test_columns_are_those_of_the_newest_version(tmp_path: Path) -> None:
    lake = HandLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])
    lake.alter(ID, NAME, replace(MORE, has_default=False, default=None), at=Order(1, 1, 20))
    lake.now += timedelta(days=1)
    lake.play([row(U, 21, 1, after='{"id": 1, "name": "b", "more": 5}')])

    steps = lake.table_format.changes(_seen(lake), 0, ("id",))
    told = [r.to_pylist() for step in steps for part in step.came for r in part()]

    assert [[one["more"] for one in rows] for rows in told] == [[None], [5]]
