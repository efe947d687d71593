"""A row that takes another key goes to no archive, though its delete and create land apart."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.apply import archive_evidence
from pipeline.archive import ArchiveMarker, ArchiveRule
from pipeline.changelog.scan import placed_parts, scan
from pipeline.model import Op, Order
from tests.pipeline.apply.test_archived import FORMATS, NEW, OLD, RULE, C, D, U, purged, sourced
from tests.pipeline.hand_lake import HandLake, row

DELETE, CREATE = row(D, 20, 1, OLD), row(C, 20, 7, OLD)


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize(
    "batches",
    [
        pytest.param([[DELETE], [CREATE]], id="the delete first"),
        pytest.param([[CREATE], [DELETE]], id="the create first"),
        pytest.param([[DELETE], [row(U, 21, 3, NEW)], [CREATE]], id="another between them"),
        pytest.param([[DELETE], [CREATE], [CREATE], [DELETE]], id="both sent again"),
    ],
)
def test_a_key_that_was_left_is_no_archived_row(
    tmp_path: Path, table_format: Any, batches: list[list[dict[str, Any]]]
) -> None:
    lake, _ = purged(tmp_path, row(U, 13, 3, NEW), table_format=table_format(None))

    for batch in batches:
        lake.land(*batch)
        turn = lake.apply()
        assert (turn.hold, turn.account.residual) == (None, 0)

    assert sourced(lake) == (2, 3, 7)
    assert lake.runner.table_format.count(lake.runner.mirrors.look("db.t")) == 3


def test_a_create_that_has_landed_is_known_before_its_turn(tmp_path: Path) -> None:
    lake, _ = purged(tmp_path, row(U, 13, 3, NEW))
    lake.land(DELETE)
    until = lake.checkpoint.tables
    lake.land(CREATE)
    whole, lake.checkpoint = lake.checkpoint, replace(lake.checkpoint, tables=until)

    lake.run()
    assert 1 not in lake.rows()
    lake.checkpoint = whole
    assert lake.apply().hold is None
    assert sourced(lake) == (2, 3, 7)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(row(C, 21, 7, OLD), id="another place"),
        pytest.param(row(C, 20, 7, OLD, order=Order(1, 2, 20)), id="another log"),
        pytest.param(row(U, 20, 7, OLD), id="no create"),
    ],
)
def test_what_only_came_later_is_no_partner(tmp_path: Path, other: dict[str, Any]) -> None:
    lake, _ = purged(tmp_path, DELETE)

    lake.play([other])

    assert sourced(lake) == (2, 3, 7)
    assert lake.rows()[1] == OLD


def test_files_of_other_orders_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[int] = []

    def counted(store: Any, files: Sequence[Any], **more: Any) -> pa.Table:
        read.append(len(files))
        return scan(store, files, **more)

    monkeypatch.setattr(archive_evidence, "scan", counted)
    lake, _ = purged(tmp_path, DELETE)
    for pos in range(30, 36):
        lake.play([row(C, pos, pos, NEW)])

    assert max(read) <= 1


def test_the_files_of_a_version_are_found_once_for_all_tables(tmp_path: Path) -> None:
    lake, _ = purged(tmp_path, DELETE)
    ops = (Op.CREATE, Op.DELETE)

    found = placed_parts(lake.log.snapshot, lake.checkpoint.batch, ops)
    assert placed_parts(lake.log.snapshot, lake.checkpoint.batch, ops) is found

    lake.land(CREATE)
    assert len(placed_parts(lake.log.snapshot, lake.checkpoint.batch, ops)) == len(found) + 1


def test_a_table_of_which_nothing_is_said_asks_for_none(tmp_path: Path) -> None:
    lake = HandLake(tmp_path, archive=(ArchiveRule("x.*", RULE[0].windows),))
    lake.play([CREATE])
    table = lake.state().catalog.table("db.t", lake.checkpoint.shards)

    assert lake.runner.jobs.archive_of(table.name) is None


def test_markers_count_as_windows_do(tmp_path: Path) -> None:
    rules = (ArchiveRule("db.*", (), (ArchiveMarker("db.runs"),)),)
    lake = HandLake(tmp_path, archive=rules)

    assert lake.play([row(C, 10, 1, OLD)], [row(C, 11, 2, OLD)]) == {1: OLD, 2: OLD}
