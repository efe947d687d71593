"""So many old rows never go by themselves: a person says whether they were archived."""

import json
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from checks.blocks import is_waivable
from pipeline.aggregates import AggregatedColumn, TimeSpan
from pipeline.apply import archive_evidence
from pipeline.archive import ArchiveRule, ArchiveWindow
from pipeline.changelog.scan import Part, scan_files
from pipeline.errors import ConfigError
from pipeline.invariants.archive_purge import ArchivePurge
from pipeline.model import Op, Shard, Table
from pipeline.reports import MergeReport
from pipeline.settings import InvariantRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.builders.lake import ID, LocalLake, hold_of, row

C, U, D = Op.CREATE, Op.UPDATE, Op.DELETE
TODAY = datetime(2026, 3, 1, 12, tzinfo=UTC)
DAY = timedelta(days=1)
TABLE = Table("db.t", (Shard("s", "db.t"),), ("id",), "id")
OLD, NEW = date(2025, 6, 1), date(2026, 2, 20)
PURGE = ArchivePurge("day", rows=1000, times=7, asked=3)


def dated(op: Op, pos: int, key: int, day: date | None, at: datetime = TODAY) -> dict[str, Any]:
    born = None if day is None else (day - date(1970, 1, 1)).days
    text = json.dumps({"id": key, "day": born})
    sides = {"before": text} if op is D else {"after": text}
    return row(op, pos, key, at=at, **sides)


def purge_lake(
    home: Path, purge: ArchivePurge = PURGE, *, changes: int = 1, rows: int = 40
) -> LocalLake:
    """So many old rows, and as many new ones; each of ten days before had *changes* changes."""
    made = LocalLake(
        home,
        columns=(ID, Column("day", "DATE")),
        invariants=(InvariantRule("db.t", (("archive_purge", purge),)),),
    )
    first = TODAY - 30 * DAY
    made.play([dated(C, n, n, OLD, first) for n in range(1, rows + 1)])
    made.play([dated(C, 100 + n, 100 + n, NEW, first) for n in range(1, rows + 1)])
    made.play(
        [
            dated(U, 1000 + 10 * ago + n, 101 + n, NEW, TODAY - ago * DAY)
            for ago in range(9, 0, -1)
            for n in range(changes)
        ]
    )
    return made


def purge(
    made: LocalLake, keys: range, at: datetime = TODAY, born: date | None = OLD
) -> MergeReport:
    made.land(*(dated(D, 5000 + key, key, born, at) for key in keys))
    return made.apply()


@pytest.mark.parametrize(
    ("keys", "born", "stands_still"),
    [
        pytest.param(range(1, 9), OLD, True, id="more than seven days' changes, and old"),
        pytest.param(range(1, 8), OLD, False, id="seven days' changes"),
        pytest.param(range(101, 120), NEW, False, id="many, and new"),
        pytest.param(range(1, 9), None, True, id="whose age nobody tells"),
    ],
)
def test_many_old_rows_do_not_go_by_themselves(
    tmp_path: Path, keys: range, born: date | None, stands_still: bool
) -> None:
    made = purge_lake(tmp_path)
    if born is None:
        made.play([dated(U, 3000 + key, key, None, TODAY - 2 * DAY) for key in keys])

    turn = purge(made, keys, born=born)

    assert (turn.hold is not None) is stands_still
    assert len(made.rows()) == 80 - (0 if stands_still else len(keys))


def test_it_is_told_what_to_say(tmp_path: Path) -> None:
    hold = hold_of(purge(purge_lake(tmp_path), range(1, 11)))

    assert hold.reason == "invalid"
    assert is_waivable(hold.id)
    assert "10 rows older than 30 days are deleted in one day, more than 7" in hold.detail
    assert "(1 changes a day are usual)" in hold.detail
    assert (
        "sluice archive keep db.t --since 2026-03-01T12:00:00Z --until 2026-03-01T13:00:00Z "
        "--column day --before 2026-01-30"
    ) in hold.detail


def test_what_is_let_through_is_applied_and_not_asked_again_that_day(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)
    hold = hold_of(purge(made, range(1, 11)))

    assert made.apply([hold.id]).hold is None
    assert purge(made, range(11, 21)).hold is None
    assert set(made.rows()) == set(range(21, 41)) | set(range(101, 141))
    assert purge(made, range(21, 36), TODAY + DAY).hold is not None


def test_a_held_day_is_held_also_when_more_is_usual_on_a_later_day(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)
    made.play(
        [
            dated(U, 2000 + 10 * ago + n, 101 + n, NEW, TODAY - ago * DAY)
            for ago in range(3, 0, -1)
            for n in range(4)
        ]
    )
    made.play([dated(U, 2100 + n, 101 + n, NEW, TODAY) for n in range(4)])
    hold_of(purge(made, range(1, 21)))

    later = hold_of(purge(made, range(21, 22), TODAY + DAY))

    assert "20 rows older than 30 days are deleted in one day, more than 7 (1 " in later.detail
    assert "--since 2026-03-01T12:00:00Z --until 2026-03-01T13:00:00Z" in later.detail


def test_old_rows_of_two_days_are_counted_apart(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)
    made.land(*(dated(D, 5000 + key, key, OLD) for key in range(1, 7)))

    assert purge(made, range(7, 13), TODAY + DAY).hold is None


def test_a_window_that_comes_later_answers_it(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)
    hold_of(purge(made, range(1, 11)))
    window = ArchiveWindow(TODAY, TODAY + timedelta(hours=1), "day", "2026-01-30")
    made.archive = (ArchiveRule("db.t", (window,)),)
    made.settings = made.runner.settings.__class__(
        str(made.home), "", (), invariants=made.invariants, archive=made.archive
    )
    made.reopen()

    turn = made.apply()

    assert turn.hold is None
    assert turn.account.ignored == {"tombstone": 0, "archived": 10}
    assert len(made.rows()) == 80
    reader = made.runner.table_format.reader(made.settings.mirror("db.t"), TABLE, "main")
    assert reader is not None
    spans: list[TimeSpan] = [(OLD, OLD + DAY), (NEW, NEW + DAY)]
    (tallies,) = reader.tallies(TABLE.shards, "day", spans, [AggregatedColumn("id")]).values()
    assert [one.rows for one in tallies] == [30, 40], "archived rows are no rows of their day"
    assert tallies[0].sums == (Decimal(sum(range(11, 41))),)
    assert purge(made, range(11, 19), TODAY + timedelta(hours=2)).hold is not None, "after it"


def test_many_small_slices_of_one_day_are_one_purge(tmp_path: Path) -> None:
    made = purge_lake(tmp_path)

    turns = [purge(made, range(first, first + 3)) for first in (1, 4, 7)]

    assert [turn.hold is None for turn in turns] == [True, True, False]


def test_what_is_usual_costs_a_slice_no_look_at_the_whole_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = purge_lake(tmp_path)
    assert purge(made, range(1, 3)).hold is None
    read: list[str] = []

    def counted(store: Any, files: Sequence[Part], **more: Any) -> pa.Table:
        read.extend(part.path for part in files)
        return scan_files(store, files, **more)

    monkeypatch.setattr(archive_evidence, "scan_files", counted)
    costs = []
    for first in (3, 5):
        read.clear()
        assert purge(made, range(first, first + 2)).hold is None
        costs.append(len(set(read)))

    assert costs == [1, 2], "what the day has deleted, and nothing of the days before it"
    assert purge(made, range(7, 10)).hold is not None


def test_where_no_day_is_known_only_the_number_counts(tmp_path: Path) -> None:
    made = LocalLake(
        tmp_path,
        columns=(ID, Column("day", "DATE")),
        invariants=(
            InvariantRule("db.t", (("archive_purge", ArchivePurge("day", rows=5, asked=3)),)),
        ),
    )
    made.play([dated(C, n, n, OLD) for n in range(1, 21)])

    assert purge(made, range(1, 6)).hold is None
    assert purge(made, range(6, 8)).hold is not None


def test_a_column_that_tells_no_age_holds_the_table(tmp_path: Path) -> None:
    made = purge_lake(tmp_path, ArchivePurge("id"))

    hold = hold_of(purge(made, range(1, 3)))

    assert hold.reason == "invariant"
    assert "which has no age" in hold.detail


def test_bounds_below_zero_are_refused() -> None:
    with pytest.raises(ConfigError, match="0 or more"):
        ArchivePurge("day", rows=-1)
