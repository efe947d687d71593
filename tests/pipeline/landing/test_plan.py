from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.errors import UnreachableError
from pipeline.landing.plan import (
    LEAST,
    Plan,
    PlanContext,
    Span,
    epochs_read,
    plan_batch,
    share_cap,
    single_reader_sources,
    split_tasks,
)
from pipeline.model import PartitionEnd, TopicPartition
from pipeline.transports.transport import OffsetRange, RangeRead

A, B = TopicPartition("shop.a", 0), TopicPartition("shop.a", 1)


def end(offset: int, topic_id: str = "id", epoch: int = -1) -> PartitionEnd:
    return PartitionEnd(offset, topic_id, epoch)


BEGIN, END = end(0), end(9)


def planned(
    w: PartitionEnd | None,
    begin: PartitionEnd = BEGIN,
    until: PartitionEnd | None = END,
    known: PlanContext | None = None,
) -> Plan:
    """A plan of one partition; *until* is None where it is not there."""
    there = {} if until is None else {A: until}
    stood = {} if w is None else {A: w}
    return plan_batch(stood, {A: begin}, there, cap=1_000, known=known)


def test_a_batch_starts_exactly_where_the_last_ended() -> None:
    chosen = planned(end(5, epoch=2), until=end(9, epoch=7))

    span = chosen.spans[A]
    assert (span.first, span.end.offset, span.size, span.epoch) == (5, 9, 4, 2)
    assert chosen.offsets == {A: end(9, epoch=2)}
    assert not chosen.gaps
    assert not chosen.capped


def test_a_partition_seen_for_the_first_time_starts_at_its_beginning() -> None:
    chosen = planned(None)

    assert chosen.spans[A].first == 0
    assert not chosen.gaps
    assert not chosen.renewed
    assert not chosen.trimmed


@pytest.mark.parametrize("until", [END, end(3)])
def test_a_topic_first_read_without_its_beginning_is_no_gap_but_told(until: PartitionEnd) -> None:
    chosen = planned(None, begin=end(3), until=until)

    assert chosen.offsets[A] == until
    assert not chosen.gaps
    assert chosen.trimmed == {"shop.a"}


def test_a_new_partition_of_a_topic_that_is_read_has_a_gap_where_its_beginning_is_gone() -> None:
    w, ends = {A: end(9)}, {A: end(9), B: end(8)}

    whole = plan_batch(w, {A: end(5), B: end(0)}, ends, cap=1_000)
    cut_off = plan_batch(w, {A: end(5), B: end(3)}, ends, cap=1_000)

    assert not whole.gaps
    assert [(gap.partition, gap.first, gap.until) for gap in cut_off.gaps] == [(1, 0, 3)]
    assert cut_off.spans[B].first == 3
    assert not cut_off.trimmed


def test_a_topic_that_begins_at_its_second_record_has_lost_its_beginning() -> None:
    assert planned(None, begin=end(1)).trimmed == {"shop.a"}


def test_an_empty_partition_is_noted_and_not_read() -> None:
    chosen = planned(None, until=end(0))

    assert (chosen.spans, chosen.offsets) == ({}, {A: end(0)})


def test_nothing_new_reads_nothing_and_keeps_w() -> None:
    w = end(9, epoch=4)
    chosen = planned(w, until=end(9, epoch=7))

    assert not chosen.spans
    assert chosen.offsets[A] is w


HOLDS_A = A.topic.__eq__
LAST = PlanContext(last={A: end(12, "old")})


def cut(told: int) -> PlanContext:
    return PlanContext(epoch_ends={A: told})


@pytest.mark.parametrize(
    ("w", "begin", "known", "first", "lost", "word"),
    [
        pytest.param(end(4), end(4), None, 4, None, "", id="W just at the beginning"),
        pytest.param(end(3), end(4), None, 4, (3, 4), "deleted", id="one record deleted"),
        pytest.param(end(0), end(4), None, 4, (0, 4), "deleted", id="nothing was landed yet"),
        pytest.param(end(9), end(0), None, 9, None, "", id="W just at the end"),
        pytest.param(end(10), end(0), None, 0, (9, 10), "ends at 9", id="one beyond the end"),
        pytest.param(end(3, ""), end(0), None, 3, None, "", id="the id was not known then"),
        pytest.param(end(3, "old"), end(0), None, 0, (3, 3), "recreated", id="a new topic"),
        pytest.param(end(3, "old"), end(0), LAST, 0, (3, 12), "recreated", id="and it held more"),
        pytest.param(end(8, epoch=5), end(0), cut(8), 8, None, "", id="the epoch ends at W"),
        pytest.param(end(8, epoch=5), end(0), cut(20), 8, None, "", id="the epoch goes on"),
        pytest.param(end(8, epoch=5), end(0), cut(7), 7, (7, 8), "cut", id="cut just below W"),
        pytest.param(end(8, epoch=5), end(0), cut(0), 0, (0, 8), "cut", id="cut to nothing"),
        pytest.param(end(8, epoch=5), end(7), cut(6), 7, (6, 8), "cut", id="cut, begins above"),
        pytest.param(end(5, epoch=5), end(7), cut(4), 7, (4, 7), "cut", id="cut, and deleted"),
        pytest.param(end(8, epoch=5), end(0), cut(-1), 8, None, "", id="Kafka cannot tell"),
        pytest.param(end(8), end(0), cut(7), 8, None, "", id="W has no leader epoch"),
        pytest.param(end(8, epoch=0), end(0), cut(7), 7, (7, 8), "cut", id="the first leader's"),
        pytest.param(end(9, epoch=5), end(0), cut(7), 7, (7, 9), "cut", id="grown to W since"),
        pytest.param(end(9, "old"), end(0), None, 0, (9, 9), "recreated", id="new, and grown to W"),
        pytest.param(end(30, epoch=5), end(0), cut(9), 9, (9, 30), "cut", id="cut at the end now"),
    ],
)  # fmt: skip
def test_f10_offsets_that_cannot_be_read_are_a_gap_with_its_range(
    *,
    w: PartitionEnd,
    begin: PartitionEnd,
    known: PlanContext | None,
    first: int,
    lost: tuple[int, int] | None,
    word: str,
) -> None:
    chosen = planned(w, begin, known=known)

    span = chosen.spans.get(A)
    assert (9 if span is None else span.first) == first
    assert [(gap.first, gap.until) for gap in chosen.gaps] == ([lost] if lost else [])
    assert all(word in gap.why and gap.id == f"shop.a:0:{gap.first}" for gap in chosen.gaps)
    assert bool(chosen.renewed) == (w.topic_id == "old")


def test_a_topic_whose_id_is_not_told_is_not_taken_for_a_new_one() -> None:
    chosen = planned(end(3), until=end(9, ""))

    assert chosen.spans[A].first == 3
    assert (chosen.gaps, chosen.renewed) == ((), frozenset())


def test_after_a_cut_nothing_is_said_of_the_old_leader_epoch_any_more() -> None:
    chosen = planned(end(8, epoch=5), until=end(7), known=PlanContext(epoch_ends={A: 7}))

    again = planned(
        chosen.offsets[A],
        until=end(7),
        known=PlanContext(epoch_ends={A: 7}),
    )

    assert chosen.offsets[A] == end(7)
    assert not again.gaps


@pytest.mark.parametrize(
    ("known", "lost", "word"),
    [
        pytest.param(PlanContext(last={A: end(5)}), None, "its listed end, 5", id="whole"),
        pytest.param(PlanContext(last={A: end(6)}), (5, 6), "went on to 6", id="one was not"),
        pytest.param(PlanContext(), (5, 5), "is unknown", id="never listed since the start"),
        pytest.param(
            PlanContext(last={A: end(5)}, needed=HOLDS_A),
            (5, 5),
            "it is unknown what came after its listed end, 5",
            id="whole, and of a table that is there",
        ),
        pytest.param(
            PlanContext(last={A: end(6)}, needed=HOLDS_A), (5, 6), "went on to 6", id="both"
        ),
        pytest.param(
            PlanContext(last={A: end(7)}, hidden=frozenset({A.topic})),
            (5, 7),
            "user see it any more",
            id="hidden, and went on",
        ),
        pytest.param(
            PlanContext(hidden=frozenset({A.topic})), (5, 5), "user see it any more", id="hidden"
        ),
        pytest.param(
            PlanContext(last={A: end(5)}, hidden=frozenset({A.topic}), needed=HOLDS_A),
            (5, 5),
            "user see it any more",
            id="hidden, of a table that is there",
        ),
        pytest.param(
            PlanContext(last={A: end(5, "older")}), (5, 5), "is unknown", id="another topic"
        ),
    ],
)  # fmt: skip
def test_f10_a_topic_that_is_gone_is_a_gap_unless_it_had_been_landed_to_its_end(
    known: PlanContext, lost: tuple[int, int] | None, word: str
) -> None:
    chosen = planned(end(5), until=None, known=known)

    assert [(gap.first, gap.until) for gap in chosen.gaps] == ([lost] if lost else [])
    assert all(word in gap.why for gap in (*chosen.gaps, *chosen.doubts))
    assert [(gap.first, gap.until) for gap in chosen.doubts] == ([] if lost else [(5, 5)])
    assert chosen.gone == {A: end(5)}
    assert not chosen.offsets


def test_a_doubt_waits_until_a_batch_holds_all() -> None:
    """A statement that it leaves for the next may make a table of which the topic was."""
    known, w = PlanContext(last={A: end(5)}), {A: end(5)}

    part = plan_batch(w, {B: BEGIN}, {B: END}, cap=8, known=known)
    whole = plan_batch(part.offsets, {B: BEGIN}, {B: END}, cap=8, known=known)

    assert (part.doubts, part.gone, part.offsets[A]) == ((), {}, end(5))
    assert (len(whole.doubts), whole.gone) == (1, w)


def test_a_plan_without_held_topics_doubts_nothing_of_them() -> None:
    w = {A: end(5)}
    chosen = planned(end(5), until=None, known=PlanContext(last={A: end(5)}))

    left = chosen.without(lambda topic: topic == A.topic, w, {})

    assert (left.doubts, left.gone, left.offsets) == ((), {}, w)


def test_what_is_gone_is_told_once() -> None:
    chosen = plan_batch({}, {}, {}, cap=100, known=PlanContext(gone={A: end(5)}))

    assert (chosen.gaps, chosen.doubts) == ((), ())
    assert chosen.gone == {A: end(5)}


def test_a_topic_that_nobody_reads_any_more_is_not_gone() -> None:
    chosen = planned(end(5), until=None, known=PlanContext(claimed=lambda name: name != "shop.a"))

    assert not chosen.gaps
    assert chosen.offsets == {A: end(5)}


@pytest.mark.parametrize(
    ("topic_id", "first", "renewed"),
    [
        pytest.param("id", 5, False, id="the same topic goes on at W"),
        pytest.param("new", 0, True, id="another one begins at its beginning"),
    ],
)
def test_a_topic_that_comes_back(topic_id: str, first: int, renewed: bool) -> None:
    known = PlanContext(gone={A: end(5)})

    chosen = planned(None, until=end(9, topic_id), known=known)

    assert chosen.spans[A].first == first
    assert bool(chosen.renewed) is renewed
    assert not chosen.gaps
    assert not chosen.gone


def test_deleted_while_it_was_gone_is_a_gap() -> None:
    chosen = planned(None, begin=end(6), known=PlanContext(gone={A: end(5)}))

    assert [(gap.first, gap.until) for gap in chosen.gaps] == [(5, 6)]


def test_w_takes_the_leader_epoch_of_the_last_record_read_and_keeps_it_where_none_was() -> None:
    w = {A: end(5, epoch=2), B: end(5, epoch=3)}
    ends = {A: end(9, epoch=8), B: end(9, epoch=8)}

    landed = plan_batch(w, dict.fromkeys(ends, end(0)), ends, cap=100).landed({A: 7})

    assert landed.offsets == {A: end(9, epoch=7), B: end(9, epoch=3)}


def test_a_cap_is_shared_and_what_small_partitions_leave_goes_to_large_ones() -> None:
    chosen = plan_batch({}, {A: end(0), B: end(0)}, {A: end(10), B: end(1000)}, cap=100)

    assert chosen.capped
    assert chosen.spans[A].size == 10
    assert chosen.spans[B].size == 90
    assert chosen.offsets[TopicPartition("shop.a", 1)].offset == 90


def test_a_cap_that_is_just_enough_cuts_nothing() -> None:
    chosen = plan_batch({}, {A: end(0), B: end(0)}, {A: end(10), B: end(90)}, cap=100)

    assert not chosen.capped
    assert replace(chosen.spans[B].end) == end(90)


def test_what_goes_ahead_fills_a_batch_by_itself_and_nothing_is_noted_of_the_others() -> None:
    """Of another topic nothing lands before it; its beginning, and its gap, wait."""
    ends = {A: end(100), TopicPartition("b", 0): end(9)}
    known = PlanContext(ahead=frozenset({"b"}))

    chosen = plan_batch({}, dict.fromkeys(ends, end(3)), ends, cap=5, known=known)

    assert chosen.capped
    assert {at: span.size for at, span in chosen.spans.items()} == {TopicPartition("b", 0): 5}
    assert list(chosen.offsets) == [TopicPartition("b", 0)]
    assert list(chosen.trimmed) == ["b"]
    assert not chosen.gaps


def test_what_goes_ahead_and_fills_a_batch_exactly_shuts_nobody_out() -> None:
    ends = {A: end(100), TopicPartition("b", 0): end(9)}
    known = PlanContext(ahead=frozenset({"b"}))

    chosen = plan_batch({}, dict.fromkeys(ends, end(3)), ends, cap=6, known=known)

    assert {at: span.size for at, span in chosen.spans.items()} == {TopicPartition("b", 0): 6, A: 1}
    assert sorted(chosen.trimmed) == ["b", "shop.a"]


# shares of a batch

SMALL, LARGE = A, TopicPartition("shop.a", 1)


def two_spans(small: int, large: int) -> dict[TopicPartition, Span]:
    return {SMALL: Span(5, PartitionEnd(5 + small)), LARGE: Span(0, PartitionEnd(large))}


def test_each_partition_has_a_record_of_its_own_however_small_the_cap() -> None:
    taken, capped = share_cap(two_spans(3, 3), 1)

    assert capped
    assert [span.size for span in taken.values()] == [1, 1]


def test_what_goes_ahead_is_taken_whole_and_the_others_share_what_is_left() -> None:
    schema = TopicPartition("shop", 0)
    given = {**two_spans(10, 1000), schema: Span(3, PartitionEnd(83))}

    taken, capped = share_cap(given, 100, {"shop"})

    assert capped
    assert {at: span.size for at, span in taken.items()} == {schema: 80, SMALL: 10, LARGE: 10}


def test_what_goes_ahead_is_cut_by_the_cap_and_leaves_each_of_the_others_a_record() -> None:
    taken, capped = share_cap(
        two_spans(10, 1000) | {TopicPartition("b", 0): Span(0, PartitionEnd(9))}, 5, {"b"}
    )

    assert capped
    assert [span.size for span in taken.values()] == [5, 1, 1]


def test_partitions_in_turn_wait_until_those_before_them_are_read_to_their_ends() -> None:
    given = {TopicPartition("h", n): Span(5, PartitionEnd(14 - n)) for n in range(3)}
    other = {LARGE: Span(0, PartitionEnd(4))}

    taken, capped = share_cap(given | other, 10, in_turn={"h"})
    rest = {at: Span(span.end.offset, given[at].end) for at, span in taken.items() if at in given}
    after, _ = share_cap(rest, 20, in_turn={"h"})

    assert capped
    assert [taken[at].size for at in (*given, LARGE)] == [3, 0, 0, 2]
    assert [after[at].size for at in given] == [6, 7, 0]


def test_partitions_in_turn_are_read_at_once_where_all_fits() -> None:
    given = {TopicPartition("h", n): Span(5, PartitionEnd(8)) for n in range(3)}

    assert share_cap(given, 9, in_turn={"h"}) == (given, False)


# tasks


def spans(*sizes: int) -> dict[TopicPartition, Span]:
    return {
        TopicPartition("t", number): Span(7, PartitionEnd(7 + size), epoch=3)
        for number, size in enumerate(sizes)
        if size
    }


@given(st.lists(st.integers(0, 4 * LEAST), max_size=6), st.integers(1, 8))
def test_every_offset_is_in_exactly_one_task(sizes: list[int], most: int) -> None:
    wanted = spans(*sizes)

    tasks = split_tasks(wanted, most)

    found = dict.fromkeys(wanted, 7)
    for one in (one for task in tasks for one in task):
        at = TopicPartition(one.topic, one.partition)
        assert one.first == found[at] < one.until
        found[at] = one.until
    assert found == {at: span.end.offset for at, span in wanted.items()}
    assert len(tasks) <= most


def test_tasks_are_of_about_one_size() -> None:
    tasks = split_tasks(spans(LEAST * 6, LEAST, LEAST), 4)

    assert [sum(one.until - one.first for one in task) for task in tasks] == [2 * LEAST] * 4


def test_a_source_that_two_tasks_read_is_read_alone_by_none() -> None:
    parts = [[OffsetRange("a", 0, 0, 5), OffsetRange("b", 0, 0, 5)], [OffsetRange("a", 0, 5, 9)]]

    assert single_reader_sources(parts, {"a": "shop", "b": "till"}) == {"till"}


def test_a_small_batch_is_one_task() -> None:
    assert len(split_tasks(spans(10, 10, 10), 8)) == 1


def test_only_the_first_range_of_a_partition_is_sought_with_the_epoch_of_what_was_read() -> None:
    (first,), (second,) = split_tasks(spans(2 * LEAST), 2)

    assert (first.leader_epoch, second.leader_epoch) == (3, -1)


def range_read(first: int, until: int, told: tuple[int, int] | None, *epochs: int) -> RangeRead:
    asked = OffsetRange("t", 0, first, until)
    if told is None:
        return RangeRead(asked)
    return RangeRead(asked, told[0], told[1], 1, epochs)


def test_the_epoch_of_the_last_record_is_kept_and_an_empty_range_changes_nothing() -> None:
    told = [
        range_read(10, 20, (10, 19), 5, 6),
        range_read(0, 10, (0, 9), 4, 5),
        range_read(20, 30, None),
    ]

    assert epochs_read(told) == {TopicPartition("t", 0): 6}
    assert epochs_read([range_read(0, 10, None)]) == {}


@pytest.mark.parametrize(
    "told",
    [
        pytest.param([range_read(0, 10, (0, 10), 1)], id="an offset beyond the range"),
        pytest.param([range_read(5, 10, (4, 9), 1)], id="an offset before the range"),
        pytest.param([range_read(0, 10, (0, 9), 2, 1)], id="epochs fall within a range"),
        pytest.param(
            [range_read(0, 9, (0, 8), 2), range_read(9, 10, (9, 9), 1)], id="from range to range"
        ),
    ],
)
def test_what_is_no_stretch_of_one_log_is_refused(told: list[RangeRead]) -> None:
    with pytest.raises(UnreachableError, match="t:0"):
        epochs_read(told)


# many partitions

MANY = 200


def test_a_held_source_is_left_out_and_each_partition_named_a_few_times(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ends = {TopicPartition(f"s.db.t{number}", 0): PartitionEnd(9, "x") for number in range(MANY)}
    first = {at: PartitionEnd(0, "x") for at in ends}
    w = {at: PartitionEnd(5, "x") for at in ends}
    chosen = plan_batch(w, first, ends, 1_000_000)
    named: list[TopicPartition] = []
    told = TopicPartition.__str__

    def counted(at: TopicPartition) -> str:
        named.append(at)
        return told(at)

    monkeypatch.setattr(TopicPartition, "__str__", counted)

    left = chosen.without(lambda topic: topic.startswith("s."), w, {})

    assert dict(left.spans) == {}
    assert dict(left.offsets) == w
    assert len(named) <= 3 * MANY


def test_partitions_that_rest_are_not_looked_at() -> None:
    ends = {TopicPartition(f"s.db.t{n}", 0): PartitionEnd(9, "x", 3) for n in range(MANY)}
    first = {at: PartitionEnd(0, "x") for at in ends}
    w = {at: PartitionEnd(9, "x", 3) for at in ends}
    moved = TopicPartition("s.db.t7", 0)
    w[moved] = PartitionEnd(5, "x", 3)
    looked: list[TopicPartition] = []

    class Counted(dict[TopicPartition, PartitionEnd]):
        def __getitem__(self, at: TopicPartition) -> PartitionEnd:
            looked.append(at)
            return super().__getitem__(at)

    chosen = plan_batch(w, Counted(first), ends, 1_000)

    assert looked == list(chosen.spans) == [moved]
    assert chosen.offsets == {**w, moved: PartitionEnd(9, "x", 3)}


@pytest.mark.parametrize(
    ("stood", "end", "epoch_end", "gaps"),
    [
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(9, "y", 3), -1, 1, id="another topic"),
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(9, "x", 4), 5, 1, id="cut, grown again"),
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(9, "x", 4), 9, 0, id="a new leader"),
        pytest.param(PartitionEnd(9, "", 3), PartitionEnd(9, "x", 3), -1, 0, id="an id by now"),
        pytest.param(PartitionEnd(9, "x", 3), PartitionEnd(8, "x", 3), -1, 1, id="it has shrunk"),
    ],
)
def test_one_that_stands_at_its_end_and_is_not_the_same_is_no_resting_one(
    stood: PartitionEnd, end: PartitionEnd, epoch_end: int, gaps: int
) -> None:
    at = TopicPartition("s.db.t", 0)
    known = PlanContext(epoch_ends={at: epoch_end} if epoch_end >= 0 else {}, last={at: stood})

    chosen = plan_batch({at: stood}, {at: PartitionEnd(0, "x")}, {at: end}, 100, known=known)

    assert len(chosen.gaps) == gaps
    assert chosen.offsets[at].topic_id == end.topic_id
