"""S16: windows closed on both sides, in milliseconds, lose what falls between or take it twice."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

Window = tuple[float, float]


def taken_by_the_seed(written: float, windows: list[Window]) -> int:
    """How many of the closed windows `[start, end]` take a file."""
    return sum(start <= written <= end for start, end in windows)


def taken_by_slices(batch: int, applied: list[int]) -> int:
    """How many of the slices `(after, until]` between successive applied batches take a batch."""
    return sum(after < batch <= until for after, until in pairwise(applied))


@pytest.mark.parametrize(
    ("windows", "written", "times"),
    [
        pytest.param([(0, 299.999), (300, 599.999)], 299.9995, 0, id="lost between two windows"),
        pytest.param([(0, 300), (300, 600)], 300, 2, id="or taken by both"),
    ],
)
def test_s16_the_seeds_windows_lose_or_repeat(
    windows: list[Window], written: float, times: int
) -> None:
    assert taken_by_the_seed(written, windows) == times


@given(st.lists(st.integers(0, 50), min_size=1, unique=True).map(sorted))
def test_s16_each_batch_is_in_exactly_one_slice(stops: list[int]) -> None:
    applied = [-1, *stops]

    counts = {batch: taken_by_slices(batch, applied) for batch in range(stops[-1] + 1)}

    assert set(counts.values()) == {1}
