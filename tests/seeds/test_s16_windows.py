"""S16: windows closed on both sides, in milliseconds, lose what falls between or take it twice.

Ours are of batches and of offsets, whole numbers, half-open; and no file is taken by its time.
"""

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.pipeline.files.folder import NOW, SETTLE, LogFolder, set_time

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


@pytest.mark.parametrize(
    ("windows", "seconds"),
    [
        pytest.param([(0, 299.999), (300, 599.999)], 299.9995, id="between two windows"),
        pytest.param([(0, 300), (300, 600)], 300, id="on the edge of two"),
        pytest.param([(0, 300), (300, 600)], -86_400, id="before all: a clock that is slow"),
        pytest.param([(0, 300), (300, 600)], 86_400, id="after all: a clock that is fast"),
    ],
)
def test_s16_a_file_is_taken_once_whatever_its_time_is_to_the_windows(
    tmp_path_factory: pytest.TempPathFactory, windows: list[Window], seconds: float
) -> None:
    with LogFolder(tmp_path_factory.mktemp("s16")) as folder:
        folder.settled()
        path = folder.write("a.json", b'{"id": 1}\n')
        set_time(path, NOW + timedelta(seconds=seconds))

        folder.sweep(10, SETTLE)

        assert taken_by_the_seed(seconds, windows) != 1
        assert folder.taken() == {"a.json": 1}


@settings(max_examples=20)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=8), st.sets(st.integers(0, 80)))
def test_s16_windows_of_offsets_tell_each_file_once(
    tmp_path_factory: pytest.TempPathFactory, rows: list[int], cuts: set[int]
) -> None:
    with LogFolder(tmp_path_factory.mktemp("s16")) as folder:
        for number, count in enumerate(rows):
            folder.write(f"{number}.json", b'{"id": 1}\n' * count)
        folder.settled()
        end = folder.ledger.count().end
        stops = sorted({0, end} | {cut for cut in cuts if cut < end})

        told = [one for a, z in pairwise(stops) for one in folder.ledger.rows_between(a, z)]

    assert sum(one.files for one in told) == len(rows)
    assert sum(one.rows for one in told) == sum(rows)
