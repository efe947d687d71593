"""Rows that are sent again with refused ones land once, wherever batches end: by all cuts."""

from pathlib import Path

import pytest

from pipeline.landing.source_holds import RESENT
from pipeline.reports import LandingReport
from tests.builders.harness import GIB4, LandingHarness
from tests.pipeline.landing.test_refused_rows import land_batches


def resent(harness: LandingHarness, cuts: frozenset[int]) -> list[LandingReport]:
    """Rows of a transaction come again with two refused ones; a batch ends before each of *cuts*.

    The rounds are shorter than the time in which a refused row may stay alone.
    """
    sent = [*range(-900, 0, 100)]
    for pos in sent:
        if pos not in (-700, -600, -300):
            harness.topics.put("a", GIB4 + pos, f"at {pos}")
    land_batches(harness, 6)
    found = []
    for number, pos in enumerate(sent):
        if number in cuts:
            found.append(harness.land())
            harness.now += RESENT / 20
        harness.topics.put("a", GIB4 + pos, f"at {pos}")
    return [*found, harness.land()]


@pytest.mark.parametrize("most", [1_000, 3], ids=["whole batches", "batches of three rows"])
def test_f140_wherever_batches_cut_what_is_sent_again_it_lands_once_and_nothing_is_held(
    tmp_path: Path, most: int
) -> None:
    for cuts in (frozenset(), *(frozenset({n}) for n in range(1, 9)), frozenset(range(1, 9))):
        harness = LandingHarness(tmp_path / f"{sorted(cuts)}", most=most, names="a")

        found = resent(harness, cuts)
        found += land_batches(harness, 15)

        assert [hold for one in found for hold in one.holds] == [], cuts
        assert found[-1].gaps == ()
        again = [(1, GIB4 + pos, number) for number, pos in enumerate(range(-900, 0, 100), 6)]
        assert harness.rows("a")[6:] == again, cuts
