"""Markers and partners decide, across batches, which deletes are an archive's."""

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pipeline.apply import archive_evidence
from pipeline.archive import ArchiveMarker, ArchiveRule, ArchiveWindow
from pipeline.changelog.scan import placed_parts, scan_files
from pipeline.model import Op, Order
from tests.builders.lake import NOW, LocalLake, row
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.test_archived import FORMATS, NEW, OLD, RULE, U, purged, sourced

C, D = Op.CREATE, Op.DELETE
RUNS = ArchiveMarker("db.runs", "who", ("archiver", "cron"))
WINDOW = ArchiveWindow(NOW, NOW + timedelta(hours=1))
MARKED = (ArchiveRule("db.t", markers=(RUNS,)),)


def in_tx(name: str | None, change: dict[str, Any]) -> dict[str, Any]:
    return change | {"tx": None if name is None else {"id": name, "total_order": 1}}


def marker(pos: int, tx: str, who: str) -> dict[str, Any]:
    text = json.dumps({"id": pos, "who": who})
    own = {"table": "db.runs", "shard": "db.runs", "topic": "s.db.runs", "after": text}
    return in_tx(tx, row(C, pos, pos, **own))


def archive_lake(home: Path, rule: tuple[ArchiveRule, ...] = MARKED) -> LocalLake:
    made = LocalLake(home, archive=rule, others=("db.runs",))
    made.land(*(row(C, n, n, "x") for n in range(1, 6)))
    assert made.apply().hold is None
    return made


def test_deletes_beside_a_marker_leave_their_rows(tmp_path: Path) -> None:
    made = archive_lake(tmp_path)
    made.prove(500)

    made.land(
        *(in_tx("g:1", row(D, 20 + n, n, "x")) for n in (1, 2)),
        marker(23, "g:1", "archiver"),
        in_tx("g:2", row(D, 30, 3, "x")),
        in_tx("g:3", row(D, 40, 4, "x")),
        marker(41, "g:3", "ann"),
    )
    turn = made.apply()

    assert turn.hold is None
    assert turn.account.ignored == {"tombstone": 0, "archived": 2}
    assert set(made.rows()) == {1, 2, 5}


def test_any_row_will_do_where_no_column_is_named(tmp_path: Path) -> None:
    made = archive_lake(tmp_path, (ArchiveRule("db.t", markers=(replace(RUNS, column=""),)),))
    made.prove(500)

    made.land(in_tx("g:3", row(D, 40, 4, "x")), marker(41, "g:3", "ann"))

    assert made.apply().account.ignored == {"tombstone": 0, "archived": 1}


def test_a_marker_of_another_batch_counts(tmp_path: Path) -> None:
    made = archive_lake(tmp_path)
    made.prove(500)
    made.land(marker(19, "g:1", "cron"))
    made.run()

    made.land(in_tx("g:1", row(D, 20, 1, "x")))

    assert made.apply().account.ignored == {"tombstone": 0, "archived": 1}


def test_deletes_wait_while_a_marker_may_be_on_its_way(tmp_path: Path) -> None:
    made = archive_lake(tmp_path)
    made.prove(15)
    made.land(in_tx("g:1", row(D, 20, 1, "x")))

    hold = made.apply().hold

    assert_held(hold, "awaited", "(db.runs)")
    made.prove(500)
    made.land(marker(21, "g:1", "cron"), in_tx("g:2", row(C, 30, 9, "x")))
    assert made.apply().account.ignored == {"tombstone": 0, "archived": 1}


def test_a_delete_without_a_transaction_holds_the_table(tmp_path: Path) -> None:
    made = archive_lake(tmp_path)
    made.prove(500)
    made.land(in_tx(None, row(D, 20, 1, "x")))

    hold = made.apply().hold

    assert_held(
        hold, "archive", "provide.transaction.metadata", "when `archive` has no markers any more"
    )


@pytest.mark.parametrize("kept", [0, 1], ids=["as_a_delete", "in_a_window"])
def test_a_delete_without_a_transaction_goes_on_once_no_marker_counts(
    tmp_path: Path, kept: int
) -> None:
    made = archive_lake(tmp_path)
    made.land(in_tx(None, row(D, 20, 1, "x")))
    assert made.apply().hold is not None

    rules = (ArchiveRule("db.t", windows=(WINDOW,)),) * kept
    made.settings = replace(made.settings, archive=rules)
    made.reopen()

    assert made.apply().account.ignored == {"tombstone": 0} | ({"archived": 1} if kept else {})
    assert (1 in made.rows()) == bool(kept)


@pytest.mark.parametrize("op", [Op.UPDATE, Op.CREATE])
def test_where_nothing_is_deleted_nobody_waits(tmp_path: Path, op: Op) -> None:
    made = archive_lake(tmp_path)

    made.land(in_tx(None, row(op, 20, 1 if op is Op.UPDATE else 9, "y")))

    assert made.apply().hold is None


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
        return scan_files(store, files, **more)

    monkeypatch.setattr(archive_evidence, "scan_files", counted)
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
    lake = LocalLake(tmp_path, archive=(ArchiveRule("x.*", RULE[0].windows),))
    lake.play([CREATE])
    table = lake.state().catalog.table("db.t", lake.checkpoint.shards)

    assert lake.runner.jobs.archive_of(table.name) is None


def test_markers_count_as_windows_do(tmp_path: Path) -> None:
    rules = (ArchiveRule("db.*", (), (ArchiveMarker("db.runs"),)),)
    lake = LocalLake(tmp_path, archive=rules)

    assert lake.play([row(C, 10, 1, OLD)], [row(C, 11, 2, OLD)]) == {1: OLD, 2: OLD}
