"""What is hidden is in no column of the change log: sent, quarantined or read again."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pyarrow as pa
import pytest
from pyarrow import parquet

from pipeline.apply.merge import count_corrected
from pipeline.checkpoint import RowStandards
from pipeline.clocks import LONGEST_WAIT
from pipeline.model import Op, Shard
from pipeline.resubmissions import Resubmission
from pipeline.settings import StandardRule
from pipeline.standards.hash import KeyedHash
from pipeline.standards.mapping import IdMapping
from pipeline.standards.table_standards import Standards
from tests.builders.harness import LandingHarness
from tests.pipeline.backfill.test_bases_without_places import TABLE, CanalHarness
from tests.pipeline.backfill.test_bootstrap import NAME, Beside, Rows

SECRET = "0123456789abcdef"
HASH = KeyedHash(("name",), SECRET)
RULE = StandardRule("db.t", ("id",), (("hash", HASH),))
BY_KEY = StandardRule("db.t", ("id",), (("hash", KeyedHash(("id", "name"), SECRET)),))
CLEAR = "Ada Lovelace"


def _lake(home: Path) -> str:
    """Every value of every file of the change log, and the texts of its commits."""
    files = [str(parquet.read_table(one).to_pylist()) for one in home.rglob("*.parquet")]
    return "".join([*files, *(one.read_text() for one in home.rglob("*.json"))])


def _begun(home: Path, count: int, *rules: StandardRule) -> Beside:
    """A table of so many rows that nobody has read, and its schema."""
    harness = LandingHarness(home, standards=rules)
    harness.topics.alter("a", 100, "name", kind="CREATE")
    harness.topics.put("a", 101, "again")
    harness.topics.write_heartbeat("a", 0, pos=102)
    harness.land()
    return Beside(harness, Rows(count))


def _rows(harness: LandingHarness, *ops: Op) -> list[dict[str, Any]]:
    return [one for one in harness.landed(*ops) if one["source"] == "a"]


def test_values_are_standardised_before_anything_of_them_is_written(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path, standards=(RULE,))
    harness.topics.put("a", 101, CLEAR)
    harness.topics.held["a.db.t"].append((b'{"id": 7}', b'{"op":"c","after":"%s"' % CLEAR.encode()))

    harness.land()

    (row,) = _rows(harness)
    assert json.loads(row["after"]) == {"id": 1, "name": HASH.value(CLEAR)}
    (odd,) = _rows(harness, Op.ERROR)
    assert odd["key"] is None
    assert CLEAR not in _lake(tmp_path)
    assert harness.loop.checkpoint.standards[Shard.parse(NAME)] == RowStandards(
        Standards((RULE,)).digest("db.t"), -1
    )


def test_a_key_that_is_hashed_is_one_for_all_that_becomes_of_its_row(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path, standards=(BY_KEY,))
    harness.topics.put("a", 101, CLEAR, key=424_242)
    key, place = b'{"id": 424242}', {"db": "db", "table": "t", "file": "binlog.000007", "row": 0}
    gone = {"before": {"id": 424_242, "name": CLEAR}, "source": place | {"pos": 102}, "op": "d"}
    harness.topics.held["a.db.t"] += [(key, json.dumps(gone).encode())]

    harness.land()

    keys = {one["key"] for one in _rows(harness, Op.CREATE, Op.DELETE)}
    assert keys == {
        json.dumps(["a", "db.t", KeyedHash((), SECRET).value("424242")], separators=(",", ":"))
    }
    assert "424242" not in _lake(tmp_path).replace(KeyedHash((), SECRET).value("424242"), "")


@pytest.mark.parametrize("rule", [RULE, BY_KEY], ids=["another_key", "a_key_that_is_hashed"])
@pytest.mark.parametrize("topic", ["a.db.t", "a.by.way.t"], ids=["its_own", "one_of_many"])
def test_a_tombstone_brings_no_clear_key(tmp_path: Path, rule: StandardRule, topic: str) -> None:
    """It has no row by which its columns could be told."""
    harness = LandingHarness(tmp_path, standards=(rule,))
    harness.topics.put("a", 101, CLEAR)
    sent = cast("list[Any]", harness.topics.held.setdefault(topic, []))
    sent.append((json.dumps({"name": CLEAR}).encode(), None))

    harness.land()

    assert [one["key"] for one in _rows(harness, Op.TOMBSTONE)] == [None]
    assert CLEAR not in _lake(tmp_path)


def test_other_standards_for_rows_that_are_there_are_a_gap(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.put("a", 101, CLEAR)
    harness.topics.put("b", 101, CLEAR)
    harness.land()
    again = LandingHarness(tmp_path, harness.topics, harness.server, standards=(RULE,))
    again.topics.put("a", 102, CLEAR)

    again.land()

    gaps = list(again.loop.checkpoint.gaps.values())
    assert {gap.shards for gap in gaps} == {("a/db.t",), ("b/db.t",)}
    assert again.loop.checkpoint.standards[Shard.parse(NAME)].since == again.loop.checkpoint.batch
    quiet = LandingHarness(tmp_path, harness.topics, harness.server, standards=(RULE,))
    quiet.topics.put("a", 103, CLEAR)
    quiet.land()
    assert quiet.loop.checkpoint.gaps.keys() == again.loop.checkpoint.gaps.keys()


def test_rows_that_are_read_again_go_through_the_same_place_and_close_the_gap(
    tmp_path: Path,
) -> None:
    beside = _begun(tmp_path, 20)
    beside.harness.standards = (RULE,)
    beside.start()
    beside.harness.topics.put("a", 103, "again")
    beside.harness.land()
    assert beside.harness.loop.checkpoint.gaps

    beside.until_done()

    read = _rows(beside.harness, Op.READ)
    assert {json.loads(one["after"])["name"] for one in read} == {HASH.value("again")}
    assert len(read) == 20
    assert not [one for one in beside.harness.loop.checkpoint.gaps if NAME in one]
    mark = beside.harness.loop.checkpoint
    assert mark.based[Shard.parse(NAME)] > mark.standards[Shard.parse(NAME)].since


def test_a_row_without_an_answer_is_not_read_again_until_it_has_one(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("source,standard\nagain,x\n", encoding="utf-8")
    rule = StandardRule("db.t", ("id",), (("mapping", IdMapping(("name",), str(file))),))
    beside = _begun(tmp_path / "lake", 5, rule)
    beside.rows.name = CLEAR

    states = [beside.round() for _ in range(6)]

    assert "column name: the mapping ids.csv has no entry" in states[-1].why
    assert CLEAR not in states[-1].why
    file.write_text(f"source,standard\nagain,x\n{CLEAR},y\n", encoding="utf-8")
    beside.until_done()
    assert {json.loads(one["after"])["name"] for one in _rows(beside.harness, Op.READ)} == {"y"}


def test_a_hidden_key_is_not_read_along(tmp_path: Path) -> None:
    beside = _begun(tmp_path, 5, BY_KEY)

    states = [beside.round() for _ in range(4)]

    assert "which its standard hides" in states[-1].why
    assert states[-1].refused


@pytest.mark.parametrize("unmapped", ["hold", "null"])
def test_a_value_without_an_entry_holds_its_table_or_is_null(tmp_path: Path, unmapped: Any) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("source,standard\nAda,a\n", encoding="utf-8")
    own = IdMapping(("name",), str(file), unmapped=unmapped)
    harness = LandingHarness(
        tmp_path / "lake", standards=(StandardRule("db.t", ("id",), (("mapping", own),)),)
    )
    harness.topics.put("a", 101, "Ada")
    harness.topics.put("a", 102, CLEAR)

    harness.land()

    told = [json.loads(one["after"])["name"] for one in _rows(harness)]
    assert told == (["a"] if unmapped == "hold" else ["a", None])
    assert (NAME in harness.loop.checkpoint.quarantine) == (unmapped == "hold")
    assert CLEAR not in _lake(tmp_path / "lake")


def test_what_had_no_entry_lands_once_it_has_one(tmp_path: Path) -> None:
    file = tmp_path / "ids.csv"
    file.write_text("source,standard\nAda,a\n", encoding="utf-8")
    own = IdMapping(("name",), str(file))
    harness = LandingHarness(
        tmp_path / "lake", standards=(StandardRule("db.t", ("id",), (("mapping", own),)),)
    )
    harness.topics.put("a", 101, CLEAR)
    harness.land()
    harness.topics.put("a", 102, "Ada", key=2)
    harness.now += LONGEST_WAIT
    harness.land()
    assert harness.loop.checkpoint.quarantine[NAME].count == 1

    file.write_text(f"source,standard\nAda,a\n{CLEAR},b\n", encoding="utf-8")
    harness.now += LONGEST_WAIT
    harness.land()

    assert NAME not in harness.loop.checkpoint.quarantine
    assert {json.loads(one["after"])["name"] for one in _rows(harness)} == {"a", "b"}
    assert CLEAR not in _lake(tmp_path / "lake")


def test_a_message_of_two_rows_that_is_sent_again_counts_as_two(tmp_path: Path) -> None:
    """Each was counted as quarantined: a name that stood for both left one in error for good."""
    file = tmp_path / "ids.csv"
    file.write_text("source,standard\nAda,a\n", encoding="utf-8")
    rule = StandardRule("db.t", ("id",), (("mapping", IdMapping(("name",), str(file))),))
    harness = CanalHarness(tmp_path / "lake", standards=(rule,))
    two = TABLE.insert({"id": "1", "name": CLEAR}, {"id": "2", "name": "Bob"})
    harness.send(TABLE.insert({"id": "0", "name": "Ada"}), two)
    harness.land()
    (name,) = {*harness.loop.checkpoint.quarantine[NAME].ids}
    assert harness.loop.checkpoint.quarantine[NAME].count == 2

    file.write_text(f"source,standard\nAda,a\n{CLEAR},b\nBob,c\n", encoding="utf-8")
    harness.loop.land(frozenset(), [Resubmission("r1", name, base64.b64encode(two).decode())])

    assert NAME not in harness.loop.checkpoint.quarantine
    told = harness.landed(Op.CREATE, more=("error",))
    assert [one["error"] for one in told if one["offset"] in (0, 1)] == [None, name, name]
    counted = {"op": ["c"] * len(told), "error": [one["error"] for one in told]}
    assert count_corrected(pa.table(counted)) == 2


def test_a_new_column_lands_once_somebody_has_spoken_of_it(tmp_path: Path) -> None:
    rule = replace(RULE, clear=("id",))
    harness = LandingHarness(tmp_path, standards=(rule,))
    place = {"db": "db", "table": "t", "file": "binlog.000007", "row": 0, "pos": 102}
    made = {"op": "c", "after": {"id": 1, "name": CLEAR, "city": "Wien"}, "source": place}
    harness.topics.put("a", 101, "Ada", key=2)
    harness.topics.held["a.db.t"].append((b'{"id": 1}', json.dumps(made).encode()))
    harness.land()
    assert harness.loop.checkpoint.quarantine[NAME].count == 1

    again = LandingHarness(
        tmp_path, harness.topics, harness.server, standards=(replace(rule, clear=("id", "city")),)
    )
    again.land()

    assert NAME not in again.loop.checkpoint.quarantine
    assert not again.loop.checkpoint.gaps
    told = [json.loads(one["after"]) for one in _rows(again)]
    assert {"id": 1, "name": HASH.value(CLEAR), "city": "Wien"} in told


@pytest.mark.parametrize("clear", [("*",), ("id",)], ids=["all_others", "by_name"])
def test_a_column_under_a_new_name_reaches_no_file_of_the_lake(
    tmp_path: Path, clear: tuple[str, ...]
) -> None:
    """Rows come before their statement does, and before anybody has read either."""
    harness = LandingHarness(tmp_path, standards=(replace(RULE, clear=clear),))
    place = {"db": "db", "table": "t", "file": "binlog.000007", "row": 0, "pos": 102}
    new = {"id": 1, "called": CLEAR}
    sent = [
        {"op": "c", "before": None, "after": new, "source": place},
        {"op": "u", "before": new, "after": new, "source": place | {"pos": 103}},
        {"op": "d", "before": new, "after": None, "source": place | {"pos": 104}},
    ]
    harness.topics.put("a", 101, "Ada")
    harness.topics.held["a.db.t"] += [(b'{"id": 1}', json.dumps(one).encode()) for one in sent]

    harness.land()

    assert len(_rows(harness, Op.CREATE)) == 1
    assert len(_rows(harness, Op.ERROR)) == 3
    assert not _rows(harness, Op.UPDATE, Op.DELETE)
    assert harness.loop.checkpoint.quarantine[NAME].count == 3
    assert CLEAR not in _lake(tmp_path)


@pytest.mark.parametrize("clear", [("*",), ("id",)], ids=["all_others", "by_name"])
def test_rows_under_a_new_name_are_not_read_again(tmp_path: Path, clear: tuple[str, ...]) -> None:
    hidden = replace(RULE, standards=(("hash", KeyedHash(("called",), SECRET)),), clear=clear)
    beside = _begun(tmp_path, 5, hidden)
    beside.rows.name = CLEAR

    states = [beside.round() for _ in range(6)]

    assert "column" in states[-1].why
    assert "`standards`" in states[-1].why
    assert CLEAR not in _lake(tmp_path) + states[-1].why
