from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.apply.catalog import Catalog
from pipeline.model import Op, Order, Shard
from pipeline.settings import Router
from pipeline.sources.mysql.types import MySqlColumn as Column
from tests.pipeline.hand_lake import NAME, HandLake, row
from tests.pipeline.reading import readings
from tests.pipeline.schema_messages import described, message


def test_a_key_that_is_spelled_in_two_ways_holds_the_table(tmp_path: Path) -> None:
    """A snapshot sends ``d,e``, the log a comma with a backslash before it: two keys of one row."""
    label = Column("id", "ENUM", values=("d,e", "x"))
    lake = HandLake(tmp_path, columns=(label, NAME))
    lake.land(row(Op.CREATE, 10, 1, "a"))

    hold = lake.apply().hold

    assert hold is not None
    assert hold.reason == "key_kind"
    assert "key column id of db.t" in hold.detail


class Interrupted(Catalog):
    """While one line of merges asks for a table, another does, of the shards of *others*."""

    others: dict[str, str] | None = None

    def __setattr__(self, name: str, value: object) -> None:
        super().__setattr__(name, value)
        if name == "_folded" and self.others is not None:
            others, self.others = self.others, None
            self.table("t", others)


def test_two_lines_ask_for_a_table_each_with_the_shards_of_its_own_batch() -> None:
    catalog = Interrupted(Router(()), readings("s"))
    before, after = {"s/db.t_1": "t"}, {"s/db.t_1": "t", "s/db.t_2": "t"}
    catalog.others = after

    assert catalog.table("t", before).shards == (Shard("s", "db.t_1"),)
    catalog.others = before
    assert len(catalog.table("t", after).shards) == 2


MADE = "CREATE TABLE t (id BIGINT PRIMARY KEY, name VARCHAR(80))"
COLUMNS = "id BIGINT, name VARCHAR:80"


def told(text: str, *, made: bool = False) -> str:
    """A statement as the collector sends it; *made* if it describes db.t."""
    return message(text, *([described(text, "t", COLUMNS)] if made else []))


@pytest.mark.parametrize(
    "statements",
    [
        pytest.param([told("TRUNCATE TABLE t")], id="a truncate without its row"),
        pytest.param(
            [told("DROP DATABASE db"), told(MADE, made=True)], id="a database dropped and made anew"
        ),
    ],
)
def test_rows_that_only_a_statement_took_away_hold_the_table_until_a_base(
    tmp_path: Path, statements: list[str]
) -> None:
    lake = HandLake(tmp_path)
    lake.catalog.add([("s", Order(1, 1, 1), told(MADE, made=True))])
    lake.land(row(Op.SETTLE, 1, None), row(Op.CREATE, 10, 1, "old"))
    before = lake.apply()
    places = range(20, 20 + len(statements))
    lake.catalog.add([("s", Order(1, 1, p), s) for p, s in zip(places, statements, strict=True)])
    lake.land(row(Op.CREATE, 30, 2, "new"))
    held = lake.apply().hold
    lake.land(row(Op.SETTLE, 31, None), row(Op.READ, 31, 2, "new"))
    lake.checkpoint = replace(lake.checkpoint, bases={"s/db.t": Order(1, 1, 31)})

    after = lake.apply()

    assert before.hold is None
    assert held is not None
    assert held.reason == "emptied"
    assert "take a new base of db.t" in held.detail
    assert after.hold is None
    assert lake.rows() == {2: "new"}
