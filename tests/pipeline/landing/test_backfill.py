"""Backfilled rows follow what is landed, until the backfill is complete."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from pipeline.backfill_state import Backfill, KeyRange
from pipeline.changelog.data_file import WrittenFile
from pipeline.checkpoint import Checkpoint, CollectorLists, Epoch, Gap, OpenSnapshot, Quarantine
from pipeline.landing.backfill import (
    BackfilledRows,
    BackfillNews,
    BackfillStep,
    advance_backfills,
    find_complete,
    is_due,
)
from pipeline.landing.batch_stats import BatchStats, SchemaNews
from pipeline.landing.listing import TopicNames
from pipeline.landing.next_checkpoint import next_checkpoint
from pipeline.landing.plan import Plan
from pipeline.model import Acknowledged, Order, Origin, Shard
from pipeline.schema.history import SchemaChange
from pipeline.settings import Router
from pipeline.sources.mysql.position import binlog_position
from tests.builders import batch_context

NAME, NOON = "a/d.t", datetime(2026, 3, 1, 12, tzinfo=UTC)
SHARD = Shard.parse(NAME)
P1, P2 = Order(1, 7, 100), Order(1, 7, 200)
EPOCH = Epoch(1, "server", binlog_position(7, 100))
OPEN = Backfill("x", Origin.SNAPSHOT, P1, "server", 5, (KeyRange(("9",)), KeyRange()))
READ = replace(OPEN, stretches=(KeyRange(("9",), ("9",), ended=True),))
ENDED = replace(READ, closing=P2)


def checkpoint_of(*known: Backfill, passed: int = 0, batch: int = 9) -> Checkpoint:
    return Checkpoint(
        "main",
        batch,
        epochs={"a": EPOCH},
        acknowledged={"a": Acknowledged(binlog_position(7, passed))},
        backfills=dict.fromkeys([SHARD], *known) if known else {},
    )


def rows_read(stretch: int, after: str | None, read: str, *, ended: bool = False) -> BackfilledRows:
    return BackfilledRows(
        SHARD, "d.t", "x", P1, stretch, (after,) if after else None, (read,), ended, 10, None
    )


def advance_backfill(
    before: Checkpoint, news: BackfillNews, facts: BatchStats | None = None
) -> BackfillStep:
    return advance_backfills(before, facts or BatchStats(), {"a": EPOCH}, news, lambda *_: True)


def test_rows_are_taken_once_and_in_their_order() -> None:
    first, next_, other = (
        rows_read(0, None, "3"),
        rows_read(0, "3", "6"),
        rows_read(1, None, "12", ended=True),
    )

    made = advance_backfill(checkpoint_of(OPEN), BackfillNews(rows=(first, next_, other, first)))

    assert made.taken == (first, next_, other)
    assert made.backfills[SHARD].rows == 30
    assert [one.read for one in made.backfills[SHARD].stretches] == [("6",), ("12",)]
    assert [one.ended for one in made.backfills[SHARD].stretches] == [False, True]


@pytest.mark.parametrize(
    "strange",
    [
        pytest.param(rows_read(0, "3", "6"), id="rows before them are not landed"),
        pytest.param(replace(rows_read(0, None, "3"), id="y"), id="of another wish"),
        pytest.param(replace(rows_read(0, None, "3"), order=P2), id="from behind another fence"),
        pytest.param(rows_read(2, None, "3"), id="of a stretch that is not there"),
        pytest.param(
            replace(rows_read(0, None, "3"), shard=Shard("a", "d.u")), id="of another shard"
        ),
    ],
)
def test_rows_that_follow_nothing_are_left_aside(strange: BackfilledRows) -> None:
    assert advance_backfill(checkpoint_of(OPEN), BackfillNews(rows=(strange,))).taken == ()


def test_rows_are_counted_and_their_table_has_something_to_apply() -> None:
    made = advance_backfill(checkpoint_of(OPEN), BackfillNews(rows=(rows_read(0, None, "3"),)))

    facts = made.counted(BatchStats(rows=1))

    assert (facts.rows, facts.tables, facts.shards) == (11, {"d.t": 10}, {NAME: "d.t"})


def test_it_ends_only_when_all_is_landed_that_its_reads_may_have_seen() -> None:
    closing = {SHARD: ("x", P2)}
    assert (
        advance_backfill(checkpoint_of(OPEN), BackfillNews(closing=closing))
        .backfills[SHARD]
        .closing
        is None
    )
    assert (
        advance_backfill(checkpoint_of(READ), BackfillNews(closing=closing))
        .backfills[SHARD]
        .closing
        == P2
    )
    assert advance_backfill(checkpoint_of(ENDED, passed=200), BackfillNews()).settled == ()

    done = advance_backfill(checkpoint_of(ENDED, passed=201), BackfillNews())

    assert [(str(one.shard), one.order, one.since) for one in done.settled] == [(NAME, P1, 5)]
    assert (done.backfills[SHARD].done, done.backfills[SHARD].stretches) == (
        10,
        (),
    )
    assert is_due(checkpoint_of(ENDED, passed=201), BackfillNews())
    assert not is_due(checkpoint_of(ENDED, passed=200), BackfillNews())


@pytest.mark.parametrize("told", [None, False])
def test_no_base_of_a_table_that_the_collector_may_leave_out(told: bool | None) -> None:
    made = advance_backfills(
        checkpoint_of(ENDED, passed=300),
        BatchStats(),
        {"a": EPOCH},
        BackfillNews(),
        lambda *_: told,
    )

    assert made.settled == ()


def test_what_replays_or_repairs_makes_no_base() -> None:
    made = advance_backfill(
        checkpoint_of(replace(ENDED, origin=Origin.REPLAY), passed=300), BackfillNews()
    )

    assert (made.settled, made.backfills[SHARD].done) == ((), 10)


@pytest.mark.parametrize(
    ("epochs", "before"),
    [
        pytest.param({"a": replace(EPOCH, number=2)}, checkpoint_of(OPEN), id="a new epoch"),
        pytest.param(
            {"a": replace(EPOCH, identity="other")}, checkpoint_of(OPEN), id="another server"
        ),
        pytest.param({}, checkpoint_of(OPEN), id="nobody knows the server"),
        pytest.param(
            {"a": EPOCH},
            replace(checkpoint_of(OPEN), lists={"a": CollectorLists("d", None, -1, P1)}),
            id="other lists since",
        ),
    ],
)
def test_it_is_void_once_its_log_or_lists_are_others(
    epochs: dict[str, Epoch], before: Checkpoint
) -> None:
    made = advance_backfills(
        before, BatchStats(), epochs, BackfillNews(rows=(rows_read(0, None, "3"),)), lambda *_: True
    )

    left = made.backfills[SHARD]
    assert (left.id, left.former, left.done, left.closing) == ("", "x", 10, P1)
    assert left.void
    assert made.taken == ()


@pytest.mark.parametrize(
    ("change", "left"),
    [
        pytest.param(SchemaChange("alter", "d.t", P2, None, ""), 0, id="altered since"),
        pytest.param(SchemaChange("drop", "d.t", P2, None, ""), 0, id="dropped since"),
        pytest.param(
            SchemaChange("create", "d.u", P2, None, "", previous="d.t"), 0, id="renamed since"
        ),
        pytest.param(SchemaChange("alter", "d.t", P1, None, ""), 1, id="altered before"),
        pytest.param(SchemaChange("alter", "d.u", P2, None, ""), 1, id="another altered"),
    ],
)
def test_it_is_void_by_a_statement_that_came_since(change: SchemaChange, left: int) -> None:
    facts = BatchStats(news=(SchemaNews("a", change, snapshot=False),))

    made = advance_backfill(checkpoint_of(OPEN), BackfillNews(), facts).backfills.values()

    assert len([one for one in made if one.done is None]) == left


def test_how_often_it_was_begun_is_counted_and_why() -> None:
    change = SchemaChange("alter", "d.t", P2, None, "ALTER TABLE t ADD c INT")
    facts = BatchStats(news=(SchemaNews("a", change, snapshot=False),))
    void = advance_backfill(checkpoint_of(OPEN), BackfillNews(), facts).backfills[SHARD]
    new = replace(OPEN, order=Order(1, 7, 300))

    again = advance_backfill(checkpoint_of(void), BackfillNews(begun={SHARD: new})).backfills[SHARD]
    cut = replace(again, key=("id",))
    kept = advance_backfill(checkpoint_of(again), BackfillNews(begun={SHARD: cut})).backfills[SHARD]
    other = advance_backfill(
        checkpoint_of(void), BackfillNews(begun={SHARD: replace(new, id="y")})
    ).backfills[SHARD]

    assert (void.void, void.former) == ("a statement came: ALTER TABLE t ADD c INT", "x")
    assert (again.begun, again.void, kept.begun, other.begun) == (2, void.void, 2, 1)


def test_one_that_was_void_before_it_read_a_row_leaves_nothing_to_be_told_of() -> None:
    """Else the image of a cut between the two would be doubted."""
    change = SchemaChange("alter", "d.t", P2, None, "")
    facts, new = (
        BatchStats(news=(SchemaNews("a", change, snapshot=False),)),
        replace(OPEN, order=P2),
    )

    lows = [
        advance_backfill(checkpoint_of(void), BackfillNews(begun={SHARD: new}))
        .backfills[SHARD]
        .lowest
        for one in (OPEN, replace(OPEN, rows=5), replace(OPEN, first=Order(1, 7, 50)))
        for void in [advance_backfill(checkpoint_of(one), BackfillNews(), facts).backfills[SHARD]]
    ]

    assert lows == [P2, P1, Order(1, 7, 50)]


def test_a_new_one_takes_the_place_of_an_old_one_and_an_old_one_of_none() -> None:
    new = replace(OPEN, id="y", order=P2)

    assert advance_backfill(checkpoint_of(OPEN), BackfillNews(begun={SHARD: new})).backfills == {
        SHARD: replace(new, first=P1)
    }
    assert advance_backfill(checkpoint_of(new), BackfillNews(begun={SHARD: OPEN})).backfills == {
        SHARD: new
    }


def test_it_is_cut_along_a_key_once() -> None:
    cut = replace(OPEN, key=("id",))
    other = replace(cut, key=("name",))

    assert advance_backfill(checkpoint_of(OPEN), BackfillNews(begun={SHARD: cut})).backfills == {
        SHARD: replace(cut, first=P1)
    }
    assert advance_backfill(checkpoint_of(cut), BackfillNews(begun={SHARD: other})).backfills == {
        SHARD: cut
    }
    assert advance_backfill(checkpoint_of(), BackfillNews(begun={SHARD: cut})).backfills == {}


def test_a_statement_of_the_batch_that_ran_while_it_was_noted_voids_it_too() -> None:
    change = SchemaChange("alter", "d.t", P2, None, "")
    facts = BatchStats(news=(SchemaNews("a", change, snapshot=False),))
    news = BackfillNews(begun={SHARD: OPEN})

    made = advance_backfills(
        checkpoint_of(), BatchStats(), {"a": EPOCH}, news, lambda *_: True, before=facts
    )

    assert made.backfills == {}


def test_one_that_was_cancelled_is_forgotten_and_nothing_of_it_taken() -> None:
    news = BackfillNews(rows=(rows_read(0, None, "3"),), cancelled={SHARD: "x"})

    made = advance_backfill(checkpoint_of(OPEN), news)

    assert (made.backfills, made.taken) == ({}, ())
    assert is_due(checkpoint_of(OPEN), news)
    assert advance_backfill(checkpoint_of(), replace(news, begun={SHARD: OPEN})).backfills == {}
    done = replace(ENDED, done=7)
    assert advance_backfill(checkpoint_of(done), news).backfills == {SHARD: done}
    assert advance_backfill(checkpoint_of(replace(OPEN, id="y")), news).backfills


def test_rows_that_one_leaves_behind_are_remembered_with_their_span() -> None:
    news = BackfillNews(cancelled={SHARD: "x"})
    epochs = {"a": replace(EPOCH, position=binlog_position(7, 400))}

    made = advance_backfills(
        checkpoint_of(replace(OPEN, rows=5)), BatchStats(), epochs, news, lambda *_: True
    )

    left = made.backfills[SHARD]
    assert (left.id, left.done, left.order, left.closing) == ("", 10, P1, Order(1, 7, 400))
    new = replace(OPEN, id="y", order=P2)
    again = advance_backfill(checkpoint_of(left), BackfillNews(begun={SHARD: new})).backfills[SHARD]
    assert (again.order, again.lowest) == (P2, P1)


def test_what_could_not_be_completed_makes_no_batch_of_its_own() -> None:
    waiting = checkpoint_of(ENDED, passed=201)

    assert is_due(waiting, BackfillNews(), frozenset())
    assert not is_due(waiting, BackfillNews(), find_complete(waiting))


@pytest.mark.parametrize(
    ("lost_in", "open_after"),
    [
        pytest.param(4, 0, id="lost before the fence was noted"),
        pytest.param(5, 1, id="lost in the batch that ran meanwhile"),
    ],
)
def test_the_base_heals_what_was_lost_before_its_fence_and_nothing_later(
    lost_in: int, open_after: int
) -> None:
    gap = Gap("g", "t", 0, 1, 2, "lost", shards=(NAME,), batch=lost_in)
    unread = Quarantine("d.t", lost_in, 1, ("q",), (NAME,))
    before = replace(
        checkpoint_of(ENDED, passed=300),
        gaps={"g": gap},
        quarantine={NAME: unread},
        snaps={SHARD: OpenSnapshot(Order(1, 7, 50), 3)},
    )

    made, settled = next_checkpoint(
        batch_context(before, stats=BatchStats(), epochs={"a": EPOCH}, router=Router(())),
        Plan({}, {}, (), capped=False),
        acknowledged={},
        names_of=no_names,
        again=advance_backfill(before, BackfillNews()),
    )

    assert (len(made.gaps), len(made.quarantine)) == (open_after, open_after)
    assert made.bases == {SHARD: P1}
    assert (made.based, made.complete, made.tables) == (
        {SHARD: 5},
        {SHARD: 10},
        {"d.t": 10},
    )
    assert made.snaps == {}
    assert [str(one.shard) for one in settled] == [NAME]


@pytest.mark.parametrize(
    ("origin", "belated"),
    [
        pytest.param(Origin.REPAIR, {"d.t": 10, "d.u": 3}, id="repair"),
        pytest.param(Origin.REPLAY, {"d.t": 10, "d.u": 3}, id="replay"),
        pytest.param(Origin.SNAPSHOT, {"d.t": 4, "d.u": 3}, id="its base says when it is complete"),
    ],
)
def test_mirrors_from_before_corrected_rows_lack_them(
    origin: Origin, belated: dict[str, int]
) -> None:
    before = replace(checkpoint_of(replace(OPEN, origin=origin)), belated={"d.t": 4, "d.u": 3})

    made, _ = next_checkpoint(
        batch_context(before, epochs={"a": EPOCH}, router=Router(())),
        Plan({}, {}, (), capped=False),
        acknowledged={},
        names_of=no_names,
        again=advance_backfill(before, BackfillNews(rows=(rows_read(0, None, "3"),))),
    )

    assert made.belated == belated


def test_the_mark_remembers_it() -> None:
    known = checkpoint_of(OPEN)

    assert Checkpoint.loads(known.dumps()).backfills == known.backfills


def no_names(topic: str) -> TopicNames | None:
    return None


SOME = (rows_read(0, None, "3"),)


@pytest.mark.parametrize(
    "news",
    [
        pytest.param(BackfillNews(begun={SHARD: OPEN}), id="one begins"),
        pytest.param(BackfillNews(rows=SOME), id="rows"),
        pytest.param(BackfillNews(closing={SHARD: ("x", P2)}), id="one ends"),
        pytest.param(BackfillNews(cancelled={SHARD: "x"}), id="one is cancelled"),
    ],
)
def test_any_news_is_worth_a_batch(news: BackfillNews) -> None:
    assert is_due(checkpoint_of(), news)


@pytest.mark.parametrize(
    "known",
    [
        pytest.param(replace(ENDED, done=7, stretches=()), id="done"),
        pytest.param(READ, id="nobody looked where the log ends"),
        pytest.param(replace(OPEN, closing=P2), id="not all is read"),
    ],
)
def test_none_is_completed_twice_or_too_early(known: Backfill) -> None:
    made = advance_backfill(checkpoint_of(known, passed=300), BackfillNews())

    assert (made.settled, made.backfills[SHARD]) == ((), known)


def test_one_that_is_done_is_no_reason_for_a_batch_and_never_void() -> None:
    done = replace(ENDED, done=7, stretches=())

    assert find_complete(checkpoint_of(done, passed=300)) == frozenset()
    assert find_complete(checkpoint_of(READ, passed=300)) == frozenset()
    made = advance_backfills(checkpoint_of(done), BatchStats(), {}, BackfillNews(), lambda *_: True)
    assert made.backfills == {SHARD: done}


def file(megabytes: int) -> WrittenFile:
    return WrittenFile("p", {}, megabytes * 2**20, NOON, "{}", 10)


@pytest.mark.parametrize(
    ("sizes", "taken"),
    [
        pytest.param([70, 1], 1, id="one that is too large by itself comes alone"),
        pytest.param([None, 32, 32], 3, id="as much as may be waited for"),
        pytest.param([None, 32, 33], 2, id="more than that"),
    ],
)
def test_files_are_taken_up_to_a_size_and_rows_without_one_have_none(
    sizes: list[int | None], taken: int
) -> None:
    places = [rows_read(0, None, "3"), rows_read(0, "3", "6"), rows_read(0, "6", "9")]
    offered = [
        replace(one, file=None if size is None else file(size))
        for one, size in zip(places, sizes, strict=False)
    ]

    made = advance_backfill(checkpoint_of(OPEN), BackfillNews(rows=tuple(offered)))

    assert made.taken == tuple(offered[:taken])
    assert made.files == tuple(one.file for one in offered[:taken] if one.file is not None)
    assert made.described == ()


def test_rows_of_a_stretch_that_has_ended_follow_nothing() -> None:
    assert (
        advance_backfill(checkpoint_of(READ), BackfillNews(rows=(rows_read(0, "9", "10"),))).taken
        == ()
    )


def test_where_none_is_open_the_very_map_remains() -> None:
    """Else each batch would compare all that were ever read again."""
    before = checkpoint_of(replace(ENDED, done=8))

    assert advance_backfill(before, BackfillNews()).backfills is before.backfills


@pytest.mark.parametrize(
    ("closing", "after"),
    [
        pytest.param({SHARD: ("y", Order(1, 7, 300))}, None, id="of another wish"),
        pytest.param({Shard("a", "d.u"): ("x", P2)}, None, id="of another shard"),
    ],
)
def test_where_the_log_ended_is_that_of_the_same_reading(
    closing: dict[Shard, tuple[str, Order]], after: Order | None
) -> None:
    assert (
        advance_backfill(checkpoint_of(READ), BackfillNews(closing=closing))
        .backfills[SHARD]
        .closing
        == after
    )


def test_where_the_log_ended_is_noted_once() -> None:
    later = BackfillNews(closing={SHARD: ("x", Order(1, 7, 300))})

    assert advance_backfill(checkpoint_of(ENDED), later).backfills[SHARD].closing == P2


AT_400 = replace(EPOCH, position=binlog_position(7, 400))


@pytest.mark.parametrize(
    ("known", "epoch", "closing"),
    [
        pytest.param(OPEN, AT_400, P1, id="it left no row"),
        pytest.param(replace(OPEN, rows=5), AT_400, Order(1, 7, 400), id="rows"),
        pytest.param(replace(OPEN, first=P1), AT_400, Order(1, 7, 400), id="rows before it"),
        pytest.param(replace(OPEN, rows=5), None, P1, id="nobody knows its server"),
        pytest.param(
            replace(OPEN, rows=5), replace(AT_400, number=2), P1, id="its log is another one"
        ),
        pytest.param(
            replace(READ, rows=5, closing=Order(1, 7, 500)),
            AT_400,
            Order(1, 7, 500),
            id="all was read, and its end lies above",
        ),
        pytest.param(
            replace(READ, rows=5, closing=P2), AT_400, Order(1, 7, 400), id="its end lies below"
        ),
    ],
)
def test_rows_of_one_that_is_void_tell_of_the_log_up_to_its_end_then(
    known: Backfill, epoch: Epoch | None, closing: Order
) -> None:
    above = CollectorLists("d", None, -1, P2)
    before = replace(checkpoint_of(known), lists={"a": above})
    epochs = {} if epoch is None else {"a": epoch}

    made = advance_backfills(before, BatchStats(), epochs, BackfillNews(), lambda *_: True)

    left = made.backfills[SHARD]
    assert (left.id, left.former, left.closing) == ("", "x", closing)


def test_one_that_is_cancelled_is_forgotten_though_it_is_void_and_not_what_was_before_it() -> None:
    news = BackfillNews(cancelled={SHARD: "x"})

    assert (
        advance_backfills(checkpoint_of(OPEN), BatchStats(), {}, news, lambda *_: True).backfills
        == {}
    )
    left = advance_backfill(checkpoint_of(replace(OPEN, first=Order(1, 7, 50))), news).backfills[
        SHARD
    ]
    assert (left.id, left.former, left.lowest) == ("", "", Order(1, 7, 50))


@pytest.mark.parametrize(
    ("known", "begun"),
    [
        pytest.param(OPEN, replace(OPEN, id="y"), id="from the same fence"),
        pytest.param(OPEN, replace(OPEN, id="y", key=("id",)), id="another one, cut"),
        pytest.param(OPEN, replace(OPEN, order=P2, key=("id",)), id="of another fence, cut"),
        pytest.param(ENDED, replace(OPEN, key=("id",)), id="it has ended"),
        pytest.param(replace(OPEN, done=7), replace(OPEN, key=("id",)), id="it is done"),
    ],
)
def test_what_is_no_newer_begins_nothing(known: Backfill, begun: Backfill) -> None:
    assert advance_backfill(checkpoint_of(known), BackfillNews(begun={SHARD: begun})).backfills == {
        SHARD: known
    }


@pytest.mark.parametrize(
    ("base", "made"),
    [
        pytest.param(Order(1, 7, 50), 1, id="older"),
        pytest.param(P1, 0, id="the same"),
        pytest.param(Order(1, 7, 250), 0, id="newer"),
    ],
)
def test_it_is_a_base_above_one_that_is_older(base: Order, made: int) -> None:
    before = replace(checkpoint_of(ENDED, passed=300), bases={SHARD: base})

    found = advance_backfill(before, BackfillNews())

    assert (len(found.settled), found.backfills[SHARD].done) == (made, 10)


@pytest.mark.parametrize(
    "lists",
    [
        pytest.param(CollectorLists("d"), id="no others were before"),
        pytest.param(CollectorLists("d", None, -1, Order(1, 7, 99)), id="since before it"),
    ],
)
def test_lists_that_were_the_same_all_the_while_void_nothing(lists: CollectorLists) -> None:
    before = replace(checkpoint_of(OPEN), lists={"a": lists})

    assert advance_backfill(before, BackfillNews()).backfills == {SHARD: OPEN}


def test_a_statement_that_a_snapshot_told_voids_nothing() -> None:
    change = SchemaChange("create", "d.t", P2, None, "")

    made = advance_backfill(
        checkpoint_of(OPEN),
        BackfillNews(),
        BatchStats(news=(SchemaNews("a", change, snapshot=True),)),
    )

    assert made.backfills == {SHARD: OPEN}
