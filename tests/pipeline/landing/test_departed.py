"""What a mark says of shards that are dropped or renamed; covers landing/next_checkpoint.py."""

from dataclasses import replace

import pytest

from pipeline.checkpoint import Checkpoint, Existence
from pipeline.landing.batch_stats import BatchStats, SchemaNews
from pipeline.model import Acknowledged, Order, Shard
from pipeline.sources.mysql.position import binlog_position
from tests.builders import schema_news
from tests.pipeline.landing.test_next_checkpoint import GAP, OLD, step, unread

PASSED = {"s": Acknowledged(binlog_position(1, 90))}
KNOWN = replace(
    OLD,
    shards={
        Shard.parse("s/db.t"): "db.t",
        Shard.parse("s/db.u"): "db.u",
        Shard.parse("s/db.old"): None,
    },
    departed={"db.u": 1, "db.x": 2},
)


def with_dropped(checkpoint: Checkpoint, *names: str, pos: int) -> Checkpoint:
    gone = {Shard("s", f"db.{name}"): Existence(Order(1, 1, pos), there=False) for name in names}
    return replace(checkpoint, existing=gone)


@pytest.mark.parametrize(
    ("checkpoint", "news", "left"),
    [
        pytest.param(KNOWN, (schema_news("drop", 9, source="s"),), {"db.t"}, id="dropped"),
        pytest.param(
            KNOWN,
            (schema_news("alter", 9, shard="db.y", previous="db.t", source="s"),),
            {"db.t"},
            id="renamed",
        ),
        pytest.param(
            KNOWN,
            (
                schema_news("drop", 9, shard="db.u", source="s"),
                schema_news("alter", 9, shard="db.y", previous="db.t", source="s"),
            ),
            {"db.t", "db.u"},
            id="one of each",
        ),
        pytest.param(
            KNOWN, (schema_news("drop", 9, shard="db.old", source="s"),), set(), id="of no table"
        ),
        pytest.param(
            KNOWN,
            (schema_news("drop", 9, shard="db.other", source="s"),),
            set(),
            id="of no shard that is known",
        ),
        pytest.param(KNOWN, (schema_news("alter", 9, source="s"),), set(), id="only altered"),
        pytest.param(
            KNOWN,
            (schema_news("drop", 9, source="s", snapshot=True),),
            set(),
            id="described by a snapshot",
        ),
        pytest.param(
            with_dropped(KNOWN, "t", pos=8),
            (schema_news("drop", 9, source="s"),),
            {"db.t"},
            id="dropped once more",
        ),
        pytest.param(
            with_dropped(KNOWN, "t", pos=9),
            (schema_news("drop", 9, source="s"),),
            set(),
            id="the DROP is sent again",
        ),
        pytest.param(
            with_dropped(KNOWN, "t", pos=9),
            (schema_news("alter", 9, shard="db.y", previous="db.t", source="s"),),
            set(),
            id="the RENAME is sent again",
        ),
    ],
)
def test_tables_that_a_shard_has_left_are_remembered_with_the_batch(
    checkpoint: Checkpoint, news: tuple[SchemaNews, ...], left: set[str]
) -> None:
    """A mirror before it has rows of that shard, and must not be READY with them."""
    made = step(checkpoint, BatchStats(news=news))

    assert made.departed == {"db.u": 1, "db.x": 2, **dict.fromkeys(left, 5)}


def with_gap(checkpoint: Checkpoint, *, passed: bool) -> Checkpoint:
    """With a gap and an unread change of both db.t and db.u."""
    gap = replace(GAP, id="lost", batch=4, shards=("s/db.t", "s/db.u"), passed=passed)
    unread_ = step(
        checkpoint, BatchStats(errors={"s/db.t": unread(7)}), acknowledged=PASSED if passed else {}
    )
    return replace(unread_, gaps={"lost": gap})


@pytest.mark.parametrize(
    ("passed", "news", "closed"),
    [
        pytest.param(
            True, schema_news("drop", 9, source="s"), True, id="all beside what is lost is read"
        ),
        pytest.param(
            False,
            schema_news("drop", 9, source="s"),
            False,
            id="its CREATE may be among what is lost",
        ),
        pytest.param(True, schema_news("alter", 9, source="s"), False, id="only altered"),
        pytest.param(
            True,
            schema_news("drop", 9, source="s", snapshot=True),
            False,
            id="described by a snapshot",
        ),
        pytest.param(
            True, schema_news("drop", 9, shard="db.other", source="s"), False, id="another table"
        ),
    ],
)
def test_of_a_shard_that_is_dropped_nothing_is_missed(
    passed: bool, news: SchemaNews, closed: bool
) -> None:
    made = step(with_gap(KNOWN, passed=passed), BatchStats(news=(news,)))

    assert made.gaps["lost"].shards == (("s/db.u",) if closed else ("s/db.t", "s/db.u"))
    assert (made.quarantine == {}) is closed


def test_a_drop_that_is_sent_again_closes_nothing_of_the_table_that_came_after_it() -> None:
    """Else what is lost of the new one is forgotten, and it is READY without it."""
    since = replace(
        with_gap(KNOWN, passed=True),
        existing={Shard.parse("s/db.t"): Existence(Order(1, 1, 50), there=True)},
    )

    made = step(since, BatchStats(news=(schema_news("drop", 9, source="s"),)))

    assert made.gaps["lost"].shards == ("s/db.t", "s/db.u")
    assert made.quarantine.keys() == {"s/db.t"}


@pytest.mark.parametrize(
    ("checkpoint", "news", "concerned"),
    [
        pytest.param(
            KNOWN,
            schema_news("alter", 9, shard="db.y", previous="db.t", source="s"),
            ("s/db.t", "s/db.u", "s/db.y"),
            id="to a new name",
        ),
        pytest.param(
            KNOWN,
            schema_news("alter", 9, shard="db.u", previous="db.t", source="s"),
            ("s/db.t", "s/db.u"),
            id="to one that has it too",
        ),
        pytest.param(
            KNOWN,
            schema_news("alter", 9, shard="db.y", previous="db.x", source="s"),
            ("s/db.t", "s/db.u"),
            id="of another table",
        ),
        pytest.param(
            with_dropped(KNOWN, "t", pos=9),
            schema_news("alter", 9, shard="db.y", previous="db.t", source="s"),
            ("s/db.t", "s/db.u"),
            id="sent again",
        ),
    ],
)
def test_what_is_lost_of_a_shard_is_lost_of_the_one_it_becomes(
    checkpoint: Checkpoint, news: SchemaNews, concerned: tuple[str, ...]
) -> None:
    made = step(with_gap(checkpoint, passed=True), BatchStats(news=(news,)))

    assert made.gaps["lost"].shards == concerned
