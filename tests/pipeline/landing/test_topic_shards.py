"""Shards that may be sent into a topic miss changes once part of it is lost."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from pipeline.checkpoint import Checkpoint, Existence, OpenSnapshot
from pipeline.landing.listing import TopicNames, TopicShards
from pipeline.model import Order, PartitionEnd, Shard, TopicPartition

NAME, OTHER, ORDER = "s/db.t", "s/db.u", Order(1, 1, 1)
END = PartitionEnd(9)
THERE = Checkpoint(
    "main",
    1,
    {TopicPartition("shop.db.t", 0): END},
    shards={Shard.parse(NAME): "db.t"},
    bases={Shard.parse(NAME): ORDER},
)
GONE = {Shard.parse(NAME): Existence(ORDER, there=False)}
OTHERS = replace(
    THERE,
    shards={Shard.parse(NAME): "db.t", Shard.parse(OTHER): None},
    bases={Shard.parse(NAME): ORDER, Shard.parse(OTHER): ORDER},
)
READ = replace(THERE, bases={}, snaps={Shard.parse(NAME): OpenSnapshot(ORDER, 1)})
SHOP = TopicNames("s", "shop", frozenset({"shop.transaction", "shop.sluice.heartbeat"}))
ROUTED = replace(SHOP, routed=True)
FOLDED = replace(
    THERE,
    shards={Shard.parse(NAME): "db.t", Shard.parse(OTHER): "db.t", Shard.parse("b/db.v"): "db.v"},
    bases={Shard.parse(NAME): ORDER, Shard.parse(OTHER): ORDER, Shard("b", "db.v"): ORDER},
)  # no topic of db.u, or of b, was ever listed


def shards(checkpoint: Checkpoint, names: TopicNames | None = SHOP) -> TopicShards:
    return TopicShards(checkpoint, checkpoint.shards, lambda _: names)


@pytest.mark.parametrize(
    ("checkpoint", "topic", "needed"),
    [
        pytest.param(THERE, "shop.db.t", True, id="its own"),
        pytest.param(THERE, "one.two.db.t", True, id="below a prefix with a dot"),
        pytest.param(THERE, "shop.db.u", False, id="another's"),
        pytest.param(THERE, "db.t", False, id="no prefix"),
        pytest.param(THERE, "shop", True, id="statements"),
        pytest.param(READ, "shop.db.t", True, id="a base is being read"),
        pytest.param(READ, "shop", True, id="statements while a base is being read"),
        pytest.param(replace(THERE, bases={}), "shop.db.t", True, id="its base may be waived"),
        pytest.param(replace(THERE, bases={}), "shop", True, id="statements, its base waived"),
        pytest.param(
            replace(THERE, shards={Shard.parse(NAME): None}), "shop.db.t", False, id="of no table"
        ),
        pytest.param(replace(THERE, existing=GONE), "shop.db.t", False, id="dropped"),
        pytest.param(replace(THERE, existing=GONE), "shop", False, id="statements of dropped ones"),
        pytest.param(OTHERS, "shop.db.t", True, id="one of several"),
        pytest.param(OTHERS, "shop.db.u", False, id="ignored"),
    ],
)
def test_a_topic_is_needed_by_a_table_that_is_there(
    checkpoint: Checkpoint, topic: str, *, needed: bool
) -> None:
    assert shards(checkpoint).is_needed(topic) is needed


@pytest.mark.parametrize(
    ("topic", "names", "lost"),
    [
        pytest.param("shop", SHOP, [NAME, OTHER], id="statements: all of the source"),
        pytest.param("shop.db.t", SHOP, [NAME], id="named after it"),
        pytest.param("shop.db.t", ROUTED, [NAME, OTHER], id="another may be sent there, too"),
        pytest.param("shop.db.v", SHOP, [OTHER], id="another source's is none"),
        pytest.param("shop.all", SHOP, [OTHER], id="of which no topic of its own was listed"),
        pytest.param("shop.all", ROUTED, [NAME, OTHER], id="any may have been routed since"),
        pytest.param("shop.db.t", None, [NAME], id="nobody's, and named after it"),
        pytest.param("shop.all", None, ["b/db.v", NAME, OTHER], id="nobody's"),
        pytest.param("shop.transaction", ROUTED, [NAME, OTHER], id="no rows: whoever counts on it"),
    ],
)
def test_what_is_lost_of_a_topic_is_missed_by_those_that_may_be_in_it(
    topic: str, names: TopicNames | None, lost: Sequence[str]
) -> None:
    assert shards(FOLDED, names).lost_with(topic) == tuple(lost)


def test_all_of_a_source_miss_what_is_lost_of_a_topic_that_fits_none() -> None:
    listed = {TopicPartition(f"shop.{name}", 0): END for name in ("db.t", "db.u", "all")}

    assert shards(replace(FOLDED, offsets=listed)).lost_with("shop.all") == (NAME, OTHER)
    assert shards(replace(FOLDED, offsets=listed)).is_needed("shop.all") is False


def test_a_topic_that_went_was_listed_once() -> None:
    went = replace(FOLDED, gone={TopicPartition("shop.db.u", 0): END})

    assert shards(went).is_needed("shop.all") is False
    assert shards(FOLDED).is_needed("shop.all") is True


def test_a_topic_of_another_source_is_none_of_its_own() -> None:
    """What ``b.db.u`` ends with is what topics call ``s/db.u``, too."""
    other = TopicNames("b", "b")
    listed = replace(
        FOLDED, offsets={TopicPartition("b.db.u", 0): END, TopicPartition("shop.db.t", 0): END}
    )
    known = TopicShards(listed, listed.shards, lambda t: other if t.startswith("b.") else SHOP)

    assert known.lost_with("shop.all") == (OTHER,)


@pytest.mark.parametrize("topic", sorted(SHOP.others))
def test_where_no_row_is_sent_none_is_missed(topic: str) -> None:
    assert shards(FOLDED, ROUTED).is_needed(topic) is False


@pytest.mark.parametrize(
    ("topic", "names", "nobody"),
    [
        pytest.param("shop", SHOP, False, id="a source with shards"),
        pytest.param("new", TopicNames("n", "new"), True, id="statements of one without"),
        pytest.param("new.tx", TopicNames("n", "new", frozenset({"new.tx"})), True, id="no rows"),
        pytest.param("new.db.t", TopicNames("n", "new"), False, id="rows may have been in it"),
        pytest.param("new", None, False, id="nobody's"),
    ],
)
def test_what_is_lost_before_any_shard_is_known_concerns_nobody(
    topic: str, names: TopicNames | None, *, nobody: bool
) -> None:
    assert shards(THERE, names).concerns_nobody(topic) is nobody
