"""Rows that go to an archive stay in the mirror, and its readers count them no more."""

from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from examples.parquet_versions import ParquetVersions
from pipeline.apply.archive import meets_window
from pipeline.apply.merge_run import MergeRequest
from pipeline.archive import ArchiveRule, ArchiveWindow, ArchiveWord, RegisteredWindow, rules_of
from pipeline.invariants.unique import Unique
from pipeline.model import Op, Order, Origin, Shard, Table, TopicPartition
from pipeline.readings import LogKey
from pipeline.reports import MergeReport
from pipeline.settings import InvariantRule
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import NOW, LocalLake, row

C, U, D, R, T = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ, Op.TRUNCATE
HOUR = timedelta(hours=1)
OLD, NEW = "2025-06-01", "2026-01-01"  # what column `name` holds here, as a day
WINDOW = ArchiveWindow(NOW - HOUR, NOW + HOUR, "name", "2025-12-01", "request 4711", "ann")
RULE = (ArchiveRule("db.*", (WINDOW,)),)
SHARD = Shard("s", "db.t")
TABLE = Table("db.t", (SHARD,), ("id",), id_column="id")
FORMATS = [pytest.param(DeltaMirrors, id="delta"), pytest.param(ParquetVersions, id="parquet")]


def purged(home: Path, *rows: dict[str, Any], **more: Any) -> tuple[LocalLake, MergeReport]:
    """Rows 1 and 2 are old, 3 is new; then what came of *rows*."""
    lake = LocalLake(home, archive=RULE, **more)
    lake.land(row(C, 10, 1, OLD), row(C, 11, 2, OLD), row(C, 12, 3, NEW))
    assert lake.apply().hold is None
    lake.land(*rows)
    return lake, lake.apply()


def mirror_reader(lake: LocalLake) -> Any:
    found = lake.runner.table_format.reader(lake.settings.mirror("db.t"), TABLE, "main")
    assert found is not None
    return found


def sourced(lake: LocalLake) -> tuple[int, ...]:
    """Ids that the source has, for all that the mirror's reader knows."""
    return tuple(mirror_reader(lake).ids(SHARD, "id", (0, 100), 100))


@pytest.mark.parametrize("table_format", FORMATS)
def test_rows_that_go_to_an_archive_stay(tmp_path: Path, table_format: Any) -> None:
    made = partial(table_format, None)()
    lake, turn = purged(tmp_path, row(D, 20, 1, OLD), row(D, 21, 3, NEW), table_format=made)

    assert turn.hold is None
    assert turn.account.ignored == {"tombstone": 0, "archived": 1}
    assert (turn.account.applied, turn.account.residual) == (1, 0)
    assert lake.runner.table_format.count(lake.runner.mirrors.look("db.t")) == 2
    assert sourced(lake) == (2,)


def test_its_readers_pass_over_them(tmp_path: Path) -> None:
    lake, _ = purged(tmp_path, row(D, 21, 2, OLD), row(C, 22, 9, OLD), row(U, 23, 3, "later"))
    lake.land(row(D, 30, 9, OLD))
    lake.apply()

    assert lake.rows() == {1: OLD, 2: OLD, 3: "later", 9: OLD}
    assert mirror_reader(lake).rows() == 2
    assert mirror_reader(lake).max_id(SHARD, "id") == 3
    assert mirror_reader(lake).count_ids(SHARD, "id", [(0, 3), (3, 10)]) == (1, 1)
    assert {one["id"] for one in mirror_reader(lake).rows_of(SHARD, "id", (0, 10))} == {1, 3}
    assert {one["id"] for one in mirror_reader(lake).sample(10)} <= {1, 3}
    at = TopicPartition("s.db.t", 0)
    keys = [LogKey(SHARD, f'["s","db.t","{n}"]', at, 1) for n in (1, 2, 9)]
    assert mirror_reader(lake).has_keys(keys) == (True, False, False)


def test_what_comes_again_leaves_the_ledger(tmp_path: Path) -> None:
    lake, _ = purged(tmp_path, row(D, 20, 1, OLD))

    lake.play([row(C, 30, 1, "back")])

    assert lake.rows()[1] == "back"
    assert sourced(lake) == (1, 2, 3)
    lake.play([row(D, 40, 1, NEW)])
    assert 1 not in lake.rows()


@pytest.mark.parametrize(
    "again",
    [
        pytest.param(row(D, 20, 1, OLD), id="its delete, sent again"),
        pytest.param(row(U, 15, 1, "before"), id="an update from before it"),
        pytest.param(row(D, 50, 1, OLD, origin=int(Origin.REPAIR)), id="a repair that finds none"),
    ],
)
def test_nothing_from_before_changes_an_archived_row(tmp_path: Path, again: dict[str, Any]) -> None:
    lake, _ = purged(tmp_path, row(D, 20, 1, OLD))

    assert lake.play([again])[1] == OLD
    assert sourced(lake) == (2, 3)


@pytest.mark.parametrize("table_format", FORMATS)
def test_no_truncate_and_no_base_takes_them(tmp_path: Path, table_format: Any) -> None:
    made = partial(table_format, None)()
    lake, _ = purged(tmp_path, row(D, 20, 1, OLD), table_format=made)

    lake.land(row(Op.SETTLE, 30, None), row(R, 30, 3, NEW))
    assert lake.apply().hold is None
    assert sourced(lake) == (3,)
    lake.land(row(T, 40, None))
    assert lake.apply().hold is None

    assert sourced(lake) == ()
    assert lake.runner.table_format.count(lake.runner.mirrors.look("db.t")) == 1


def test_a_row_stays_as_the_slice_knew_it_last(tmp_path: Path) -> None:
    lake, turn = purged(tmp_path, row(U, 20, 1, "2025-07-07"), row(D, 21, 1, None))

    assert lake.rows()[1] == "2025-07-07"
    assert turn.account.superseded == 1


def test_a_row_that_came_and_went_in_one_slice_stays_too(tmp_path: Path) -> None:
    lake, turn = purged(tmp_path, row(C, 20, 7, OLD), row(D, 21, 7, OLD), row(D, 22, 8, OLD))

    assert turn.account.residual == 0
    assert lake.rows() == {1: OLD, 2: OLD, 3: NEW, 7: OLD}
    assert sourced(lake) == (1, 2, 3)
    assert lake.play([row(D, 21, 7, OLD)])[7] == OLD


def test_a_row_that_takes_another_key_does_not_go_to_an_archive(tmp_path: Path) -> None:
    lake, turn = purged(tmp_path, row(D, 20, 1, OLD), row(C, 20, 7, OLD), row(D, 21, 2, OLD))

    assert turn.account.ignored == {"tombstone": 0, "archived": 1}
    assert lake.rows() == {2: OLD, 3: NEW, 7: OLD}
    assert sourced(lake) == (3, 7)


def test_of_rows_that_stay_nothing_is_demanded(tmp_path: Path) -> None:
    demanded = InvariantRule("db.t", (("unique", Unique((("name",),))),))
    lake = LocalLake(tmp_path, archive=RULE, invariants=(demanded,))
    lake.land(row(C, 10, 1, OLD))
    lake.apply()
    lake.land(row(D, 20, 1, OLD), row(C, 21, 8, OLD))

    assert lake.apply().hold is None
    assert lake.rows() == {1: OLD, 8: OLD}


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(pa.timestamp("us", "UTC"), id="moments"),
        pytest.param(pa.timestamp("us"), id="times"),
        pytest.param(pa.date32(), id="dates"),
    ],
)
def test_a_day_bounds_every_column_that_tells_an_age(kind: pa.DataType) -> None:
    days = pa.array(["2024-12-31", "2025-01-01"]).cast(pa.date32())
    rows = pa.table({"at": days if kind == pa.date32() else days.cast(pa.timestamp("us"))})
    if getattr(kind, "tz", None):
        rows = pa.table({"at": pc.assume_timezone(rows["at"], "UTC")})

    assert meets_window(rows, replace(WINDOW, column="at", before="2025-01-01")).tolist() == [
        True,
        False,
    ]


@pytest.mark.parametrize(
    "change",
    [
        pytest.param(row(D, 20, 1, OLD, at=NOW + HOUR), id="at its end"),
        pytest.param(row(D, 20, 1, OLD, at=NOW - 2 * HOUR), id="before it"),
        pytest.param(row(D, 20, 1, OLD, origin=int(Origin.REPAIR)), id="of a repair"),
    ],
)
def test_other_deletes_are_applied(tmp_path: Path, change: dict[str, Any]) -> None:
    lake, turn = purged(tmp_path, change)

    assert turn.account.ignored == {"tombstone": 0}
    assert set(lake.rows()) == {2, 3}


def test_a_restart_still_knows_them(tmp_path: Path) -> None:
    lake, _ = purged(tmp_path, row(D, 20, 1, OLD))

    lake.reopen()

    assert lake.play([row(D, 30, 1, OLD)])[1] == OLD
    assert sourced(lake) == (2, 3)


def test_a_rule_that_is_taken_away_leaves_what_it_kept(tmp_path: Path) -> None:
    purged(tmp_path, row(D, 20, 1, OLD))[0]
    lake, _ = purged(tmp_path / "other", row(D, 20, 1, OLD))
    lake.archive = ()
    lake.settings = lake.runner.settings.__class__(str(lake.home), "", ())
    lake.reopen()

    lake.land(row(D, 30, 2, OLD))
    lake.apply()

    assert lake.rows() == {1: OLD, 3: NEW}
    assert sourced(lake) == (3,)


@pytest.mark.parametrize(
    ("column", "before", "told"),
    [
        pytest.param(
            "gone", "1", "no column|column 'gone'; the table has id, name", id="no column"
        ),
        pytest.param("id", "soon", "which is not a int64, as id is", id="no number"),
    ],
)
def test_a_window_that_does_not_fit_holds_the_table(
    tmp_path: Path, column: str, before: str, told: str
) -> None:
    lake = LocalLake(tmp_path)
    window = ArchiveWindow(NOW - HOUR, NOW + HOUR, column, before)
    lake.archive = (ArchiveRule("db.t", (window,)),)
    lake.__post_init__()
    lake.play([row(C, 10, 1, OLD)])
    lake.land(row(D, 20, 1, OLD))

    hold = lake.apply().hold

    assert hold is not None
    assert hold.reason == "archive"
    assert any(one in hold.detail for one in told.split("|"))


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        pytest.param({}, "", id="fits"),
        pytest.param({"until": NOW}, "is not after", id="ends first"),
        pytest.param({"before": ""}, "`column` needs `before`", id="half a condition"),
        pytest.param({"since": NOW.replace(tzinfo=None)}, "since has no offset", id="no offset"),
    ],
)
def test_a_window_that_holds_nothing_says_why(fields: dict[str, Any], told: str) -> None:
    whole: dict[str, Any] = {"since": NOW, "until": NOW + HOUR, "column": "day", "before": "2025"}

    fault = ArchiveWindow(**(whole | fields)).fault

    assert told in fault
    assert bool(fault) == bool(told)


def test_what_is_registered_counts_beside_the_rules() -> None:
    other = ArchiveWindow(NOW, NOW + HOUR)

    assert rules_of("x.y", RULE) is None
    found = rules_of(
        "db.t", RULE, [RegisteredWindow("db.t", other), RegisteredWindow("a.b", other)]
    )
    assert found is not None
    assert found.windows == (WINDOW, other)


def test_a_mirror_that_kept_rows_is_not_made_anew_without_a_word(tmp_path: Path) -> None:
    lake, turn = purged(tmp_path, row(D, 20, 1, OLD), row(C, 21, 7, OLD), row(D, 22, 7, OLD))
    assert turn.account.ignored == {"tombstone": 0, "archived": 2}
    mirror, word = Path(lake.settings.mirror("db.t")), ArchiveWord((), {"db.t": 2})
    away = mirror.rename(tmp_path / "away")
    lake.reopen()

    (held,) = lake.runner.run(lake.state(), MergeRequest(archived=word))

    assert held.hold is not None
    assert held.hold.id == "archived_rows:db.t:2"
    assert not mirror.exists()
    away.rename(mirror)
    lake.reopen()
    turns = lake.runner.run(lake.state(), MergeRequest(archived=word))
    assert [turn.hold for turn in turns] in ([], [None])
    assert lake.rows() == {1: OLD, 2: OLD, 3: NEW, 7: OLD}


def test_kept_rows_are_put_back_into_a_mirror_that_is_made_anew(tmp_path: Path) -> None:
    """As docs/guides/restore-a-mirror.md says: after the base, with no rule in the config."""
    lake, _ = purged(tmp_path, row(D, 20, 1, OLD))
    mirror = Path(lake.settings.mirror("db.t"))
    old = mirror.rename(tmp_path / "away")
    lake.settings = replace(lake.settings, archive=())
    lake.reopen()
    lake.checkpoint = replace(
        lake.checkpoint, bases={Shard("s", "db.t"): Order(1, 1, 30)}, based={Shard("s", "db.t"): 2}
    )
    lake.land(row(R, 30, 3, NEW), row(Op.SETTLE, 30, None))
    word, waived = ArchiveWord((), {"db.t": 1}), {"archived_rows:db.t:1"}
    (made,) = lake.runner.run(lake.state(), MergeRequest(frozenset(waived), archived=word))
    assert (made.hold, lake.rows()) == (None, {3: NEW})

    query = QueryBuilder().register("old", DeltaTable(str(old)))
    kept = query.execute("SELECT * FROM old WHERE _sluice['op'] = 'd'")
    write_deltalake(str(mirror), kept, mode="append")
    lake.land(row(D, 40, 1, OLD))
    foreign = lake.apply().hold

    assert foreign is not None
    assert lake.apply([foreign.id]).hold is None
    assert lake.rows() == {1: OLD, 3: NEW}
    assert sourced(lake) == (3,)
