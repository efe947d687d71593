"""A base corrects what stood in the mirror, though far more waits than one turn may read.

What a turn is given of it is of a few keys: the rest has turns of its own.
"""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.apply import merge_plan
from pipeline.invariants.not_null import NotNull
from pipeline.model import Op, Order, Shard
from pipeline.settings import InvariantRule
from tests.builders.lake import LocalLake, row
from tests.pipeline.standards.test_standards_in_mirrors import HASH, note_standards, rules_of

AT = Order(1, 1, 9)  # of the base


@pytest.fixture(autouse=True)
def _few(monkeypatch: pytest.MonkeyPatch) -> None:
    """One row is as much as a turn may read."""
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 1)


def _without_a_name(pos: int) -> dict[str, object]:
    return row(Op.UPDATE, pos, 1, after='{"id":1}', changed=["id"])


def _base(lake: LocalLake, name: str, began: int) -> None:
    """Landed in the next batch: of one row, which has *name*, and another."""
    lake.checkpoint = replace(
        lake.checkpoint,
        based={Shard("s", "db.t"): began},
        complete={Shard("s", "db.t"): lake.checkpoint.batch + 1},
        bases={Shard("s", "db.t"): AT},
    )
    other = row(Op.READ, 9, 2, name)
    lake.land(row(Op.READ, 9, 1, name), other, row(Op.SETTLE, 9, None))


def _end(lake: LocalLake) -> dict[int, str]:
    for _ in range(6):
        holds = [turn.hold for turn in lake.run()]
        assert holds in ([], [None])
    return lake.rows()


def test_a_value_from_before_the_base_does_not_outlive_it(tmp_path: Path) -> None:
    """The change that set Eve was lost; the base knows of it, and the newer change does not."""
    lake = LocalLake(tmp_path)
    lake.play([row(Op.CREATE, 2, 1, "Ada")])
    lake.land(row(Op.CREATE, 3, 2, "Bob"))
    lake.land(_without_a_name(10))
    _base(lake, "Eve", began=2)

    assert _end(lake) == {1: "Eve", 2: "Eve"}


def test_a_clear_value_from_before_a_standard_does_not_outlive_the_base(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(Op.CREATE, 2, 1, "Ada")])
    lake.catalog.standards = rules_of(("hash", HASH))
    lake.land(row(Op.CREATE, 3, 2, HASH.value("Bob")))
    note_standards(lake, since=1)
    lake.land(_without_a_name(10))
    _base(lake, HASH.value("Eve"), began=2)

    assert "Ada" not in _end(lake).values()


def test_a_new_mirror_gets_the_values_that_its_base_tells_later(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(Op.CREATE, 8, 3, "Cyd"))
    lake.land(_without_a_name(10))
    _base(lake, "Eve", began=1)

    assert _end(lake) == {1: "Eve", 2: "Eve"}


def test_whole_rows_are_still_read_a_share_at_a_time(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(Op.CREATE, 2, 1, "Ada")])
    lake.land(row(Op.UPDATE, 10, 1, "Ann"))
    lake.land(row(Op.UPDATE, 11, 1, "Amy"))
    _base(lake, "Eve", began=1)

    assert [turn.batch for _ in range(4) for turn in lake.run()] != [3]
    assert _end(lake) == {1: "Amy", 2: "Eve"}


def test_what_a_person_lets_through_does_not_end_before_the_base(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rule is broken by a row beside the one that came without its name."""
    monkeypatch.setattr(merge_plan, "MOST_ROWS", 2_000_000)
    named = InvariantRule("db.t", (("not_null", NotNull(("name",))),))
    lake = LocalLake(tmp_path, invariants=(named,))
    lake.play([row(Op.CREATE, 2, 1, "Ada")])
    lake.land(_without_a_name(10), row(Op.CREATE, 11, 3))
    _base(lake, "Eve", began=1)
    held = lake.apply().hold
    assert held is not None
    assert held.id.startswith("invalid:db.t:1-1@")

    lake.run(held.id)

    assert lake.rows() == {1: "Eve", 3: None}
    assert _end(lake) == {1: "Eve", 2: "Eve", 3: None}


def test_rows_that_are_not_whole_are_read_a_share_at_a_time_too(tmp_path: Path) -> None:
    """The base may be far larger than memory: of it only the rows of their keys are read ahead."""
    lake = LocalLake(tmp_path)
    lake.play([row(Op.CREATE, 2, 1, "Ada")])
    lake.land(_without_a_name(10))
    _base(lake, "Eve", began=1)

    (turn,) = [turn for turn in lake.run() if turn.batch > 0]

    assert (turn.batch, turn.account.read, turn.account.residual) == (1, 2, 0)
    assert lake.rows() == {1: "Eve"}
    assert _end(lake) == {1: "Eve", 2: "Eve"}


def test_a_row_that_took_another_key_has_the_values_of_its_old_one(tmp_path: Path) -> None:
    lake = LocalLake(tmp_path)
    lake.play([row(Op.CREATE, 2, 1, "Ada")])
    new = row(Op.CREATE, 10, 7, after='{"id":7}', changed=["id"])
    lake.land(row(Op.DELETE, 10, 1, before='{"id":1}'), new)
    _base(lake, "Eve", began=1)

    assert _end(lake) == {2: "Eve", 7: "Eve"}
