"""A row beside the deletes, in their transaction, says that they are an archive's."""

import json
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from pipeline.archive import ArchiveMarker, ArchiveRule, ArchiveWindow
from pipeline.model import Op
from tests.pipeline.hand_lake import NOW, HandLake, row

C, D = Op.CREATE, Op.DELETE
RUNS = ArchiveMarker("db.runs", "who", ("archiver", "cron"))
WINDOW = ArchiveWindow(NOW, NOW + timedelta(hours=1))
RULE = (ArchiveRule("db.t", markers=(RUNS,)),)


def in_tx(name: str | None, change: dict[str, Any]) -> dict[str, Any]:
    return change | {"tx": None if name is None else {"id": name, "total_order": 1}}


def marker(pos: int, tx: str, who: str) -> dict[str, Any]:
    text = json.dumps({"id": pos, "who": who})
    own = {"table": "db.runs", "shard": "db.runs", "topic": "s.db.runs", "after": text}
    return in_tx(tx, row(C, pos, pos, **own))


def lake(home: Path, rule: tuple[ArchiveRule, ...] = RULE) -> HandLake:
    made = HandLake(home, archive=rule, others=("db.runs",))
    made.land(*(row(C, n, n, "x") for n in range(1, 6)))
    assert made.apply().hold is None
    return made


def test_deletes_beside_a_marker_leave_their_rows(tmp_path: Path) -> None:
    made = lake(tmp_path)
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
    made = lake(tmp_path, (ArchiveRule("db.t", markers=(replace(RUNS, column=""),)),))
    made.prove(500)

    made.land(in_tx("g:3", row(D, 40, 4, "x")), marker(41, "g:3", "ann"))

    assert made.apply().account.ignored == {"tombstone": 0, "archived": 1}


def test_a_marker_of_another_batch_counts(tmp_path: Path) -> None:
    made = lake(tmp_path)
    made.prove(500)
    made.land(marker(19, "g:1", "cron"))
    made.run()

    made.land(in_tx("g:1", row(D, 20, 1, "x")))

    assert made.apply().account.ignored == {"tombstone": 0, "archived": 1}


def test_deletes_wait_while_a_marker_may_be_on_its_way(tmp_path: Path) -> None:
    made = lake(tmp_path)
    made.prove(15)
    made.land(in_tx("g:1", row(D, 20, 1, "x")))

    hold = made.apply().hold

    assert hold is not None
    assert hold.reason == "awaited"
    assert "(db.runs)" in hold.detail
    made.prove(500)
    made.land(marker(21, "g:1", "cron"), in_tx("g:2", row(C, 30, 9, "x")))
    assert made.apply().account.ignored == {"tombstone": 0, "archived": 1}


def test_a_delete_without_a_transaction_holds_the_table(tmp_path: Path) -> None:
    made = lake(tmp_path)
    made.prove(500)
    made.land(in_tx(None, row(D, 20, 1, "x")))

    hold = made.apply().hold

    assert hold is not None
    assert hold.reason == "archive"
    assert "provide.transaction.metadata" in hold.detail
    assert "once the markers are out of `archive`" in hold.detail


@pytest.mark.parametrize("kept", [0, 1], ids=["as_a_delete", "in_a_window"])
def test_a_delete_without_a_transaction_goes_on_once_no_marker_counts(
    tmp_path: Path, kept: int
) -> None:
    made = lake(tmp_path)
    made.land(in_tx(None, row(D, 20, 1, "x")))
    assert made.apply().hold is not None

    rules = (ArchiveRule("db.t", windows=(WINDOW,)),) * kept
    made.settings = replace(made.settings, archive=rules)
    made.reopen()

    assert made.apply().account.ignored == {"tombstone": 0} | ({"archived": 1} if kept else {})
    assert (1 in made.rows()) == bool(kept)


@pytest.mark.parametrize("op", [Op.UPDATE, Op.CREATE])
def test_where_nothing_is_deleted_nobody_waits(tmp_path: Path, op: Op) -> None:
    made = lake(tmp_path)

    made.land(in_tx(None, row(op, 20, 1 if op is Op.UPDATE else 9, "y")))

    assert made.apply().hold is None
