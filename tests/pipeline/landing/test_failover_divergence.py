"""What a server that took another's place never had is a gap of the tables that are there."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Epoch, Existence
from pipeline.errors import UnreachableError
from pipeline.landing.epochs import observe_head
from pipeline.landing.gaps import detect_failover_divergence
from pipeline.model import Acknowledged, Head, Order, Shard
from pipeline.sources.mysql.position import binlog_position
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.position import log_position
from tests.builders import batch_context, orders_at
from tests.builders.harness import LandingHarness, Server, load_gaps
from tests.pipeline.landing.test_unbased_tables import message

OLD = Epoch(1, "7/1/5", log_position(1000))
BASE, NEWER = Order(1, 10, 10), Order(2, 2000, 2000)
KNOWN = Checkpoint(
    "main",
    4,
    epochs={"shop": OLD},
    shards={
        **{
            Shard.parse("shop/public.t"): "public.t",
            Shard.parse("shop/public.u"): "public.u",
            Shard.parse("till/public.t"): "till.t",
        },
        Shard.parse("shop/public.ignored"): None,
    },
    bases={
        Shard("shop", "public.t"): BASE,
        Shard("shop", "public.u"): BASE,
        Shard("till", "public.t"): BASE,
    },
    based={
        Shard("shop", "public.t"): 1,
        Shard("shop", "public.u"): 1,
        Shard("till", "public.t"): 1,
    },
)


def checkpoint_after(head: Head, made: Checkpoint = KNOWN) -> Checkpoint:
    """The mark of the next batch, in which *head* is seen."""
    epochs = {"shop": observe_head(OLD, head, 0)}
    return detect_failover_divergence(
        replace(made, batch=5, epochs=epochs), batch_context(KNOWN, heads={"shop": (head, head)})
    )


@pytest.mark.parametrize(
    ("head", "why"),
    [
        pytest.param(Head("7/1/5", log_position(2000)), None, id="the same server"),
        pytest.param(Head("7/2/5", log_position(2000), log_position(1000)), None, id="had all"),
        pytest.param(
            Head("7/2/5", log_position(2000), log_position(999)), "left the log", id="was behind"
        ),
        pytest.param(
            Head("7/2/5", log_position(2000)), "does not report where", id="tells nothing"
        ),
        pytest.param(
            Head("7/2/6", log_position(2000), log_position(1000)),
            "another database",
            id="made anew",
        ),
        pytest.param(
            Head("8/1/5", log_position(2000), log_position(1000)),
            "another database",
            id="elsewhere",
        ),
        pytest.param(Head("7/1/5", log_position(900)), "log went back", id="a backup"),
    ],
)
def test_a_server_that_may_lack_what_was_landed_is_a_gap_of_its_tables(
    head: Head, why: str | None
) -> None:
    gaps = load_gaps(checkpoint_after(head))

    if why is None:
        assert gaps == []
    else:
        (gap,) = gaps
        assert why in gap.why
        assert gap.shards == ("shop/public.t", "shop/public.u")
        assert (gap.id, gap.batch) == ("log:shop:0:5@5", 4)
        assert (gap.partition, gap.first, gap.until) == (0, 5, 5)


BEHIND = Head("7/2/5", log_position(2000), log_position(999))


def test_tables_that_went_and_bases_that_began_since_are_no_part_of_it() -> None:
    table = Shard("shop", "public.t")
    gone = {Shard.parse("shop/public.u"): Existence(Order(1, 20, 20), there=False)}
    there = replace(KNOWN, existing=gone)
    made = checkpoint_after(BEHIND, there)
    assert [gap.shards for gap in load_gaps(made)] == [("shop/public.t",)]

    bases, based = {**KNOWN.bases, table: NEWER}, {**KNOWN.based, table: 5}
    assert checkpoint_after(BEHIND, replace(there, bases=bases, based=based)).gaps == {}
    unbased = replace(there, bases={}, based=based)
    assert [text.shards for text in checkpoint_after(BEHIND, unbased).gaps.values()] == [
        ("shop/public.t",)
    ]


@pytest.mark.parametrize(
    ("high", "short"),
    [
        pytest.param({"shop/a:0": Order(1, 1500, 0), "shop/b:0": Order(1, 900, 0)}, True, id="own"),
        pytest.param({"shop/a:0": Order(1, 999, 0), "till/a:0": Order(1, 1500, 0)}, False, id="no"),
        pytest.param({"shop/a:0": Order(0, 1500, 0)}, False, id="of the log before the old one's"),
    ],
)
def test_the_highest_that_landed_of_the_old_log_may_lie_above_what_was_seen_of_it(
    high: dict[str, Order], *, short: bool
) -> None:
    head, seen = (
        Head("7/2/5", log_position(2000), log_position(1000)),
        replace(KNOWN, high=orders_at(high)),
    )
    epochs = {"shop": observe_head(OLD, head, 0)}

    made = detect_failover_divergence(
        replace(seen, batch=5, epochs=epochs), batch_context(seen, heads={"shop": (head, head)})
    )

    assert [gap.shards for gap in load_gaps(made)] == [("shop/public.t", "shop/public.u")] * short


def test_it_is_told_once() -> None:
    made = checkpoint_after(BEHIND)
    assert detect_failover_divergence(
        replace(made, batch=6), batch_context(made, heads={"shop": (BEHIND, BEHIND)})
    ) == replace(made, batch=6)


@dataclass(eq=False)
class Postgres(Server):
    """A server whose head is ``now``, and its collector, which has sent everything."""

    now: Head = field(default_factory=lambda: Head("7/1/5", log_position(700)))
    down: bool = False

    def head(self) -> Head:
        if self.down:
            raise UnreachableError("down: connection refused")
        return self.now

    def acknowledged(self) -> Acknowledged:
        return Acknowledged(self.now.position)


def harness_with_base(home: Path) -> tuple[LandingHarness, Postgres, list[tuple[bytes, bytes]]]:
    """With a base and a change of table t, its server, and what stands in its topic."""
    server = Postgres()
    harness = LandingHarness(home, server=server, names="a", dialect=POSTGRES)
    topic = harness.topics.held.setdefault("a.public.t", [])
    topic += [message("t", 500, 1, "last"), message("t", 600, 2)]
    harness.land()
    return harness, server, topic


@pytest.mark.parametrize("parted", [699, 700])
def test_landing_tells_it_with_the_first_batch_after_the_promotion(
    tmp_path: Path, parted: int
) -> None:
    harness, server, topic = harness_with_base(tmp_path)
    server.now = Head("7/2/5", log_position(900), log_position(parted))
    topic.append(message("t", 800, 3))

    told = harness.land()

    assert harness.checkpoint.epochs["a"].number == 2
    assert [gap.shards for gap in told.gaps] == [("a/public.t",)] * (parted < 700)


@pytest.mark.parametrize(
    ("parted", "short"), [pytest.param(799, True, id="less"), pytest.param(800, False, id="all")]
)
def test_what_was_landed_after_the_old_server_was_seen_last_counts(
    tmp_path: Path, parted: int, *, short: bool
) -> None:
    """Its last rows come while nobody answers; the replica had less of them, or all."""
    harness, server, topic = harness_with_base(tmp_path)
    server.down = True
    topic.append(message("t", 800, 3))
    harness.land()
    server.now, server.down = Head("7/2/5", log_position(900), log_position(parted)), False
    topic.append(message("t", 850, 4))

    told = harness.land()

    assert harness.checkpoint.epochs["a"].number == 2
    assert [gap.shards for gap in told.gaps] == [("a/public.t",)] * short


def test_a_log_of_another_kind_holds_nothing_of_it() -> None:
    (gap,) = load_gaps(checkpoint_after(Head("mysql", binlog_position(7, 4, ""))))
    assert "of kind postgres and are of kind mysql" in gap.why
