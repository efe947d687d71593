"""A mirror never has one value in two writings, whatever the config says meanwhile."""

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from pipeline.archive import ArchiveRule, ArchiveWindow
from pipeline.checkpoint import Checkpoint, RowStandards
from pipeline.errors import HeldError
from pipeline.model import Op, Order, Shard
from pipeline.settings import StandardRule
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mask import LetterMask
from pipeline.standards.standard import Standard
from pipeline.standards.table_standards import Standards
from tests.builders.lake import NOW, LocalLake, row
from tests.pipeline.apply.holds import assert_held

HASH = KeyedHash(("name",), "0123456789abcdef")


def rules_of(*standards: tuple[str, Standard]) -> Standards:
    return Standards((StandardRule("db.t", ("id",), standards),))


def _lake(home: Path, rules: Standards, since: int = -1) -> LocalLake:
    lake = LocalLake(home)
    lake.catalog.standards = rules
    return note_standards(lake, since)


def note_standards(lake: LocalLake, since: int) -> LocalLake:
    noted = {Shard("s", "db.t"): RowStandards(lake.catalog.standards.digest("db.t"), since)}
    lake.checkpoint = replace(lake.checkpoint, standards=noted)
    return lake


def _hashed(pos: int, key: int, name: str) -> dict[str, object]:
    return row(Op.CREATE, pos, key, HASH.value(name))


def test_the_mirror_has_the_answers_as_texts(tmp_path: Path) -> None:
    lake = _lake(tmp_path, rules_of(("hash", HASH)))
    lake.land(_hashed(2, 1, "Ada"), _hashed(3, 2, "Bob"))

    assert lake.apply().hold is None

    assert {one["name"] for one in lake.mirror()} == {HASH.value("Ada"), HASH.value("Bob")}


def test_rows_from_before_a_change_of_standards_hold_the_table_until_a_later_base(
    tmp_path: Path,
) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(Op.CREATE, 2, 1, "Ada"))
    assert lake.apply().hold is None
    lake.catalog.standards = rules_of(("hash", HASH))

    lake.land(_hashed(3, 2, "Bob"))
    told = lake.apply().hold
    assert told is not None
    assert (told.reason, "new rows" in told.detail) == ("standards", True)

    note_standards(lake, since=1)
    told = lake.apply().hold
    assert told is not None
    assert (told.reason, "take a new base" in told.detail) == ("standards", True)
    assert [one["name"] for one in lake.mirror()] == ["Ada"]

    at = Order(1, 1, 9)
    lake.checkpoint = replace(
        lake.checkpoint, based={Shard("s", "db.t"): 2}, bases={Shard("s", "db.t"): at}
    )
    lake.land(
        row(Op.READ, 9, 1, HASH.value("Ada")),
        row(Op.READ, 9, 2, HASH.value("Bob")),
        row(Op.SETTLE, 9, None),
    )
    assert lake.apply().hold is None
    assert {one["name"] for one in lake.mirror()} == {HASH.value("Ada"), HASH.value("Bob")}


def test_a_column_whose_type_is_another_by_its_standard_asks_for_a_new_mirror(
    tmp_path: Path,
) -> None:
    lake = LocalLake(tmp_path)
    lake.land(row(Op.CREATE, 2, 1, "Ada"))
    assert lake.apply().hold is None
    own = KeyedHash(("id",), "0123456789abcdef")
    lake.catalog.standards = rules_of(("hash", own))
    note_standards(lake, since=0)
    lake.checkpoint = replace(
        lake.checkpoint, based={Shard("s", "db.t"): 1}, bases={Shard("s", "db.t"): Order(1, 1, 9)}
    )
    answers = {"after": '{"id":"ab","name":"Ada"}', "key": '["s","db.t","ab"]'}
    lake.land(row(Op.READ, 9, 1, "Ada") | answers)

    told = lake.apply().hold

    assert_held(
        told, "standards", "column id is int64 in the mirror, and string by `standards`; rebuild"
    )


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        pytest.param(
            rules_of(("mask", LetterMask(("id",)))), "may give two rows one key", id="masked_key"
        ),
        pytest.param(
            rules_of(("mask", LetterMask(("nmae",)))), "has no column nmae", id="misspelt_column"
        ),
    ],
)
def test_a_standard_that_cannot_be_meant_holds_the_table(
    tmp_path: Path, rules: Standards, why: str
) -> None:
    lake = _lake(tmp_path, rules)
    lake.land(row(Op.CREATE, 2, 1, "Ada"))

    told = lake.apply().hold

    assert_held(told, "standards", why)


def test_ids_of_a_key_with_a_standard_have_no_ranges(tmp_path: Path) -> None:
    own = KeyedHash(("id",), "0123456789abcdef")
    lake = _lake(tmp_path, rules_of(("hash", own)))

    table = lake.catalog.table("db.t", lake.checkpoint.shards)

    assert (table.id_column, table.by_standard) == (None, ("id",))
    assert table.no_ranges == "key column id is written by a standard"
    plain = LocalLake(tmp_path / "plain")
    assert not plain.catalog.table("db.t", plain.checkpoint.shards).no_ranges


def test_a_mark_tells_by_which_standards_rows_are_written() -> None:
    mark = Checkpoint("main", 3, standards={Shard("s", "db.t"): RowStandards("ab", 2)})

    assert Checkpoint.loads(mark.dumps()) == replace(mark, full=3)
    with pytest.raises(HeldError):
        Checkpoint.loads("{}")


def test_an_archives_window_by_a_column_with_a_standard_holds_the_table(tmp_path: Path) -> None:
    """A hash has no age: compared with a day, any row could pass for an old one."""
    lake = _lake(tmp_path, rules_of(("hash", HASH)))
    window = ArchiveWindow(NOW, NOW + timedelta(days=1), "name", "2020-01-01")
    rule = ArchiveRule("db.t", (window,))
    lake.settings = replace(lake.settings, archive=(rule,))
    lake.reopen()
    lake.land(_hashed(2, 1, "Ada"))

    told = lake.apply().hold

    assert_held(told, "archive", "column name, whose values a standard changes")
