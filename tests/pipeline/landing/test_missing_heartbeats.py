"""A skipped or refused piece of the log is redelivered: a gap closes once nothing is missing."""

import json
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from checks.proof import prove
from pipeline.lags.samples import (
    LandedBatch,
    MirrorPosition,
    Sample,
    Samples,
    SourceSamples,
    to_landed_batch,
)
from pipeline.landing.source_holds import RESENT
from pipeline.model import Acknowledged, Fence, Head, Shard, Stage, Table, TopicPartition
from pipeline.sources.mysql.position import binlog_position
from tests.builders.harness import NOW, LandingHarness, Server, place, record
from tests.pipeline.schema_messages import described, message

T, U = (Table(name, (Shard("a", name),)) for name in ("db.t", "db.u"))
AGE = timedelta(minutes=1)
BEAT = 1_000  # bytes of the log between two heartbeats
FENCE = Fence("a", 9, NOW, Head("server", binlog_position(7, 9 * BEAT)))


@dataclass(eq=False)
class Behind(Server):
    """A server whose collector has finished all up to ``said``, if that is told."""

    said: int | None = None

    def acknowledged(self) -> Acknowledged:
        at = self.end if self.said is None else self.said
        return Acknowledged(binlog_position(self.log, at))


@pytest.fixture
def server() -> Behind:
    return Behind()


@pytest.fixture
def harness(tmp_path: Path, server: Behind) -> LandingHarness:
    """A connector skipped heartbeats 4 to 8 and the rows between, and was acknowledged beyond."""
    harness = LandingHarness(tmp_path, server=server, most=20)
    harness.topics.snapshot("a", 100, 2)
    land_heartbeats(harness, 1, 2, 3)
    harness.topics.put("a", 3500, "x", key=1)
    harness.land()
    land_heartbeats(harness, 9)
    harness.land()
    assert harness.checkpoint.gaps
    assert harness.checkpoint.covers(FENCE)
    return harness


def land_heartbeats(harness: LandingHarness, *numbers: int) -> None:
    for number in numbers:
        harness.topics.write_heartbeat("a", number, pos=number * BEAT)


def statement(
    harness: LandingHarness, pos: int, text: str, table: str, former: str | None = None
) -> None:
    """One about *table*, which was *former* before."""
    names = table if former is None else f"{former},{table}"
    told = message(text, described(text, table, "id BIGINT!"), source=place(names, pos))
    value = json.loads(told)
    if former is not None:
        value["tableChanges"][0] |= {"type": "ALTER", "previousId": f'"db"."{former}"'}
    harness.topics.held.setdefault("a", []).append((b"{}", json.dumps(value).encode()))


def insert_row(harness: LandingHarness, table: str, pos: int, key: int) -> None:
    harness.topics.insert("a", ("db", table), {"id": key}, (7, pos))


def snapshot_rows(table: str, pos: int, count: int) -> list[tuple[bytes, bytes]]:
    told = [*["true"] * (count - 1), "last_in_data_collection"]
    return [
        record(key, {"after": {"id": key}, "source": place(table, pos, snapshot=one), "op": "r"})
        for key, one in enumerate(told)
    ]


def sent_again(harness: LandingHarness, rows: int) -> None:
    """The connector was moved back: all comes again."""
    land_heartbeats(harness, *range(3, 10))
    for key in range(rows):
        harness.topics.put("a", 4500 + key, "missed", key=key)


def proven(harness: LandingHarness, old: LandedBatch, merged: int, table: Table = T) -> bool:
    """Whether all before the fence is in a mirror that has merged batch *merged*.

    *old* is what the batch before all came again had proven.
    """
    now, fences = Sample(harness.checkpoint, NOW, AGE), (FENCE,)
    known = SourceSamples(Sample(fences, NOW, AGE), Sample(now.value.acknowledged["a"], NOW, AGE))
    mirror = Sample(MirrorPosition(7, merged), NOW, AGE)
    found = Samples({"a": known}, now, mirror, (old,))
    return prove(table, Stage.MIRROR, NOW, found, NOW).holds is True


def rests(harness: LandingHarness, topic: str = "a.db.t") -> int:
    """How many records of *topic* have not landed."""
    return (
        len(harness.topics.held[topic])
        - harness.checkpoint.offsets[TopicPartition(topic, 0)].offset
    )


def test_f101_a_gap_waits_for_the_rows_that_close_it(harness: LandingHarness) -> None:
    old, merged = (
        to_landed_batch(harness.checkpoint, {"a": (FENCE,)}),
        harness.checkpoint.tables["db.t"],
    )
    assert proven(harness, old, merged), "but for the gap"
    sent_again(harness, 40)

    waited = 0
    for number in range(10, 20):
        land_heartbeats(harness, number)
        harness.land()
        if rests(harness):
            waited += 1
            assert harness.short() == [("a/db.t",)]

    assert waited, "the batches were too small for all"
    assert not rests(harness)
    assert not harness.short()
    assert not proven(harness, old, merged), "it has none of the rows that were skipped"
    assert proven(harness, old, harness.checkpoint.tables["db.t"])


def test_f101_a_gap_waits_for_what_was_acknowledged_after_all_came_again(
    harness: LandingHarness, server: Behind
) -> None:
    sent_again(harness, 1)
    server.said = 4 * BEAT  # what was finished since it was moved back

    for number in range(10, 20):
        land_heartbeats(harness, number)
        harness.land()
        assert harness.short(), "a row below that may not have been listed yet"

    server.said = None
    for number in (20, 21):
        land_heartbeats(harness, number)
        harness.land()
    assert not harness.short()


def test_f101_what_was_acknowledged_before_all_came_again_closes_nothing(
    harness: LandingHarness, server: Behind
) -> None:
    sent_again(harness, 40)
    harness.land()  # not all of it, and what was acknowledged by then may be of before
    assert rests(harness)
    server.said = 4 * BEAT

    for number in range(10, 20):
        land_heartbeats(harness, number)
        harness.land()
        assert harness.short()
    assert not rests(harness)


def test_f101_a_table_that_was_created_in_the_skipped_piece_waits_for_its_rows(
    harness: LandingHarness,
) -> None:
    old = to_landed_batch(harness.checkpoint, {"a": (FENCE,)})
    statement(harness, 4200, "CREATE TABLE u (id BIGINT)", "u")
    sent_again(harness, 1)
    for key in range(40):
        insert_row(harness, "u", 4500 + key, key)

    seen = 0
    for number in range(10, 20):
        land_heartbeats(harness, number)
        harness.land()
        if Shard("a", "db.u") in harness.checkpoint.bases and rests(harness, "a.db.u"):
            seen += 1
            assert "a/db.u" in harness.short()[0]

    assert seen, "it has a base before its rows have landed"
    assert not harness.short()
    assert proven(harness, old, harness.checkpoint.batch, U)


def test_f101_rows_sent_again_after_a_rename_keep_the_gap_of_the_renamed_table(
    harness: LandingHarness,
) -> None:
    statement(harness, 9500, "RENAME TABLE t TO u", "u", former="t")
    land_heartbeats(harness, 10)
    harness.land()
    assert "a/db.u" in harness.short()[0]
    sent_again(harness, 5)

    for number in range(11, 20):
        land_heartbeats(harness, number)
        harness.land()

    (gap,) = harness.gaps()
    assert gap.shards == ("a/db.u",)
    assert "take a new base" in gap.why


def test_f101_a_statement_from_before_the_skipped_piece_keeps_no_gap(
    harness: LandingHarness,
) -> None:
    statement(harness, 2500, "ALTER TABLE t", "t")  # sent again, too

    sent_again(harness, 5)
    for number in range(10, 20):
        land_heartbeats(harness, number)
        harness.land()

    assert harness.checkpoint.existing[Shard.parse("a/db.t")].order.pos == 2500
    assert not harness.short()


def test_f140_a_refused_row_is_no_row_of_a_table_that_was_renamed_since(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 100, 2)
    harness.topics.put("a", 400, "behind the refused one", key=8)
    statement(harness, 500, "RENAME TABLE t TO u", "u", former="t")
    harness.land()
    for pos, key in ((300, 7), (400, 8)):
        harness.topics.put("a", pos, "behind the refused one", key=key)

    (hold,) = harness.land().holds

    assert (hold.reason, hold.subject) == ("disorder", "source:a")
    assert "sluice bootstrap" in hold.detail


@pytest.mark.parametrize("known", [False, True], ids=["below it", "in the same batch"])
def test_f140_a_refused_row_lands_where_no_newer_statement_had(
    tmp_path: Path, *, known: bool
) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 100, 2)
    statement(harness, 200, "ALTER TABLE t", "t")
    harness.topics.put("a", 400, "behind the refused one", key=8)
    harness.land()
    for pos, key in ((300, 7), (400, 8)):
        harness.topics.put("a", pos, "behind the refused one", key=key)
    if known:
        statement(harness, 500, "RENAME TABLE t TO u", "u", former="t")

    assert not harness.land().holds
    assert 300 in [pos for _, pos, _ in harness.rows("a")]


def test_f101_rows_between_those_that_landed_are_held_after_a_rename(
    harness: LandingHarness,
) -> None:
    harness.topics.put("a", 9400, "y", key=1)
    statement(harness, 9500, "RENAME TABLE t TO u", "u", former="t")
    land_heartbeats(harness, 10)
    harness.land()
    land_heartbeats(harness, *range(3, 10))
    for pos, name in ((4500, "missed"), (9400, "y")):
        harness.topics.put("a", pos, name, key=1)

    (hold,) = harness.land().holds

    assert hold.reason == "disorder"
    assert "a/db.u" in harness.short()[0]


@pytest.fixture
def renamed(tmp_path: Path) -> LandingHarness:
    """A refused row of ``db.t`` comes, which is ``db.u`` by now; ``db.v`` met no statement."""
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 100, 2)
    insert_row(harness, "v", 350, 1)
    harness.topics.put("a", 400, "behind the refused one", key=8)
    statement(harness, 500, "RENAME TABLE t TO u", "u", former="t")
    harness.land()
    for pos, key in ((300, 7), (400, 8)):
        harness.topics.put("a", pos, "behind the refused one", key=key)
    return harness


def test_f140_a_waiver_that_lets_a_refused_row_pass_leaves_the_renamed_table_short_of_it(
    renamed: LandingHarness,
) -> None:
    (hold,) = renamed.land().holds

    assert not renamed.land(hold.id).holds

    (gap,) = renamed.gaps()
    assert gap.shards == ("a/db.u",)
    assert "sluice bootstrap" in gap.why


def test_f140_a_statement_that_lands_with_the_waiver_is_newer_than_the_row(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 100, 2)
    harness.topics.put("a", 400, "of this log", key=8)
    harness.land()
    harness.topics.put("a", 300, "below, and not sent again", key=7)
    statement(harness, 500, "RENAME TABLE t TO u", "u", former="t")

    land_waived(harness)

    assert harness.short() == [("a/db.u",)]


def test_f140_a_new_base_closes_what_a_waiver_left_out(renamed: LandingHarness) -> None:
    (hold,) = renamed.land().holds
    renamed.land(hold.id)

    renamed.topics.held["a.db.u"] = snapshot_rows("u", 900, 2)
    renamed.topics.put("a", 950, "live")
    renamed.land(hold.id)

    assert not renamed.short()


def test_f140_a_base_from_behind_the_refused_row_lacks_nothing(renamed: LandingHarness) -> None:
    (hold,) = renamed.land().holds
    renamed.topics.held["a.db.u"] = snapshot_rows("u", 900, 2)
    renamed.topics.put("a", 950, "live")

    renamed.land(hold.id)
    renamed.land()

    assert not renamed.short()


def test_f140_what_was_renamed_again_with_the_waiver_is_short_of_the_row(
    renamed: LandingHarness,
) -> None:
    (hold,) = renamed.land().holds
    statement(renamed, 600, "RENAME TABLE u TO w", "w", former="u")

    renamed.land(hold.id)

    assert renamed.short() == [("a/db.w",)]


def test_f140_a_mirror_from_before_a_refused_row_came_lacks_it(tmp_path: Path) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 100, 2)
    insert_row(harness, "v", 350, 1)
    harness.topics.put("a", 400, "behind the refused one", key=8)
    harness.land()
    assert not harness.checkpoint.belated

    for pos, key in ((300, 7), (400, 8)):
        harness.topics.put("a", pos, "behind the refused one", key=key)
    harness.land()

    assert harness.checkpoint.belated == {"db.t": harness.checkpoint.batch}


def test_f140_a_mirror_from_before_a_row_that_was_let_pass_lacks_it(
    renamed: LandingHarness,
) -> None:
    (hold,) = renamed.land().holds

    renamed.land(hold.id)

    assert renamed.checkpoint.belated == {"db.t": renamed.checkpoint.batch}


def renaming(home: Path) -> LandingHarness:
    """A table with a base and a newer row; the statement that renames it is sent, not landed."""
    harness = LandingHarness(home)
    harness.topics.snapshot("a", 100, 2)
    insert_row(harness, "v", 350, 1)
    harness.topics.put("a", 400, "live", key=8)
    statement(harness, 500, "RENAME TABLE t TO u", "u", former="t")
    return harness


def land_waived(harness: LandingHarness) -> None:
    """Waive whatever is held until nothing is."""
    waived: list[str] = []
    for _ in range(6):
        holds = harness.land(*waived).holds
        if not holds and not rests(harness):
            return
        waived += [hold.id for hold in holds]
        harness.now += RESENT  # a row that stays alone is held then
    raise AssertionError(f"still held: {waived}")


def test_f140_a_base_from_between_the_rows_that_were_let_pass_lacks_the_later_ones(
    tmp_path: Path,
) -> None:
    harness = LandingHarness(tmp_path)
    harness.topics.snapshot("a", 100, 2)
    insert_row(harness, "v", 150, 1)
    harness.topics.put("a", 200, "of this log", key=1)
    harness.land()
    harness.topics.held["a.db.t"] += snapshot_rows("t", 250, 2)
    harness.topics.put("a", 400, "live", key=8)
    harness.land()
    statement(harness, 500, "RENAME TABLE t TO u", "u", former="t")
    harness.land()
    harness.topics.put("a", 180, "refused, from before the base", key=6)
    harness.topics.put("a", 300, "refused, from after the base", key=7)

    land_waived(harness)

    assert harness.short() == [("a/db.u",)]


@pytest.mark.parametrize("late", [(300, 290), (300, 310)])
def test_f140_rows_that_two_waivers_let_pass_are_judged_in_the_log_that_they_are_of(
    tmp_path: Path, late: tuple[int, int]
) -> None:
    harness = renaming(tmp_path)
    harness.land()
    for pos in late:
        harness.topics.put("a", pos, "late", key=pos)

    land_waived(harness)

    assert harness.short() == [("a/db.u",)]


def test_f140_a_table_that_was_created_anew_holds_a_row_of_the_one_that_was_renamed(
    tmp_path: Path,
) -> None:
    harness = renaming(tmp_path)
    statement(harness, 600, "CREATE TABLE t (id BIGINT)", "t")
    harness.land()
    harness.topics.put("a", 700, "live of the new one", key=9)
    harness.land()
    harness.topics.put("a", 300, "of the old one", key=7)

    land_waived(harness)

    assert harness.short() == [("a/db.t", "a/db.u")]


def test_f140_two_partitions_that_go_back_at_once_can_be_waived(tmp_path: Path) -> None:
    harness = renaming(tmp_path)
    harness.land()
    harness.topics.put("a", 300, "late", key=7)
    insert_row(harness, "v", 340, 2)

    land_waived(harness)

    assert harness.short() == [("a/db.u",)]
    assert not rests(harness)
    assert not rests(harness, "a.db.v")
