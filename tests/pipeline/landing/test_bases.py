from collections.abc import Mapping
from dataclasses import replace

import pytest

from pipeline.checkpoint import Checkpoint, Epoch, Existence, OpenSnapshot
from pipeline.landing.bases import (
    advance_snapshots,
    find_births,
    inherit_bases,
    initial_snapshots,
    is_trimmed,
    read_snapshots,
)
from pipeline.landing.batch_stats import BatchStats, SchemaNews, SnapshotRows
from pipeline.model import Acknowledged, Order, Shard, SourcePartition
from pipeline.sources.mysql.dialect import MYSQL
from pipeline.sources.mysql.position import binlog_position
from tests.builders import orders_at, schema_news

S1, S2 = Order(1, 1, 100), Order(1, 1, 500)
LIVE = orders_at({"shop/shop.t:0": Order(1, 1, 900)})
OTHER_LIVE = orders_at({"shop/shop.other:0": Order(1, 1, 900)})
EARLY = orders_at({"shop/shop.t:0": Order(1, 1, 50)})


SHARD = Shard("shop", "db.t")


def snapshot_stats(order: Order, count: int, *, ended: bool) -> BatchStats:
    """Some of a snapshot of all tables."""
    found = {"shop/db.t": SnapshotRows(order, count, ended)}
    return BatchStats(snapshots=found, wholes={"shop": order.event})


def live_stats(high: dict[SourcePartition, Order] = LIVE) -> BatchStats:
    return BatchStats(high=high)


def play(*batches: BatchStats) -> tuple[Checkpoint, list[str]]:
    """Feed batches to a mark; returns it, and what was settled in each, as `batch:pos`."""
    checkpoint, settled = Checkpoint("main", -1), []
    for batch, facts in enumerate(batches):
        snaps, done = advance_snapshots(checkpoint, facts, batch)
        settled += [f"{batch}:{one.order.pos}" for one in done]
        bases = {**checkpoint.bases, **{one.shard: one.order for one in done}}
        high = {**checkpoint.high, **facts.high}
        read = read_snapshots(checkpoint, facts)
        checkpoint = Checkpoint("main", batch, snaps=snaps, bases=bases, high=high, snapshots=read)
    return checkpoint, settled


def test_a_snapshot_is_complete_once_its_end_was_seen_and_the_log_goes_on() -> None:
    _, settled = play(
        snapshot_stats(S1, 2, ended=False), snapshot_stats(S1, 1, ended=True), live_stats()
    )

    assert settled == ["2:100"]


def test_an_end_marker_alone_proves_nothing() -> None:
    """The collector may die in the next table, and snapshot all of them again."""
    checkpoint, settled = play(snapshot_stats(S1, 3, ended=True))

    assert not settled
    assert checkpoint.snaps[SHARD].ended


def test_a_live_change_from_before_the_snapshot_does_not_end_it() -> None:
    _, settled = play(snapshot_stats(S1, 3, ended=True), live_stats(EARLY))

    assert not settled


def test_a_snapshot_without_an_end_is_no_base() -> None:
    """Connect was killed inside the table: rows deleted meanwhile would stay for ever."""
    _, settled = play(snapshot_stats(S1, 3, ended=False), live_stats())

    assert not settled


def test_a_snapshot_begun_again_replaces_the_unfinished_one() -> None:
    _, settled = play(
        snapshot_stats(S1, 3, ended=False), snapshot_stats(S2, 2, ended=True), live_stats()
    )

    assert settled == ["2:500"]


def test_a_snapshot_after_a_finished_one_is_waited_for_and_becomes_the_base() -> None:
    """Else the table is READY in the middle of it."""
    begun, _ = play(
        snapshot_stats(S1, 2, ended=True), live_stats(), snapshot_stats(S2, 2, ended=False)
    )
    _, settled = play(
        snapshot_stats(S1, 2, ended=True),
        live_stats(),
        snapshot_stats(S2, 2, ended=True),
        live_stats(),
    )

    assert list(begun.snaps) == [SHARD]
    assert settled == ["1:100", "2:500"]


def test_the_end_of_a_snapshot_begun_again_is_not_told_by_rows_of_the_one_before() -> None:
    """They are sent again, late: the newer one would be a base with rows missing."""
    checkpoint, settled = play(
        snapshot_stats(S2, 3, ended=False), snapshot_stats(S1, 2, ended=True), live_stats()
    )

    assert (checkpoint.snaps[SHARD].rows, settled) == (3, [])


def test_a_single_row_needs_no_end_marker() -> None:
    _, settled = play(snapshot_stats(S1, 1, ended=False), live_stats())

    assert settled == ["1:100"]


def test_rows_of_a_finished_snapshot_sent_again_open_nothing() -> None:
    checkpoint, settled = play(
        snapshot_stats(S1, 2, ended=True),
        live_stats(),
        snapshot_stats(S1, 2, ended=True),
        live_stats(),
    )

    assert settled == ["1:100"]
    assert not checkpoint.snaps


def test_rows_of_several_batches_are_counted_together() -> None:
    """One row and one row are no table of a single row, whose end would not be told."""
    checkpoint, settled = play(
        snapshot_stats(S1, 1, ended=False), snapshot_stats(S1, 1, ended=False), live_stats()
    )

    assert not settled
    assert checkpoint.snaps[SHARD].rows == 2


def test_an_end_that_was_seen_stays_seen() -> None:
    _, settled = play(
        snapshot_stats(S1, 2, ended=True), snapshot_stats(S1, 2, ended=False), live_stats()
    )

    assert settled == ["2:100"]


def test_a_live_change_just_at_the_snapshot_does_not_end_it() -> None:
    _, settled = play(
        snapshot_stats(S1, 3, ended=True), live_stats(orders_at({"shop/shop.t:0": S1}))
    )

    assert not settled


def test_a_live_change_of_an_earlier_batch_counts_and_the_base_began_with_its_first_row() -> None:
    checkpoint, early = play(snapshot_stats(S1, 2, ended=False), live_stats())
    snaps, (settled,) = advance_snapshots(checkpoint, snapshot_stats(S1, 1, ended=True), 2)

    assert (early, snaps) == ([], {})
    assert (settled.order, settled.since) == (S1, 0)


def test_a_snapshot_remembers_the_batch_it_began_in() -> None:
    snaps, _ = advance_snapshots(Checkpoint("main", 6), snapshot_stats(S1, 2, ended=False), 7)

    assert snaps == {SHARD: OpenSnapshot(S1, 7, rows=2)}


CREATE = schema_news("create", 50)
PERHAPS = replace(CREATE, new=False)
SEEN = Checkpoint("main", 4, shards={Shard.parse("shop/db.t"): "db.t"})


def with_existence(pos: int, *, there: bool) -> Checkpoint:
    checkpoint = Checkpoint("main", 4, shards={Shard.parse("shop/db.t"): "db.t"})
    known = {Shard.parse("shop/db.t"): Existence(Order(1, 1, pos), there=there)}
    return Checkpoint("main", checkpoint.batch, shards=checkpoint.shards, existing=known)


@pytest.mark.parametrize(
    ("checkpoint", "news", "born"),
    [
        pytest.param(Checkpoint("main", 4), (CREATE,), 50, id="a shard never seen"),
        pytest.param(
            Checkpoint("main", 4), (PERHAPS,), None, id="IF NOT EXISTS, of one not described"
        ),
        pytest.param(
            with_existence(9, there=False), (PERHAPS,), 50, id="IF NOT EXISTS, after its DROP"
        ),
        pytest.param(SEEN, (CREATE,), None, id="IF NOT EXISTS, of one whose rows were seen"),
        pytest.param(
            with_existence(9, there=True), (CREATE,), None, id="IF NOT EXISTS, of one there"
        ),
        pytest.param(
            with_existence(9, there=False), (CREATE,), 50, id="after its DROP, batches ago"
        ),
        pytest.param(
            SEEN, (schema_news("drop", 40), CREATE), 50, id="after its DROP in this batch"
        ),
        pytest.param(
            SEEN, (schema_news("drop", 40, shard="db.u"), CREATE), None, id="another was dropped"
        ),
        pytest.param(SEEN, (CREATE, schema_news("drop", 60)), None, id="dropped after it"),
        pytest.param(
            SEEN,
            (schema_news("alter", 40, shard="db.t_old", previous="db.t"), CREATE),
            50,
            id="renamed away",
        ),
        pytest.param(
            SEEN,
            (
                schema_news("alter", 40, shard="db.t", previous="db.t_new"),
                schema_news("alter", 40, shard="db.t_old", previous="db.t"),
                CREATE,
            ),
            None,
            id="swapped by a rename, whichever is told first",
        ),
        pytest.param(
            Checkpoint("main", 4),
            (schema_news("alter", 40), CREATE),
            None,
            id="a shard only altered so far",
        ),
        pytest.param(
            SEEN,
            (schema_news("drop", 40, snapshot=True), CREATE),
            None,
            id="a snapshot's DROP is none",
        ),
        pytest.param(
            Checkpoint("main", 4),
            (schema_news("create", 50, snapshot=True),),
            None,
            id="read by a snapshot",
        ),
        pytest.param(
            with_existence(60, there=True),
            (schema_news("drop", 40), CREATE),
            None,
            id="both sent again, later",
        ),
        pytest.param(
            with_existence(60, there=False), (CREATE,), None, id="sent again, dropped meanwhile"
        ),
        pytest.param(with_existence(50, there=True), (CREATE,), None, id="sent again at once"),
        pytest.param(with_existence(50, there=False), (CREATE,), None, id="as low as the DROP"),
    ],
)
def test_f07_a_create_is_a_birth_only_of_a_shard_that_was_not_there(
    checkpoint: Checkpoint, news: tuple[SchemaNews, ...], born: int | None
) -> None:
    _, settled = advance_snapshots(checkpoint, BatchStats(news=news), 5)

    assert [one.order.pos for one in settled if one.shard == SHARD] == ([born] if born else [])


@pytest.mark.parametrize(
    ("first", "born"),
    [
        pytest.param(49, False, id="it had rows below its CREATE"),
        pytest.param(51, True, id="its rows come after its CREATE"),
    ],
)
def test_f07_rows_of_the_same_batch_tell_whether_a_shard_was_there(first: int, born: bool) -> None:
    facts = BatchStats(news=(CREATE,), firsts={"shop/db.t": Order(1, 1, first)})

    assert bool(advance_snapshots(Checkpoint("main", 4), facts, 5)[1]) is born


def test_f07_dropped_and_created_beside_its_old_rows_it_is_born() -> None:
    facts = BatchStats(
        news=(schema_news("drop", 40), CREATE), firsts={"shop/db.t": Order(1, 1, 10)}
    )

    assert [one.order.pos for one in advance_snapshots(Checkpoint("main", 4), facts, 5)[1]] == [50]


def test_a_birth_below_a_base_is_one_that_was_sent_again() -> None:
    checkpoint = Checkpoint("main", 4, bases={Shard("shop", "db.t"): Order(1, 1, 50)})

    assert advance_snapshots(checkpoint, BatchStats(news=(CREATE,)), 5)[1] == ()


def test_what_exists_is_what_the_newest_news_says() -> None:
    news = (
        schema_news("create", 10),
        schema_news("create", 20, shard="db.u"),
        schema_news("drop", 30),
        schema_news("drop", 5),
    )

    existing, _ = find_births(with_existence(1, there=True), BatchStats(news=news))

    assert existing == {
        Shard.parse("shop/db.t"): Existence(Order(1, 1, 30), there=False),
        Shard.parse("shop/db.u"): Existence(Order(1, 1, 20), there=True),
    }


def test_a_table_that_the_collector_leaves_out_has_no_base() -> None:
    """Its CREATE is told, live or by a snapshot; its rows never come."""
    live = replace(CREATE, captured=False)
    snapshot = replace(schema_news("create", 60, snapshot=True), captured=False)
    facts = BatchStats(
        news=(live, snapshot), high=orders_at({"shop/shop.other:0": Order(1, 1, 900)})
    )

    assert advance_snapshots(Checkpoint("main", 4), facts, 5) == ({}, ())


DESCRIBED = BatchStats(
    news=(schema_news("create", 60, snapshot=True),),
    high=orders_at({"shop/shop.other:0": Order(1, 1, 900)}),
)
S60 = Order(1, 1, 60)


ROWS = BatchStats(snapshots={"shop/db.u": SnapshotRows(S60, 3, ended=False)})
BEAT = BatchStats(wholes={"shop": replace(S60, row=1)})
WHOLE = BatchStats(initial={"shop": frozenset({S60})})


@pytest.mark.parametrize(
    ("checkpoint", "more"),
    [
        pytest.param(Checkpoint("main", 4), (WHOLE, ROWS), id="with rows of another table"),
        pytest.param(Checkpoint("main", 4), (WHOLE, BEAT), id="with a heartbeat"),
        pytest.param(
            Checkpoint("main", 4, snapshots={"shop": S60}),
            (WHOLE,),
            id="after the heartbeat had landed",
        ),
        pytest.param(
            Checkpoint("main", 4, initial={"shop": S60}),
            (BEAT,),
            id="after its beginning had landed",
        ),
    ],
)
def test_an_empty_table_that_a_snapshot_of_all_describes_has_one(
    checkpoint: Checkpoint, more: tuple[BatchStats, ...]
) -> None:
    assert empty_bases(checkpoint, *more) == [60]


def empty_bases(checkpoint: Checkpoint, *more: BatchStats) -> list[int]:
    """Bases that ``db.t`` gets by its description, which landed with *more*."""
    facts = DESCRIBED
    for one in more:
        facts = replace(
            facts,
            snapshots={**facts.snapshots, **one.snapshots},
            wholes={**facts.wholes, **one.wholes},
            initial={**facts.initial, **one.initial},
        )
    return [
        one.order.pos for one in advance_snapshots(checkpoint, facts, 5)[1] if one.shard == SHARD
    ]


@pytest.mark.parametrize(
    ("checkpoint", "more"),
    [
        pytest.param(Checkpoint("main", 4), ROWS, id="of another table"),
        pytest.param(Checkpoint("main", 4), BEAT, id="of the heartbeat's table"),
        pytest.param(
            Checkpoint("main", 4, initial={"shop": S1}), BEAT, id="after one of all tables"
        ),
        pytest.param(
            Checkpoint("main", 4, initial={"till": S60}), BEAT, id="beside another source's"
        ),
        pytest.param(Checkpoint("main", 4), WHOLE, id="of all tables that read no row"),
    ],
)
def test_f141_a_snapshot_that_may_not_have_read_a_table_shows_it_empty_to_nobody(
    checkpoint: Checkpoint, more: BatchStats
) -> None:
    """A collector takes one of single tables, the heartbeat's among them, where it is asked to."""
    bare = Checkpoint(
        "main", 4, bases={Shard("shop", "db.t"): Order(1, 1, 9)}, initial=checkpoint.initial
    )

    assert [empty_bases(one, more) for one in (checkpoint, bare)] == [[], []]


@pytest.mark.parametrize(
    "checkpoint",
    [
        pytest.param(Checkpoint("main", 4), id="never"),
        pytest.param(
            Checkpoint("main", 4, bases={Shard("shop", "db.t"): S1}), id="a base of before"
        ),
        pytest.param(
            Checkpoint("main", 4, snapshots={"shop": Order(1, 1, 50)}),
            id="only of an older snapshot",
        ),
        pytest.param(Checkpoint("main", 4, snapshots={"till": S60}), id="only of another source"),
    ],
)
def test_f141_a_description_that_no_row_came_with_is_no_empty_table(checkpoint: Checkpoint) -> None:
    """As snapshot.mode=recovery and no_data describe all tables, full as they are."""
    assert advance_snapshots(checkpoint, DESCRIBED, 5)[1] == ()


def test_f141_a_snapshot_of_a_single_table_is_no_base_and_shows_no_other_empty() -> None:
    """A collector may describe all tables, and read the one that it was asked for."""
    rows = {"shop/db.u": SnapshotRows(S60, 3, ended=True)}
    checkpoint = Checkpoint("main", 4, bases={Shard("shop", "db.u"): Order(1, 1, 50)})

    assert advance_snapshots(checkpoint, replace(DESCRIBED, snapshots=rows), 5)[1] == ()


def test_f141_a_description_without_rows_is_given_up_once_all_that_came_with_it_has_landed() -> (
    None
):
    known = {"shop": Epoch(1, "server", binlog_position(1, 50))}
    checkpoint = Checkpoint("main", 4, epochs=known)
    snaps, _ = advance_snapshots(checkpoint, DESCRIBED, 5)
    checkpoint, nothing = replace(checkpoint, batch=5, snaps=snaps), BatchStats()
    left = [
        advance_snapshots(replace(checkpoint, acknowledged={"shop": said}), nothing, 6)
        for said in (
            Acknowledged(binlog_position(1, 60)),
            Acknowledged(binlog_position(1, 70), snapshot=True),
            Acknowledged(binlog_position(1, 70)),
        )
    ]

    assert snaps == {SHARD: OpenSnapshot(S60, 5)}
    assert left == [(snaps, ()), (snaps, ()), ({}, ())]


TRIMMED = Checkpoint("main", 4, trimmed=("shop.db.t",))


def test_a_table_whose_topic_had_lost_its_beginning_is_not_empty_by_a_description() -> None:
    high = orders_at({"shop/shop.other:0": Order(1, 1, 900)})
    described = BatchStats(news=(schema_news("create", 60, snapshot=True),), high=high)

    assert advance_snapshots(TRIMMED, described, 5) == ({}, ())
    assert advance_snapshots(TRIMMED, replace(snapshot_stats(S1, 1, ended=False), high=high), 5)[1]


@pytest.mark.parametrize(
    ("checkpoint", "born"),
    [
        pytest.param(TRIMMED, False, id="its first rows may be gone"),
        pytest.param(replace(TRIMMED, trimmed=("shop.db.at",)), True, id="another topic"),
        pytest.param(
            replace(TRIMMED, bases={Shard("shop", "db.t"): Order(1, 1, 9)}), True, id="based since"
        ),
    ],
)
def test_a_create_is_no_birth_where_the_beginning_of_the_topic_is_gone(
    checkpoint: Checkpoint, *, born: bool
) -> None:
    assert (find_births(checkpoint, BatchStats(news=(CREATE,)))[1] != {}) is born


def test_a_snapshot_of_which_a_part_is_left_is_no_base_and_the_next_one_is() -> None:
    checkpoint = Checkpoint("main", 4, parts={Shard("shop", "db.t"): S1})
    left = replace(snapshot_stats(S1, 2, ended=True), high=LIVE)

    assert advance_snapshots(checkpoint, left, 5) == ({}, ())
    assert [
        one.order
        for one in advance_snapshots(
            checkpoint, replace(snapshot_stats(S2, 2, ended=True), high=LIVE), 5
        )[1]
    ]


@pytest.mark.parametrize(
    ("topic", "shard", "named"),
    [
        ("shop.db.t", "db.t", True),
        ("mirror.shop.db.t", "db.t", True),
        ("shop.db.a_b", "db.a$b", True),
        ("shop.xdb.t", "db.t", False),
        ("db.t", "db.t", True),
        ("shop", "db.t", False),
    ],
)
def test_a_topic_is_told_by_its_shard(topic: str, shard: str, *, named: bool) -> None:
    assert is_trimmed(Checkpoint("main", 4, trimmed=(topic,)), shard) is named


@pytest.mark.parametrize(
    ("text", "born"),
    [
        pytest.param("CREATE TABLE t AS SELECT 1 AS id", False, id="its rows are in the statement"),
        pytest.param("CREATE OR REPLACE TABLE t (id INT)", True, id="made over"),
        pytest.param("WOBBLE t", False, id="a statement nobody can read"),
    ],
)
def test_the_text_of_a_create_decides_too(text: str, born: bool) -> None:
    empty, over = (MYSQL.makes_anew(text, there=there) for there in (False, True))
    news = replace(CREATE, empty=empty, over=over)
    checkpoint = with_existence(9, there="REPLACE" in text) if born else Checkpoint("main", 4)

    assert bool(advance_snapshots(checkpoint, BatchStats(news=(news,)), 5)[1]) is born


def test_a_snapshot_opens_with_the_description_of_its_table_and_nothing_else() -> None:
    """Neither a live CREATE, as of a table that is there, nor what a snapshot drops or alters."""
    opening = advance_snapshots(
        Checkpoint("main", 4), BatchStats(news=(schema_news("create", 60, snapshot=True),)), 5
    )[0]
    others = (
        CREATE,
        schema_news("drop", 60, snapshot=True),
        schema_news("alter", 60, snapshot=True),
    )

    assert opening == {SHARD: OpenSnapshot(Order(1, 1, 60), 5)}
    assert [advance_snapshots(SEEN, BatchStats(news=(one,)), 5) for one in others] == [({}, ())] * 3


DROP, MADE = schema_news("drop", 600), schema_news("create", 700)


@pytest.mark.parametrize(
    "first", [(), (snapshot_stats(S1, 2, ended=False),)], ids=["one batch", "two"]
)
def test_a_table_made_anew_as_its_snapshot_ends_goes_by_its_birth(
    first: tuple[BatchStats, ...],
) -> None:
    """Or the older of two bases would be its own, and it would wait for another for ever."""
    end = replace(snapshot_stats(S1, 2, ended=True), news=(DROP, MADE), high=LIVE)

    checkpoint, settled = play(*first, end, live_stats())

    assert [one.partition(":")[2] for one in settled] == ["700"]
    assert checkpoint.snaps == {}


def test_the_snapshot_of_a_table_that_was_dropped_since_is_waited_for_no_more() -> None:
    """Its end comes never, and with one open no cut of the source is proved."""
    checkpoint, settled = play(
        snapshot_stats(S1, 3, ended=False), BatchStats(news=(DROP,), high=LIVE)
    )

    assert (checkpoint.snaps, settled) == ({}, [])


@pytest.mark.parametrize(
    "news",
    [
        pytest.param((schema_news("alter", 600),), id="altered meanwhile"),
        pytest.param((schema_news("drop", 40),), id="dropped before"),
        pytest.param(
            (schema_news("drop", 40), schema_news("create", 50)), id="dropped and made anew before"
        ),
    ],
)
def test_a_snapshot_is_given_up_only_for_a_drop_or_a_birth_after_it(
    news: tuple[SchemaNews, ...],
) -> None:
    """Else a table is without a base for ever, or READY before its rows have come."""
    first = replace(snapshot_stats(S1, 2, ended=False), news=news, high=EARLY)

    begun, _ = advance_snapshots(SEEN, first, 5)
    _, settled = play(first, snapshot_stats(S1, 1, ended=True), live_stats())

    assert begun == {SHARD: OpenSnapshot(S1, 5, rows=2)}
    assert settled[-1] == "2:100"


def test_a_rename_told_again_leaves_a_table_the_base_it_has_got_since() -> None:
    checkpoint = Checkpoint("main", 4, bases={Shard("shop", "db.u"): S1, Shard("shop", "db.t"): S2})

    assert (
        inherit_bases(
            checkpoint, BatchStats(news=(schema_news("alter", 90, shard="db.t", previous="db.u"),))
        )
        == {}
    )
    assert inherit_bases(
        checkpoint, BatchStats(news=(schema_news("alter", 90, shard="db.x", previous="db.u"),))
    ) == {Shard("shop", "db.x"): S1}


def test_a_base_of_before_is_replaced_once_the_heartbeat_of_the_snapshot_has_landed() -> None:
    """It tells that the collector began anew: what was lost before must not be forgotten."""
    known = Checkpoint("main", 4, bases={Shard("shop", "db.t"): Order(1, 1, 9)}, high=LIVE)
    told = BatchStats(
        snapshots={"shop/db.t": SnapshotRows(S60, 2, ended=True)}, initial=WHOLE.initial
    )

    assert advance_snapshots(known, told, 5)[1] == ()
    (settled,) = advance_snapshots(known, replace(told, wholes=BEAT.wholes), 5)[1]
    assert settled.order == S60
    assert len(advance_snapshots(replace(known, bases={}), told, 5)[1]) == 1, (
        "nothing was before it"
    )


def test_rows_of_a_snapshot_may_land_in_the_epoch_after_its_beginning() -> None:
    known = Checkpoint(
        "main",
        4,
        bases={Shard("shop", "db.t"): Order(1, 1, 9)},
        snapshots={"shop": S60},
        high=orders_at({"shop/shop.t:0": Order(2, 1, 900)}),
    )
    rows = BatchStats(snapshots={"shop/db.t": SnapshotRows(replace(S60, epoch=2), 2, ended=True)})
    others = BatchStats(snapshots={"shop/db.t": SnapshotRows(Order(2, 1, 61), 2, ended=True)})

    assert len(advance_snapshots(known, rows, 5)[1]) == 1
    assert advance_snapshots(known, others, 5)[1] == ()


S80 = Order(1, 1, 80)
FIRST = BatchStats(
    news=(
        schema_news("create", 60, snapshot=True),
        schema_news("create", 60, shard="db.e", snapshot=True),
    ),
    initial={"shop": frozenset({S60})},
)
RECOVERY = BatchStats(
    news=(
        schema_news("create", 80, snapshot=True),
        schema_news("create", 80, shard="db.e", snapshot=True),
    ),
    initial={"shop": frozenset({S80})},
)
READ = BatchStats(
    snapshots={"shop/db.t": SnapshotRows(S60, 3, ended=True)}, wholes={"shop": S60}, high=LIVE
)
SIGNAL = BatchStats(news=(replace(schema_news("create", 80, snapshot=True), signalled=True),))


def combined_stats(*batches: BatchStats) -> BatchStats:
    news = tuple(one for facts in batches for one in facts.news)
    initial = frozenset().union(*(one.initial.get("shop", frozenset()) for one in batches))
    return replace(READ, news=news, initial={"shop": initial})


@pytest.mark.parametrize(
    "batches",
    [
        pytest.param((combined_stats(FIRST, RECOVERY),), id="in one batch"),
        pytest.param((FIRST, combined_stats(RECOVERY)), id="with its rows"),
        pytest.param((FIRST, RECOVERY, READ), id="before its rows"),
        pytest.param(
            (replace(combined_stats(FIRST, RECOVERY), high={}, snapshots={}), READ), id="first"
        ),
        pytest.param((FIRST, SIGNAL, READ), id="a signal's description"),
    ],
)
def test_f141_a_recovery_that_lands_with_the_first_snapshot_takes_no_base_from_any_table(
    batches: tuple[BatchStats, ...],
) -> None:
    """It describes all tables as of later, and reads no rows."""
    settled = lands(*batches)[1]

    assert settled == {SHARD: S60, Shard("shop", "db.e"): S60}


def test_a_table_that_was_emptied_before_a_snapshot_was_begun_again_gets_that_base() -> None:
    """Nothing but its description, and rows of others, tell of it in the second one."""
    begun = BatchStats(
        snapshots={"shop/db.t": SnapshotRows(S60, 3, ended=False)}, wholes={"shop": S60}
    )
    again = replace(RECOVERY, wholes={"shop": S80}, high=LIVE)
    in_turn = (replace(RECOVERY, high=LIVE), BatchStats(wholes={"shop": S80}))

    for batches in ((FIRST, begun, again), (FIRST, begun, *in_turn)):
        snaps, settled = lands(*batches)
        assert (snaps, settled[SHARD]) == ({}, S80)


def lands(*batches: BatchStats) -> tuple[Mapping[Shard, OpenSnapshot], dict[Shard, Order]]:
    """Snapshots that are left, and the bases, once *batches* have landed."""
    checkpoint, bases = Checkpoint("main", 0), dict[Shard, Order]()
    for number, facts in enumerate(batches, 1):
        snaps, settled = advance_snapshots(checkpoint, facts, number)
        bases |= {one.shard: one.order for one in settled}
        checkpoint = replace(
            checkpoint,
            batch=number,
            snaps=snaps,
            bases=bases,
            high={**checkpoint.high, **facts.high},
            snapshots=read_snapshots(checkpoint, facts),
            initial=initial_snapshots(checkpoint, facts),
        )
    return checkpoint.snaps, bases
