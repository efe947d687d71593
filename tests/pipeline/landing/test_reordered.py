"""Changes ordered by something else than those landed before are never compared with them."""

from dataclasses import dataclass
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.formats.debezium_json import DebeziumJson
from pipeline.formats.format import Format
from pipeline.formats.maxwell_json import MaxwellJson
from pipeline.formats.simple_binlog import SimpleBinlog, SimpleTable
from pipeline.landing.epochs import Epochs, follow_orderings
from pipeline.model import Ordering
from pipeline.sources.mysql.position import binlog_position
from tests.builders.harness import LandingHarness
from tests.pipeline.formats.simple_binlog_writer import Collector
from tests.pipeline.landing.test_epochs import listed

SIMPLE = SimpleBinlog({r"db\.t": SimpleTable(("id",), {"id": "bigint", "name": "text"})})
NOW = 1_767_000_000_000


@dataclass(eq=False)
class Formatted(LandingHarness):
    """A harness whose sources write in ``form``."""

    form: Format = SIMPLE

    def format(self, name: str) -> Format:
        return self.form


def ordered_by_sequence(home: Path) -> Formatted:
    """One that has landed a row by its collector's own sequence, far above any log's place."""
    harness = Formatted(home, names="a")
    sent = Collector(NOW).message("INSERT", "db.t", {"id": 1, "name": "old"})
    harness.topics.held["a.simple"] = [(b"", sent)]
    harness.land()
    return harness


def test_places_in_the_log_win_over_a_sequence_that_came_before_them(tmp_path: Path) -> None:
    topics = ordered_by_sequence(tmp_path).topics
    topics.put("a", 101, "new")

    harness = Formatted(tmp_path, topics, names="a", form=DebeziumJson())
    harness.land()

    old, new = [row["order"] for row in sorted(harness.landed(), key=lambda row: row["batch"])]
    assert tuple(old.values()) < tuple(new.values())
    assert [order["epoch"] for order in (old, new)] == [1, 2]


def test_what_came_between_the_two_is_a_gap_that_is_told_once(tmp_path: Path) -> None:
    topics = ordered_by_sequence(tmp_path).topics
    topics.put("a", 101, "new")
    harness = Formatted(tmp_path, topics, names="a", form=DebeziumJson())
    harness.land()
    (gap,) = harness.gaps()

    topics.put("a", 102, "newer")
    harness.land()

    assert gap.shards == ("a/db.t",)
    assert "were ordered by own_sequence, and are by log_position" in gap.why
    assert [one.id for one in harness.gaps()] == [gap.id]
    assert [epoch for epoch, _, _ in harness.rows("a")].count(2) == 2


@pytest.mark.parametrize("form", [SIMPLE, SimpleBinlog()], ids=["the same", "other settings"])
def test_the_same_order_goes_on(tmp_path: Path, form: Format) -> None:
    topics = ordered_by_sequence(tmp_path).topics
    topics.held["a.simple"] += [(b"", Collector(NOW + 1).message("INSERT", "db.t", {"id": 2}))]

    harness = Formatted(tmp_path, topics, names="a", form=form)
    harness.land()

    assert {epoch for epoch, _, _ in harness.rows("a")} == {1}
    assert harness.checkpoint.gaps == {}
    assert harness.checkpoint.orderings == {"a": Ordering.SEQUENCE}


def test_in_one_topic_the_other_order_begins_where_nothing_was_landed_yet(tmp_path: Path) -> None:
    def message(n: int) -> tuple[bytes, bytes]:
        told = b'{"database":"db","table":"t","type":"insert","commit":true,"data":{"id":%d},'
        return b"", told % n + b'"primary_key_columns":["id"],"position":"binlog.000009:%d"}' % n

    harness = Formatted(tmp_path, names="a", form=MaxwellJson())
    harness.topics.held["a.maxwell"] = [message(1), message(2)]
    harness.land()
    harness.topics.held["a.maxwell"] += [message(3), message(4)]
    without = Formatted(tmp_path, harness.topics, names="a", form=MaxwellJson(positions=False))

    report = without.land()

    assert report.holds == ()
    assert without.rows("a") == [(1, 1, 0), (1, 2, 1), (2, 2, 2), (2, 3, 3)]


def test_a_source_whose_server_was_never_reached_has_no_epoch_to_end() -> None:
    checkpoint, now = Checkpoint("main", 3, orderings={"s": Ordering.LOG}), {"s": Ordering.OFFSET}

    assert follow_orderings(Epochs({}, {}), checkpoint, listed(), now) == Epochs({}, {})
    known = {"s": Epoch(2, "x", binlog_position(5, 800))}
    assert follow_orderings(Epochs(known, {}), checkpoint, listed(), now).number("s") == 3
