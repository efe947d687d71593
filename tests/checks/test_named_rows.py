"""Rows that keys name: subtraction, containment and overlap are those of sets of ids."""

import re

from hypothesis import given
from hypothesis import strategies as st

from checks.named_rows import are_within, has_overlap, subtract_rows

SPANS = st.lists(st.tuples(st.integers(-9, 30), st.integers(0, 6)), max_size=12)


@given(SPANS, SPANS)
def test_rows_that_ranges_leave_of_others_are_those_that_they_do_not_hold(
    some: list[tuple[int, int]], others: list[tuple[int, int]]
) -> None:
    def names(spans: list[tuple[int, int]]) -> tuple[str, ...]:
        return tuple(f"s/t:{low}" + (f"-{low + n}" if n else "") for low, n in spans)

    def rows(spans: list[tuple[int, int]]) -> set[int]:
        return {id_ for low, n in spans for id_ in range(low, low + n + 1)}

    left = subtract_rows(names(some), names(others))

    pairs = [re.fullmatch(r"s/t:(-?\d+)(?:-(-?\d+))?", one) for one in left]
    found = [(int(one[1]), int(one[2] or one[1])) for one in pairs if one]
    assert rows([(low, high - low) for low, high in found]) == rows(some) - rows(others)
    assert are_within(names(some), names(others)) == (bool(some) and rows(some) <= rows(others))
    assert have_overlap(names(some), names(others)) == bool(rows(some) & rows(others))


def have_overlap(some: tuple[str, ...], others: tuple[str, ...]) -> bool:
    """Whether any one key shares a row."""
    return any(has_overlap(one, others) for one in some)
