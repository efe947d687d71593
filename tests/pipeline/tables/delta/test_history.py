"""What commits did to rows, put together again, is the mirror; of Delta and of the examples."""

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from operator import itemgetter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from examples.parquet_versions import ParquetVersions
from pipeline.apply.mirror import CommitStamp
from pipeline.apply.table_format import MaintenanceWork
from pipeline.delta.log import load_version
from pipeline.delta.store import open_store
from pipeline.errors import HeldError, ProofError, UnreachableError
from pipeline.model import Op, Order
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.history import MirrorRows
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import ID, NAME, LocalLake, row

C, U, D, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.TRUNCATE
MORE = Column("more", "INT", default="7", has_default=True)
FORMATS: dict[str, type[Any]] = {"delta": DeltaMirrors, "parquet_versions": ParquetVersions}


@pytest.fixture(params=FORMATS)
def lake(tmp_path: Path, request: pytest.FixtureRequest) -> LocalLake:
    """A mirror with rows that came, changed and went, a new column, and a truncate."""
    made = LocalLake(tmp_path, table_format=FORMATS[request.param](None))
    _apply(made, *(row(C, 10 + n, n, f"n{n}") for n in range(6)))
    _apply(made, row(U, 20, 1, "z"), row(D, 21, 2))
    _apply(made, row(C, 30, 2, "again"), row(D, 31, 3), row(C, 32, 9, "nine"))
    made.alter(ID, NAME, MORE, at=Order(1, 1, 40))
    _apply(made, row(U, 41, 9, after='{"id": 9, "name": "IX", "more": 1}'))
    _apply(made, row(T, 50, None), row(C, 51, 1, after='{"id": 1, "name": "new", "more": null}'))
    return made


def _apply(lake: LocalLake, *rows: Any) -> None:
    lake.land(*rows)
    assert lake.apply().hold is None


def _newest_mirror(lake: LocalLake) -> Any:
    found = lake.runner.mirrors.look("db.t")
    assert found is not None
    return found


def _whole(lake: LocalLake, version: int) -> dict[int, dict[str, Any]]:
    parts = lake.table_format.contents(_newest_mirror(lake).uri, version)
    return {one["id"]: one for part in parts for rows in part() for one in rows.to_pylist()}


def _gone_by(lake: LocalLake, since: int) -> dict[int, dict[str, Any]]:
    """The rows as of *since*, and all that commits did to them afterwards."""
    found, written = _whole(lake, since), dict[int, int]()
    for step in lake.table_format.changes(_newest_mirror(lake), since, ("id",)):
        for one in (one for part in step.came for rows in part() for one in rows.to_pylist()):
            found[one["id"]], written[one["id"]] = one, step.commit.version
        for one in (one for part in step.went for rows in part() for one in rows.to_pylist()):
            assert set(one) == {"id", "_sluice"}
            if written.get(one["id"]) != step.commit.version:
                del found[one["id"]]
    return found


def test_from_every_version_on_the_changes_lead_to_the_newest(lake: LocalLake) -> None:
    newest = _newest_mirror(lake).version
    want = _whole(lake, newest)

    assert {key: one["name"] for key, one in want.items()} == {1: "new"}
    assert [_gone_by(lake, since) for since in range(newest + 1)] == [want] * (newest + 1)


def test_what_is_told_of_a_version_is_what_stands_in_it(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a"), row(C, 11, 2, "b")], [row(U, 20, 1, "z"), row(D, 21, 2)])

    told = {n: {k: r["name"] for k, r in _whole(lake, n).items()} for n in range(3)}

    assert told == {0: {}, 1: {1: "a", 2: "b"}, 2: {1: "z"}}


def test_only_rows_that_a_commit_wrote_are_read(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10 + n, n, f"n{n}") for n in range(50)], [row(U, 90, 7, "z")])

    (step,) = lake.table_format.changes(_newest_mirror(lake), 1, ("id",))

    assert [r.to_pylist()[0]["name"] for part in step.came for r in part()] == ["z"]
    assert [r["id"].to_pylist() for part in step.went for r in part()] == [[7]]


def test_rows_that_were_only_moved_are_told_of_by_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = LocalLake(tmp_path)
    lake.play(*([row(C, 10 + n, n, f"n{n}")] for n in range(3)))
    before = _newest_mirror(lake)
    monkeypatch.setattr(
        "pipeline.tables.delta.table_format.files_to_compact", lambda files, _: tuple(files)
    )
    after = lake.table_format.kept(before, MaintenanceWork(CommitStamp("main", lake.now), ("id",)))

    (step,) = lake.table_format.changes(after, before.version, ("id",))

    assert (step.came, step.went) == ((), ())
    assert step.commit.after == before.version


def test_a_commit_that_is_no_longer_in_the_log_is_not_passed_over(lake: LocalLake) -> None:
    uri = Path(_newest_mirror(lake).uri)
    gone = uri / "_delta_log" / f"{3:020}.json"
    (gone if gone.exists() else uri / "versions" / "3.json").unlink()

    with pytest.raises((ProofError, HeldError)):
        _gone_by(lake, 1)


def test_a_version_that_is_not_there_cannot_be_read(lake: LocalLake) -> None:
    with pytest.raises(UnreachableError):
        lake.table_format.contents(_newest_mirror(lake).uri, 99)


DAY, PRICE = date(2026, 1, 2), Decimal("1.50")
PARTED = [
    {"id": 1, "name": "a b/ü", "day": DAY, "price": PRICE, "flag": True},
    {"id": 2, "name": None, "day": DAY, "price": None, "flag": False},
    {"id": 3, "name": "c", "day": None, "price": PRICE, "flag": None},
]
PARTED_SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("price", pa.decimal128(5, 2)),
        ("flag", pa.bool_()),
    ]
)


def test_of_a_partitioned_mirror_the_log_tells_the_rest(tmp_path: Path) -> None:
    """Written by another writer, as such mirrors are."""
    uri, by = str(tmp_path / "parted"), ["name", "day", "price", "flag"]
    write_deltalake(uri, pa.Table.from_pylist(PARTED[:2], PARTED_SCHEMA), partition_by=by)
    write_deltalake(uri, pa.Table.from_pylist(PARTED[2:], PARTED_SCHEMA), mode="append")
    DeltaTable(uri).delete("id = 1")
    store = open_store(uri)

    whole, last = (MirrorRows(store, load_version(store, version)) for version in (1, 2))

    told = [one for part in whole.contents() for some in part() for one in some.to_pylist()]
    assert sorted(told, key=itemgetter("id")) == PARTED
    (step,) = last.changes(1, ("id", "day"))
    gone = [one for part in step.went for some in part() for one in some.to_pylist()]
    assert gone == [{"id": 1, "day": DAY}]
    assert not step.came


@pytest.mark.parametrize("kind", ["timestamp", "timestamp_ntz", "binary"])
def test_one_partitioned_by_what_may_be_told_in_more_ways_than_one_is_refused(
    tmp_path: Path, kind: str
) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])
    seen = _newest_mirror(lake)
    text = seen.metadata.schema_string.replace(
        '"name":"name","type":"string"', f'"name":"name","type":"{kind}"'
    )
    assert text != seen.metadata.schema_string
    odd = replace(seen.metadata, partition_columns=("name",), schema_string=text)

    with pytest.raises(HeldError, match="is partitioned by name, a "):
        MirrorRows(lake.table_format.store(seen.uri), replace(seen, metadata=odd))


def test_columns_are_those_of_the_newest_version(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(C, 10, 1, "a")])
    lake.alter(ID, NAME, replace(MORE, has_default=False, default=None), at=Order(1, 1, 20))
    lake.now += timedelta(days=1)
    lake.play([row(U, 21, 1, after='{"id": 1, "name": "b", "more": 5}')])

    steps = lake.table_format.changes(_newest_mirror(lake), 0, ("id",))
    told = [r.to_pylist() for step in steps for part in step.came for r in part()]

    assert [[one["more"] for one in rows] for rows in told] == [[None], [5]]
