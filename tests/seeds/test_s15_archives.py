"""S15: a purge is told by volume and age alone; a mass delete is ignored, a small purge applied.

The seed: more than 5,000,000 deletes, or seven days' changes, of rows older than 30 days are an
archive's, and are ignored.
"""

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pipeline.archive import ArchiveRule, ArchiveWindow
from pipeline.invariants.archive_purge import ArchivePurge
from pipeline.model import Op, Shard, Table
from pipeline.settings import InvariantRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, LocalLake, row

NIGHT = datetime(2026, 3, 1, 2, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
OLD = 20_000  # the day in 2024, as the log has it
ROWS, USUAL = 60, 2
PURGE = ArchiveWindow(NIGHT, NIGHT + HOUR, "day", "2025-01-01", "request 4711", "ann")


def their_rule(deletes: int, daily: int, age: timedelta) -> bool:
    """Whether the seed ignores them."""
    return (deletes > 5_000_000 or deletes > 7 * daily) and age > 30 * DAY


def purge_lake(home: Path) -> LocalLake:
    """Old rows, a week in which two change a day, and our rule with a window for the purge."""
    lake = LocalLake(
        home,
        columns=(ID, Column("day", "DATE")),
        invariants=(InvariantRule("db.t", (("archive_purge", ArchivePurge("day", asked=5)),)),),
        archive=(ArchiveRule("db.t", (PURGE,)),),
    )
    born = NIGHT - 40 * DAY
    lake.play([row(Op.CREATE, n, n, at=born, after=row_image(n)) for n in range(1, ROWS + 1)])
    for ago in range(8, 0, -1):
        at = NIGHT - ago * DAY
        changes = [
            row(Op.UPDATE, 100 * (9 - ago) + n, n, at=at, after=row_image(n)) for n in (1, 2)
        ]
        lake.play(changes)
    return lake


def row_image(key: int) -> str:
    return json.dumps({"id": key, "day": OLD})


def purged_row(key: int, at: datetime) -> dict[str, object]:
    return row(Op.DELETE, 5000 + key, key, at=at, before=row_image(key))


def test_s15_a_mass_delete_is_not_ignored(tmp_path: Path) -> None:
    lake, keys = purge_lake(tmp_path), range(1, 41)
    assert their_rule(len(keys), USUAL, timedelta(days=400)), "the seed keeps 40 ghosts"

    lake.land(*(purged_row(key, NIGHT + 5 * HOUR) for key in keys))
    hold = lake.apply().hold

    assert hold is not None, "neither ignored nor applied: a person is asked"
    assert "if an archive's purge deleted them, run" in hold.detail
    assert lake.apply([hold.id]).hold is None
    assert set(lake.rows()) == set(range(41, ROWS + 1))


def test_s15_a_small_purge_is_not_applied(tmp_path: Path) -> None:
    lake, keys = purge_lake(tmp_path), range(1, 11)
    assert not their_rule(len(keys), USUAL, timedelta(days=400)), "the seed loses 10 rows"

    lake.land(*(purged_row(key, NIGHT) for key in keys))
    turn = lake.apply()

    assert turn.hold is None
    assert turn.account.ignored == {"tombstone": 0, "archived": 10}
    assert len(lake.rows()) == ROWS


def test_s15_a_row_lost_beside_a_purge_is_found(tmp_path: Path) -> None:
    """Numbers that agree would hide it; the mirror's readers go by keys."""
    lake, source = purge_lake(tmp_path), set(range(11, ROWS + 1))
    lake.play([purged_row(key, NIGHT) for key in range(1, 11)])
    lake.play([purged_row(20, NIGHT + 5 * HOUR), row(Op.CREATE, 9000, 99, after=row_image(99))])

    shard = Shard("s", "db.t")
    reader = lake.runner.table_format.reader(
        lake.settings.mirror("db.t"), Table("db.t", (shard,), ("id",), "id"), "main"
    )

    assert reader is not None
    assert len(lake.rows()) == len(source) + 10, "lake = source + archived, as numbers"
    assert set(reader.ids(shard, "id", (0, 1000), 1000)) ^ source == {20, 99}
    assert reader.count_ids(shard, "id", [(0, 11), (11, 61)]) == (0, len(source) - 1)
