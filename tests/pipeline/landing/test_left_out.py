"""Bases are short of what comes, by the lists of one batch and those seen before."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import timedelta

import pytest

from pipeline.checkpoint import Checkpoint, CollectorLists, Existence, Gap
from pipeline.landing.gaps import (
    GRACE,
    detect_capture_changes,
    digest_scope,
    find_captured,
    has_sent,
    is_above,
)
from pipeline.landing.listing import Listing
from pipeline.model import CaptureScope, Order, Shard, ShardId
from tests.builders import batch_context
from tests.builders.harness import NOW, load_gaps
from tests.builders.values import by_shard
from tests.pipeline.landing.test_landing_source import SOURCE, Site

ALL = CaptureScope(lambda _: True, "all")
NO_T = CaptureScope(lambda shard: str(shard) != "db.t", "no t")
SAME, OTHER = CollectorLists(digest_scope(NO_T)), CollectorLists("other")
T, U = "a/db.t", "a/db.u"
SHARDS = {T: "db.t", U: "db.u", "b/db.t": "db.t", "a/db.ignored": None}
BEFORE = Checkpoint(
    "main", 4, shards=by_shard(SHARDS), bases=dict.fromkeys(by_shard(SHARDS), Order(1, 1, 1))
)


def gaps(
    known: CollectorLists | None, capture: CaptureScope, complete: Mapping[str, int], **more: object
) -> list[Gap]:
    """Of batch 5, that tells *capture* of source ``a``."""
    before = replace(BEFORE, lists={"a": known} if known else {}, complete=by_shard(complete))
    made = replace(before, batch=5, **more)  # type: ignore[arg-type]
    return load_gaps(
        detect_capture_changes(made, batch_context(before, captures={"a": capture}, at=NOW))
    )


def silent(lists: CollectorLists, since: int) -> CollectorLists:
    return replace(lists, unseen=since)


def lists_above(lists: CollectorLists, pos: int) -> CollectorLists:
    return replace(lists, above=Order(1, 1, pos))


NOBODY_READS = replace(NO_T, known=False)


@pytest.mark.parametrize(
    ("known", "capture", "complete", "short"),
    [
        pytest.param(None, NO_T, 2, True, id="left out by lists that are seen first"),
        pytest.param(OTHER, NO_T, 2, True, id="left out from now on"),
        pytest.param(SAME, NO_T, 4, False, id="left out as before: that was told"),
        pytest.param(SAME, NO_T, 5, True, id="complete only now"),
        pytest.param(silent(SAME, 3), NO_T, 2, False, id="before the silence: that was told"),
        pytest.param(silent(SAME, 3), NO_T, 3, True, id="complete in the silence"),
        pytest.param(silent(SAME, 0), NO_T, 0, True, id="in one since the first batch"),
        pytest.param(OTHER, ALL, 5, False, id="let in by others, which were seen"),
        pytest.param(silent(OTHER, 3), ALL, 2, False, id="before a silence with others"),
        pytest.param(silent(OTHER, 3), ALL, 3, True, id="in a silence that others came from"),
        pytest.param(silent(OTHER, 0), ALL, 0, True, id="the same since the first batch"),
        pytest.param(SAME, NOBODY_READS, 4, False, id="by lists that nobody can read: told"),
        pytest.param(SAME, NOBODY_READS, 5, False, id="sent by them, as ever"),
        pytest.param(lists_above(SAME, 0), NOBODY_READS, 5, False, id="above where they begin"),
        pytest.param(lists_above(SAME, 1), NOBODY_READS, 5, True, id="where they begin"),
        pytest.param(replace(SAME, since=NOW), NOBODY_READS, 5, True, id="while they are new"),
    ],
)
def test_which_base_is_short_of_what_comes(
    known: CollectorLists | None, capture: CaptureScope, complete: int, short: bool
) -> None:
    found = gaps(known, capture, {T: complete, "b/db.t": 5, "a/db.ignored": 5})

    assert [one.shards for one in found] == [(T,)] * short


@pytest.mark.parametrize(
    "more",
    [
        pytest.param(
            {"existing": {Shard.parse(T): Existence(Order(1, 1, 9), there=False)}}, id="dropped"
        ),
        pytest.param({"bases": {}}, id="no base any more"),
        pytest.param({"shards": {}}, id="of no table"),
    ],
)
@pytest.mark.parametrize("known", [None, SAME], ids=["seen first", "as before"])
def test_what_nobody_relies_on_is_short_of_nothing(
    known: CollectorLists | None, more: Mapping[str, object]
) -> None:
    assert gaps(known, NO_T, {T: 5}, **more) == []


def test_lists_that_changed_in_a_silence_and_that_nobody_can_read_are_told_as_that() -> None:
    """Of all that have a base, once each."""
    (gap,) = gaps(silent(OTHER, 3), NOBODY_READS, {T: 3})

    assert gap.shards == (T, U)
    assert gap.why == (
        "the collector's lists cannot be read here, and may leave out a/db.t and 1 more: write "
        "them as `sluice doctor` says, and take a new base of it"
    )


def test_left_out_and_in_doubt_are_told_in_one_gap_of_one_place() -> None:
    (gap,) = gaps(silent(OTHER, 3), NO_T, {T: 3, U: 3})

    assert (gap.id, gap.topic, gap.shards) == ("lists:a:0:5@5", "lists:a", (T, U))
    assert (gap.partition, gap.first, gap.until, gap.batch) == (0, 5, 5, 5)
    assert gap.why == (
        "the collector's lists were changed and leave out a/db.t; its changes are not "
        "sent: include the table, and take a new base of it; the collector's lists were changed "
        "while it did not answer, and may have left out a/db.u when its base was made: take a new "
        "base of it"
    )


def test_of_many_that_are_left_out_one_is_named() -> None:
    nothing = CaptureScope(lambda _: False, "nothing")

    (gap,) = gaps(OTHER, nothing, {})

    assert gap.shards == (T, U)
    assert " leave out a/db.t and 1 more; " in gap.why


@pytest.mark.parametrize(
    ("unseen", "then"),
    [
        pytest.param(-1, 5, id="it falls silent"),
        pytest.param(3, 3, id="it still is"),
        pytest.param(0, 0, id="since the first batch"),
    ],
)
def test_since_when_a_collector_is_silent_is_kept(unseen: int, then: int) -> None:
    before = replace(BEFORE, lists={"a": silent(SAME, unseen)})

    found = detect_capture_changes(replace(before, batch=5), batch_context(before, at=NOW))

    assert found.lists == {"a": silent(SAME, then)}
    assert found.gaps == {}


END, SECOND = Order(1, 2, 3), timedelta(seconds=1)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param(None, SAME, id="seen first: those of ever"),
        pytest.param(OTHER, replace(SAME, since=NOW), id="others than before"),
        pytest.param(replace(OTHER, above=END), replace(SAME, since=NOW), id="others once more"),
        pytest.param(silent(SAME, 3), SAME, id="heard again"),
        pytest.param(
            replace(SAME, since=NOW - GRACE + SECOND),
            replace(SAME, since=NOW - GRACE + SECOND),
            id="the same, not for long yet",
        ),
        pytest.param(replace(SAME, since=NOW - GRACE), replace(SAME, above=END), id="for a while"),
        pytest.param(
            replace(SAME, since=NOW + SECOND), replace(SAME, since=NOW), id="a clock set back"
        ),
        pytest.param(
            replace(SAME, above=Order(1, 1, 1)),
            replace(SAME, above=Order(1, 1, 1)),
            id="what they sent is known",
        ),
    ],
)
def test_since_when_lists_count(before: CollectorLists | None, after: CollectorLists) -> None:
    known = replace(BEFORE, lists={"a": before} if before else {})

    assert detect_capture_changes(
        known, batch_context(known, captures={"a": NO_T}, ends={"a": END}, at=NOW)
    ).lists == {"a": after}


def test_rows_show_that_a_table_is_let_in_where_the_lists_were_seen_before() -> None:
    assert find_captured(NO_T, [T, U], [T], first=False) == {T, U}
    assert find_captured(NO_T, [T, U], [T], first=True) == {U}


@pytest.mark.parametrize(
    ("known", "counts"),
    [
        pytest.param(None, True, id="none were seen"),
        pytest.param(SAME, True, id="those of ever"),
        pytest.param(replace(SAME, above=Order(1, 2, 2)), True, id="above their beginning"),
        pytest.param(replace(SAME, above=END), False, id="at it"),
    ],
)
def test_what_stands_above_the_beginning_of_lists_was_sent_by_them(
    known: CollectorLists | None, counts: bool
) -> None:
    assert is_above(known, END) is counts


def test_what_was_replaced_without_a_word_is_a_gap_once() -> None:
    replaced = replace(ALL, replaced={ShardId("db", "t"): 1.0, ShardId("db", "ignored"): 1.0})

    (gap,) = gaps(CollectorLists(digest_scope(ALL)), replaced, {T: 2})

    assert gap.shards == (T,)
    assert "db.t was changed at the source by a statement that its log leaves out" in gap.why
    known = {gap.id: gap}
    assert gaps(CollectorLists(digest_scope(ALL)), replaced, {T: 2}, gaps=known) == [gap]


def test_f112_what_was_replaced_while_nothing_ran_is_a_gap_of_what_the_mark_remembers() -> None:
    def differs(remembered: Mapping[str, str]) -> frozenset[ShardId]:
        return frozenset({ShardId("db", "t")} if remembered["7"] == "old" else ())

    now = replace(ALL, remembered={"7": "new"}, differs=differs)
    before = replace(
        BEFORE,
        lists={"a": CollectorLists(digest_scope(ALL))},
        stores={"a/7": "old", "a/8": "gone", "b/7": "other"},
    )
    made = replace(before, batch=5)

    told = detect_capture_changes(made, batch_context(before, captures={"a": now}, at=NOW))
    again = detect_capture_changes(
        replace(told, batch=6, gaps={}), batch_context(told, captures={"a": now}, at=NOW)
    )
    first = detect_capture_changes(
        made, batch_context(replace(before, stores={}), captures={"a": now}, at=NOW)
    )

    assert [gap.shards for gap in load_gaps(told)] == [(T,)]
    assert told.stores == {"a/7": "new", "b/7": "other"}
    assert again.gaps == first.gaps == {}
    assert Checkpoint.loads(replace(told, full=5).dumps()).stores == told.stores


def test_f112_a_source_that_tells_nothing_keeps_what_was_remembered() -> None:
    before = replace(BEFORE, stores={"a/7": "old"})

    assert (
        detect_capture_changes(
            replace(before, batch=5), batch_context(before, captures={"a": ALL}, at=NOW)
        ).stores
        == before.stores
    )


DB = CollectorLists(digest_scope(CaptureScope(lambda _: False)), above=Order(1, 1, 5))


@pytest.mark.parametrize(
    ("known", "shard", "answers", "hidden", "sent"),
    [
        pytest.param(DB, "a/db.t", "now", (), True, id="in the lists"),
        pytest.param(DB, "a/db.t", "before", (), True, id="in the last lists of a silent one"),
        pytest.param(None, "a/db.t", "now", (), True, id="in the first lists"),
        pytest.param(DB, "a/other.t", "now", (), False, id="left out"),
        pytest.param(DB, "a/db.t", "now", ("a/db.t",), False, id="its topic is hidden"),
        pytest.param(DB, "a/db.t", "now", ("a/db.u",), True, id="the topic of another is hidden"),
        pytest.param(DB, "gone/db.t", "now", (), False, id="of a source without a collector"),
        pytest.param(DB, "a/db.t", "never", (), None, id="silent since the start"),
        pytest.param(None, "a/db.t", "before", (), None, id="silent before the first batch"),
        pytest.param(OTHER, "a/db.t", "now", (), None, id="others than before"),
        pytest.param(replace(DB, since=NOW), "a/db.t", "now", (), None, id="while they are new"),
        pytest.param(lists_above(DB, 6), "a/db.t", "now", (), None, id="from where they begin"),
    ],
)
def test_what_is_sent_above_an_order_is_known_while_the_same_lists_select_it(
    *,
    known: CollectorLists | None,
    shard: str,
    answers: str,
    hidden: tuple[str, ...],
    sent: bool | None,
) -> None:
    site = Site("db")
    feed = site.feed(replace(SOURCE, name="a"))
    scope = feed.captures() if answers != "never" else None
    captures = {"a": scope} if answers == "now" and isinstance(scope, CaptureScope) else {}

    found = has_sent(
        Shard.parse(shard),
        Order(1, 1, 6),
        feeds=(site.feed(), feed),
        checkpoint=replace(BEFORE, lists={"a": known} if known else {}),
        listing=Listing({}, {}, {}, {}, {}, captures=captures),
        hidden=lambda shards: shards & {*hidden},
    )

    assert found is sent
