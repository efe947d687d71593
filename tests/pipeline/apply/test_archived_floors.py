"""What a floor of the same slice leaves of rows that went to an archive before it."""

import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pipeline.apply.archive import find_last_deletes, select_evidence
from pipeline.archive import ArchiveMarker, ArchiveRules
from pipeline.invariants.unique import Unique
from pipeline.model import Op, Order, Shard
from pipeline.settings import InvariantRule
from pipeline.sources.mysql.types import MySqlColumn as Column
from pipeline.tables.delta.table_format import DeltaMirrors
from tests.builders.lake import ID, NAME, LocalLake, row
from tests.pipeline.apply.holds import assert_held
from tests.pipeline.apply.test_archived import (
    FORMATS,
    NEW,
    OLD,
    RULE,
    C,
    D,
    R,
    T,
    U,
    purged,
    sourced,
)
from tests.pipeline.tables.delta.turns import change, table

NO_RULES, MARKED = ArchiveRules(), ArchiveRules(markers=(ArchiveMarker("db.purges"),))
TRUNCATE = row(T, 30, None)
SETTLE = row(Op.SETTLE, 30, None)


@pytest.mark.parametrize("table_format", FORMATS)
@pytest.mark.parametrize(
    ("floor", "left"),
    [
        pytest.param([TRUNCATE], {1: OLD}, id="a truncate"),
        pytest.param([row(R, 30, 3, NEW), SETTLE], {1: OLD, 3: NEW}, id="a base"),
        pytest.param([TRUNCATE, row(C, 40, 1, "back")], {1: "back"}, id="it came again"),
        pytest.param([row(R, 30, 1, "in it"), SETTLE], {1: "in it"}, id="the base has it again"),
        pytest.param(
            [row(U, 25, 3, "later"), row(D, 26, 3, OLD), TRUNCATE], {1: OLD}, id="a new row, too"
        ),
        pytest.param([row(C, 25, 1, "back"), TRUNCATE], {}, id="it came again and was emptied"),
        pytest.param(
            [row(C, 25, 1, OLD), row(D, 26, 1, OLD), TRUNCATE], {1: OLD}, id="archived twice"
        ),
        pytest.param(
            [row(C, 25, 7, OLD), row(D, 26, 7, OLD), TRUNCATE], {1: OLD, 7: OLD}, id="new"
        ),
    ],
)
def test_a_floor_after_a_purge_takes_no_archived_row(
    tmp_path: Path, table_format: Any, floor: list[dict[str, Any]], left: dict[int, str]
) -> None:
    made = partial(table_format, None)()
    lake, turn = purged(tmp_path, row(D, 20, 1, OLD), *floor, table_format=made)

    assert (turn.hold, turn.account.residual) == (None, 0)
    assert lake.runner.table_format.count(lake.runner.mirrors.look("db.t")) == len(left)
    assert sourced(lake) == tuple(sorted(key for key, name in left.items() if name != OLD))
    if isinstance(made, DeltaMirrors):
        assert lake.rows() == left


def test_rows_of_a_base_that_are_archived_in_its_slice_stay(tmp_path: Path) -> None:
    lake, turn = purged(tmp_path, row(R, 30, 1, OLD), SETTLE, row(D, 40, 1, OLD))

    assert (turn.hold, turn.account.residual) == (None, 0)
    assert lake.rows() == {1: OLD}
    assert sourced(lake) == ()


def test_a_purge_before_a_base_that_lands_later_stays(tmp_path: Path) -> None:
    """The base is whole in the change log while its older half of batches is merged."""
    lake, _ = purged(tmp_path, row(U, 15, 2, OLD))
    lake.checkpoint = replace(lake.checkpoint, bases={Shard("s", "db.t"): Order(1, 1, 30)})
    lake.play([row(D, 20, 1, OLD), row(D, 21, 3, NEW)])
    lake.play([row(R, 30, 2, OLD), SETTLE])

    assert lake.rows() == {1: OLD, 2: OLD}
    assert sourced(lake) == (2,)


def test_what_came_without_some_values_has_them_from_before(tmp_path: Path) -> None:
    part = row(U, 20, 1, None, after=json.dumps({"id": 1}), changed=["id"])
    lake, turn = purged(tmp_path, part, row(D, 21, 1, None, before='{"id":1}'), TRUNCATE)

    assert (turn.hold, turn.account.residual) == (None, 0)
    assert lake.rows() == {1: OLD}


def test_of_a_delete_in_no_window_the_floor_leaves_nothing(tmp_path: Path) -> None:
    lake, turn = purged(tmp_path, row(D, 20, 3, NEW), TRUNCATE)

    assert turn.account.residual == 0
    assert lake.rows() == {}


def test_a_column_that_is_there_no_more_holds_nobody(tmp_path: Path) -> None:
    """A mirror that is made anew from what the log still has of before its base."""
    lake = LocalLake(tmp_path, archive=RULE)
    whole = json.dumps({"id": 1, "name": OLD, "gone": "x"})
    lake.play([row(C, 10, 1, after=whole), row(D, 20, 1, before=whole), row(R, 30, 3, NEW), SETTLE])

    assert lake.rows() == {1: OLD, 3: NEW}


def test_a_row_that_cannot_be_kept_as_it_was_holds_the_table(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path, archive=RULE, columns=(ID, NAME, Column("age", "BIGINT")))
    whole = json.dumps({"id": 1, "name": OLD, "age": "eight"})
    lake.land(row(C, 10, 1, after=whole), row(D, 20, 1, before=whole), TRUNCATE)

    hold = lake.apply().hold

    assert_held(
        hold,
        "archive",
        "remove the rule of `archive`, or run `sluice archive withdraw`",
    )


def test_nothing_is_demanded_of_them(tmp_path: Path) -> None:
    demanded = InvariantRule("db.t", (("unique", Unique((("name",),))),))
    lake = LocalLake(tmp_path, archive=RULE, invariants=(demanded,))
    lake.play([row(C, 10, 1, OLD)], [row(D, 20, 1, OLD), TRUNCATE, row(C, 40, 8, OLD)])

    assert lake.rows() == {1: OLD, 8: OLD}


def test_only_deletes_that_an_archive_may_have_made_are_last_words() -> None:
    deleted, made = change(Op.DELETE, 20, 1), change(Op.CREATE, 21, 2)
    outlived = table(change(Op.CREATE, 10, 1, OLD), deleted, made)

    found = find_last_deletes(MARKED, outlived, {"id"})

    assert [(one["op"], json.loads(one["before"])) for one in found.to_pylist()] == [
        ("d", {"id": 1})
    ]
    assert len(find_last_deletes(NO_RULES, outlived, {"id"})) == 0


def test_without_last_words_nothing_is_told_of_what_a_floor_outlived() -> None:
    outlived = table(change(Op.CREATE, 10, 1, OLD), change(Op.DELETE, 20, 1))
    none = find_last_deletes(NO_RULES, outlived, {"id"})

    assert select_evidence(none, outlived, {"id"}).to_pylist() == []
    own = select_evidence(outlived.slice(1), outlived, {"name"}).to_pylist()
    assert [one["after"] for one in own] == [json.dumps({"name": OLD}).replace(" ", ""), None]
