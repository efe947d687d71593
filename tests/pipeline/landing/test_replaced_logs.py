"""A slot that was made anew while nobody looked is a gap, until bases begin where it begins."""

from dataclasses import replace
from pathlib import Path

import pytest

from pipeline.checkpoint import Checkpoint, Epoch
from pipeline.landing.gaps import detect_lost_logs
from pipeline.model import Break, CaptureScope, Order, RetainedLog, Shard, combine_scopes
from pipeline.sources.postgres.dialect import POSTGRES
from pipeline.sources.postgres.position import log_position
from pipeline.sources.postgres.retained_log import SlotSnapshot
from tests.builders import batch_context
from tests.builders.harness import LandingHarness, load_gaps
from tests.builders.values import by_shard
from tests.pipeline.landing.test_lost_logs import ALL, Postgres, based, harness_with_base
from tests.pipeline.landing.test_unbased_tables import heartbeat_message, message


def slot(restart: int, *, end: int, decoded: int = 9) -> CaptureScope:
    log_end, begin = f"0/{end:X}", f"0/{restart:X}"
    return replace(
        ALL, keeper=SlotSnapshot("s", "7/1", log_end, begin, "", decoded, "", end).keeper
    )


def retained_log(told: CaptureScope) -> RetainedLog:
    assert told.keeper is not None
    return told.keeper


@pytest.fixture
def server() -> Postgres:
    return Postgres(published=slot(400, end=620))


@pytest.fixture
def harness(tmp_path: Path, server: Postgres) -> LandingHarness:
    return harness_with_base(tmp_path, server)


def land_change(harness: LandingHarness, lsn: int) -> None:
    harness.topics.held["a.public.t"].append(message("t", lsn, lsn))
    harness.land()


def test_it_is_a_gap_though_it_was_there_at_each_look(
    harness: LandingHarness, server: Postgres
) -> None:
    server.published = slot(700, end=900, decoded=2)
    land_change(harness, 850)
    assert harness.short() == [("a/public.t",)]

    land_change(harness, 860)
    assert harness.short() == [("a/public.t",)]

    based(harness, 1500)
    assert harness.short() == []
    land_change(harness, 1900)
    assert harness.short() == [], "it is told once"


def test_it_is_known_again_by_who_lands_next(
    harness: LandingHarness, server: Postgres, tmp_path: Path
) -> None:
    server.published = slot(700, end=900, decoded=2)
    harness.topics.held["a.public.t"].append(message("t", 850, 3))

    later = LandingHarness(
        tmp_path, topics=harness.topics, server=server, names="a", dialect=POSTGRES
    )
    later.land()

    assert later.short() == [("a/public.t",)]


def test_one_that_only_went_on_is_none(harness: LandingHarness, server: Postgres) -> None:
    for number in range(3):
        begin = 650 + 200 * number
        server.published = slot(begin, end=begin + 50, decoded=9 + begin)
        land_change(harness, begin + 60)

    assert harness.short() == []


@pytest.mark.parametrize(("lsn", "closed"), [(699, False), (700, True)])
def test_a_base_counts_if_it_begins_where_the_slot_does(
    harness: LandingHarness, server: Postgres, lsn: int, *, closed: bool
) -> None:
    """Whether it lands with the look at the new slot, or after."""
    server.published = slot(700, end=900, decoded=2)
    based(harness, lsn)
    assert harness.short() == ([] if closed else [("a/public.t",)])

    lost = harness.checkpoint.lost.get(Shard("a", "public.t"))
    assert lost == Order(1, lsn, lsn, 1), "no image of a cut below it is right"


def test_a_snapshot_that_began_before_the_look_and_after_the_slot_closes_it(
    harness: LandingHarness, server: Postgres
) -> None:
    rows = [message("t", 700, 1, "first"), message("t", 700, 2, "last"), message("t", 800, 2)]
    harness.topics.held["a.public.t"].append(rows[0])
    harness.land()
    server.published = slot(690, end=900, decoded=2)
    land_change(harness, 610)
    assert harness.short() == [("a/public.t",)]

    harness.topics.held["a.public.t"] += rows[1:]
    harness.topics.held["a.sluice.heartbeat"] = [heartbeat_message(700, 1)]
    harness.land()

    assert harness.short() == []


def test_one_that_is_seen_again_after_a_look_without_it_is_told_by_that_look(
    harness: LandingHarness, server: Postgres
) -> None:
    """A base that comes with the first look at the new one is none too early."""
    server.published = replace(ALL, broken=Break("slot s was not there", 7.0))
    harness.land()
    assert harness.checkpoint.keepers == {}

    server.published = replace(
        slot(700, end=900, decoded=2), broken=Break("slot s was not there", 7.0, over=True)
    )
    based(harness, 750)

    assert harness.short() == []
    assert isinstance(harness.checkpoint.keepers["a"], RetainedLog)


def test_what_keeps_the_log_is_the_sources_word() -> None:
    told = slot(1, end=2)

    assert combine_scopes(ALL, told).keeper == told.keeper
    assert combine_scopes(told, None).keeper == told.keeper


def test_a_gap_says_from_where_a_base_closes_it(harness: LandingHarness, server: Postgres) -> None:
    server.published = slot(700, end=900, decoded=2)
    land_change(harness, 850)

    (gap,) = harness.gaps()

    assert gap.above == Order(1, 700, 0)
    assert gap.why.startswith("slot s was created again: it retains nothing below 0/2BC,")
    assert gap.why.endswith("take a new base of each of its tables")


T, U = "shop/public.t", "shop/public.u"
OLD, NEW = slot(400, end=620), slot(700, end=900, decoded=2)
KNOWN = Checkpoint(
    "main",
    5,
    shards={Shard.parse(T): "public.t", Shard.parse(U): "public.u"},
    keepers={"shop": retained_log(OLD)},
)
BEGINS = Order(1, 700, 0)


@pytest.mark.parametrize(
    ("epoch", "bases", "left", "lost"),
    [
        pytest.param(None, {}, (T, U), {}, id="no base yet"),
        pytest.param(None, {T: BEGINS}, (U,), {T: BEGINS}, id="a base just where it begins"),
        pytest.param(2, {T: Order(1, 900, 0)}, (T, U), {}, id="a base in the log before"),
        pytest.param(2, {T: Order(2, 700, 0)}, (U,), {T: Order(2, 700, 0)}, id="a base in its own"),
    ],
)
def test_bases_count_from_where_the_new_one_begins_in_its_own_log(
    epoch: int | None, bases: dict[str, Order], left: tuple[str, ...], lost: dict[str, Order]
) -> None:
    epochs = {} if epoch is None else {"shop": Epoch(epoch, "7/1", log_position(900))}
    before = replace(KNOWN, bases=by_shard(bases), epochs=epochs, lost={Shard("till", "a"): BEGINS})

    made = detect_lost_logs(before, batch_context(before, captures={"shop": NEW}))

    assert [gap.shards for gap in load_gaps(made)] == [left]
    assert made.lost == {Shard("till", "a"): BEGINS, **by_shard(lost)}


def test_where_nobody_tells_what_keeps_it_nothing_was_exchanged() -> None:
    assert detect_lost_logs(KNOWN, batch_context(KNOWN, captures={"shop": ALL})).gaps == {}
