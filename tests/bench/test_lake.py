"""The lake that benchmarks run on: its mirrors hold what the changes say."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bench.kit.lake import Lake, here
from bench.kit.table import NARROW, WIDE, Workload
from pipeline.schema.decode import type_rows
from tests.builders.change_log import read_table

NARROW_TABLE = Workload(NARROW, rows=300, changed=30, window=300)


@pytest.mark.parametrize(
    "work",
    [
        pytest.param(NARROW_TABLE, id="any key"),
        pytest.param(replace(NARROW_TABLE, window=60), id="recent keys"),
        pytest.param(replace(NARROW_TABLE, text_keys=True), id="keys in no order"),
        pytest.param(replace(NARROW_TABLE, width=WIDE), id="every kind of column"),
    ],
)
def test_a_mirror_holds_what_two_rounds_of_changes_left(work: Workload, tmp_path: Path) -> None:
    lake = Lake(tmp_path, [work], here)
    lake.fill()
    for number in (1, 2):
        lake.land(work.changes(number))
        lake.apply()

    assert mirror(lake, work) == expected(work, 2)


def test_rows_in_files_lie_by_key(tmp_path: Path) -> None:
    work = replace(NARROW_TABLE, text_keys=True)

    keys = [key for rows in work.image(100) for key in rows["id"].to_pylist()]

    assert len(set(keys)) == work.rows
    assert keys == sorted(keys)


def test_a_process_that_comes_later_goes_on_from_the_mark(tmp_path: Path) -> None:
    first = Lake(tmp_path, [NARROW_TABLE], here)
    first.fill()
    first.land(NARROW_TABLE.changes(1))

    turns = Lake(tmp_path, [NARROW_TABLE], here, first.checkpoint).apply()

    assert [turn.batch for turn in turns] == [1]
    assert mirror(first, NARROW_TABLE) == expected(NARROW_TABLE, 1)


def mirror(lake: Lake, work: Workload) -> dict[Any, dict[str, Any]]:
    """Rows by key, read by code that is not ours."""
    found = read_table(lake.mirror(work))
    return {row["id"]: row for row in found.select(f"SELECT {', '.join(work.names)} FROM t")}


def expected(work: Workload, rounds: int) -> dict[Any, dict[str, Any]]:
    """What the changes say, taken one after the other."""
    rows = {row["id"]: row for part in work.image(work.rows) for row in part.to_pylist()}
    for row in rows.values():
        del row["order"]
    for number in range(1, rounds + 1):
        changes = work.changes(number)
        ops, keys = changes["op"].to_pylist(), type_rows(changes["before"], work.columns).rows
        images = type_rows(changes["after"], work.columns).rows.to_pylist()
        for op, before, after in zip(ops, keys["id"].to_pylist(), images, strict=True):
            if op == "d":
                rows.pop(before, None)
            else:
                rows[after["id"]] = after
    return rows
