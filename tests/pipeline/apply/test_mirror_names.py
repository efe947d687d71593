"""A mirror names its table, so that the mirror of another table in its folder is refused."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from examples.parquet_versions import ParquetVersions
from pipeline.apply.mirror import TABLE
from pipeline.errors import HeldError, UnreachableError
from pipeline.model import Op, Shard, Table
from pipeline.reports import Hold
from pipeline.tables.delta.table_format import DeltaMirrors
from pipeline.tables.lake import Lake
from tests.builders.lake import LocalLake, row

T, U = "db.t", "db.u"
OF_U = {"shard": U, "table": U, "topic": f"s.{U}"}
FORMATS = [
    pytest.param(DeltaMirrors, id="delta"),
    pytest.param(ParquetVersions, id="parquet"),
]


def two_mirrors(home: Path, table_format: Callable[[Any], Any] = DeltaMirrors) -> LocalLake:
    """Mirrors of t and u, with different rows of one shape, applied through the same batch."""
    lake = LocalLake(home, others=(U,), table_format=table_format(None))
    lake.land(row(Op.CREATE, 10, 1, "t"), row(Op.CREATE, 11, 1, "u", **OF_U))
    assert holds(lake) == {}
    return lake


def land_more(lake: LocalLake, pos: int, key: int) -> None:
    lake.land(row(Op.CREATE, pos, key, "t"), row(Op.CREATE, pos + 1, key, "u", **OF_U))


def folders(lake: LocalLake) -> tuple[Path, Path]:
    return Path(lake.settings.mirror(T)), Path(lake.settings.mirror(U))


def swap(lake: LocalLake) -> None:
    one, other = folders(lake)
    one.rename(one.with_name("away"))
    other.rename(one)
    one.with_name("away").rename(other)


def holds(lake: LocalLake) -> dict[str, Hold]:
    """What holds each table after a few runs; the first may only report older merges."""
    runs = [lake.run() for _ in range(3)]
    return {one.table: one.hold for run in runs[-1:] for one in run if one.hold is not None}


def gate_look(lake: LocalLake) -> Lake:
    return Lake(lake.settings, lake.table_format)


def refusal(look: Lake, table: str) -> str:
    with pytest.raises(HeldError, match="table_replaced") as refused:
        look.applied(table)
    return refused.value.detail


@pytest.mark.parametrize("restarted", [True, False])
@pytest.mark.parametrize("table_format", FORMATS)
def test_swapped_mirrors_are_refused_until_they_are_swapped_back(
    tmp_path: Path, table_format: Callable[[Any], Any], *, restarted: bool
) -> None:
    lake = two_mirrors(tmp_path, table_format)
    watching = gate_look(lake)
    assert watching.applied(T) is not None
    swap(lake)
    if restarted:
        lake.reopen()
        watching = gate_look(lake)
    before = [sorted(folder.rglob("*")) for folder in folders(lake)]
    land_more(lake, 20, 2)

    held = holds(lake)
    seen = {table: [refusal(watching, table) for _ in range(2)][-1] for table in (T, U)}

    assert {table: hold.reason for table, hold in held.items()} == dict.fromkeys(
        (T, U), "table_replaced"
    )
    assert {table: hold.detail for table, hold in held.items()} == seen
    for table, folder, other in zip((T, U), folders(lake), (U, T), strict=True):
        assert f"folder {folder} has the mirror of table {other}, not of {table};" in seen[table]
    assert [sorted(folder.rglob("*")) for folder in folders(lake)] == before

    swap(lake)
    assert holds(lake) == {}
    positions = [watching.applied(table) for table in (T, U)]
    assert [one and one.batch for one in positions] == [lake.checkpoint.batch] * 2


def test_both_tables_are_right_after_a_swap_is_undone(tmp_path: Path) -> None:
    lake = two_mirrors(tmp_path)
    swap(lake)
    land_more(lake, 20, 2)
    holds(lake)
    swap(lake)
    holds(lake)

    assert (lake.rows(T), lake.rows(U)) == ({1: "t", 2: "t"}, {1: "u", 2: "u"})


def test_a_copy_of_another_tables_mirror_is_refused_and_the_other_table_goes_on(
    tmp_path: Path,
) -> None:
    lake = two_mirrors(tmp_path)
    one, other = folders(lake)
    shutil.rmtree(other)
    shutil.copytree(one, other)
    land_more(lake, 20, 2)

    assert {table: hold.reason for table, hold in holds(lake).items()} == {U: "table_replaced"}
    assert lake.rows(T) == {1: "t", 2: "t"}
    assert f"of table {T}, not of {U}" in refusal(gate_look(lake), U)


def test_a_mirror_that_is_rebuilt_names_its_table_and_ends_the_refusal(tmp_path: Path) -> None:
    lake = two_mirrors(tmp_path)
    swap(lake)
    land_more(lake, 20, 2)
    assert set(holds(lake)) == {T, U}
    one, other = folders(lake)
    shutil.rmtree(one)
    other.rename(one)

    assert holds(lake) == {}

    assert {table: lake.snapshot(table).remembered[TABLE] for table in (T, U)} == {T: T, U: U}
    assert (lake.rows(T), lake.rows(U)) == ({1: "t", 2: "t"}, {1: "u", 2: "u"})


def forget_name(folder: Path) -> None:
    """Let the mirror be one of a Sluice that stored no name."""
    for entry in sorted((folder / "_delta_log").glob("*.json")):
        lines = [json.loads(line) for line in entry.read_text().splitlines()]
        for line in lines:
            line.get("metaData", {}).get("configuration", {}).pop(TABLE, None)
        entry.write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_a_mirror_without_a_name_is_accepted_and_gets_it_with_its_next_merge(
    tmp_path: Path,
) -> None:
    lake = two_mirrors(tmp_path)
    forget_name(folders(lake)[0])
    lake.reopen()
    nameless = gate_look(lake).applied(T)
    assert TABLE not in lake.snapshot().remembered
    assert nameless is not None

    land_more(lake, 20, 2)
    assert holds(lake) == {}
    named = lake.snapshot()
    land_more(lake, 30, 3)
    assert holds(lake) == {}

    assert named.remembered[TABLE] == T
    assert (named.version, lake.snapshot().version) == (nameless.version + 1, named.version + 1)
    assert lake.rows() == {1: "t", 2: "t", 3: "t"}


def test_another_tables_mirror_that_comes_where_none_was_is_refused(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, others=(U,))
    lake.play([row(Op.CREATE, 10, 1, "t")])
    mirrors = lake.runner.mirrors
    assert mirrors.look(U) is None
    shutil.copytree(*folders(lake))

    for ask in (mirrors.look, mirrors.applied):
        with pytest.raises(HeldError, match=f"of table {T}, not of {U}"):
            ask(U)


def test_probes_read_no_rows_of_another_tables_mirror(tmp_path: Path) -> None:
    lake = two_mirrors(tmp_path)
    swap(lake)
    table = Table(T, (Shard("s", T),), ("id",), "id")

    with pytest.raises(UnreachableError, match=f"of table {U}, not of {T}"):
        gate_look(lake).mirror(table)


def test_a_refused_mirror_is_not_read_from_its_beginning_in_each_look(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = two_mirrors(tmp_path)
    swap(lake)
    watching, known, look = gate_look(lake), list[object](), lake.table_format.look
    refusal(watching, T)

    def noted(uri: str, before: Any) -> Any:
        known.append(before)
        return look(uri, before)

    monkeypatch.setattr(lake.table_format, "look", noted)

    refusal(watching, T)

    assert known
    assert None not in known
