"""A row that references another table waits until the referenced row is there."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from examples.parquet_versions import ParquetVersions
from pipeline.apply.invariants import references_exist
from pipeline.apply.row_metadata import row_origins
from pipeline.changelog.table import Stamp
from pipeline.checkpoint import Gap
from pipeline.errors import ConfigError
from pipeline.invariants.referenced import ForeignKey, Referenced
from pipeline.model import Op, Shard
from pipeline.reports import Hold
from pipeline.settings import InvariantRule
from pipeline.tables.delta.files import Footers
from pipeline.tables.delta.merge import make_search
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import FIRST, NOW, LocalLake, row, stamped
from tests.pipeline.apply.holds import assert_held

C, U, D, R = Op.CREATE, Op.UPDATE, Op.DELETE, Op.READ
KEY = ForeignKey(("name",), "db.u", ("name",))
PARENT = {"table": "db.u", "shard": "db.u", "topic": "s.db.u"}


def parent(op: Op, pos: int, key: int, name: str | None, **more: Any) -> dict[str, Any]:
    """A change of ``db.u``."""
    made = row(op, pos, key, name, **PARENT)
    return made | more


@pytest.fixture
def lake(tmp_path: Path) -> LocalLake:
    """Names of ``db.t`` are to be names in ``db.u``; both have a base, all below 100 has landed."""
    return lake_with_parent(tmp_path, KEY)


def lake_with_parent(home: Path, *keys: ForeignKey, **more: Any) -> LocalLake:
    rule = InvariantRule("db.t", (("referenced", Referenced(keys)),))
    made = LocalLake(home, invariants=(rule,), others=("db.u",), **more)
    made.checkpoint = replace(made.checkpoint, bases=dict.fromkeys(made.checkpoint.shards, FIRST))
    made.prove(100)
    made.land(parent(C, 5, 1, "a"))
    made.run()
    return made


def turned(lake: LocalLake, *waived: str, paused: str = "") -> dict[str, Hold | None]:
    return {turn.table: turn.hold for turn in lake.run(*waived, paused={paused})}


def hold_after_run(lake: LocalLake, *waived: str) -> Hold | None:
    return turned(lake, *waived)["db.t"]


def test_a_row_whose_parent_is_in_the_other_mirror_is_merged(lake: LocalLake) -> None:
    lake.land(row(C, 10, 1, "a"), row(C, 11, 2, None))

    assert hold_after_run(lake) is None
    assert lake.rows() == {1: "a", 2: None}


def test_a_row_whose_parent_is_nowhere_is_held_with_its_key(lake: LocalLake) -> None:
    lake.land(row(C, 10, 1, "a"), row(C, 11, 2, "b"))

    hold = hold_after_run(lake)

    assert hold is not None
    assert (hold.reason, hold.id.rpartition("@")[0]) == ("invalid", "invalid:db.t:0-1")
    assert 'name refers to no row of db.u (name) in 1 row, key ["s","db.t","2"]' in hold.detail
    assert '"b"' not in hold.detail
    assert hold_after_run(lake, hold.id) is None
    assert lake.rows() == {1: "a", 2: "b"}


def test_a_parent_that_has_landed_counts_though_its_mirror_stands_still(lake: LocalLake) -> None:
    lake.land(parent(C, 9, 2, "b"), row(C, 10, 1, "b"))

    assert turned(lake, paused="db.u") == {"db.t": None}
    assert lake.rows() == {1: "b"}


def test_a_parent_that_went_before_is_none_once_its_merge_has_decided(lake: LocalLake) -> None:
    lake.land(parent(D, 9, 1, "a"), row(C, 10, 1, "a"))

    assert waiting(lake, paused="db.u")
    lake.run()
    hold = hold_after_run(lake)

    assert_held(hold, "invalid")


def test_a_parent_that_went_later_was_there_for_the_row(lake: LocalLake) -> None:
    lake.land(parent(D, 12, 1, "a"))
    lake.run()
    lake.land(row(C, 10, 1, "a"))

    assert hold_after_run(lake) is None


def test_a_parent_that_got_another_name_later_was_there_for_the_row(lake: LocalLake) -> None:
    lake.land(parent(U, 12, 1, "b") | {"before": '{"id": 1, "name": "a"}'})
    lake.run()
    lake.land(row(C, 10, 1, "a"))

    assert hold_after_run(lake) is None


def test_what_is_newest_of_a_parent_is_told_by_the_log_not_by_what_landed_last(
    lake: LocalLake,
) -> None:
    lake.land(parent(C, 20, 2, "b"))
    lake.land(parent(D, 9, 3, "b"), row(C, 30, 1, "b"))

    assert turned(lake, paused="db.u") == {"db.t": None}


def test_what_a_truncate_took_is_not_read_from_a_file_that_still_has_it(lake: LocalLake) -> None:
    truncate = parent(Op.TRUNCATE, 8, 1, None) | {"key": None, "after": None}
    lake.land(truncate)
    lake.run()
    lake.land(row(C, 10, 1, "a"))
    lake.log.look()
    other = lake.runner.jobs._referred("db.u", lake.state())
    joined = tuple(replace(part, high=9) for part in other.files)
    owners = row_origins(pa.table(stamped([row(C, 10, 1, "a")], Stamp("main", 2, NOW))))

    values = pa.table({"name": ["a"]})
    found = references_exist(
        [replace(other, files=joined)], partial(make_search, Footers()), "db.u", values, owners
    )

    assert found.to_pylist() == [False]


def test_a_parent_that_got_another_name_before_is_none(lake: LocalLake) -> None:
    renamed = parent(U, 9, 1, "b") | {"before": '{"id": 1, "name": "a"}'}
    lake.land(renamed)
    lake.run()
    lake.land(row(C, 10, 1, "a"), row(C, 11, 2, "b"))

    hold = hold_after_run(lake)

    assert hold is not None
    assert '1 row, key ["s","db.t","1"]' in hold.detail


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({"acknowledged": {}}, id="what else may be on its way, nobody says"),
        pytest.param({"bases": {}}, id="the other has no base"),
        pytest.param({"quarantine": {"topic:s.db.u": None}}, id="a message of it was not read"),
        pytest.param({"snaps": {Shard("s", "db.u"): None}}, id="a snapshot of it is not complete"),
    ],
)
def test_nothing_is_known_to_be_absent(lake: LocalLake, change: Mapping[str, Any]) -> None:
    lake.land(row(C, 10, 1, "b"))
    known = lake.checkpoint
    lake.checkpoint = replace(lake.checkpoint, **change)

    assert waiting(lake)
    lake.checkpoint = known
    hold = hold_after_run(lake)

    assert_held(hold, "invalid")


def test_rows_of_another_source_may_be_above_whatever_has_landed(lake: LocalLake) -> None:
    lake.land(row(C, 10, 1, "b", source="r"))

    assert waiting(lake)


def test_of_a_table_of_two_sources_nothing_is_known_to_be_absent(lake: LocalLake) -> None:
    shards, bases = (
        {**lake.checkpoint.shards, Shard("r", "db.u"): "db.u"},
        {**lake.checkpoint.bases, Shard("r", "db.u"): FIRST},
    )
    lake.checkpoint = replace(lake.checkpoint, shards=shards, bases=bases)
    lake.land(row(C, 10, 1, "b"))

    assert waiting(lake)


def test_a_table_without_a_mirror_is_waited_for(tmp_path: Path) -> None:
    rule = InvariantRule("db.t", (("referenced", Referenced((KEY,))),))
    lake = LocalLake(tmp_path, invariants=(rule,), others=("db.u",))
    lake.checkpoint = replace(lake.checkpoint, bases=dict.fromkeys(lake.checkpoint.shards, FIRST))
    lake.prove(100)
    lake.land(parent(C, 9, 1, "a"), row(C, 10, 1, "a"), row(C, 11, 2, None))

    assert waiting(lake, paused="db.u")
    assert hold_after_run(lake) is None


def waiting(lake: LocalLake, paused: str = "") -> bool:
    """Whether its turn comes again and tells nobody, but after a minute."""
    lake.now -= timedelta(minutes=10)
    first = turned(lake, paused=paused)
    then = turned(lake, paused=paused)["db.t"]
    assert then is not None
    assert (then.reason, then.id.rpartition(":")[0]) == ("awaited", "invalid:db.t")
    assert "may still arrive, in 1 row" in then.detail
    return "db.t" not in first


def test_a_row_above_what_is_proven_waits_for_its_parent_and_goes_on(lake: LocalLake) -> None:
    lake.land(row(C, 150, 1, "b"))
    assert waiting(lake)

    lake.land(parent(C, 149, 2, "b"))

    assert hold_after_run(lake) is None
    assert lake.rows() == {1: "b"}


def test_what_waits_for_too_long_can_be_let_through(lake: LocalLake) -> None:
    lake.land(row(C, 150, 1, "b"))
    lake.run()
    hold = hold_after_run(lake)
    assert hold is not None

    assert hold_after_run(lake, hold.id) is None


def test_a_gap_of_the_other_table_leaves_it_open(lake: LocalLake) -> None:
    gap = Gap("s.db.u:0:1", "s.db.u", 0, 1, 2, "deleted", shards=("s/db.u",))
    lake.land(row(C, 10, 1, "b"))
    lake.checkpoint = replace(lake.checkpoint, gaps={gap.id: gap})

    assert waiting(lake)


def test_a_row_of_the_same_slice_may_be_the_parent(tmp_path: Path) -> None:
    lake = lake_with_parent(tmp_path, ForeignKey(("name",), "db.t", ("name",)))
    lake.land(row(C, 10, 1, "a"))

    assert hold_after_run(lake) is None


def test_all_columns_of_a_key_are_compared_together(tmp_path: Path) -> None:
    lake = lake_with_parent(tmp_path, ForeignKey(("name", "id"), "db.u", ("name", "id")))
    lake.land(parent(C, 9, 2, "b"), row(C, 10, 1, "a"), row(C, 11, 2, "a"))

    hold = hold_after_run(lake)

    assert hold is not None
    assert "name, id refers to no row of db.u (name, id) in 1 row" in hold.detail


@pytest.mark.parametrize("table_format", [DeltaMirrors(None), ParquetVersions(None)])
def test_every_table_format_finds_them(tmp_path: Path, table_format: Any) -> None:
    lake = lake_with_parent(tmp_path, KEY, table_format=table_format)
    lake.land(row(C, 10, 1, "b"))
    assert hold_after_run(lake) is not None

    lake.land(parent(C, 20, 2, "b"))

    assert hold_after_run(lake) is None


@pytest.mark.parametrize(
    ("key", "words"),
    [
        pytest.param(ForeignKey(("name",), "db.u", ("nick",)), "of db.u are id, name", id="no"),
        pytest.param(ForeignKey(("name",), "db.u", ("id",)), "of type string", id="other kind"),
        pytest.param(ForeignKey(("nick",), "db.u", ("id",)), "of db.t are id, name", id="own"),
    ],
)
def test_what_cannot_be_asked_is_held_with_words(
    tmp_path: Path, key: ForeignKey, words: str
) -> None:
    lake = lake_with_parent(tmp_path, key)
    lake.land(row(C, 10, 1, "a"))

    hold = hold_after_run(lake)

    assert_held(hold, "invariant", words)


def test_a_table_that_nobody_knows_is_waited_for(tmp_path: Path) -> None:
    lake = lake_with_parent(tmp_path, ForeignKey(("name",), "db.x", ("name",)))
    lake.land(row(C, 10, 1, "a"))

    assert waiting(lake)


@pytest.mark.parametrize(
    ("columns", "to"), [((), ()), (("a",), ("a", "b")), (("a", "b"), ("c", "c"))]
)
def test_keys_that_do_not_go_together_are_refused(
    columns: tuple[str, ...], to: tuple[str, ...]
) -> None:
    with pytest.raises(ConfigError):
        ForeignKey(columns, "db.u", to)
