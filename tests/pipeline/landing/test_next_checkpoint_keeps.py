"""What a mark keeps of the one before, and what a batch adds; covers landing/next_checkpoint.py."""

from dataclasses import replace

import pytest

from pipeline.checkpoint import Epoch
from pipeline.landing.batch_stats import BatchStats, SnapshotRows
from pipeline.landing.plan import Plan
from pipeline.model import Order, PartitionEnd, Shard, TopicPartition
from pipeline.sources.mysql.position import binlog_position
from tests.builders import orders_at
from tests.pipeline.landing.test_next_checkpoint import GAP, OLD, OPEN, planned, step, unread

LOW, HIGH = Order(1, 1, 20), Order(1, 1, 900)
BEGUN = Order(1, 1, 700)


def snapshot(*names: str, ended: bool = True, topic: str = "s.db.t") -> BatchStats:
    rows = SnapshotRows(BEGUN, 2, ended=ended, topics=frozenset({topic}))
    return BatchStats(snapshots=dict.fromkeys(names, rows))


def test_where_each_partition_stands_is_kept_until_it_goes_on() -> None:
    """Else rows that go back there would be no disorder."""
    checkpoint = replace(OLD, high=orders_at({"s/a:0": LOW, "s/b:0": LOW}))

    assert step(checkpoint, BatchStats(high=orders_at({"s/b:0": HIGH}))).high == orders_at(
        {"s/a:0": LOW, "s/b:0": HIGH}
    )


def test_heartbeats_of_a_source_without_a_new_one_are_kept() -> None:
    """Else no fence before it is covered, and no epoch is ever done with."""
    checkpoint = replace(OLD, heartbeats={"s": 7, "z": 3})

    assert step(checkpoint, BatchStats(heartbeats={"z": 4})).heartbeats == {"s": 7, "z": 4}


def test_a_source_that_is_reached_for_the_first_time_has_moved_nowhere() -> None:
    first = {"z": Epoch(1, "uuid", binlog_position(1, 1))}

    made = step(epochs={**OLD.epochs, **first})

    assert made.epochs == {**OLD.epochs, **first}
    assert made.acknowledged == OLD.acknowledged


def test_shards_are_known_by_their_rows() -> None:
    checkpoint = replace(OLD, shards={Shard.parse("s/db.t"): "db.t"})

    assert step(checkpoint, BatchStats(shards={"s/db.u": "db.u"})).shards == {
        Shard("s", "db.t"): "db.t",
        Shard("s", "db.u"): "db.u",
    }


def test_a_base_is_told_with_the_batches_it_began_and_ended_in_and_its_mirror_has_to_take_it() -> (
    None
):
    checkpoint = replace(OLD, based={Shard("s", "db.x"): 1}, complete={Shard("s", "db.x"): 2})

    begun = step(checkpoint, snapshot("s/db.t"))
    made = step(step(begun), BatchStats(high=orders_at({"s/s.db.t:0": HIGH})))

    assert made.based == {Shard("s", "db.x"): 1, Shard("s", "db.t"): 5}
    assert made.complete == {Shard("s", "db.x"): 2, Shard("s", "db.t"): 7}
    assert made.tables == {"db.t": 7}


def test_parts_of_snapshots_in_topics_trimmed_one_after_another_are_all_remembered() -> None:
    """A part that is forgotten is a whole base once its rows are sent again."""
    chosen = Plan({}, {}, (), capped=False, trimmed=frozenset({"s.db.t"}))
    checkpoint = replace(OLD, parts={Shard("s", "db.v"): LOW}, trimmed=("s.db.v",))

    made, _ = planned(checkpoint, chosen, snapshot("s/db.t"))

    assert made.parts == {Shard("s", "db.v"): LOW, Shard("s", "db.t"): BEGUN}
    assert step(made).parts == made.parts


def torn(order: Order, *, rows: int = 2) -> BatchStats:
    return BatchStats(snapshots={"s/db.t": SnapshotRows(order, rows, ended=True)})


@pytest.mark.parametrize(
    ("first", "second", "whole"),
    [
        pytest.param(torn(BEGUN), torn(replace(BEGUN, epoch=2)), False, id="torn by an epoch"),
        pytest.param(torn(BEGUN), torn(Order(2, 1, 800)), True, id="begun anew elsewhere"),
        pytest.param(torn(BEGUN), torn(Order(1, 1, 800)), True, id="begun anew"),
        pytest.param(
            torn(BEGUN, rows=0), torn(replace(BEGUN, epoch=2)), True, id="only told of before"
        ),
    ],
)
def test_a_snapshot_of_rows_of_two_epochs_is_a_part(
    first: BatchStats, second: BatchStats, *, whole: bool
) -> None:
    order = second.snapshots["s/db.t"].order

    made = step(step(facts=first), second)

    assert made.parts == ({} if whole else {Shard("s", "db.t"): order})
    assert (made.snaps.keys() == {Shard("s", "db.t")}) is whole
    done = step(made, BatchStats(high=orders_at({"s/s.db.t:0": Order(2, 1, 900)})))
    assert (done.bases.get(Shard("s", "db.t")) == order) is whole


def test_rows_of_one_batch_in_two_epochs_are_a_part_whichever_is_told_first() -> None:
    older, newer = torn(BEGUN).snapshots["s/db.t"], SnapshotRows(Order(2, 1, 700), 3, ended=True)

    for one, other in ((older, newer), (newer, older)):
        both = one.with_rows(other).with_rows(newer)
        assert both == SnapshotRows(newer.order, 6, ended=True, torn=True)
        assert step(facts=BatchStats(snapshots={"s/db.t": both})).parts == {
            Shard("s", "db.t"): newer.order
        }


@pytest.mark.parametrize(
    ("topics", "grown"),
    [
        pytest.param(("s.db.t:0", "s.db.t:1"), ("s.db.t", "s.db.v"), id="one that was there"),
        pytest.param(("s.db.t:0", "s.db.new:0"), ("s.db.v",), id="one that is new"),
    ],
)
def test_topics_that_have_grown_are_those_that_were_there(
    topics: tuple[str, ...], grown: tuple[str, ...]
) -> None:
    """Keys of a new topic have never moved: nothing of it is in doubt."""
    before = replace(OLD, offsets={TopicPartition("s.db.t", 0): PartitionEnd(9)}, grown=("s.db.v",))
    chosen = Plan(
        {}, dict.fromkeys(map(TopicPartition.parse, topics), PartitionEnd(9)), (), capped=False
    )

    assert planned(before, chosen)[0].grown == grown


TWO = replace(OLD, shards={Shard.parse("s/db.t"): "db.t", Shard.parse("s/db.u"): "db.u"})
LIVE = BatchStats(high=orders_at({"s/s.db.t:0": HIGH}))


def test_a_base_that_closes_what_was_unread_tells_how_far_changes_are_missing() -> None:
    opened = step(
        replace(TWO, lost={Shard("s", "db.x"): LOW}), BatchStats(errors={"s/db.t": unread(7)})
    )

    made = step(step(opened, snapshot("s/db.t")), LIVE)

    assert made.quarantine == {}
    assert made.lost == {Shard("s", "db.x"): LOW, Shard("s", "db.t"): BEGUN}


def test_a_base_that_closes_nothing_tells_of_nothing_lost() -> None:
    """Else rows that were moved away long before would be held for no reason."""
    other = step(step(step(TWO, gaps=(GAP,)), snapshot("s/db.u")), LIVE)
    early = step(step(step(TWO, snapshot("s/db.t")), gaps=(GAP,)), LIVE)

    assert (list(other.gaps), other.lost) == ([OPEN], {})
    assert (list(early.gaps), early.lost) == ([f"{GAP.id}@6"], {})


def test_a_gap_concerns_the_shard_of_its_topic_s_own_source() -> None:
    """Of a shard of that name elsewhere no base could be asked for."""
    checkpoint = replace(
        OLD,
        shards={Shard.parse("s/db.t"): "db.t", Shard.parse("b/db.t"): "db.t"},
        high=orders_at({"s/s.db.t:0": LOW, "b/b.db.t:0": LOW}),
    )

    assert step(checkpoint, gaps=(GAP,)).gaps[OPEN].shards == ("s/db.t",)


def test_unread_changes_of_two_batches_are_both_named() -> None:
    first = step(TWO, BatchStats(errors={"s/db.t": unread(7)}))

    second = step(first, BatchStats(errors={"s/db.t": unread(9)}))

    assert second.quarantined == {"t": ("s.db.t:0:7@5", "s.db.t:0:9@6")}


def test_a_lost_statement_of_a_source_without_shards_is_no_gap() -> None:
    """One of no shards would concern everyone."""
    gap = replace(GAP, topic="s")

    assert step(replace(OLD, shards={Shard.parse("b/db.t"): "db.t"}), gaps=(gap,)).gaps == {}
