"""What is lost of a shard that is dropped afterwards; covers next_mark."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pipeline.checkpoint import Epoch, Existence
from pipeline.landing.batch_stats import BatchStats, SnapshotRows
from pipeline.model import Order, Shard
from tests.builders import orders_at, schema_news
from tests.builders.harness import LandingHarness, load_gaps, place
from tests.pipeline.landing.test_next_checkpoint import ACK, GAP, OLD, step
from tests.pipeline.schema_messages import dropped as gone
from tests.pipeline.schema_messages import message

SHARDS = replace(OLD, shards={Shard.parse("s/db.t"): "t", Shard.parse("s/db.u"): "t"})
PASSED: dict[str, Any] = {"acknowledged": {"s": ACK}}


@pytest.mark.parametrize("pos", [500, 600], ids=["nothing came since", "it was created since"])
def test_a_drop_that_is_sent_again_closes_nothing(pos: int) -> None:
    """A collector that starts again sends the statements of before once more."""
    there = {Shard.parse("s/db.t"): Existence(Order(1, 1, pos), there=pos > 500)}
    opened = step(replace(SHARDS, existing=there), gaps=(GAP,), **PASSED)

    made = step(opened, BatchStats(news=(schema_news("drop", 500, shard="db.t", source="s"),)))

    assert list(made.gaps) == list(opened.gaps)
    assert made.departed == {}


def test_a_rename_that_is_sent_again_moves_no_gap_of_the_table_made_since() -> None:
    there = {
        Shard.parse("s/db.u"): Existence(Order(1, 1, 600), there=True)
    }  # made anew after that RENAME
    checkpoint = replace(SHARDS, existing=there)
    opened = step(checkpoint, gaps=(replace(GAP, topic="s.db.u"),), **PASSED)

    made = step(
        opened,
        BatchStats(news=(schema_news("alter", 9, shard="db.t", previous="db.u", source="s"),)),
    )

    (gap,) = load_gaps(made)
    assert gap.shards == ("s/db.u",)


def test_a_drop_that_is_news_closes_what_was_lost_of_a_table_that_statements_told_of() -> None:
    there = {Shard.parse("s/db.t"): Existence(Order(1, 1, 300), there=True)}
    opened = step(replace(SHARDS, existing=there), gaps=(GAP,), **PASSED)

    assert (
        step(opened, BatchStats(news=(schema_news("drop", 500, shard="db.t", source="s"),))).gaps
        == {}
    )


def test_a_batch_forgets_nothing_of_what_it_does_not_tell() -> None:
    """Heartbeats of a source, where changes are missing, the shards that only rows tell of, ..."""
    low, top = Order(1, 1, 5), Order(1, 1, 9)
    known = replace(
        SHARDS,
        heartbeats={"s": 7, "b": 9},
        lost={Shard("s", "db.t"): low},
        high=orders_at({"s/x:0": low, "s/y:0": low}),
        parts={Shard("s", "db.p"): low},
        based={Shard("s", "db.o"): 1},
        complete={Shard("s", "db.o"): 2},
    )
    facts = BatchStats(
        heartbeats={"s": 8},
        shards={"s/db.new": "new"},
        tables={"new": 1},
        high=orders_at({"s/x:0": top}),
    )

    made = step(known, facts)

    assert made.heartbeats == {"s": 8, "b": 9}
    assert step(known, BatchStats(heartbeats={"b": 3})).heartbeats == {"s": 7, "b": 9}
    assert made.high == orders_at({"s/x:0": top, "s/y:0": low})
    assert made.shards == {**SHARDS.shards, Shard("s", "db.new"): "new"}
    kept = (made.lost, made.parts, made.based, made.complete)
    assert kept == (known.lost, known.parts, known.based, known.complete)


def test_a_base_tells_when_its_rows_began_and_when_it_was_complete() -> None:
    """Who begins a mirror needs all batches since the first; none before the second proves it."""
    begun = step(
        facts=BatchStats(snapshots={"s/db.t": SnapshotRows(Order(1, 1, 7), 2, ended=True)})
    )

    made = step(step(begun), BatchStats(high=orders_at({"s/x:0": Order(1, 1, 9)})))

    assert (made.based, made.complete) == ({Shard("s", "db.t"): 5}, {Shard("s", "db.t"): 7})


def test_a_source_that_is_new_takes_no_word_of_another() -> None:
    made = step(epochs={**OLD.epochs, "b": Epoch(1, "new", OLD.epochs["s"].position)})

    assert made.acknowledged == OLD.acknowledged
    assert made.epochs.keys() == {"s", "b"}


def test_a_gap_concerns_the_shard_of_its_own_source_and_stays_where_another_is_renamed() -> None:
    checkpoint = replace(
        SHARDS,
        shards={**SHARDS.shards, Shard.parse("b/db.t"): "t"},
        high=orders_at({"s/s.db.t:0": Order(1, 1, 1)}),
    )
    opened = step(checkpoint, gaps=(GAP,))

    made = step(
        opened,
        BatchStats(news=(schema_news("alter", 9, shard="db.x", previous="db.u", source="s"),)),
    )

    assert [gap.shards for gap in load_gaps(made)] == [("s/db.t",)]


@pytest.mark.parametrize(
    ("name", "began", "told"),
    [
        pytest.param("s/db.t", 6, True, id="it began after the gap"),
        pytest.param("s/db.u", 6, False, id="another shard's"),
        pytest.param("s/db.t", 5, False, id="it began with the gap"),
    ],
)
def test_only_a_base_that_closes_a_gap_tells_where_changes_are_missing(
    name: str, began: int, *, told: bool
) -> None:
    base = BatchStats(snapshots={name: SnapshotRows(Order(1, 1, 700), 2, ended=True)})
    checkpoint = step(SHARDS, base if began == 5 else None, gaps=(GAP,))
    if began == 6:
        checkpoint = step(checkpoint, base)

    made = step(checkpoint, BatchStats(high=orders_at({"s/x:0": Order(1, 1, 900)})))

    assert Shard.parse(name) in made.bases
    assert made.lost == ({Shard("s", "db.t"): Order(1, 1, 700)} if told else {})


@pytest.mark.parametrize("dropped", [False, True], ids=["there", "dropped"])
def test_what_came_into_a_topic_after_its_last_listing_goes_with_it(
    tmp_path: Path, *, dropped: bool
) -> None:
    """It had been landed to the end that was listed last; a table that is there misses the rest."""
    harness = LandingHarness(tmp_path)
    harness.topics.alter("a", 5, "name", kind="CREATE")
    harness.topics.put("a", 20, "one")
    if dropped:
        drop_table(harness)
    harness.land()
    harness.topics.put("a", 30, "never listed")
    harness.topics.delete("a.db.t")
    harness.topics.write_heartbeat("a", 1, pos=40)

    told = harness.land()

    assert [(one.id, one.shards) for one in told.gaps] == (
        [] if dropped else [("a.db.t:0:1@1", ("a/db.t",))]
    )


@pytest.mark.parametrize(
    "most",
    [
        pytest.param(1_000, id="its CREATE is landed in the batch that misses the topic"),
        pytest.param(1, id="in one after it: a batch does not hold all statements"),
    ],
)
def test_so_it_does_of_a_table_that_was_made_again_since(tmp_path: Path, most: int) -> None:
    """As of the batch before it was dropped; what is lost is of the new one."""
    first = LandingHarness(tmp_path)
    first.topics.alter("a", 5, "name", kind="CREATE")
    first.topics.put("a", 20, "one")
    drop_table(first)
    first.land()
    harness = LandingHarness(tmp_path, first.topics, most=most)
    harness.land()  # lists the end of its topic
    harness.topics.say("a", 90, "CREATE USER x")
    harness.topics.alter("a", 100, "name", kind="CREATE")
    harness.topics.put("a", 110, "never listed")
    harness.topics.delete("a.db.t")
    for _ in range(2):
        harness.land()

    assert harness.checkpoint.bases[Shard("a", "db.t")].pos == 100
    assert harness.short() == [("a/db.t",)]


def drop_table(harness: LandingHarness) -> None:
    value = message("DROP TABLE t", gone("t"), source=place("t", 25))
    harness.topics.held["a"].append((b"{}", value.encode()))
