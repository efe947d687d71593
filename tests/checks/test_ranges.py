from bisect import bisect_left
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from checks.ranges import (
    EVEN_IDS,
    FLOOR,
    HEAVY,
    MOST_KNOTS,
    PARTS,
    PASSES,
    UNSIGNED_CEILING,
    Blocks,
    CountRows,
    IdScale,
    Mismatch,
    Narrowed,
    block_width,
    choose_blocks,
    differing_ids,
    find_mismatches,
    id_runs,
    learn_scale,
    narrow_mismatches,
)
from checks.world import Range

bounds = st.tuples(st.integers(-(2**40), 2**60), st.integers(0, 2**30))


@given(bounds, st.integers(0, 40), st.integers(0, 2**60), st.integers(1, 4), st.integers(0, 5))
def test_ranges_are_aligned_disjoint_and_reach_both_ends(
    low_span: tuple[int, int], power: int, cursor: int, newest: int, rotating: int
) -> None:
    low, high = low_span[0], low_span[0] + low_span[1]
    size = 1 << power

    choice = choose_blocks(low, high, size, cursor=cursor, newest=newest, rotating=rotating)

    assert choice.ranges[0][0] == FLOOR
    assert choice.ranges[-1][1] == UNSIGNED_CEILING
    assert all(a[1] <= b[0] for a, b in zip(choice.ranges, choice.ranges[1:], strict=False))
    inner = choice.ranges[1:-1]
    assert all(span[0] % size == 0 and span[1] - span[0] == size for span in inner)
    assert any(span[0] <= high < span[1] for span in inner)


@given(st.integers(0, 50), st.integers(0, 400), st.integers(1, 3), st.integers(1, 4))
def test_every_old_block_has_its_turn(low: int, length: int, newest: int, rotating: int) -> None:
    high, cursor, seen = low + length, 0, set()
    for _ in range((high // 8 - low // 8 + 1) // rotating + 2):
        choice = choose_blocks(low, high, 8, cursor=cursor, newest=newest, rotating=rotating)
        cursor = choice.cursor
        seen |= {id_ for span in choice.ranges[1:-1] for id_ in range(*span)}

    assert seen >= set(range(low, high + 1))


def test_unsigned_ids_at_the_end_of_the_type_are_in_range() -> None:
    choice = choose_blocks(1, 2**64 - 1, 2**60, cursor=0, newest=1, rotating=1)

    assert choice.ranges[-1][1] == UNSIGNED_CEILING


@given(st.integers(0, 2**62), st.integers(0, 2**40), st.integers(0, 10**9), st.integers(1, 10**5))
def test_a_width_is_a_power_of_two_and_holds_its_target_when_ids_are_dense(
    low: int, length: int, rows: int, target: int
) -> None:
    size = block_width(low, low + length, rows, target)

    assert size.bit_count() == 1
    assert 2 * size > target
    assert block_width(0, 2**30 - 1, 2**30, 4096) == 4096
    assert block_width(0, 2**60 - 1, 2**30, 4096) == 4096 * 2**30


@given(
    st.lists(st.integers(0, 2000), max_size=60),
    st.lists(st.integers(0, 2000), max_size=60),
    st.integers(1, 10),
)
def test_halving_finds_exactly_the_ids_that_differ(
    one: list[int], other: list[int], leaf: int
) -> None:
    source, mirror = sorted(set(one)), sorted(other)

    def counts(ranges: Sequence[Range]) -> tuple[list[int], list[int]]:
        return [
            [sum(low <= id_ < high for id_ in ids) for low, high in ranges]
            for ids in (source, mirror)
        ]  # type: ignore[return-value]

    whole = [(0, 2048)]
    wide = find_mismatches(whole, *counts(whole))
    leaves = narrow_mismatches(wide, counts, leaf=leaf, breadth=10_000).spans
    found = [
        id_
        for low, high in leaves
        for id_ in differing_ids(
            [i for i in source if low <= i < high], [i for i in mirror if low <= i < high], 10_000
        )
    ]

    truth = differing_ids(source, mirror, 10_000)
    assert set(found) <= set(truth)
    assert bool(found) == bool(wide) or len(source) == len(mirror)
    assert list(leaves) == sorted(set(leaves))


def halved(
    source: Sequence[int], mirror: Sequence[int], *, leaf: int, breadth: int
) -> tuple[Narrowed, list[int]]:
    """What halving one range of all ids comes to, and how many ranges each step asked for."""
    asked = []

    def counts(ranges: Sequence[Range]) -> tuple[list[int], list[int]]:
        asked.append(len(ranges))
        here, there = (
            [sum(low <= id_ < high for id_ in ids) for low, high in ranges]
            for ids in (source, mirror)
        )
        return here, there

    whole = [(0, 4096)]
    return narrow_mismatches(
        find_mismatches(whole, *counts(whole)), counts, leaf=leaf, breadth=breadth
    ), asked


def test_halving_asks_for_no_more_ranges_than_it_may_and_says_so() -> None:
    found, asked = halved(range(4096), range(0, 4096, 2), leaf=1, breadth=4)

    assert len(found.spans) == 4
    assert not found.whole
    assert max(asked) <= 8


@pytest.mark.parametrize(("breadth", "whole"), [(2, False), (3, True)])
def test_more_small_mismatches_than_may_be_are_not_whole(breadth: int, whole: bool) -> None:
    """None of them is halved, so no step has left one out."""
    small = [Mismatch((low, low + 4), 2, 1) for low in (0, 8, 16)]

    found = narrow_mismatches(small, lambda _: ((), ()), leaf=4, breadth=breadth)

    assert (len(found.spans), found.whole) == (breadth, whole)


@pytest.mark.parametrize(
    ("lost", "breadth", "whole"),
    [
        pytest.param({7}, 1, True, id="one"),
        pytest.param({7, 4000}, 2, True, id="as many as may be"),
        pytest.param({7, 90, 4000}, 2, False, id="one too many"),
    ],
)
def test_halving_is_whole_unless_a_mismatch_was_left_out(
    lost: set[int], breadth: int, whole: bool
) -> None:
    source = range(4096)

    found, _ = halved(source, [id_ for id_ in source if id_ not in lost], leaf=1, breadth=breadth)

    assert found.whole is whole
    assert len(found.spans) == breadth
    assert all(any(low <= id_ < high for id_ in lost) for low, high in found.spans)


@pytest.mark.parametrize(
    ("source", "mirror"),
    [
        pytest.param(range(4096), (), id="an empty mirror"),
        pytest.param((), range(4096), id="an empty source"),
    ],
)
def test_a_range_with_rows_on_one_side_alone_is_not_halved(
    source: Sequence[int], mirror: Sequence[int]
) -> None:
    assert halved(source, mirror, leaf=1, breadth=1) == (Narrowed(((0, 4096),), True), [1])


@pytest.mark.parametrize(
    ("source", "mirror", "limit", "found"),
    [
        pytest.param([1, 2, 3], [1, 3], 10, (2,), id="missing"),
        pytest.param([1], [1, 2], 10, (2,), id="extra"),
        pytest.param([1, 2], [1, 2, 2], 10, (2,), id="doubled"),
        pytest.param([1, 2, 3], [1, 3, 4], 3, (2,), id="nothing past the end of a cut list"),
        pytest.param([], [], 10, (), id="empty"),
        pytest.param([5], [5, 5, 5], 3, (5,), id="one id more often than a list is long"),
        pytest.param([5, 5, 5], [5], 3, (5,), id="at the source, too"),
        pytest.param([5, 5, 5], [5, 5, 5], 3, (), id="both cut at one id"),
        pytest.param([5, 5], [4, 5, 5], 3, (4,), id="perhaps as often"),
        pytest.param([5, 5, 5], [4, 5], 3, (4, 5), id="surely not as often"),
        pytest.param([4, 5], [5, 6, 6], 3, (4, 6), id="surely not there"),
        pytest.param([4, 5, 5], [6, 6, 6], 3, (4, 5), id="each cut at its own end"),
    ],
)
def test_ids_differ_by_number(
    source: list[int], mirror: list[int], limit: int, found: tuple[int, ...]
) -> None:
    assert differing_ids(source, mirror, limit) == found


@pytest.mark.parametrize(
    ("ids", "runs"),
    [
        pytest.param([], [], id="none"),
        pytest.param([5], [(5, 5)], id="one"),
        pytest.param([1, 2, 3, 7, 9, 10], [(1, 3), (7, 7), (9, 10)], id="runs"),
    ],
)
def test_consecutive_ids_are_told_as_runs(ids: list[int], runs: list[Range]) -> None:
    assert list(id_runs(ids)) == runs


FAR = 2**62
KNOTS = IdScale(((10, 10), (20, 20), (1_000_020, 30), (1_000_030, 40)))


def count_in(ids: Sequence[int]) -> CountRows:
    """Count *ids*, ascending, in ranges."""
    return lambda spans: [bisect_left(ids, high) - bisect_left(ids, low) for low, high in spans]


def largest_and_mean(ids: Sequence[int], rows: int) -> tuple[int, float]:
    """Rows of the largest block, and of a block on average, with about *rows* in each."""
    scale = learn_scale(ids[0], ids[-1], count_in(ids))
    size = block_width(scale.place(ids[0]), scale.place(ids[-1]), len(ids), rows)
    blocks = Blocks(ids[0], ids[-1], size, scale)
    counts = count_in(ids)([blocks.ids_of(number) for number in blocks.numbers])
    assert sum(counts) == len(ids)
    return max(counts), len(ids) / len(counts)


@pytest.mark.parametrize("scale", [EVEN_IDS, KNOTS, IdScale(((-FAR, -FAR), (FAR, -FAR + 1_000)))])
@given(st.integers(-(2**63), 2**64))
def test_a_place_is_that_of_its_first_id_and_places_ascend(scale: IdScale, place: int) -> None:
    first = scale.id_at(place)

    assert scale.place(first) == place
    assert scale.place(first - 1) == place - 1
    assert scale.id_at(scale.place(place)) <= place


def test_places_are_as_far_apart_as_ids_outside_of_the_knots_and_closer_in_a_gap() -> None:
    assert [KNOTS.place(id_) for id_ in (3, 10, 15)] == [3, 10, 15]
    assert [KNOTS.place(id_) for id_ in (20, 100_019, 100_020, 500_020)] == [20, 20, 21, 25]
    assert [KNOTS.place(id_) for id_ in (1_000_020, 1_000_050)] == [30, 60]
    assert KNOTS.width((15, 1_000_025)) == 20


@pytest.mark.parametrize(
    "ids",
    [
        pytest.param([*range(1, 50_001), FAR], id="one far above"),
        pytest.param([-FAR, *range(1, 50_001)], id="one far below"),
        pytest.param([*range(1, 50_001), 2**31 - 1], id="the highest of its type"),
        pytest.param(
            [*range(1, 25_001), *range(7 << 50, (7 << 50) + (25_000 << 22), 1 << 22)],
            id="numbers of two kinds",
        ),
        pytest.param(
            [*range(1, 25_001), *range(25_001, 2_525_001, 100)], id="half of them are sparse"
        ),
        pytest.param([number**2 for number in range(50_000)], id="ever sparser"),
        pytest.param([number << 22 for number in range(50_000)], id="evenly sparse"),
        pytest.param([*range(1, 50_001)], id="without gaps"),
    ],
)
def test_no_block_has_far_more_rows_than_others_however_ids_lie(ids: list[int]) -> None:
    largest, mean = largest_and_mean(ids, 1_000)

    assert 400 <= mean <= 1_100
    assert largest <= 3_200


@pytest.mark.parametrize("ids", [[5], [1, 2, 3], [1, FAR], [*range(-5_000, 5_000)]])
def test_few_ids_and_ids_without_gaps_have_blocks(ids: list[int]) -> None:
    largest, _ = largest_and_mean(ids, 100)

    assert largest <= 128


def test_ids_without_gaps_are_their_own_places() -> None:
    assert learn_scale(1, 50_000, count_in(range(1, 50_001))) == EVEN_IDS
    assert learn_scale(0, 0, lambda spans: [0] * len(spans)) == EVEN_IDS


def test_a_scale_of_a_mirror_without_rows_or_with_others_is_one() -> None:
    """The source has ids that the mirror does not have."""
    nothing = learn_scale(1, FAR, lambda spans: [0] * len(spans))
    fewer = learn_scale(1, FAR, count_in([*range(1, 5_001)]))

    for scale in (nothing, fewer):
        places = [scale.place(id_) for id_ in (1, 2_000, 5_000, FAR)]
        assert places == sorted(places)
        assert scale.id_at(scale.place(FAR)) <= FAR


def test_what_a_scale_asks_is_bounded() -> None:
    """Whatever the ids are: here half of all rows of each part are in its first part."""
    asked = list[int]()
    ids = sorted({(1 << 60) >> (number % 60) | number for number in range(20_000)})

    def count(spans: Sequence[Range]) -> Sequence[int]:
        asked.append(len(spans))
        return count_in(ids)(spans)

    scale = learn_scale(ids[0], ids[-1], count)

    assert len(asked) <= 1 + PASSES
    assert max(asked) <= HEAVY * PARTS
    assert len(scale.knots) <= MOST_KNOTS


def test_the_newest_blocks_and_the_edges_leave_out_the_other_blocks() -> None:
    blocks = Blocks(10, 1_000_029, 10, KNOTS)

    assert [blocks.ids_of(number) for number in blocks.numbers] == [
        (10, 20),
        (20, 1_000_020),
        (1_000_020, 1_000_030),
    ]
    assert blocks.newest(1) == ((FLOOR, 10), (1_000_020, 1_000_030), (1_000_030, UNSIGNED_CEILING))
    assert blocks.newest(0) == ((FLOOR, 10), (1_000_030, UNSIGNED_CEILING))
