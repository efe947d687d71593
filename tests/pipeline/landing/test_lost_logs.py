"""A log that was not kept for its collector is a gap of all its tables until new bases."""

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Existence, Gap
from pipeline.landing.gaps import detect_lost_logs
from pipeline.model import (
    Acknowledged,
    Break,
    CaptureScope,
    Head,
    Order,
    Shard,
    ShardId,
    combine_scopes,
)
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.position import log_position
from tests.builders import batch_context
from tests.builders.harness import LandingHarness, Server, load_gaps
from tests.builders.values import by_shard
from tests.pipeline.landing.test_unbased_tables import heartbeat_message, message

T, U = "shop/public.t", "shop/public.u"
SHARDS = {T: "public.t", U: "public.u", "till/public.t": "till.t", "shop/public.x": None}
KNOWN = Checkpoint("main", 5, shards=by_shard(SHARDS))
ALL = CaptureScope(lambda _: True, "all")
GONE = replace(ALL, broken=Break("slot s was not there", 7.0))


def open_gaps(made: Checkpoint, told: CaptureScope = GONE) -> list[Gap]:
    return load_gaps(detect_lost_logs(made, batch_context(made, captures={"shop": told})))


def test_all_tables_of_the_source_that_are_there_are_short() -> None:
    gone = {Shard.parse(U): Existence(Order(1, 1, 1), there=False)}

    (gap,) = open_gaps(KNOWN)

    assert (gap.id, gap.shards, gap.batch) == ("unkept:shop:0:5@5", (T, U), 5)
    assert (gap.partition, gap.first, gap.until) == (0, 5, 5)
    assert gap.why == "slot s was not there; take a new base of each of its tables"
    assert [one.shards for one in open_gaps(replace(KNOWN, existing=gone))] == [(T,)]
    assert (open_gaps(replace(KNOWN, shards={})), open_gaps(KNOWN, ALL)) == ([], [])


def test_while_it_lasts_no_base_that_begins_closes_it() -> None:
    later = replace(detect_lost_logs(KNOWN, batch_context(KNOWN, captures={"shop": GONE})), batch=8)

    (gap,) = open_gaps(later)

    assert (gap.id, gap.batch) == ("unkept:shop:0:5@5", 8)
    assert gap == replace(open_gaps(KNOWN)[0], batch=8), "whoever was told is told nothing new"


def test_f198_a_gap_of_several_tables_stays_one_while_it_lasts() -> None:
    known = detect_lost_logs(KNOWN, batch_context(KNOWN, captures={"shop": GONE}))
    gone = {Shard.parse(U): Existence(Order(1, 1, 1), there=False)}
    shared = []
    for batch in (6, 7):
        now = replace(known, batch=batch, existing=gone)
        known = detect_lost_logs(now, batch_context(known, captures={"shop": GONE}))
        (gap,) = load_gaps(known)
        shared.append((gap.shards, gap.shared))

    assert shared == [((T,), True), ((T,), True)]


def test_a_gap_of_another_kind_that_is_open_already_is_none_of_its_past() -> None:
    other = Gap("log:shop:0:3@3", "log:shop", 0, 3, 3, "another server", shards=(T,), batch=2)
    open_ = replace(KNOWN, gaps={other.id: other})

    assert [one.id for one in open_gaps(open_)] == ["log:shop:0:3@3", "unkept:shop:0:5@5"]


def test_what_the_source_noticed_is_told_with_the_lists() -> None:
    found = combine_scopes(ALL, replace(GONE, replaced={ShardId("public", "t"): 3.0}))

    assert (found.broken, found.newest) == (GONE.broken, 7.0)
    assert found.after(3.0).replaced == {}
    assert found.after(7.0).broken == GONE.broken, "it lasts"
    over = replace(found, broken=Break("", 7.0, over=True))
    assert (over.after(6.9).broken, over.after(7.0).broken) == (over.broken, None)
    assert ALL.newest < 0.0


def test_what_lists_and_source_say_together_is_what_each_says() -> None:
    lists = replace(ALL, text="lists", replaced={ShardId("public", "u"): 2.0})
    source = replace(ALL, text="source", replaced={ShardId("public", "t"): 3.0})
    found, texts = combine_scopes(lists, source), set[str]()

    assert found.replaced == {**lists.replaced, **source.replaced}
    assert combine_scopes(lists, None) is lists
    for one, other in ((lists, source), (replace(lists, text=""), source), (lists, ALL)):
        texts.add(combine_scopes(one, other).text)
    assert len(texts) == 3, "another text of either is another"
    for unread in (
        combine_scopes(replace(lists, known=False), source),
        combine_scopes(lists, replace(ALL, known=False)),
    ):
        assert not unread.known


@dataclass(eq=False)
class Postgres(Server):
    """A server that goes on, and its collector, which has sent everything."""

    end: int = 10_000

    def head(self) -> Head:
        return Head("7/1/5", log_position(self.end))

    def acknowledged(self) -> Acknowledged:
        return Acknowledged(log_position(self.end))


def harness_with_base(home: Path, server: Postgres) -> LandingHarness:
    """A table with a base."""
    made = LandingHarness(home, server=server, names="a", dialect=POSTGRES)
    made.topics.held["a.public.t"] = [message("t", 500, 1, "last"), message("t", 600, 2)]
    made.land()
    assert made.checkpoint.bases
    return made


@pytest.fixture
def server() -> Postgres:
    return Postgres(published=ALL)


@pytest.fixture
def harness(tmp_path: Path, server: Postgres) -> LandingHarness:
    return harness_with_base(tmp_path, server)


def based(harness: LandingHarness, lsn: int) -> None:
    harness.topics.held["a.public.t"] += [message("t", lsn, 1, "last"), message("t", lsn + 100, 2)]
    beats = harness.topics.held.setdefault("a.sluice.heartbeat", [])
    beats.append(heartbeat_message(lsn, len(beats) + 1))
    harness.land()


def test_a_slot_that_was_gone_blocks_its_tables_though_nothing_else_landed(
    harness: LandingHarness, server: Postgres
) -> None:
    """With snapshot.mode=no_data the new one sends what comes, as if nothing had been between."""
    server.published = GONE
    told = harness.land()
    server.published = replace(ALL, broken=Break("slot s was not there", 7.0, over=True))
    harness.topics.held["a.public.t"].append(message("t", 900, 9))
    harness.land()

    assert told.batch is not None
    assert harness.short() == [("a/public.t",)]
    assert harness.land().batch is None
    based(harness, 1500)
    assert harness.short() == []


def test_it_is_told_though_it_is_kept_again_before_a_batch_could_say_so(
    harness: LandingHarness, server: Postgres
) -> None:
    server.published = replace(ALL, broken=Break("slot s was not there", 7.0, over=True))
    harness.land()

    assert harness.short() == [("a/public.t",)]
    based(harness, 1500)
    harness.land()
    assert harness.short() == []


def test_a_base_that_began_while_nothing_was_kept_is_short_of_it(
    harness: LandingHarness, server: Postgres
) -> None:
    server.published = GONE
    harness.land()
    based(harness, 1500)
    server.published = replace(ALL, broken=Break("slot s was not there", 7.0, over=True))
    harness.land()

    assert harness.short() == [("a/public.t",)]


REPLACED = {ShardId("public", "t"): 3.0}


def test_a_table_that_was_replaced_is_a_gap_once(harness: LandingHarness, server: Postgres) -> None:
    """A base that comes at once is a base."""
    server.published = replace(ALL, replaced=REPLACED)
    harness.land()
    assert harness.short() == [("a/public.t",)]

    based(harness, 1500)
    harness.land()

    assert harness.short() == []


def test_a_table_that_is_replaced_again_while_it_is_a_gap_needs_a_base_that_begins_after_that(
    harness: LandingHarness, server: Postgres
) -> None:
    server.published = replace(ALL, replaced=REPLACED)
    harness.land()
    rows = [message("t", 1500, 1, "first"), message("t", 1500, 2, "last")]
    harness.topics.held["a.public.t"].append(rows[0])
    harness.topics.held["a.sluice.heartbeat"] = [heartbeat_message(1500, 1)]
    harness.land()
    server.published = replace(ALL, replaced={ShardId("public", "t"): 4.0})
    harness.land()
    harness.topics.held["a.public.t"] += [rows[1], message("t", 1600, 2)]
    harness.land()
    harness.land()

    assert harness.short() == [("a/public.t",)]


def test_a_table_that_is_replaced_while_its_first_base_comes_is_a_gap(
    tmp_path: Path, server: Postgres
) -> None:
    harness = LandingHarness(tmp_path, server=server, names="a", dialect=POSTGRES)
    topic = harness.topics.held.setdefault("a.public.t", [])
    topic.append(message("t", 500, 1, "first"))
    harness.land()
    server.published = replace(ALL, replaced=REPLACED)
    harness.land()
    topic += [message("t", 500, 2, "last"), message("t", 600, 3)]
    harness.land()

    assert harness.checkpoint.bases
    assert harness.short() == [("a/public.t",)]


def test_what_no_table_of_the_mark_needs_makes_no_batch(
    harness: LandingHarness, server: Postgres
) -> None:
    server.published = replace(ALL, replaced={ShardId("public", "new"): 9.0})

    assert harness.land().batch is None


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(GONE, id="it is made while they are read"),
        pytest.param(replace(ALL, broken=Break("", 7.0, over=True)), id="made by then"),
        pytest.param(replace(ALL, replaced=REPLACED), id="a table was made anew"),
    ],
)
def test_what_was_seen_before_the_first_rows_of_a_table_is_nothing_to_it(
    tmp_path: Path, server: Postgres, seen: CaptureScope
) -> None:
    """Sluice may have run for long before a connector makes its slot."""
    harness = LandingHarness(tmp_path, server=server, names="a", dialect=POSTGRES)
    server.published = seen
    assert harness.land().batch is None
    harness.topics.held["a.public.t"] = [message("t", 500, 1, "last"), message("t", 600, 2)]

    harness.land()

    assert harness.short() == []
