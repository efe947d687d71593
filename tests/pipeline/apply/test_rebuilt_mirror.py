"""A mirror that is moved away grows anew in the same folder; see foreign_writes and mirrors."""

from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

from pipeline.model import Op
from tests.pipeline.hand_lake import HandLake, row

C, U = Op.CREATE, Op.UPDATE


@pytest.fixture
def rebuilt(tmp_path: Path) -> HandLake:
    """Six versions, moved away under the eyes of a running lane, and grown again in one or two."""
    lake = HandLake(tmp_path)
    for number in range(5):
        lake.play([row(C, 10 + number, number, "a")])
    mirror = Path(lake.settings.mirror("db.t"))
    mirror.rename(mirror.with_name("old"))
    told = [turn for _ in range(4) for turn in lake.run()]
    assert told[0].hold is not None
    assert told[0].hold.reason == "table_replaced"
    return lake


def test_a_mirror_that_was_moved_away_is_held_once_and_grows_anew(rebuilt: HandLake) -> None:
    assert rebuilt.rows() == dict.fromkeys(range(5), "a")
    assert rebuilt.play([row(U, 50, 0, "b")]) == {**dict.fromkeys(range(5), "a"), 0: "b"}


def test_f02_a_foreign_write_to_a_mirror_made_anew_is_found_at_once(rebuilt: HandLake) -> None:
    """Though its version lies below those of the mirror before, which were known to be ours."""
    path = rebuilt.settings.mirror("db.t")
    columns = pa.schema(DeltaTable(path).schema().to_arrow())
    alien = {"id": 99, "name": "alien", "_sluice": None}
    write_deltalake(path, pa.Table.from_pylist([alien], columns), mode="append")
    rebuilt.land(row(U, 60, 1, "c"))

    held = rebuilt.apply().hold

    assert held is not None
    assert held.reason == "foreign_write"
