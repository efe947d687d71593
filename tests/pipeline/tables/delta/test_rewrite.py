"""Which files of a mirror are written anew: none for long that a reader would notice, few often."""

import math
import random

import pytest

from pipeline.delta.log import ActiveFile
from pipeline.tables.delta.rewrite import AT_ONCE, BORNE, OPENING, TOGETHER, files_to_compact
from tests.pipeline.apply.keeping import file

LARGE = 1_000_000
MIRROR = 4 * LARGE


def files(*sizes: tuple[int, int]) -> list[ActiveFile]:
    """Files of so many rows, of which so many went."""
    return [file(str(n), *one) for n, one in enumerate(sizes)]


def count_rows(found: list[ActiveFile] | tuple[ActiveFile, ...]) -> int:
    return sum(one.records or 0 for one in found)


def left(found: list[ActiveFile] | tuple[ActiveFile, ...]) -> int:
    return count_rows(found) - sum(int((one.vector or {}).get("cardinality", 0)) for one in found)


def excess(found: list[ActiveFile]) -> float:
    """What reading costs beyond the fresh mirror, as a share of that."""
    fresh = left(found) + OPENING * max(1, math.ceil(left(found) / LARGE))
    return (count_rows(found) + OPENING * len(found) - fresh) / fresh


@pytest.mark.parametrize(
    ("sizes", "expected"),
    [
        pytest.param([(10, 0)] * (TOGETHER - 1), 0, id="few small files are well"),
        pytest.param([(10, 0)] * TOGETHER, TOGETHER, id="as many as are worth joining"),
        pytest.param([(10, 0)] * 9 + [(500_000, 0)] * 9, 0, id="sizes are counted apart"),
        pytest.param([(5_000_000, 0)] * 40, 0, id="large files stay however many there are"),
        pytest.param([(100, 30)], 0, id="some deleted rows are borne"),
        pytest.param([(100, 31), (100, 0)], 1, id="a file with many deleted rows goes by itself"),
        pytest.param([(5_000_000, 2_000_000)], 1, id="even one of more rows than a turn writes"),
        pytest.param([(900_000, 0)] * 12, 2, id="no more rows than a turn writes"),
        pytest.param([(5_000_000, 700_000)] * 8, 0, id="some in each large file are borne"),
        pytest.param([(LARGE, 250_000)] * 8, 2, id="not as many in each of them"),
        pytest.param([(5_000_000, 1_250_000)] * 8, 1, id="one by one where they are large"),
        pytest.param(
            [(5, 0)] * 5 + [(5_000_000, 1_250_000)] * 8, 5, id="a small one keeps no large one back"
        ),
        pytest.param(
            [(9_000, 0)] * 9 + [(10_000, 0)] * 9, 13, id="more small files than so few rows bear"
        ),
        pytest.param([(9_000, 0)] * 9 + [(LARGE, 0)], 0, id="many rows bear as many"),
    ],
)
def test_worn_files_are_small_and_many_or_full_of_deleted_rows(
    sizes: list[tuple[int, int]], expected: int
) -> None:
    found = files_to_compact(files(*sizes))

    assert len(found) == expected
    assert len(found) < 2 or count_rows(found) <= AT_ONCE


def test_a_small_file_that_nothing_is_joined_with_is_not_written_again_and_again() -> None:
    large = [(5_000_000, 1_250_000)] * 8

    (found,) = files_to_compact(files((5, 0), *large))

    assert count_rows([found]) == 5_000_000


def test_files_that_cannot_become_larger_are_left() -> None:
    """Rows of a kilobyte: a file that is written anew has half a million of them."""
    halves = files(*[(500_000, 0)] * 20)

    assert files_to_compact(halves)
    assert not files_to_compact(halves, whole=250_000)


def test_what_was_lost_goes_whatever_a_file_can_become() -> None:
    assert len(files_to_compact(files((500_000, 200_000)), whole=250_000)) == 1


@pytest.mark.parametrize("seed", range(20))
def test_writing_worn_files_anew_comes_to_an_end_at_which_reading_costs_little_more(
    seed: int,
) -> None:
    drawn = random.Random(seed)
    mirror = files(
        *[
            (size := int(10 ** drawn.uniform(0, 6.7)), int(size * drawn.uniform(0, 0.6)))
            for _ in range(drawn.randrange(1, 300))
        ]
    )
    whole = drawn.choice([LARGE, 150_000])
    rounds = 0
    while taken := files_to_compact(mirror, whole):
        mirror = _compacted(mirror, taken, f"{rounds}", whole)
        rounds += 1
        assert rounds < 500

    assert excess(mirror) <= BORNE or excess(mirror) * left(mirror) <= TOGETHER * OPENING


@pytest.mark.parametrize(
    ("window", "written"),
    [pytest.param(10_000, 6, id="recent keys"), pytest.param(MIRROR, 6, id="uniform keys")],
)
def test_after_any_number_of_small_turns_reading_costs_little_and_little_was_written(
    window: int, written: float
) -> None:
    """A thousand of twenty keys, and upkeep as seldom as the service has it."""
    drawn = random.Random(1)
    mirror = files(*[(LARGE, 0)] * (MIRROR // LARGE))
    where: dict[int, str] = {}
    turned = made = 0
    for turn in range(1_000):
        keys = drawn.sample(range(MIRROR - window, MIRROR), 20)
        mirror = _turned(mirror, where, keys, f"turn {turn}")
        turned += len(keys)
        if turn % 60 == 59:
            assert excess(mirror) <= 0.1
            while taken := files_to_compact(mirror):
                mirror = _compacted(mirror, taken, f"made {turn}", LARGE)
                made += left(taken)
                went = {one.path for one in taken}
                where = {k: f"made {turn}/0" if v in went else v for k, v in where.items()}

    assert made <= written * turned, made / turned


def _turned(
    mirror: list[ActiveFile], where: dict[int, str], keys: list[int], name: str
) -> list[ActiveFile]:
    """Rows of *keys* go from where they are, into a file of their own."""
    gone: dict[str, int] = {}
    for key in keys:
        stood = where.get(key, str(key // LARGE))
        gone[stood] = gone.get(stood, 0) + 1
        where[key] = name
    after = []
    for one in mirror:
        went = count_rows([one]) - left([one]) + gone.get(one.path, 0)
        if one.path not in gone:
            after.append(one)
        elif went < count_rows([one]):
            after.append(file(one.path, count_rows([one]), went))
    return [*after, file(name, len(keys))]


def _compacted(
    mirror: list[ActiveFile], taken: tuple[ActiveFile, ...], name: str, whole: int
) -> list[ActiveFile]:
    """What a compaction makes of it: files of *whole* rows, or of all where that is a large one."""
    kept, rest = [one for one in mirror if one not in taken], left(taken)
    most = rest if whole == LARGE else 2 * whole
    made = [
        file(f"{name}/{n}", min(most, rest - first))
        for n, first in enumerate(range(0, rest, most or 1))
    ]
    return [*kept, *made]
