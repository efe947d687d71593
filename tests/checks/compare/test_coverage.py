"""What is known of the rows that were compared is never more than was done, and is bounded."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.compare.coverage import (
    FAR,
    MARGIN,
    MOST_SPANS,
    Coverage,
    LapPlan,
    RangeDebt,
    divide_ids,
    divide_spans,
    find_spans,
    halve_first,
    split_at,
)
from checks.counting import MOST_OPEN
from checks.ranges import FLOOR, UNSIGNED_CEILING, Blocks
from tests.checks.world_fake import ONE, TWO

START = datetime(2026, 3, 2, tzinfo=UTC)
WEEK = timedelta(days=7)
ALL = (FLOOR, UNSIGNED_CEILING)
spans = st.tuples(st.integers(-20, 120), st.integers(1, 60)).map(lambda one: (one[0], sum(one)))
steps = st.lists(st.tuples(st.lists(spans, max_size=3), st.integers(0, 300_000)), max_size=40)


@given(steps)
def test_no_row_is_claimed_to_be_compared_later_than_it_was(
    history: list[tuple[list[tuple[int, int]], int]],
) -> None:
    made, at, truth = Coverage(START), START, dict[int, datetime]()
    for ranges, seconds in history:
        at += timedelta(seconds=seconds)
        made = made.compared(ranges, at)
        truth |= {id_: at for low, high in ranges for id_ in range(low, high)}

    lows = [one.low for one in made.spans]
    assert lows == sorted(set(lows))
    assert [one.high for one in made.spans] == [*lows[1:], UNSIGNED_CEILING]
    assert lows[0] == FLOOR
    for one in made.spans:
        for id_ in range(max(one.low, -30), min(one.high, 200)):
            assert one.at is None or one.at <= truth[id_]
    assert Coverage.loads(made.dumps()) == made


def test_many_ranges_are_remembered_in_few_spans() -> None:
    """Every second one was never compared, at first."""
    made = Coverage(START).compared([ALL], START)
    for block in range(MOST_SPANS + 40):
        at = START + timedelta(days=block)
        made = made.compared([(20 * block, 20 * block + 10)], at)
    fresh = Coverage(START).compared(
        [(20 * block, 20 * block + 10) for block in range(MOST_SPANS + 40)], START + FAR / 200
    )

    assert len(made.spans) <= MOST_SPANS
    assert made.oldest == START
    assert len(fresh.spans) <= MOST_SPANS
    assert fresh.oldest is None


@given(st.integers(1, 400), st.integers(1, 7), st.integers(1, 3000))
def test_a_lap_ends_after_as_many_cycles_as_it_has_blocks_for_each(
    blocks: int, most: int, seconds: int
) -> None:
    """The newest block is compared in each cycle, too, and delays none."""
    high, cycles = 16 * blocks - 1, -(-blocks // most)
    made, at = Coverage(START), START
    for lap in range(3):
        for _ in range(cycles):
            at += timedelta(seconds=seconds)
            newest = (16 * (blocks - 1), 16 * blocks)
            due = made.next_blocks(Blocks(0, high, 16), most)
            edges = [(FLOOR, 0), (16 * blocks, UNSIGNED_CEILING)]
            made = made.compared([*due, newest, *edges], at)
        assert made.oldest is not None
        lap_time = cycles * timedelta(seconds=seconds)
        assert lap == 0 or made.oldest >= at - lap_time * 1.05 - timedelta(seconds=seconds)


@given(st.integers(1, 60), st.integers(1, 9))
def test_a_lap_that_begins_again_goes_on_where_it_was_and_claims_nothing(
    blocks: int, each: int
) -> None:
    """It begins again after *each* few blocks: all have their turn, and no lap ends."""
    high, made, at, seen = 16 * blocks - 1, Coverage(START), START, list[tuple[int, int]]()
    made = made.compared([ALL], START)
    for n in range(blocks):
        at += timedelta(minutes=1)
        made = made.restarted(at) if n % each == 0 else made
        (block,) = made.next_blocks(Blocks(0, high, 16), 1)
        seen.append(block)
        made = made.compared([block], at)
        assert made.oldest is None or blocks <= each
    assert sorted(seen) == [(16 * n, 16 * n + 16) for n in range(blocks)]
    assert made.since == START
    assert Coverage.loads(made.dumps()) == made

    done = made.compared([ALL], at)
    assert done.oldest == at
    assert done.restarted(at + WEEK).since == at


@given(st.lists(st.tuples(st.integers(0, 3_600), st.integers(0, 50)), min_size=1, max_size=60))
def test_ranges_that_are_paid_for_are_as_many_as_time_and_changed_rows_ask_for(
    cycles: list[tuple[int, int]],
) -> None:
    """A shard of 4096 ids with a row each: never more than both together, nor less than either."""
    debt, read, passed, changed, size = RangeDebt(), 0, timedelta(), 0, 256
    for seconds, rows in cycles:
        passed, changed = passed + timedelta(seconds=seconds), changed + rows
        debt = debt.grown(timedelta(seconds=seconds), WEEK)
        debt = replace(debt, rows=debt.rows + 0.5 * rows)
        width, many = divide_ids(debt.ids(4096, 1.0), size)
        read += width * many
        debt = debt.paid(width * many, 4096, width * many, size)

    lap, share = 4096 * (passed / (WEEK * MARGIN)), 0.5 * changed
    assert max(lap, share) - size <= read <= lap + share


@pytest.mark.parametrize(
    ("opened", "many", "found"),
    [
        pytest.param([(0, 4), (9, 12), (4, 9)], 0, [(0, 4), (9, 12), (4, 9)], id="none"),
        pytest.param([(0, 4), (9, 12)], 1, [(0, 2), (2, 4), (9, 12)], id="the first"),
        pytest.param([(0, 4), (9, 12)], 2, [(0, 2), (2, 4), (9, 10), (10, 12)], id="more"),
        pytest.param([(-3, 0), (9, 12)], 1, [(-3, -2), (-2, 0), (9, 12)], id="below zero"),
        pytest.param([(4, 5), (9, 12), (5, 6)], 1, [(9, 12), (5, 6), (4, 5)], id="one id"),
        pytest.param([], 4, [], id="there are none"),
        pytest.param([(4, 9)] * MOST_OPEN, 1, [(4, 9)] * MOST_OPEN, id="no room for more"),
        pytest.param(
            *([(0, 2), *[(4, 9)] * (MOST_OPEN - 2)], 1),
            [(0, 1), (1, 2), *[(4, 9)] * (MOST_OPEN - 2)],
            id="room for one more",
        ),
    ],
)
def test_the_first_open_ranges_are_halved_and_no_id_of_them_is_forgotten(
    opened: list[tuple[int, int]], many: int, found: list[tuple[int, int]]
) -> None:
    assert halve_first(opened, many) == found


def test_a_range_is_divided_only_where_there_is_room_for_its_parts() -> None:
    full = {str(ONE): [[n, n + 1] for n in range(MOST_OPEN - 32)]}

    assert divide_spans({ONE: [(0, 32)]}, {}) == {str(ONE): [[n, n + 2] for n in range(0, 32, 2)]}
    assert divide_spans({TWO: [(7, 8)]}, full) == {str(TWO): [[7, 8]]}
    assert divide_spans({ONE: [(5000, 9000)]}, full) == {str(ONE): [[5000, 9000]]}


def test_an_open_range_that_cannot_be_halved_for_room_is_the_last() -> None:
    opened = [(0, 4), *((n, n + 1) for n in range(4, MOST_OPEN + 3))]

    assert halve_first(opened, 1) == [*opened[1:], (0, 4)]


@pytest.mark.parametrize(
    ("wanted", "size", "found"),
    [
        (0, 1024, (1024, 0)),
        (3.9, 1024, (1024, 0)),
        (4, 1024, (4, 1)),
        (511, 1024, (256, 1)),
        (1024, 1024, (1024, 1)),
        (4095, 1024, (1024, 3)),
        (0.9, 16, (16, 0)),
        (1.5, 16, (1, 1)),
        (-3, 16, (16, 0)),
    ],
)
def test_ids_are_divided_into_whole_blocks_or_one_narrower_range(
    wanted: float, size: int, found: tuple[int, int]
) -> None:
    assert divide_ids(wanted, size) == found


def test_the_greater_debt_sets_the_pace() -> None:
    assert RangeDebt(0.25, 512.0).ids(4096, 1.0) == 1024
    assert RangeDebt(0.25, 512.0).ids(4096, 3.0) == 1536


def test_a_debt_is_a_whole_lap_at_most_and_one_block_is_paid_ahead_at_most() -> None:
    assert RangeDebt().grown(10 * WEEK, WEEK) == RangeDebt(1.0, 0.0)
    assert RangeDebt(0.5, 10.0).paid(1024, 4096, 500, 100) == RangeDebt(0.25, -100.0)
    assert RangeDebt(0.1, 10.0).paid(1024, 4096, 4, 100) == RangeDebt(0.0, 6.0)


def test_even_laps_compare_each_row_once_and_claim_little_less_than_was_done() -> None:
    """An unchanged shard of 1024 ids, for two laps after the first, which was fast."""
    cycle, at, high = timedelta(minutes=1), START, 1023
    made, debt = Coverage(START).compared([ALL], START), RangeDebt()
    within, read, ages = 600 * cycle, 0, list[timedelta]()
    for _ in range(1080):
        at += cycle
        debt = debt.grown(cycle, within)
        width, many = divide_ids(debt.ids(1024, 1.0), 256)
        due = made.next_blocks(Blocks(0, high, width), many)
        read += width * len(due)
        debt = debt.paid(width * len(due), 1024, 0, 0)
        made = made.compared([*due, (FLOOR, 0), (1024, UNSIGNED_CEILING)], at)
        assert made.oldest is not None
        ages.append(at - made.oldest)

    assert 2 * 1024 - 8 <= read <= 2 * 1024
    assert 0.88 * within <= max(ages) <= within


def test_a_short_lap_goes_on_where_it_was() -> None:
    """Two of sixteen blocks in each cycle of five seconds, after a first lap in one look."""
    made, at, seen = Coverage(START).compared([ALL], START), START, list[tuple[int, int]]()
    for _ in range(8):
        at += timedelta(seconds=5)
        due = made.next_blocks(Blocks(0, 255, 16), 2)
        made = made.compared([*due, (FLOOR, 0), (256, UNSIGNED_CEILING)], at)
        seen += due

    assert sorted(seen) == [(16 * block, 16 * block + 16) for block in range(16)]


def test_blocks_that_are_open_take_the_place_of_no_other() -> None:
    made = Coverage(START)

    assert made.next_blocks(Blocks(0, 99, 10), 2) == [(90, 100), (80, 90)]
    assert made.next_blocks(Blocks(0, 99, 10), 2, [(85, 95)]) == [(70, 80), (60, 70)]
    assert made.compared([(60, 100)], START).next_blocks(Blocks(0, 99, 10), 1) == [(50, 60)]


def test_what_was_never_compared_of_a_block_is_due() -> None:
    made = Coverage(START).compared([(61, 100)], START)

    assert made.next_blocks(Blocks(0, 99, 10), 2) == [(60, 61), (50, 60)]


def test_a_range_holds_its_first_id_and_not_that_after_its_last() -> None:
    known = {str(ONE): [[10, 20], [20, 30]], str(TWO): [[10, 20]]}

    assert find_spans(known, [(ONE, 10)]) == {str(ONE): [[10, 20]]}
    assert find_spans(known, [(ONE, 20), (TWO, 20)]) == {str(ONE): [[20, 30]]}


@pytest.mark.parametrize(
    ("blocks", "most", "needed", "told"),
    [
        (1000, 20, 1, ""),
        (100_000, 20, 4, ""),
        (1_000_000, 20, 37, "1000000 ranges, 20 of them every 20 s, take 11.6 days, and not 7.0"),
        (1_000_000, 0, 37, ""),
    ],
    ids=["small", "large", "too large", "switched off"],
)
def test_a_lap_that_takes_too_long_is_said_with_figures(
    blocks: int, most: int, needed: int, told: str
) -> None:
    plan = LapPlan(blocks, timedelta(seconds=20), most, WEEK)

    assert plan.needed == needed
    assert plan.too_long.startswith(told)
    assert bool(plan.too_long) == bool(told)


def test_a_wide_range_that_is_skipped_delays_none_below_it() -> None:
    """Blocks are as wide as a sixty-fourth of it."""
    made = Coverage(START).compared([(FLOOR, 1 << 20)], START)
    made = made.compared([(1 << 20, UNSIGNED_CEILING)], START + timedelta(days=1))

    blocks = Blocks(0, (1 << 20) - 1, 1 << 8)
    found = made.next_blocks(blocks, 2, [((1 << 20) - (1 << 14), 1 << 20)])

    top = (1 << 20) - (1 << 14)
    assert found == [(top - 256, top), (top - 512, top - 256)]


@given(st.lists(spans, max_size=4), st.sets(st.integers(-20, 120), max_size=6))
def test_ranges_are_split_at_ids_and_no_other_id_is_lost(
    ranges: list[tuple[int, int]], ids: set[int]
) -> None:
    parts, alone = split_at(ranges, ids)

    every = [id_ for low, high in ranges for id_ in range(low, high)]
    assert sorted(id_ for low, high in parts for id_ in range(low, high)) == sorted(
        id_ for id_ in every if id_ not in ids
    )
    assert sorted(low for low, _ in alone) == sorted(id_ for id_ in every if id_ in ids)
    assert all(low < high for low, high in parts)
    assert all(high == low + 1 for low, high in alone)
